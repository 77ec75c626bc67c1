// Small charts as SVG.
function ticks(low, high, about) {
  const raw = (high - low) / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step + 0); // never -0
  return found;
}

function range(values, { floor = -Infinity, ceil = Infinity, least = 0 } = {}) {
  let low = Math.min(...values), high = Math.max(...values);
  const pad = Math.max((high - low) * 0.18, least / 2, Math.abs(high) * 0.02, 1e-9);
  return [Math.max(floor, low - pad), Math.min(ceil, high + pad)];
}

const clock = (at, seconds = false) =>
  new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(seconds && { second: "2-digit" }), hourCycle: "h23" });

function nothing(host, why) {
  host.replaceChildren(el("p", { class: "none", text: why }));
}

function timeTicks(from, to, about) {
  const minutes = (to - from) / 60 / about;
  const step = [1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 480].find((m) => m >= minutes) * 60 || 43200;
  const shift = new Date(to * 1000).getTimezoneOffset() * 60; // whole hours of the reader's clock
  const found = [];
  for (let t = Math.ceil((from - shift) / step) * step + shift; t <= to; t += step) found.push(t);
  return found;
}

// lines: [{points: [[at, y]], color, name, area}], dots: [[at, y]], refs: [{y, label}]
function lineChart(host, { label, lines, dots = [], refs = [], from, to, gap, show, bounds }) {
  const all = lines.flatMap((line) => line.points.map((p) => p[1])).concat(refs.map((r) => r.y));
  if (!lines.some((line) => line.points.length)) return nothing(host, "nothing yet");
  const width = host.clientWidth, height = host.clientHeight;
  const [low, high] = range(all, bounds);
  const about = height > 200 ? 5 : 3, few = ticks(low, high, about);
  const marks = few.length > 2 ? few : ticks(low, high, 2 * about);
  const left = 8 + 6.6 * Math.max(...marks.map((m) => show(m).length)), right = 6, top = 8, bottom = 22;
  const x = (at) => left + ((at - from) / (to - from || 1)) * (width - left - right);
  const y = (v) => top + (1 - (Math.min(high, Math.max(low, v)) - low) / (high - low)) * (height - top - bottom);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const mark of marks) {
    svg.append(shape("line", { class: "gridline", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }));
    svg.append(shape("text", { x: left - 7, y: y(mark) + 4, "text-anchor": "end" }, show(mark)));
  }
  for (const at of timeTicks(from, to, Math.max(2, (width - left) / 90))) {
    if (x(at) > left + 12 && x(at) < width - 16)
      svg.append(shape("text", { x: x(at), y: height - 4, "text-anchor": "middle" }, clock(at)));
  }
  const cloud = shape("g", { class: "dots" });
  for (const [at, v] of dots) if (v >= low && v <= high) cloud.append(shape("circle", { cx: x(at), cy: y(v), r: 2 }));
  svg.append(cloud);
  for (const line of lines) drawLine(svg, line, { x, y, gap, base: height - bottom });
  for (const ref of refs) {
    svg.append(shape("line", { class: "refline", x1: left, x2: width - right, y1: y(ref.y), y2: y(ref.y) }));
    const above = y(ref.y) > top + 16;
    svg.append(shape("text", { class: "ref", x: width - right, y: y(ref.y) + (above ? -6 : 14), "text-anchor": "end" }, ref.label));
  }
  host.replaceChildren(svg);
  pointer(host, svg, { lines, x, y, show, width, top, bottom: height - bottom });
}

