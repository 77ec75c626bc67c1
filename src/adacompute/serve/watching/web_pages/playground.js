// Asks the gateway a question, and shows its samples, votes and decisions as they come.
const EXAMPLES = [
  "What is the capital of Vietnam?",
  "What is 17 times 23?",
  "A train goes 180 km in 2.5 hours. What is its average speed in km/h?",
  "Which is heavier, a kilogram of feathers or a pound of iron?",
  "How many prime numbers are there below 30?",
];
const COLORS = ["c0", "c1", "c2", "c3", "c4"]; // of the first answers; all later ones share the last
const MOST_BYTES = 2 ** 25; // of one reply, which is given up then
const STEPS = 40; // of the slider, where it is not in samples
const TEMPERATURE = 0.7;
const base = location.origin + location.pathname.replace(/\/+$/, ""); // nothing is fetched from an address with a key in it
const state = { about: null, key: "", run: null };

const count = (value) => Math.round(value).toLocaleString("en-US");
const plain = (value, digits = 3) => Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 12 });
const plural = (n, one) => `${plain(n)} ${one}${n === 1 ? "" : "s"}`;
const percent = (share) => `${(share * 100).toFixed(0)}%`;
const color = (vote) => (vote === null || vote === undefined ? "void" : COLORS[Math.min(vote, COLORS.length - 1)]);
const amount = (value, unit) => (unit === "money" ? `${plain(value)} ${state.about.budget.currency}` : plural(Math.round(value), "token"));

function show(text, bad = true) {
  $("#banners").replaceChildren(...(text ? [el("p", { text, ...(bad ? { class: "problem" } : {}) })] : []));
}

function headers(more = {}) {
  return state.key ? { ...more, authorization: `Bearer ${state.key}` } : more;
}

async function problem(reply) {
  let message = "";
  try { message = (await reply.json()).error.message; } catch { /* not in the usual shape */ }
  return { status: reply.status, message: message || `the gateway answered ${reply.status}` };
}

// ---------------------------------------------------------------- what the gateway is

async function meet() {
  let reply;
  try {
    reply = await fetch(`${base}/playground/data`, { headers: headers(), credentials: "omit", cache: "no-store" });
  } catch {
    return show("The gateway can't be reached. Reload this page once it is back.");
  }
  if (reply.status === 401) {
    if (state.key) show("This gateway doesn't know the key; give another one.");
    return askForKey();
  }
  if (!reply.ok) return show((await problem(reply)).message);
  state.about = await reply.json();
  show("");
  $("#entry").hidden = true;
  $("#key").value = "";
  $("#form").hidden = $("#same").hidden = false;
  setUp();
  $("#question").focus({ preventScroll: true });
}

function askForKey() {
  state.key = "";
  $("#entry").hidden = false;
  $("#form").hidden = $("#same").hidden = true;
  $("#key").focus();
}

function setUp() {
  const { about } = state, { budget } = about, slider = $("#budget");
  $("#serving").textContent = [about.policy, about.modes.length ? `modes ${about.modes.join(", ")}` : about.model, about.mode === "adaptive" ? "" : `${about.mode} mode`].filter(Boolean).join(" · ");
  const inSamples = budget.unit === "samples";
  Object.assign(slider, inSamples ? { min: 1, max: budget.most, step: 0.25 } : { min: -STEPS, max: STEPS, step: 1 });
  slider.value = inSamples ? budget.amount : 0;
  slider.disabled = !about.adjustable;
  $("#budget-note").hidden = about.adjustable;
  $("#budget-note").textContent = "The budget can't be chosen here: the gateway's policy or its fixed price decides.";
  const names = about.modes.length ? [about.every, ...about.modes] : about.models;
  $("#model").replaceChildren(...names.map((name) => el("option", { value: name, text: name === about.every && about.modes.length ? "all modes" : name })));
  if (about.model && names.includes(about.model)) $("#model").value = about.model;
  $("#model-field").hidden = names.length < 2;
  $("#key-hint").hidden = !about.keys;
  if (!chosenModel()) show("The upstream can't be reached, or lists no model. Ask again once it is up, or start the gateway with --model NAME.");
  update();
}

// the budget of the slider; other units than samples in equal ratios around the gateway's own
function chosenBudget() {
  const { budget } = state.about, value = Number($("#budget").value);
  if (budget.unit === "samples") return value;
  const ratio = budget.most / budget.amount;
  return value ? Number((budget.amount * ratio ** (value / STEPS)).toPrecision(2)) : budget.amount;
}

