// Asks the gateway what it saw, every two seconds while somebody looks, and shows it.
const EVERY = 2000, PATIENCE = 8000;
const SMOOTH = { hour: 300, day: 3600 }; // seconds that a line is the mean of
const GAP = { hour: 600, day: 7200 }; // seconds without requests that break a line
const LENGTH = { hour: 3600, day: 86400 };
const FEWEST = 200; // requests with a vote, before a saving is told
const ROWS = 15; // of recent requests, until more are asked for
const BAR = { hour: 180, day: 3600 }; // seconds of a bar
const COLORS = ["c0", "c1", "c2", "c3", "c4"];
const state = { span: "hour", board: null, timer: 0, lost: null, turn: 0, all: false };

const fixed = (value, places = 2) => (value === null || value === undefined ? "–" : value.toFixed(places));
const percent = (value, places = 0) => (value === null || value === undefined ? "–" : `${(value * 100).toFixed(places)}%`);
const count = (value) => Math.round(value).toLocaleString("en-US");
const price = (value) => (value === null || value === undefined ? "–" : value === 0 ? "0" : Math.abs(value) < 1e-3 ? value.toExponential(1) : Number(value.toPrecision(3)).toString());
const cash = (value, digits = 2) => (value === null || value === undefined ? "–" : Math.abs(value) >= 1 || !value ? value.toLocaleString("en-US", { maximumFractionDigits: 2 }) : Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 12 }));
const amount = (value, unit) => (unit === "money" ? cash(value) : count(value));
// how what a request costs is written: money for 1,000 of them
const MEASURES = {
  samples: () => ({ scale: 1, name: "samples", show: (v) => fixed(v) }),
  tokens: () => ({ scale: 1, name: "tokens", show: (v) => (v === null || v === undefined ? "–" : count(v)) }),
  money: (board) => ({ scale: 1000, name: `${board.currency} per 1,000`, show: (v) => cash(v === null || v === undefined ? v : v * 1000, 3) }),
};
const measureOf = (board, unit = board.budget_unit) => MEASURES[unit](board);
const budgetOf = (board, one) => (one.unit === "samples" ? `${one.budget}` : `${measureOf(board, one.unit).show(one.budget)} ${measureOf(board, one.unit).name}`);
const menuOf = (board) => (board.menu && board.menu.modes.length > 1 ? board.menu : null); // where there is a choice
const unitName = (board) => (board.unit === "money" ? board.currency : board.unit);
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
const put = (selector, text) => { $(selector).textContent = text; };

