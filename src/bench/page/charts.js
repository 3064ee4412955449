// charts.js — bars, the scatter, the sweep: SVG with classes for colours.

// Values for the lines of a grid between two positive ones, for a logarithmic axis.
function logTicks(low, high, base) {
  const ticks = [];
  const steps = base === 10 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log(low) / Math.log(base)); power <= Math.ceil(Math.log(high) / Math.log(base)); power++)
    for (const step of steps) {
      const value = step * Math.pow(base, power);
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
    }
  while (ticks.length > 9) for (let i = 1; i < ticks.length; i++) ticks.splice(i, 1);
  return ticks;
}

function linearTicks(high) {
  const rough = high / 6, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = power * [1, 2, 5, 10].find(s => s * power >= rough);
  const ticks = [];
  for (let value = 0; value <= high * 1.0001; value += step) ticks.push(value);
  return ticks;
}

const textWidth = text => 7.6 * text.length;

// ---- bars ----

function drawBars() {
  const done = items.filter(works);
  const section = document.getElementById("bars-section");
  if (!items.length) { section.hidden = true; return; }
  const left = Math.min(330, Math.max(60, ...items.map(item => textWidth(labelOf(item)))) + 14);
  const width = 1160, right = 190, height = 24;
  // One slow tail does not make all bars short: p99 is cut at the edge.
  const high = Math.max(...done.map(item => item.latency.p50_high_s || item.latency.p50_s), 0) * 1.08 || 1;
  const x = s => left + (width - left - right) * Math.min(s, high) / high;
  const svg = draw("svg", {viewBox: `0 0 ${width} ${items.length * height + 34}`, width, role: "img", "aria-label": "median latency of each variant"});
  for (const tick of done.length ? linearTicks(high) : []) {
    svg.append(draw("line", {class: "grid", x1: x(tick), x2: x(tick), y1: 4, y2: items.length * height + 8}));
    svg.append(draw("text", {class: "quiet", x: x(tick), y: items.length * height + 24, "text-anchor": "middle"}, tick ? showTime(tick) : "0"));
  }
  const best = done.length ? done.reduce((a, b) => a.latency.p50_s <= b.latency.p50_s ? a : b) : null;
  items.forEach((item, i) => {
    const y = i * height + 6;
    svg.append(draw("text", {x: left - 8, y: y + 14, "text-anchor": "end"}, labelOf(item)));
    if (!works(item)) {
      const text = reasonOf(item), room = Math.floor((width - left) / 6);
      svg.append(draw("text", {class: "why", x: left + 4, y: y + 14}, text.length > room ? text.slice(0, room - 1) + "…" : text, draw("title", {}, text)));
      return;
    }
    svg.append(barOf(item, x, y, item === best));
  });
  put("bars", svg);
}

function barOf(item, x, y, isBest) {
  const t = item.latency, kind = isBest ? " best" : item.name === results.baseline ? " baseline" : "";
  const bar = draw("g", {class: "variant", "data-name": item.name});
  bar.append(draw("title", {}, `${labelOf(item)}: ${showTime(t.p50_s)} (${showTime(t.p50_low_s)} to ${showTime(t.p50_high_s)}), p90 ${showTime(t.p90_s)}, p99 ${showTime(t.p99_s)}, ${t.samples} samples`));
  bar.append(draw("rect", {class: "bar" + kind, x: x(0), y, width: Math.max(1, x(t.p50_s) - x(0)), height: 17, rx: 2}));
  if (hasInterval(item)) {
    const [a, b] = [x(t.p50_low_s), x(t.p50_high_s)];
    bar.append(draw("path", {class: "whisker", d: `M${a} ${y + 4}v9M${b} ${y + 4}v9M${a} ${y + 8.5}H${b}`}));
  }
  if (t.p99_s !== null) bar.append(draw("line", {class: "tail", x1: x(t.p99_s), x2: x(t.p99_s), y1: y + 2, y2: y + 15}));
  const speed = item.speedup && item.name !== results.baseline ? `  ×${item.speedup.ratio.toFixed(2)}` : "";
  const wrong = item.outcome === "wrong" ? "  wrong" : "";
  bar.append(draw("text", {x: Math.max(x(t.p50_high_s || t.p50_s), x(t.p99_s || 0)) + 8, y: y + 13}, showTime(t.p50_s) + speed + wrong));
  return bar;
}

// ---- scatter ----