function drawLine(svg, line, { x, y, gap, base }) {
  let runs = [];
  for (const point of line.points) {
    const run = runs.at(-1);
    if (run && point[0] - run.at(-1)[0] <= gap) run.push(point);
    else runs.push([point]);
  }
  for (const run of runs) {
    const path = run.map(([at, v], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(v).toFixed(1)}`).join("");
    if (line.area) svg.append(shape("path", { class: "area", d: `${path}L${x(run.at(-1)[0])} ${base}L${x(run[0][0])} ${base}Z` }));
    svg.append(shape("path", { class: `path ${line.color}`, d: run.length > 1 ? path : `${path}h.01` }));
  }
}

function pointer(host, svg, { lines, x, y, show, width, top, bottom }) {
  const cursor = shape("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
  const tip = el("div", { class: "tip", hidden: "" });
  svg.append(cursor);
  host.append(tip);
  const hide = () => { cursor.setAttribute("visibility", "hidden"); tip.hidden = true; host.pointed = null; };
  const point = (at) => {
    host.pointed = at;
    const near = lines.filter((line) => line.points.length).map((line) =>
      [line, line.points.reduce((a, b) => (Math.abs(x(b[0]) - at) < Math.abs(x(a[0]) - at) ? b : a))]);
    if (!near.length) return hide();
    const place = x(near[0][1][0]);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    cursor.setAttribute("visibility", "visible");
    tip.textContent = `${clock(near[0][1][0], true)}  ${near.map(([line, p]) => `${near.length > 1 ? line.name + " " : ""}${show(p[1])}`).join(" · ")}`;
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(place + 8, width - tip.offsetWidth))}px`;
  };
  svg.onpointermove = (event) => point(event.clientX - svg.getBoundingClientRect().left);
  svg.onpointerleave = hide;
  if (host.pointed) point(host.pointed); // drawn again under a pointer that rests
}

// bars: [[label, count]]
function barChart(host, { label, bars }) {
  const total = bars.reduce((sum, bar) => sum + bar[1], 0);
  if (!total) return nothing(host, "nothing yet");
  const width = host.clientWidth, height = host.clientHeight, top = 20, bottom = 22;
  const most = Math.max(...bars.map((bar) => bar[1]));
  const slot = width / bars.length, thick = Math.min(46, slot * 0.72);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.append(shape("line", { class: "gridline", x1: 0, x2: width, y1: height - bottom, y2: height - bottom }));
  bars.forEach(([name, count], i) => {
    const tall = count ? Math.max(2, (count / most) * (height - top - bottom)) : 0;
    const middle = (i + 0.5) * slot, y = height - bottom - tall;
    const bar = shape("rect", { class: "bar", x: middle - thick / 2, y, width: thick, height: tall, rx: Math.min(4, tall / 2) });
    bar.append(shape("title", {}, `${name} samples: ${count} requests`));
    const share = (count / total) * 100;
    if (count && slot > 26) svg.append(shape("text", { class: "count", x: middle, y: y - 6, "text-anchor": "middle" }, share < 1 ? "<1%" : `${share.toFixed(0)}%`));
    if (slot > 13 || i % 2 === 0) svg.append(shape("text", { x: middle, y: height - 4, "text-anchor": "middle" }, name));
    svg.append(bar);
  });
  host.replaceChildren(svg);
}

// parts of a sum over time, one on the other; rows: [[at, [part]]], names and colors of the parts
function stackChart(host, { label, names, colors, rows, from, to, width: wide, show }) {
  const first = Math.floor(from / wide), bins = Array.from({ length: Math.floor(to / wide) - first + 1 }, () => names.map(() => 0));
  for (const [at, parts] of rows) if (at >= first * wide) parts.forEach((part, i) => { bins[Math.floor(at / wide) - first][i] += part; });
  const most = Math.max(...bins.map((bin) => bin.reduce((a, b) => a + b, 0)));
  if (!(most > 0)) return nothing(host, "nothing yet");
  const width = host.clientWidth, height = host.clientHeight, right = 6, top = 8, bottom = 22, marks = ticks(0, most * 1.1, 3);
  const left = 8 + 6.6 * Math.max(...marks.map((m) => show(m).length)), begin = first * wide, end = begin + bins.length * wide;
  const x = (at) => left + ((at - begin) / (end - begin)) * (width - left - right);
  const y = (v) => top + (1 - v / (most * 1.1)) * (height - top - bottom);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const mark of marks) {
    svg.append(shape("line", { class: "gridline", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }));
    svg.append(shape("text", { x: left - 7, y: y(mark) + 4, "text-anchor": "end" }, show(mark)));
  }
  for (const at of timeTicks(begin, end, Math.max(2, (width - left) / 90))) {
    if (x(at) > left + 12 && x(at) < width - 16) svg.append(shape("text", { x: x(at), y: height - 4, "text-anchor": "middle" }, clock(at)));
  }
  bins.forEach((bin, k) => {
    let below = 0;
    const at = begin + k * wide, thick = x(at + wide) - x(at), column = shape("g");
    bin.forEach((part, i) => {
      if (!part) return;
      column.append(shape("rect", { class: `part ${colors[i]}`, x: x(at) + thick * 0.08, width: Math.min(46, thick * 0.84), y: y(below + part), height: y(below) - y(below + part) }));
      below += part;
    });
    column.append(shape("title", {}, `${clock(at)}  ${names.map((name, i) => `${name} ${show(bin[i])}`).join(" · ")}`));
    if (below) svg.append(column);
  });
  host.replaceChildren(svg);
}

// a line of its own with a bar below; parts: [[share, color]], or null where there is nothing to be a part of
function meter(what, much, parts) {
  const row = el("div", { class: "meter" }, el("span", { class: "what", text: what }), el("span", { class: "much", text: much }));
  if (!parts) return row;
  const track = el("div", { class: "track" });
  for (const [share, color] of parts) {
    const part = el("i", { class: color });
    part.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
    track.append(part);
  }
  row.append(track);
  return row;
}
