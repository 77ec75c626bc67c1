// Values on pointing, folding, printing, and money by the reader's own prices. The page is whole without it.
const REACH = 28; // pixels from a mark that still mean it
const tip = document.getElementById("tip");
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// One tooltip for all figures: the nearest mark's text, by pointer, touch or the arrow keys.
let shown = null;

function show(mark) {
  if (mark === shown) return;
  if (shown) shown.classList.remove("on");
  shown = mark;
  tip.hidden = !mark;
  if (!mark) return;
  mark.classList.add("on");
  tip.textContent = mark.dataset.text;
  const box = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const left = box.left + box.width / 2 - own.width / 2;
  const above = box.top - own.height - 6;
  tip.style.left = `${Math.max(8, Math.min(left, document.documentElement.clientWidth - own.width - 8))}px`;
  tip.style.top = `${above > 4 ? above : box.bottom + 6}px`;
}

function nearest(marks, x, y) {
  let best = null, least = REACH;
  for (const mark of marks) {
    const box = mark.getBoundingClientRect();
    const away = Math.hypot(box.left + box.width / 2 - x, box.top + box.height / 2 - y);
    if (away <= least) [best, least] = [mark, away];
  }
  return best;
}

for (const svg of all(".plot svg")) {
  const marks = all(".mark", svg);
  for (const mark of marks) { // the browser's own tooltip would stand beside ours
    const title = mark.querySelector("title");
    mark.dataset.text = title.textContent;
    title.remove();
  }
  const order = marks.map((mark) => [mark.cx.baseVal.value, mark.cy.baseVal.value, mark])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((one) => one[2]);
  const point = (event) => show(nearest(marks, event.clientX, event.clientY));
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") show(null); });
  svg.addEventListener("blur", () => show(null));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") show(null);
    if (!step || !order.length) return;
    event.preventDefault();
    const at = order.indexOf(shown);
    show(order[at < 0 ? 0 : (at + step + order.length) % order.length]);
  });
}
document.addEventListener("pointerdown", (event) => { if (!event.target.closest(".plot")) show(null); });
document.addEventListener("scroll", () => show(null), { passive: true, capture: true });

// Folding: a link opens what it leads to, and paper has no folds.
const folds = all("details");

function named() { // by the address; one that can't be read names nothing
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function reveal() {
  const goal = document.getElementById(named());
  const fold = goal && goal.closest("details");
  if (fold && !fold.open) {
    fold.open = true;
    goal.scrollIntoView();
  }
}
addEventListener("hashchange", reveal);
reveal();

for (const part of all(".part")) {
  const button = part.querySelector(".all"), own = all("details.section", part);
  if (!button || own.length < 2) continue;
  const name = () => { button.textContent = own.every((one) => one.open) ? "Close all" : "Open all"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    const open = !own.every((one) => one.open);
    for (const one of own) one.open = open;
  });
  for (const one of own) one.addEventListener("toggle", name);
  name();
}

let closed = [];
addEventListener("beforeprint", () => {
  closed = folds.filter((one) => !one.open);
  for (const one of closed) one.open = true;
});
addEventListener("afterprint", () => { for (const one of closed) one.open = false; });

// Where one is, in the contents.
const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const link of links.values()) link.classList.remove("here");
    links.get(entry.target.id)?.classList.add("here");
  }
}, { rootMargin: "-8% 0px -84% 0px" });
for (const id of links.keys()) {
  const goal = document.getElementById(id);
  if (goal) seen.observe(goal);
}

// A table or figure that is wider than its place says so, until one has scrolled to its end.
for (const box of all(".scroll")) {
  const hint = document.createElement("p");
  hint.className = "hint";
  hint.ariaHidden = "true"; // a screen reader reads all of it anyway
  hint.textContent = matchMedia("(pointer: coarse)").matches ? "swipe for more →" : "scroll for more →";
  box.before(hint);
  const update = () => { hint.hidden = box.scrollWidth - box.clientWidth - box.scrollLeft < 8; };
  box.addEventListener("scroll", update, { passive: true });
  new ResizeObserver(update).observe(box);
  update();
}

// Money by the reader's own prices: the same sum as exhibits/money.py, of the same data.
const { money } = JSON.parse(document.getElementById("data").textContent);
const form = document.getElementById("prices");
const whole = (value) => value.toLocaleString("en-GB", { maximumFractionDigits: 0 });
const four = (value) => String(Number(value.toPrecision(4)));