function lasted(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

function columns(board) {
  return board.rows.map((row) => Object.fromEntries(board.columns.map((name, i) => [name, row[i]])));
}

// the mean of `what` over `of`, of the slots in the seconds before each
function trailing(slots, what, of, seconds, { step, at }) {
  const points = [];
  let first = 0, sum = 0, n = 0;
  slots.forEach((slot) => {
    sum += slot[what];
    n += slot[of];
    while (slots[first].at <= slot.at - seconds) { sum -= slots[first][what]; n -= slots[first][of]; first++; }
    if (slot[of] && n) points.push([Math.min(at, slot.at + step), sum / n]);
  });
  return points;
}

function legend(card, ...items) {
  $(`#${card} .legend`).replaceChildren(...items.map(([kind, color, text]) =>
    el("span", {}, ...(kind ? [el("i", { class: `key ${kind} ${color}` })] : []), text)));
}

function tile(id, big, small, mood, stated, sub) {
  const node = $(`#tile-${id} .big`);
  node.replaceChildren(big, ...(small ? [el("small", { text: small })] : []));
  const words = $(`#tile-${id} .state`);
  if (words) { words.textContent = stated; words.className = `state ${mood}`; }
  put(`#tile-${id} .sub`, sub);
}

// the two averages: of requests that can be voted on, and of all; their columns are [requests, cost, target]
const AVERAGES = {
  voted: { columns: ["decided", "decided_cost", "decided_target"], name: "voted on" },
  all: { columns: ["counted", "cost", "target"], name: "all requests" },
};
const other = (board) => (board.average_over === "voted" ? "all" : "voted");

function means(total, which) {
  const [n, cost, target] = AVERAGES[which].columns.map((name) => total[name]);
  return { n, average: n ? cost / n : null, target: n ? target / n : null };
}

function costTile(board) {
  const { total, ever } = board, paced = board.average_over, beside = other(board), { show, name } = measureOf(board);
  const { n, average, target } = means(total, paced), rest = means(total, beside);
  put("#tile-cost h2", paced === "voted" ? "Average cost if voted on" : "Average cost");
  $("#tile-cost h2").append(el("span", { text: `, last ${board.span}` }));
  const since = paced === "voted" ? ever.voted : ever;
  const sub = [rest.n ? `${AVERAGES[beside].name}: ${show(rest.average)}` : "", since.requests ? `since the start ${show(since.average)} against ${show(since.target)}` : ""].filter(Boolean).join(" · ");
  if (average === null) return tile("cost", "–", "", "", "", [`no request ${paced === "voted" ? "that can be voted on" : "of the policy"} in this time`, sub].filter(Boolean).join(" · "));
  const off = average / target - 1, near = Math.abs(off) <= 0.02;
  const words = near ? "on target" : `${percent(Math.abs(off), 1)} ${off > 0 ? "above" : "below"} target`;
  const settling = !near && n < 200;
  tile("cost", show(average), `of ${show(target)} ${name}`, near ? "good" : settling ? "" : "bad", words + (settling ? ", settling" : ""), sub);
}

function tiles(board) {
  const { total } = board;
  put("#tile-requests h2 span", `, last ${board.span}`);
  costTile(board);
  spentTile(board);
  agreementTile(board);
  const errors = board.total.errors, refused = Object.values(board.refused).reduce((a, b) => a + b, 0);
  const mean = total.requests ? `${fixed(total.seconds / total.requests)} s on average` : "";
  const byRounds = board.rounds.slice(0, 4).map(([n, requests, seconds]) => `${plural(n, "round")} ${fixed(seconds / requests)} s`);
  const more = [mean, board.rounds.length > 1 ? byRounds.join(", ") : "", `${count(board.requests)} since the start`, refused ? `${count(refused)} refused` : ""];
  tile("requests", count(total.requests), `${count(board.in_flight)} in flight`, !errors ? "good" : errors > 0.01 * total.requests ? "bad" : "",
    errors ? `${plural(errors, "error")} (${percent(errors / total.requests, 1)})` : "no errors", more.filter(Boolean).join(" · "));
}

// what was spent; what is saved only as calibration measured it, on requests like those, and enough of them
function spentTile(board) {
  const { savings, exploring } = board, all = board.spend[0];
  const unit = board.priced ? "money" : all && all.tokens ? "tokens" : "samples";
  const names = { money: board.currency, tokens: "tokens", samples: board.unit === "money" ? board.currency : board.unit };
  put("#tile-savings h2", "Spent");
  $("#tile-savings h2").append(el("span", { text: board.window === "ever" ? " in all" : `, this ${board.window}` }));
  const much = all ? amount(unit === "samples" ? all.spent : all[unit], unit) : "–";
  const known = savings.share !== null && Boolean(savings.protocol) && savings.requests >= FEWEST && !exploring;
  const hint = board.priced ? "" : "with input_price and output_price this is money";
  $("#tile-savings details").hidden = !known || Boolean(menuOf(board));
  if (menuOf(board)) return tile("savings", much, all ? names[unit] : "", "", "", [spentBy(board), hint].filter(Boolean).join(" · "));
  if (!known) {
    const why = exploring ? "not known while exploring" : savings.share !== null && savings.requests < FEWEST ? `told from ${FEWEST} requests with a vote on` : savings.why;
    return tile("savings", much, all ? names[unit] : "", "", "", [`saved against uniform sampling: ${why}`, hint].filter(Boolean).join(" · "));
  }
  const sum = unit === "samples" ? null : savings[unit], share = sum ? sum.saved / sum.uniform : savings.share;
  const words = `≈ ${percent(Math.abs(share))} ${share >= 0 ? "less" : "more"} than uniform`;
  const told = sum
    ? `${share >= 0 ? "saved" : "lost"} ≈ ${amount(Math.abs(sum.saved), unit)} ${names[unit]} of ≈ ${amount(sum.uniform, unit)} for the same accuracy`
    : `${fixed(savings.average)} samples in place of ${fixed(savings.uniform)} for the same accuracy`;
  tile("savings", much, names[unit], share >= 0 ? "good" : "bad", words, [told, hint].filter(Boolean).join(" · "));
  put("#tile-savings details p", `Calibration saw that ${fixed(savings.uniform)} samples for every request are as accurate as the ${fixed(savings.average)} that were drawn on average (${savings.protocol}). It is about ${plural(savings.requests, "request")} with a vote since the start, ${percent(savings.covered)} of all, and holds as far as traffic is like what the policy was fitted on. Each call pays its prompt once; uniform sampling asks for as many samples in one call as the upstream gives, as seen here or as recorded when the policy was fitted.`);
}

// what each mode of a menu cost in the span
function spentBy(board) {
  const { modes, unit } = menuOf(board);
  return `last ${board.span}: ${modes.map((mode) => `${mode.name} ${amount(mode.spent, unit)}`).join(", ")} ${unit === "money" ? board.currency : unit}`;
}

function worst(board) {
  return board.drift.filter((d) => d.live !== null).sort((a, b) => b.alarm - a.alarm || b.requests - a.requests)[0];
}

// who saw what is expected
function measured(board, drift) {
  if (drift.source !== "calibration") return "the first requests";
  const bundled = board.dials.some((dial) => dial.policy === drift.policy && dial.version === "bundled");
  return bundled ? "the recordings in the package" : "calibration";
}

function agreementTile(board) {
  const drift = worst(board);
  if (!drift) return tile("agreement", "–", "", "", "", "no votes yet");
  const measure = measured(board, drift);
  if (drift.expected === null) return tile("agreement", percent(drift.live), "", "", "no chart to compare with", `the first 500 votes become the measure: ${count(drift.requests)} so far`);
  const words = drift.alarm ? "drifting" : drift.z === null ? "too few votes to compare" : "within the usual range";
  const z = drift.z === null ? "" : `, ${fixed(Math.abs(drift.z), 1)} standard errors apart`;
  tile("agreement", percent(drift.live), "", drift.alarm ? "bad" : drift.z === null ? "" : "good", words,
    `${measure} saw ${percent(drift.expected)}${z}; last ${plural(drift.requests, "vote")} of ${drift.policy}`);
}

function charts(board) {
  const slots = columns(board), span = board.span, step = board.step;
  const from = Math.max(board.at - LENGTH[span], Math.min(board.at - 300, board.rows.length ? board.rows[0][0] : board.at));
  const frame = { from, to: board.at, gap: GAP[span] };
  const [requests, costs, budgets] = AVERAGES[board.average_over].columns, beside = AVERAGES[other(board)];
  const { show, name } = measureOf(board);
  const paced = slots.filter((slot) => slot[requests]);
  const smooth = trailing(paced, costs, requests, SMOOTH[span], board);
  const targets = trailing(paced, budgets, requests, SMOOTH[span], board);
  const differs = slots.some((slot) => slot.decided !== slot.counted);
  const rest = differs ? trailing(slots.filter((slot) => slot[beside.columns[0]]), beside.columns[1], beside.columns[0], SMOOTH[span], board) : [];
  const target = targets.length ? targets.at(-1)[1] : null;
  const steady = targets.every((p) => Math.abs(p[1] - target) < 0.0025 * target);
  put("#card-cost h2", board.budget_unit === "money" ? `Cost of 1,000 requests, ${board.currency}` : board.budget_unit === "tokens" ? "Tokens a request" : "Samples a request");
  legend("card-cost", ["line", "c0", `${AVERAGES[board.average_over].name}, mean of ${lasted(SMOOTH[span])}`], ["dot", "c0", `of ${lasted(step)}`], ["dash", "c1", "target"], ...(rest.length ? [["line", "c2", beside.name]] : []));
  lineChart($("#card-cost .chart"), {
    ...frame, label: `Average cost of a request over time, in ${name}, against the target`, show: board.budget_unit === "samples" ? (v) => v.toFixed(1) : show,
    lines: [{ points: smooth, color: "c0", name: AVERAGES[board.average_over].name, area: true }, ...(rest.length ? [{ points: rest, color: "c2", name: beside.name }] : []), ...(steady ? [] : [{ points: targets, color: "c1 dashed", name: "target" }])],
    dots: paced.map((slot) => [slot.at + step / 2, slot[costs] / slot[requests]]),
    refs: steady && target !== null ? [{ y: target, label: `target ${show(target)}` }] : [], bounds: { floor: 0, least: (target || 2) / 2 },
  });

  const drawn = new Map(board.samples), most = Math.max(4, ...board.samples.map((one) => one[0]));
  const bars = Array.from({ length: most }, (_, i) => [i + 1 === 32 ? "32+" : `${i + 1}`, drawn.get(i + 1) || 0]);
  legend("card-samples", ["", "", "share of requests by samples"]);
  barChart($("#card-samples .chart"), { label: "Requests by number of samples", bars });

  if ($("#details").open) priceChart(board, frame);

  const drift = worst(board), expected = drift ? drift.expected : null;
  legend("card-agreement", ["line", "c0", `mean of ${lasted(SMOOTH[span])}`], ...(expected === null ? [] : [["dash", "c1", `what ${measured(board, drift)} saw`]]));
  lineChart($("#card-agreement .chart"), {
    ...frame, label: "Agreement of votes over time, against what calibration saw", show: (v) => percent(v), bounds: { floor: 0, ceil: 1, least: 0.2 },
    lines: [{ points: trailing(slots.filter((slot) => slot.voted), "agreement", "voted", SMOOTH[span], board), color: "c0", name: "agreement", area: true }],
    refs: expected === null ? [] : [{ y: expected, label: percent(expected) }],
  });
}

function priceChart(board, frame) {
  const prices = board.prices.slice(0, COLORS.length);
  const named = (one) => `${one.policy} @${budgetOf(board, one)}`;
  legend("card-price", ...(prices.length ? prices.map((one, i) => ["line", COLORS[i], `${named(one)}: ${price(one.points.at(-1)[1])}`]) : [["", "", "no price moves"]]));
  lineChart($("#card-price .chart"), {
    ...frame, label: "Price of a sample over time", show: price, bounds: { floor: 0 },
    lines: prices.map((one, i) => ({ points: one.points, color: COLORS[i], name: named(one) })),
  });
}

function upstream(board) {
  const calls = board.upstream.reduce((sum, one) => sum + one[1], 0);
  const ok = new Map(board.upstream).get("ok") || 0;
  const failed = calls - ok - (new Map(board.upstream).get("cancelled") || 0);
  legend("card-upstream", ["", "", calls ? `${plural(calls, "call")}, ${failed ? percent(failed / calls, 1) + " failed" : "none failed"}` : "no calls in this time"]);
  $("#card-upstream .bars").replaceChildren(...board.upstream.slice(0, 7).map(([kind, n]) =>
    meter(kind, `${count(n)}  ·  ${percent(n / calls, n / calls < 0.1 ? 1 : 0)}`, [[n / calls, kind === "ok" ? "c0" : kind === "cancelled" ? "c4" : "c1"]])));
  if (!calls) nothing($("#card-upstream .bars"), "nothing yet");
}

function spend(board) {
  const unit = board.unit, called = unitName(board), capped = board.spend.some((one) => one.cap !== null);
  const window = board.window === "ever" ? "in all" : `this ${board.window}`;
  legend("card-spend", ["", "", `${called} ${window}${capped ? "" : "; no cap is set"}`],
    ...(capped ? [["", "", "grey: under way, or may be charged"]] : []));
  const rows = board.spend.filter((one) => one.name === "" || one.spent || one.maybe || one.reserved || one.cap !== null);
  $("#card-spend .bars").replaceChildren(...rows.slice(0, 8).map((one) => {
    const whole = one.cap || 1, open = one.maybe + one.reserved, used = one.spent + open;
    const tight = one.cap !== null && used >= 0.9 * one.cap;
    const much = one.cap === null ? amount(used, unit) : `${amount(used, unit)} of ${amount(one.cap, unit)}  ·  ${one.cap ? percent(used / one.cap) : "closed"}`;
    return meter(one.name || "all keys", much, one.cap === null ? null : [[one.spent / whole, tight ? "c1" : "c0"], [open / whole, "c4"]]);
  }));
  if (!rows.length) nothing($("#card-spend .bars"), "nothing yet");
}

// a table by mode, what it costs over time, and what one sample of a single mode for everyone would have cost
function modes(board) {
  const menu = menuOf(board);
  $("#card-modes").hidden = $("#card-mode-cost").hidden = !menu;
  if (!menu) return;
  const unit = menu.unit, called = unit === "money" ? board.currency : "tokens", last = menu.modes.at(-1).name;
  const all = menu.modes.reduce((sum, mode) => sum + mode.spent, 0), share = (part, whole) => (whole ? percent(part / whole) : "–");
  const color = (i) => COLORS[Math.min(i, COLORS.length - 1)];
  legend("card-modes", ["", "", `last ${board.span}, ${plural(menu.requests, "request")}; costs in ${called}`], ["", "", `agreement: how often the answer is that of ${last}`]);
  const heads = ["mode", "samples", "of requests", "replies", "spent", "share", unit === "money" ? "1,000 samples" : "a sample", "agreement", "failures", "state"];
  $("#card-modes thead").replaceChildren(el("tr", {}, ...heads.map((text, i) => el("th", { class: i && i < heads.length - 1 ? "n" : "", text }))));
  $("#card-modes tbody").replaceChildren(...menu.modes.map((mode, i) => {
    const failed = Object.entries(mode.failures), agreement = mode.agreement, number = (text, props = {}) => el("td", { class: "n", text, ...props });
    const rests = mode.resting ? "resting" : "", drifts = agreement && agreement.alarm ? "drifting" : "";
    return el("tr", {}, el("td", {}, el("i", { class: `key dot ${color(i)}` }), mode.name), number(count(mode.samples)), number(share(mode.requests, menu.requests)),
      number(count(mode.replies)), number(amount(mode.spent, unit)), number(share(mode.spent, all)),
      number(mode.sample_cost === null ? "–" : unit === "money" ? cash(1000 * mode.sample_cost) : count(mode.sample_cost)),
      number(agreement && agreement.live !== null ? percent(agreement.live) : "–", agreement ? { title: agreed(menu, mode) } : {}),
      number(count(failed.reduce((sum, kind) => sum + kind[1], 0)), { title: failed.map(([kind, n]) => `${kind}: ${n}`).join(", ") }),
      el("td", { class: rests || drifts ? "bad" : "weak", text: [rests, drifts].filter(Boolean).join(", ") || "in use" }));
  }));
  put("#card-modes .once", onceEach(board, menu));
  put("#card-modes .sub", [`since ${day(menu.ever.since)}: ${plural(menu.ever.requests, "request")}, ${menu.modes.map((mode, i) => `${mode.name} ${amount(menu.ever.spent[i], unit)}`).join(", ")} ${called}`,
    menu.explored_only ? "agreement is of requests that were drawn to the end" : ""].filter(Boolean).join(" · "));
  $("#card-mode-cost h2").textContent = unit === "money" ? `Spent by mode, ${called}` : "Tokens by mode";
  legend("card-mode-cost", ...menu.modes.slice(0, 6).map((mode, i) => ["dot", color(i), mode.name]), ["", "", `a bar is ${lasted(BAR[board.span])}`]);
  stackChart($("#card-mode-cost .chart"), {
    label: `What each mode cost over time, in ${called}`, names: menu.modes.map((mode) => mode.name), colors: menu.modes.map((_, i) => color(i)), rows: menu.spent,
    from: Math.max(board.at - LENGTH[board.span], Math.min(board.at - LENGTH[board.span] / 4, menu.spent.length ? menu.spent[0][0] : board.at)), to: board.at, width: BAR[board.span], show: (v) => amount(v, unit),
  });
}

const day = (at) => new Date(at * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

// how often a mode's answer is that of the dearest, against the first requests
function agreed(menu, mode) {
  const { live, expected, requests } = mode.agreement, last = menu.modes.at(-1).name;
  if (live === null) return `no request with answers of both ${mode.name} and ${last} yet`;
  return expected === null ? `${plural(requests, "request")} with answers of both; the first 500 become the measure` : `of the last ${plural(requests, "request")} with answers of both; the first ones saw ${percent(expected)}`;
}

// what the requests that count in the average cost, and would have cost with one sample of one mode each
function onceEach(board, menu) {
  const n = board.total.counted, unit = menu.unit, called = unit === "money" ? board.currency : "tokens";
  const much = (value) => `${unit === "money" ? cash(value, 3) : count(value)} ${called}`;
  if (!n || board.budget_unit !== unit) return "";
  const once = [menu.modes.at(-1), menu.modes[0]].map((mode) => `one sample of ${mode.name} for each: ${mode.sample_cost === null ? "not known yet" : `≈ ${much(n * mode.sample_cost)}`}`);
  return `The ${plural(n, "request")} of the average cost ${much(board.total.cost)} in all; ${once.join(", ")}.`;
}

function dials(board) {
  $("#card-dials tbody").replaceChildren(...board.dials.slice(0, 12).map((one) => el("tr", {},
    el("td", { text: one.policy }), el("td", { class: "n", text: one.unit === "samples" ? fixed(one.budget) : budgetOf(board, one) }),
    ...["voted", "all"].map((which) => el("td", { class: "n", text: measureOf(board, one.unit).show(which === board.average_over ? one.average : one.averages[which]) })),
    el("td", { class: "n", text: price(one.price) }), el("td", { class: "n", text: count(one.requests) }), el("td", { class: "weak", text: one.version || "–" }))));
}

function votes(one) {
  const box = el("div", { class: "squares" });
  one.votes.forEach(([, n], i) => { for (let k = 0; k < n; k++) box.append(el("i", { class: COLORS[Math.min(i, 4)] })); });
  for (let k = 0; k < one.abstained; k++) box.append(el("i", { class: "void" }));
  const why = one.notes.find((note) => note.startsWith("no vote")) || "no vote";
  if (!one.votes.length) for (let k = 0; k < one.samples; k++) box.append(el("i", { class: "c4" }));
  const words = one.votes.map(([label, n]) => `${label.length > 28 ? label.slice(0, 27) + "…" : label}: ${n}`).concat(one.abstained ? [`no answer: ${one.abstained}`] : []);
  box.append(el("span", { text: words.length ? words.join(", ") : one.samples ? why : "no sample came" }));
  return box;
}

function recent(board) {
  const last = board.recent[0];
  const mark = last ? `${last.id} ${board.recent.length} ${state.all}` : "";
  if (mark === state.mark) return;
  state.mark = mark;
  legend("card-recent", ["", "", `each square is a sample, each colour an answer, the winner first; cost in ${board.priced ? board.currency : "tokens"}${board.texts ? "" : "; texts are not shown (show_texts)"}`]);
  $("#more").hidden = board.recent.length <= ROWS;
  put("#more", state.all ? `Show the last ${ROWS}` : `Show the last ${board.recent.length}`);
  const rows = [...board.recent].sort((a, b) => b.at - a.at); // as the times that are shown
  $("#card-recent tbody").replaceChildren(...rows.slice(0, state.all ? undefined : ROWS).map((one) => {
    const cell = el("td", {});
    if (one.prompt) cell.append(el("div", { class: "prompt", text: one.prompt }));
    cell.append(votes(one));
    const drawn = menuOf(board) && one.modes.length ? [`${one.modes.map(([name, n]) => `${name} ${n}`).join(", ")}${one.modes.length > 1 && one.answered_by ? `, reply of ${one.answered_by}` : ""}`] : [];
    const notes = [...drawn, ...one.notes.filter((note) => one.votes.length || !note.startsWith("no vote")), ...(one.missing ? [`${one.missing} missing`] : []), ...(one.would ? [`the policy would have drawn ${one.would} more`] : [])];
    if (notes.length) cell.append(el("div", { class: "note", text: notes.join(" · ") }));
    const bad = one.status >= 400, own = one.unit !== "samples" && one.unit === board.budget_unit && one.budget === board.budget;
    return el("tr", {},
      el("td", { class: "time", text: clock(one.at, true) }), cell,
      el("td", { class: "n", "data-unit": " agree", text: one.agreement === null ? "" : percent(one.agreement) }),
      el("td", { class: "n", text: one.samples }),
      el("td", { class: "n", "data-unit": board.priced ? ` ${board.currency}` : " tokens", text: board.priced ? (one.money ? cash(one.money) : "") : one.tokens ? count(one.tokens) : "" }),
      el("td", { class: "weak", text: `${one.policy}${own ? "" : ` @${budgetOf(board, one)}`}${one.mode === "adaptive" ? "" : ` (${one.mode})`}` }),
      el("td", { class: "n", "data-unit": " s", text: fixed(one.seconds) }),
      el("td", { class: bad ? "bad" : "weak fine", text: bad ? `${one.status} ${one.error}` : `${one.status}` }));
  }));
}

function banners(board) {
  const told = [];
  if (state.lost) told.push(["The gateway can't be reached", `: ${state.lost.why}. ${board ? `What you see is from ${clock(board.at, true)}. ` : ""}Trying again every 2 seconds.`]);
  for (const one of board ? board.drift.filter((d) => d.alarm) : [])
    told.push(["Drift", `: votes of ${one.policy} agree by ${percent(one.live)}, and ${measured(board, one)} saw ${percent(one.expected)}. Traffic is not what the policy was fitted on: record some of it, and fit anew.`]);
  for (const mode of board && board.menu ? board.menu.modes : [])
    if (mode.agreement && mode.agreement.alarm) told.push([`Mode ${mode.name}`, ` gives the answer of ${board.menu.modes.at(-1).name} in ${percent(mode.agreement.live)} of the requests that have both, and the first requests saw ${percent(mode.agreement.expected)}. A mode or the traffic is not what it was: record some of it, and fit anew.`]);
  for (const one of board ? board.spend : []) {
    const used = one.spent + one.maybe + one.reserved;
    if (one.cap !== null && used >= 0.9 * one.cap)
      told.push([one.name ? `Key ${one.name}` : "All keys together", ` is at ${one.cap ? percent(used / one.cap) : "the end"} of the cap of ${amount(one.cap, board.unit)} ${unitName(board)}. At the cap, requests are refused with 429.`]);
  }
  if (board && board.shortfall) told.push(["Budget", `: ${board.shortfall}. Every request gets one sample.`]);
  for (const name of board ? board.resting : [])
    told.push(board.menu ? [`Mode ${name}`, " keeps failing. It is tried again every few seconds; until then the other modes answer."] : name ? [`Model ${name}`, " keeps failing. Requests like those that failed are held back for a few seconds at a time; others are served."] : ["The upstream can't be reached", ". It is tried again every few seconds; until then requests are refused with 503."]);
  if (board && board.recorder && board.recorder.dropped) told.push(["Recording", `: ${plural(board.recorder.dropped, "request")} could not be written to the pool in time.`]);
  const text = JSON.stringify(told);
  if (text === state.told) return; // a screen reader says an alert each time that it changes
  state.told = text;
  $("#banners").replaceChildren(...told.map(([what, why]) => el("p", {}, el("b", { text: what }), why)));
}

function empty(board) {
  const base = location.origin + location.pathname.replace(/\/dashboard\/?$/, "") + "/v1";
  const key = board.keys ? " \\\n  -H 'Authorization: Bearer YOUR-KEY'" : "";
  put("#curl", `curl ${base}/chat/completions \\\n  -H 'Content-Type: application/json'${key} \\\n  -d '{"model": "default", "messages": [{"role": "user", "content": "What is the chemical symbol of chlorine?"}]}'`);
  put("#python", `from openai import OpenAI\nclient = OpenAI(base_url="${base}", api_key="${board.keys ? "YOUR-KEY" : "none"}")`);
  const refused = Object.entries(board.refused).map(([code, n]) => `${code}: ${n}`).join(", ");
  put("#waiting", `Waiting for the first one; this page shows it by itself.${refused ? ` Refused so far: ${refused}.` : ""}`);
}

function render() {
  const board = state.board;
  $("#live").className = state.lost ? "off" : board ? "on" : "";
  put("#live span", state.lost ? "not reached" : board ? (document.hidden ? "paused" : "live") : "connecting");
  document.body.classList.toggle("stale", Boolean(state.lost));
  banners(board);
  if (!board) return;
  const fresh = !board.requests;
  const first = board.dials.find((one) => one.budget === board.budget && one.unit === board.budget_unit) || board.dials[0];
  put("#serving", [first ? `${first.policy} @${budgetOf(board, first)}` : "", board.mode === "adaptive" ? "" : `${board.mode} mode`, `up ${lasted(board.at - board.since)}`].filter(Boolean).join(" · "));
  put("#quality", board.quality);
  $("#empty").hidden = !fresh;
  $("#full").hidden = fresh;
  if (fresh) return empty(board);
  tiles(board);
  charts(board);
  upstream(board);
  spend(board);
  modes(board);
  dials(board);
  recent(board);
  const told = [Object.entries(board.unvoted).map(([why, n]) => `${why} ${count(n)}`).join(", "), Object.entries(board.refused).map(([code, n]) => `${code} ${count(n)}`).join(", ")];
  const forwarded = Object.entries(board.forwarded).map(([route, n]) => `${route} ${count(n)}`).join(", ");
  const recorded = board.recorder && board.recorder.stored ? `recorded ${count(board.recorder.stored)}` : "";
  const reloads = board.reloads.ok || board.reloads.refused ? `policies read again ${count(board.reloads.ok)}, refused ${count(board.reloads.refused)}` : "";
  put("#footer", [told[0] && `Without a vote: ${told[0]}`, told[1] && `turned away: ${told[1]}`, forwarded && `passed on: ${forwarded}`, recorded, reloads].filter(Boolean).join(" · "));
}

async function poll() {
  clearTimeout(state.timer);
  const turn = ++state.turn;
  const stop = new AbortController(), late = setTimeout(() => stop.abort(), PATIENCE);
  try {
    const path = location.origin + location.pathname.replace(/\/$/, ""); // nothing is fetched from an address with a key in it
    const reply = await fetch(`${path}/data?span=${state.span}`, { signal: stop.signal, cache: "no-store" });
    if (!reply.ok) throw new Error(reply.status === 401 || reply.status === 403 ? "it asks for an operator's key; reload this page and give it" : `it answered ${reply.status}`);
    const board = await reply.json();
    if (turn !== state.turn) return;
    state.board = board;
    state.lost = null;
  } catch (error) {
    if (turn !== state.turn) return;
    state.lost = { why: error.name === "AbortError" ? "no answer in 8 seconds" : error instanceof TypeError ? "no connection" : error.message };
  } finally {
    clearTimeout(late);
  }
  render();
  if (!document.hidden) state.timer = setTimeout(poll, EVERY);
}

for (const span of ["hour", "day"]) $(`#span-${span}`).onclick = () => {
  state.span = span;
  for (const one of ["hour", "day"]) $(`#span-${one}`).setAttribute("aria-pressed", String(one === span));
  poll();
};
$("#details").ontoggle = () => render();
$("#more").onclick = () => { state.all = !state.all; recent(state.board); };
document.addEventListener("visibilitychange", () => (document.hidden ? (clearTimeout(state.timer), render()) : poll()));
let resized = 0;
addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(render); });
poll();