function budgetText(value) {
  const { unit, currency } = state.about.budget;
  return unit === "samples" ? `${value}` : unit === "tokens" ? `${value} tokens` : `${Number((value * 1000).toPrecision(6))} ${currency} per 1000`;
}

function readBudget(value) {
  const { unit } = state.about.budget;
  return unit === "samples" ? plural(value, "sample") : budgetText(value);
}

const chosenModel = () => $("#model").value || (state.about ? state.about.model : "");

function body() {
  const model = chosenModel();
  return { ...(model ? { model } : {}), messages: [{ role: "user", content: $("#question").value.trim() || EXAMPLES[0] }], temperature: TEMPERATURE };
}

function update() {
  const { about } = state, running = Boolean(state.run);
  $("#ask").disabled = running || !about || !$("#question").value.trim();
  $("#ask").hidden = running;
  $("#stop").hidden = !running;
  $("#model").disabled = running;
  for (const button of document.querySelectorAll("#examples button")) button.disabled = running || !about;
  $("#budget").disabled = running || !about || !about.adjustable;
  if (!about) return;
  const words = readBudget(chosenBudget());
  $("#budget-text").textContent = words;
  $("#budget").setAttribute("aria-valuetext", words);
  code();
}

// ---------------------------------------------------------------- the same request elsewhere

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function code() {
  const { about } = state, request = body(), budget = about.adjustable ? budgetText(chosenBudget()) : "";
  $("#curl").textContent = [
    `curl ${quoted(`${base}/v1/chat/completions`)}`,
    ...(about.keys ? [`-H "authorization: Bearer $ADACOMPUTE_KEY"`] : []),
    "-H 'content-type: application/json'",
    ...(budget ? [`-H ${quoted(`x-adacompute-budget: ${budget}`)}`] : []),
    `-d ${quoted(JSON.stringify(request))}`,
  ].join(" \\\n  ");
  const text = (value) => JSON.stringify(value); // also a literal of Python
  $("#python").textContent = [
    ...(about.keys ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${text(`${base}/v1`)}, api_key=${about.keys ? 'os.environ["ADACOMPUTE_KEY"]' : '"none"'})`,
    "reply = client.chat.completions.create(",
    `    model=${text(request.model || "default")},`,
    `    messages=[{"role": "user", "content": ${text(request.messages[0].content)}}],`,
    `    temperature=${TEMPERATURE},`,
    ...(budget ? [`    extra_headers={"x-adacompute-budget": ${text(budget)}},`] : []),
    ")",
    "print(reply.choices[0].message.content)",
    'print(reply.model_extra["adacompute"]["votes"])',
  ].join("\n");
}

// ---------------------------------------------------------------- one question

function clear() {
  for (const place of ["#events", "#tally", "#costs", "#notes", "#votes"]) $(place).replaceChildren();
  $("#answer").textContent = "";
  $("#answer").classList.remove("reply");
  $("#verdict").textContent = "The vote so far";
  $("#result").hidden = true;
  $("#course").hidden = false;
}

async function ask() {
  const question = $("#question").value.trim();
  if (!question || state.run || !state.about) return;
  if (!chosenModel()) await meet(); // the upstream may be there by now
  if (!chosenModel() || state.run) return;
  const run = { stop: new AbortController(), rows: [], ended: false, text: "", since: performance.now() };
  state.run = run;
  show("");
  clear();
  const ticking = setInterval(() => wait(run), 1000);
  wait(run);
  update();
  $("#stop").focus({ preventScroll: true });
  try {
    const reply = await fetch(`${base}/v1/chat/completions`, {
      method: "POST",
      credentials: "omit",
      signal: run.stop.signal,
      headers: headers({
        "content-type": "application/json",
        "x-adacompute-events": "true",
        ...(state.about.adjustable ? { "x-adacompute-budget": budgetText(chosenBudget()) } : {}),
      }),
      body: JSON.stringify({ ...body(), stream: true }),
    });
    if (!reply.ok) throw await problem(reply);
    await read(reply, (event) => handle(run, event));
    if (!run.complete) throw { message: "the gateway's reply was cut off; ask again" };
  } catch (error) {
    $("#waiting").textContent = "";
    if (error.name === "AbortError") $("#waiting").textContent = "stopped: the samples under way were cancelled";
    else if (error.status === 401) {
      show("This gateway doesn't know the key any more; give another one.");
      askForKey();
    } else show(error instanceof TypeError ? "The connection to the gateway broke off; ask again." : `No answer: ${error.message}`);
    $("#course").hidden = !run.rows.length && !$("#waiting").textContent;
    if (run.rows.length) finish(run, null);
  } finally {
    clearInterval(ticking);
    state.run = null;
    update();
    ($("#entry").hidden ? $("#question") : $("#key")).focus({ preventScroll: true });
  }
}

// what is waited for, and for how long
function wait(run) {
  const seconds = Math.floor((performance.now() - run.since) / 1000);
  const what = run.ended ? "" : run.rows.length ? "waiting for the next sample" : "waiting for the first sample";
  $("#waiting").textContent = what && seconds > 2 ? `${what}, ${seconds} s` : what;
}

// server-sent events: each a JSON object, or [DONE]
async function read(reply, handleEvent) {
  const reader = reply.body.getReader(), decoder = new TextDecoder();
  let rest = "", bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    bytes += value.length;
    if (bytes > MOST_BYTES) {
      await reader.cancel();
      throw { message: "the reply is longer than this page shows" };
    }
    rest += decoder.decode(value, { stream: true });
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data && data !== "[DONE]") handleEvent(JSON.parse(data));
    }
  }
}

function handle(run, chunk) {
  if (chunk.error) throw chunk.error;
  const event = chunk.adacompute_event;
  if (!event) {
    const choice = (chunk.choices || [])[0];
    if (choice && choice.delta && choice.delta.content) run.text += choice.delta.content;
    if (chunk.adacompute) { run.complete = true; finish(run, chunk.adacompute); }
    return;
  }
  if (event.type === "sample") addSample(run, event);
  else if (event.type === "decision") addDecision(run, event);
  else if (event.type === "done") run.done = event;
}

function addSample(run, sample) {
  const mark = el("i", { class: "pending" });
  const told = [sample.mode, sample.tokens === null ? "" : plural(sample.tokens, "token"), sample.unit === "money" ? amount(sample.cost, "money") : "", `${sample.seconds.toFixed(1)} s`, sample.finish_reason === "length" ? "cut off" : ""];
  const answer = el("b", { text: "…" });
  const text = el("p", { class: "short", text: sample.text + (sample.cut ? " …" : "") || "(no text)" });
  const more = el("button", { type: "button", text: "Show all of it", "aria-expanded": "false", hidden: "" });
  more.onclick = () => {
    const all = text.classList.toggle("short");
    more.textContent = all ? "Show all of it" : "Show less";
    more.setAttribute("aria-expanded", String(!all));
  };
  const row = el("li", { class: "sample" }, mark, el("div", { class: "top" }, answer, el("span", { text: [`sample ${sample.index + 1}`, ...told].filter(Boolean).join(" · ") })), text, more);
  run.rows.push({ mark, answer, vote: null });
  $("#events").append(row);
  more.hidden = text.scrollHeight <= text.clientHeight + 1;
  run.since = performance.now();
  if ($("#result").hidden) {
    $("#result").hidden = false;
    if ($("#result").getBoundingClientRect().top > innerHeight - 200) $("#result").scrollIntoView({ block: "start" });
  }
  squares(run);
}

function addDecision(run, decision) {
  decision.answers.forEach(({ answer, vote }, i) => {
    const row = run.rows[i];
    row.vote = vote;
    row.said = answer;
    row.mark.setAttribute("class", color(vote));
    row.answer.textContent = answer === null ? "no answer" : answer;
    row.answer.hidden = decision.agreement === null;
  });
  const goesOn = decision.next.length > 0;
  $("#events").append(el("li", { class: goesOn ? "decision" : "decision last", text: decision.words[0].toUpperCase() + decision.words.slice(1) + "." }));
  run.pending = goesOn ? decision.next.reduce((sum, draw) => sum + draw.count, 0) + decision.samples : 0;
  run.ended = !goesOn;
  wait(run);
  if (decision.leader !== null) $("#answer").textContent = decision.leader;
  squares(run);
  tally(run, decision);
}

function squares(run) {
  const marks = run.rows.map(({ vote, said }, i) => el("i", { class: said === undefined ? "pending" : color(vote), title: `sample ${i + 1}: ${said === undefined ? "is being read" : said === null ? "no answer" : said}` }));
  const waiting = Math.max(0, (run.pending || 0) - run.rows.length);
  marks.push(...Array.from({ length: waiting }, () => el("i", { class: "pending", title: "under way" })));
  $("#votes").replaceChildren(...marks);
  $("#votes").setAttribute("aria-label", run.rows.map(({ said }, i) => `sample ${i + 1}: ${said || "no answer"}`).join(", "));
}

function tally(run, decision) {
  const groups = new Map();
  for (const { vote, said } of run.rows) if (vote !== null) groups.set(vote, { said, ...groups.get(vote), n: (groups.get(vote) || { n: 0 }).n + 1 });
  const items = [...groups].sort((a, b) => b[1].n - a[1].n).map(([vote, { said, n }]) => el("li", {}, el("i", { class: color(vote) }), el("span", { text: said.slice(0, 200) }), `× ${n}`));
  $("#tally").replaceChildren(...items);
}

// what it cost; `extra` is the gateway's own object, null where the request broke off
function finish(run, extra) {
  run.pending = 0;
  squares(run);
  if (extra === null) {
    $("#verdict").textContent = "The vote when it broke off";
    return;
  }
  const done = run.done, voted = extra.agreement !== null, won = voted && extra.answer !== null;
  $("#verdict").textContent = voted ? (won ? "The answer" : "No answer won") : "The reply, without a vote";
  $("#answer").textContent = won ? extra.answer : run.text;
  $("#answer").classList.toggle("reply", !won);
  const facts = [], leader = run.rows.find(({ said }) => said === extra.answer);
  const share = leader ? run.rows.filter(({ vote }) => vote === leader.vote).length / run.rows.length : extra.agreement;
  const notes = [extra.certified === true ? "certified to be the model's commonest answer" : extra.weak ? "weak, by the operator's minimum" : "", won && Math.abs(share - extra.agreement) > 0.01 ? "votes have unequal weights" : ""];
  if (voted) facts.push(["Agreement", percent(extra.agreement), notes.filter(Boolean).join("; ")]);
  if (done) {
    const cost = done.unit === "money" ? `${amount(done.cost, "money")}, ${plural(done.tokens, "token")}` : plural(done.tokens, "token");
    facts.push(["This question", `${plural(done.samples, "sample")}, ${cost}`, `${done.seconds.toFixed(1)} s; the budget is an average over many questions`]);
    if (done.uniform) facts.push(["Uniform sampling", `${plural(done.uniform.samples, "sample")}, ${amount(done.uniform.cost, done.unit)}`, done.uniform.what]);
  }
  for (const [name, mode] of Object.entries(extra.modes || {})) facts.push([`Mode ${name}`, plural(mode.samples, "sample"), `${count(mode.prompt_tokens + mode.completion_tokens)} tokens${mode.failed ? `, left out: ${mode.failed}` : ""}`]);
  $("#costs").replaceChildren(...facts.flatMap(([what, much, why]) => [el("dt", { text: what }), el("dd", { text: much }, ...(why ? [el("small", { text: why })] : []))]));
  $("#notes").replaceChildren(...(extra.notes || []).map((note) => el("li", { text: note })));
}

// ---------------------------------------------------------------- what a person does

$("#examples").append(...EXAMPLES.map((question) => {
  const button = el("button", { type: "button", text: question });
  button.onclick = () => { $("#question").value = question; update(); ask(); };
  return button;
}));
$("#dashboard").href = `${base}/dashboard`;
$("#form").onsubmit = (event) => { event.preventDefault(); ask(); };
$("#entry").onsubmit = (event) => { event.preventDefault(); state.key = $("#key").value.trim(); meet(); };
$("#question").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); ask(); }
};
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && state.run) state.run.stop.abort(); });
$("#stop").onclick = () => state.run && state.run.stop.abort();
for (const event of ["input", "change"]) $("#form").addEventListener(event, update);
for (const button of document.querySelectorAll("[data-copies]")) button.onclick = async () => {
  const source = $(`#${button.dataset.copies}`);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } catch { // where the browser gives no clipboard, the text is marked instead
    getSelection().selectAllChildren(source);
  }
};
update();
meet();