// `right`: room behind the last point, for labels.
function frameOf(width, height, right, xs, ys, xBase, yBase, xShow, yShow, xTitle, yTitle) {
  const box = {left: 84, right, top: 12, bottom: 46};
  const spread = values => [Math.min(...values) / 1.25, Math.max(...values) * 1.25];
  const [x0, x1] = spread(xs), [y0, y1] = spread(ys);
  const x = v => box.left + (width - box.left - box.right) * Math.log(v / x0) / Math.log(x1 / x0);
  const y = v => height - box.bottom - (height - box.top - box.bottom) * Math.log(v / y0) / Math.log(y1 / y0);
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": `${yTitle} against ${xTitle}`});
  for (const tick of logTicks(x0, x1, xBase)) {
    svg.append(draw("line", {class: "grid", x1: x(tick), x2: x(tick), y1: box.top, y2: height - box.bottom}));
    svg.append(draw("text", {class: "quiet", x: x(tick), y: height - box.bottom + 16, "text-anchor": "middle"}, xShow(tick)));
  }
  for (const tick of logTicks(y0, y1, yBase)) {
    svg.append(draw("line", {class: "grid", x1: box.left, x2: width - box.right, y1: y(tick), y2: y(tick)}));
    svg.append(draw("text", {class: "quiet", x: box.left - 6, y: y(tick) + 4, "text-anchor": "end"}, yShow(tick)));
  }
  svg.append(draw("text", {class: "quiet", x: (box.left + width - box.right) / 2, y: height - 8, "text-anchor": "middle"}, xTitle));
  svg.append(draw("text", {class: "quiet", transform: `translate(14 ${(box.top + height - box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, yTitle));
  return {svg, x, y, x1: width - box.right, top: box.top};
}

// A place beside the point where no other label lies.
function placeLabel(taken, cx, cy, text, limit) {
  const width = textWidth(text), tries = [[8, 4], [8, -8], [8, 16], [-8 - width, 4], [-8 - width, -8], [-8 - width, 16], [-width / 2, -12], [-width / 2, 22]];
  const boxes = tries.map(([dx, dy]) => ({x: cx + dx, y: cy + dy, x1: cx + dx + width, y0: cy + dy - 10}));
  const free = boxes.find(b => b.x1 < limit && b.x > 84 && !taken.some(t => b.x < t.x1 && t.x < b.x1 && b.y0 < t.y && t.y0 < b.y)) || boxes[0];
  taken.push(free);
  return free;
}

function drawScatter(kind) {
  const points = items.filter(works).map(item => ({item, x: item.latency.p50_s, y: memories[kind].of(item)})).filter(p => p.x > 0 && p.y > 0);
  document.getElementById("scatter-section").hidden = !points.length;
  shown.front = [];
  if (!points.length) return;
  const {svg, x, y, x1, top} = frameOf(1160, 420, 24, points.map(p => p.x), points.map(p => p.y), 10, 2, showTime, showSize, "median latency of a run", "peak memory, " + memories[kind].title);
  const front = paretoFront(points);
  shown.front = front.map(p => p.item.name);
  let path = `M${x(front[0].x)} ${top}`;
  for (const p of front) path += `H${x(p.x)}V${y(p.y)}`;
  svg.append(draw("path", {class: "front-line", d: path + `H${x1}`}));
  const taken = points.map(p => ({x: x(p.x) - 5, x1: x(p.x) + 5, y: y(p.y) + 5, y0: y(p.y) - 5}));
  for (const p of [...front, ...points.filter(q => !front.includes(q))]) {
    const isFront = front.includes(p), label = placeLabel(taken, x(p.x), y(p.y), labelOf(p.item), x1);
    svg.append(draw("circle", {class: "point" + (isFront ? " front" : ""), cx: x(p.x), cy: y(p.y), r: isFront ? 6 : 5}, draw("title", {}, `${labelOf(p.item)}: ${showTime(p.x)}, ${showSize(p.y)}`)));
    svg.append(draw("text", {class: isFront ? "" : "quiet", x: label.x, y: label.y}, labelOf(p.item)));
  }
  put("scatter", svg);
}

function drawChoice() {
  const known = Object.keys(memories).filter(kind => items.some(item => works(item) && memories[kind].of(item)));
  const buttons = known.map(kind => {
    const button = make("button", {type: "button", "aria-pressed": String(kind === known[0])}, memories[kind].title);
    button.onclick = () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      drawScatter(kind);
    };
    return button;
  });
  put("memory-choice", ...(buttons.length > 1 ? buttons : []));
  drawScatter(known[0] || "resident");
}

// ---- sweep ----

function drawSweep() {
  const key = {batch: "batch_size", budget: "budget_bytes"}[results.sweep];
  const series = new Map();
  for (const item of key ? items.filter(works) : []) {
    if (item[key] === null) continue;
    if (!series.has(item.name)) series.set(item.name, []);
    series.get(item.name).push(item);
  }
  document.getElementById("sweep").hidden = !series.size;
  if (!series.size) return;
  put("sweep-title", results.sweep === "batch" ? "Latency and throughput against the batch" : "Latency and throughput against the budget");
  const title = results.sweep === "batch" ? "items of a run" : "budget", show = results.sweep === "batch" ? showNumber : showSize;
  for (const list of series.values()) list.sort((a, b) => a[key] - b[key]);
  put("sweep-latency", sweepOf(series, key, item => item.latency.p50_s, item => [item.latency.p50_low_s, item.latency.p50_high_s], show, showTime, title, "median latency of a run"));
  put("sweep-throughput", sweepOf(series, key, item => item.throughput, () => null, show, showNumber, title, "items a second"));
}

function sweepOf(series, key, value, interval, xShow, yShow, xTitle, yTitle) {
  const all = [...series.values()].flat();
  const room = Math.max(...[...series.keys()].map(textWidth)) + 12;
  const {svg, x, y} = frameOf(570, 330, Math.min(room, 200), all.map(item => item[key]), all.map(value), 2, 10, xShow, yShow, xTitle, yTitle);
  const taken = [];
  [...series].forEach(([name, list], i) => {
    const colour = `var(--s${i % 8})`, last = list[list.length - 1];
    svg.append(draw("polyline", {class: "line", style: `stroke:${colour}`, points: list.map(item => `${x(item[key])},${y(value(item))}`).join(" ")}));
    for (const item of list) {
      const span = interval(item);
      if (span && span[0]) svg.append(draw("path", {class: "whisker", style: `stroke:${colour}`, d: `M${x(item[key])} ${y(span[0])}V${y(span[1])}`}));
      svg.append(draw("circle", {style: `fill:${colour}`, cx: x(item[key]), cy: y(value(item)), r: 3.5}, draw("title", {}, `${labelOf(item)}: ${yShow(value(item))}`)));
    }
    const label = placeLabel(taken, x(last[key]), y(value(last)), name, 570);
    svg.append(draw("text", {style: `fill:${colour}`, x: label.x, y: label.y}, name));
  });
  return svg;
}
