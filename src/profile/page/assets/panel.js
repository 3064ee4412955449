// panel.js — the side panel with what is pinned or selected, and the tooltip. All texts go through
// textContent (element() in text.js).

const panel = byId("panel"), tooltip = byId("tooltip");

// ---- lists and tables ----

function definitions(facts) {
  const list = element("dl");
  for (const [term, text] of facts) if (text) list.append(element("dt", "", term), element("dd", "", text));
  return list;
}

function heading(text) {
  return element("h3", "", text);
}

function swatch(purpose) {
  const mark = element("i");
  mark.style.background = purposeColour(purpose);
  return mark;
}

function purposeCell(purpose) {
  return element("span", "purpose", swatch(purpose), timeline.purposes[purpose]);
}

// heads: texts, with a ">" before those of columns of numbers. lines: {cells, className, onPick}
function makeTable(heads, lines) {
  const kinds = heads.map((text) => (text.startsWith(">") ? "number" : ""));
  const head = element("tr"), body = element("tbody");
  heads.forEach((text, i) => head.append(element("th", kinds[i], text.replace(">", ""))));
  for (const line of lines) {
    const row = element("tr", line.className || "");
    line.cells.forEach((cell, i) => row.append(element("td", kinds[i], cell)));
    if (line.onPick) makePickable(row, line.onPick);
    body.append(row);
  }
  return element("table", "", element("thead", "", head), body);
}

function makePickable(row, onPick) {
  row.tabIndex = 0;
  row.addEventListener("click", onPick);
  row.addEventListener("keydown", (event) => event.key === "Enter" && onPick());
}

function allocTable(found) {
  const { alloc } = timeline, { top, restCount, restBytes } = largestFirst(alloc, found);
  const lines = top.map((a) => ({
    cells: [element("span", "", swatch(alloc.purpose[a]), allocName(a)), bytesText(alloc.bytes[a])],
    onPick: () => pin({ kind: "alloc", index: a }),
  }));
  const rest = { className: "rest", cells: [`${countText(restCount)} more`, bytesText(restBytes)] };
  return makeTable(["name", ">bytes"], restCount ? [...lines, rest] : lines);
}

function purposeTable(bytes) {
  const sum = bytes.reduce((a, b) => a + b, 0);
  return makeTable(["purpose", ">in use", ">share"], largestPurposes(bytes).map((k) => ({
    cells: [purposeCell(k), bytesText(bytes[k]), (100 * bytes[k] / sum).toFixed(1) + " %"],
  })));
}

function operationTable(sums) {
  return makeTable(["name", ">count", ">time", ">memory"], sums.slice(0, 30).map((sum) => ({
    cells: [sum.name, countText(sum.count), timeText(sum.time), deltaText(sum.delta)],
  })));
}

// ---- the side panel: one thing at a time ----

function showPanel(title, ...parts) {
  const close = element("button", "close", "×");
  close.type = "button";
  close.title = "Close (Esc)";
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", unpin);
  clear(panel).append(close, element("h2", "", title), ...parts);
  panel.scrollTop = 0;
  redraw();
}

// What is there when nothing is pinned. The panel is never empty, so that the canvas does not change
// its size under a double click.
function showOverview() {
  clear(panel).append(element("h2", "", "Overview"));
  timeline.devices.forEach((device, i) => {
    if (memory[i].peakState() >= 0) panel.append(...peakParts(device, memory[i]));
  });
  if (!timeline.op.count) return;
  panel.append(heading("Operations, by time"), operationTable(operationsBetween(timeline, 0, Infinity)));
}

function peakParts(device, series) {
  const state = series.peakState(), reserved = series.reserved[state];
  const most = series.active[series.mostActive.best(0, series.active.length)]; // maybe at another time
  const predicted = counterBetween(device.id, COUNTER.PREDICTED_PEAK, 0, Infinity);
  const budget = counterBetween(device.id, COUNTER.BUDGET, 0, Infinity);
  const go = element("button", "", "What was live");
  go.type = "button";
  go.addEventListener("click", () => pinPeak(series));
  return [
    heading(`Peak of ${device.name}`),
    definitions([
      ["reserved", exactBytesText(reserved)],
      ["in use then", exactBytesText(series.active[state])],
      ["most in use", exactBytesText(most)],
      ["counted", device.counted > reserved ? exactBytesText(device.counted) : ""],
      ["predicted", predicted > 0 ? exactBytesText(predicted) : ""],
      ["budget", budget > 0 ? exactBytesText(budget) : ""],
      ["at", momentText(series.times[state], timeline.end / 1e4)],
    ]),
    purposeTable(purposesAt(series, state)), go,
  ];
}