function rounded(value) { // as Python rounds: a half goes to the even side
  const low = Math.floor(value);
  if (value - low !== 0.5) return Math.round(value);
  return low % 2 ? low + 1 : low;
}
const percent = (share) => `${rounded(100 * share)}%`;

function paid(value) { // as `format_money` of records.py: two places from 1 up, three digits below, no exponent
  const places = Math.min(100, Math.max(2, 2 - (value ? Number(value.toExponential(2).split("e")[1]) : 0)));
  if (Math.abs(value) < 1) return value.toFixed(places);
  return value.toLocaleString("en-GB", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
}

function typedPrices() {
  return Object.fromEntries([...new FormData(form)].map(([name, text]) => [name, Number(text) || 0]));
}

function reckoned(row, prices) { // of one request: its cost, uniform's for the same accuracy, and the share saved
  const price = (prompts, tokens) => (prompts * prices.prompt_tokens * prices.input_price + tokens * prices.output_price) / 1e6;
  const own = price(row.prompts, row.tokens), same = price(row.same_as_prompts, row.same_as_tokens);
  return { own, same, more: row.same_as === null ? "> " : "", share: same ? (same - own) / same : null };
}

function pricesText() { // as `Money.describe_prices`
  const prices = typedPrices();
  return `${four(prices.output_price)} ${money.currency} per million output tokens and ${four(prices.input_price)} per million of prompts`;
}

function shownMoney() { // at the budget that the page speaks of; null where tokens weren't recorded
  const row = money?.rows.find((each) => each.budget === money.budget);
  return row ? reckoned(row, typedPrices()) : null;
}

const amount = (value) => `${paid(1000 * value)} ${money.currency}`;

function moneyWords() { // as `describe_money` of exhibits/money.py
  const spent = shownMoney();
  if (!spent) return "";
  const head = `At ${pricesText()}, 1,000 requests cost ${amount(spent.own)} at ${money.budget} samples on average`;
  if (!money.pays) return `${head}; no saving over uniform sampling is certain.`;
  if (spent.same < spent.own && !spent.more) return `${head}; uniform sampling costs ${amount(spent.same)} for the same accuracy, ${amount(spent.own - spent.same)} less: this costs more.`;
  const more = spent.more ? "more than " : "", share = spent.share === null ? "" : ` (${percent(spent.share)})`;
  return `${head}; uniform sampling costs ${more}${amount(spent.same)} for the same accuracy, so ${more}${amount(spent.same - spent.own)}${share} are saved.`;
}

function moneyNumber() { // for the shared picture
  const spent = shownMoney();
  if (!spent) return [];
  const instead = money.pays ? `, not ${spent.more}${amount(spent.same)}` : "";
  return [[amount(spent.own) + instead, `for 1,000 requests, at ${pricesText()}`]];
}

function reckon() {
  if (!form.checkValidity()) return;
  const prices = typedPrices(), spent = shownMoney();
  all("#table-money tbody tr").forEach((line, at) => {
    const { own, same, more, share } = reckoned(money.rows[at], prices);
    const texts = [paid(1000 * own), ...[paid(1000 * same), paid(1000 * (same - own)), paid(prices.requests * (same - own)), share === null ? "–" : percent(share)].map((text) => (text === "–" ? text : more + text))];
    if (!money.pays) texts.length = 2; // no saving is certain
    texts.forEach((text, place) => { line.cells[line.cells.length - texts.length + place].textContent = text; });
  });
  const tiles = { cost: amount(spent.own), same: spent.more + amount(spent.same), saved: spent.more + amount(spent.same - spent.own), share: spent.share === null ? "–" : spent.more + percent(spent.share), extra: `costs ${amount(spent.own - spent.same)} more` };
  for (const [name, text] of Object.entries(tiles)) for (const tile of all(`.tile.${name} dd`)) tile.textContent = text;
  const note = `At ${pricesText()}, ${whole(prices.requests)} requests a month, prompts of ${four(prices.prompt_tokens)} tokens. ${money.charge}`;
  document.querySelector("#table-money .note").textContent = note;
  document.querySelector("#money .note").textContent = "Your prices.";
}

if (form && money) {
  for (const name of ["output_price", "input_price", "requests"]) form.elements[name].value = money[name];
  form.elements.prompt_tokens.value = money.prompt_tokens_per_request ?? 0;
  for (const unit of all(".unit", form)) unit.textContent = ` (${money.currency})`;
  form.hidden = false;
  form.addEventListener("input", reckon);
  form.addEventListener("submit", (event) => event.preventDefault());
}