// What was live in a state of a device's memory.
function showMoment({ series, state, time }) {
  const found = liveInState(timeline, changeOrder, series, state);
  showPanel(`Live at ${momentText(time, Math.max(1, span() / 1e4))}`,
    definitions([
      ["device", deviceName(series.device)],
      ["in use", exactBytesText(series.active[state] || 0)],
      ["reserved", exactBytesText(series.reserved[state] || 0)],
      ["allocations", countText(found.length)],
    ]),
    heading("By purpose"), purposeTable(purposesAt(series, state)), ...stackParts(found),
    heading("Largest first"), allocTable(found));
}

function rangeLines(table) {
  const keys = ["before", "allocated", "freed", "after"];
  const sumOver = (key) => table.sums.reduce((sum, one) => sum + one[key], 0);
  const used = [...table.sums.keys()].filter((k) => table.sums[k].before || table.sums[k].allocations);
  return [
    ...used.map((k) => ({ cells: [purposeCell(k), ...keys.map((key) => bytesText(table.sums[k][key]))] })),
    { cells: ["all", ...keys.map((key) => bytesText(sumOver(key)))] },
  ];
}

function showRange({ begin, end }) {
  const table = rangeTable(timeline, begin, end, memory[0].visible), step = Math.max(1, (end - begin) / 100);
  const count = (key) => countText(table.sums.reduce((sum, one) => sum + one[key], 0));
  const mostOf = (series) => series.peakBetween(begin, end, new Float64Array(series.visible.length)).reserved;
  const { moved } = table;
  showPanel(`Range of ${timeText(end - begin)}`,
    definitions([
      ["from", momentText(begin, step)],
      ["to", momentText(end, step)],
      ...memory.map((series) => [`most on ${deviceName(series.device)}`, exactBytesText(mostOf(series))]),
      ["allocations", count("allocations")],
      ["frees", count("frees")],
      ["moved", moved.count ? `${bytesText(moved.bytes)} in ${countText(moved.count)} moves` : ""],
    ]),
    heading("In use, by purpose"),
    makeTable(["purpose", ">before", ">allocated", ">freed", ">after"], rangeLines(table)),
    heading("Operations, by time"), operationTable(table.ops),
    heading("Live in it, largest first"), allocTable(table.touched));
}

// ---- pinning ----

function pin(what) {
  view.pinned = what;
  if (what.kind === "op") showPanel(opName(what.index), definitions([...opFacts(what.index), ...operandFacts(what.index)]));
  if (what.kind === "alloc") showPanel(allocName(what.index), definitions(allocFacts(what.index)));
  if (what.kind === "moment") showMoment(what);
}

function pinPeak(series) {
  const state = series.peakState();
  if (state < 0) return;
  const time = series.times[state];
  if (time < view.t0 || time > view.t1) setRange(time - span() / 2, time + span() / 2);
  pin({ kind: "moment", series, state, time });
}

function select(begin, end) {
  view.selection = { begin: Math.min(begin, end), end: Math.max(begin, end) };
  view.pinned = null;
  showRange(view.selection);
}

function unpin() {
  view.pinned = view.selection = null;
  showOverview();
  redraw();
}

// ---- the tooltip ----

// Below and right of a point of the canvas, or where there is room.
function showTooltip(title, facts, { x, y }) {
  clear(tooltip).append(element("b", "", title), definitions(facts));
  tooltip.hidden = false;
  const stage = byId("stage"), { offsetWidth, offsetHeight } = tooltip;
  const below = canvas.offsetTop + y + 16, above = canvas.offsetTop + y - offsetHeight - 12;
  tooltip.style.left = Math.max(4, Math.min(x + 14, stage.clientWidth - offsetWidth - 8)) + "px";
  tooltip.style.top = (below + offsetHeight < stage.clientHeight ? below : Math.max(4, above)) + "px";
}

function hideTooltip() {
  tooltip.hidden = true;
}
