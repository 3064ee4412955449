// input.js — mouse and keys. What a gesture does is said in page.html's help.

const CLICK_SLACK = 4; // pixels that a click may wander
let gesture = null;    // {kind: "pan" | "select" | "split" | "brush", ...} while a button is down

function pointIn(target, event) {
  const box = target.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function isOnSplitter(y) {
  return rows.length > 0 && y >= layout.lanes.top - SPLITTER && y < layout.lanes.top;
}

// What lies under a point: {kind: "op" | "alloc", index}, {kind: "memory", panel}, or null.
function underPoint({ x, y }) {
  if (x < layout.left) return null;
  const row = rowAt(y), slack = 2 * span() / layout.width;
  if (row) {
    const op = row.find(timeOf(x), slack);
    return op < 0 ? null : { kind: "op", index: op };
  }
  const under = panelAt(x, y);
  if (!under) return null;
  if (under.picture === "memory") return { kind: "memory", panel: under };
  const a = allocationAt(under, timeOf(x), y);
  return a < 0 ? null : { kind: "alloc", index: a };
}

function hover(point) {
  const under = underPoint(point), mark = markAt(point), isThing = under && under.kind !== "memory";
  canvas.style.cursor = isOnSplitter(point.y) ? "row-resize" : isThing ? "pointer" : "default";
  if (mark >= 0) showTooltip(markText(mark), markFacts(mark), point);
  else if (!under) hideTooltip();
  else if (under.kind === "op") showTooltip(opName(under.index), opFacts(under.index), point);
  else if (under.kind === "alloc") showTooltip(allocName(under.index), allocFacts(under.index), point);
  else {
    const moment = momentText(timeOf(point.x), Math.max(1, span() / layout.width));
    showTooltip(`${under.panel.device.name} at ${moment}`, memoryFacts(under.panel, point.x), point);
  }
}

// The flag at a point of the strip under the axis; -1: none.
function markAt({ x, y }) {
  if (y < AXIS || y >= AXIS + FLAGS || x < layout.left) return -1;
  const { mark } = timeline, slack = 5 * span() / layout.width, time = timeOf(x);
  let best = -1;
  for (let i = lowerBound(mark.time, time - slack); i < mark.count && mark.time[i] <= time + slack; i++) {
    if (mark.kind[i] === MARK.START) continue;
    if (best < 0 || Math.abs(mark.time[i] - time) < Math.abs(mark.time[best] - time)) best = i;
  }
  return best;
}

function click(point) {
  const under = underPoint(point);
  if (!under) return;
  if (under.kind === "memory") {
    const { state } = momentAt(under.panel, point.x);
    const { series } = under.panel, begin = timeOf(Math.floor(point.x));
    // The state's own time, unless it began before this pixel.
    pin({ kind: "moment", series, state, time: state >= 0 ? Math.max(begin, series.times[state]) : begin });
  } else pin(under);
}

function doubleClick(point) {
  const under = underPoint(point);
  if (!under || under.kind === "memory") return fitAll();
  const table = under.kind === "op" ? timeline.op : timeline.alloc;
  fitRange(table.begin[under.index], Math.min(table.end[under.index], timeline.end));
}

// ---- mouse on the canvas ----

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const point = pointIn(canvas, event), lines = event.deltaMode === 1 ? 16 : 1;
  const dx = event.deltaX * lines, dy = event.deltaY * lines;
  if (event.altKey) scrollAt(point.y, dy);
  else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) pan((dx || dy) * span() / layout.width);
  else zoomAt(timeOf(Math.max(layout.left, point.x)), Math.exp(Math.max(-1, Math.min(1, dy * 0.002))));
}, { passive: false });

function scrollAt(y, by) {
  view.scroll[y < layout.lanes.top ? "upper" : "lanes"] += by;
  redraw();
}

canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  const point = pointIn(canvas, event);
  canvas.setPointerCapture(event.pointerId);
  canvas.focus({ preventScroll: true });
  const kind = isOnSplitter(point.y) ? "split" : event.shiftKey ? "select" : "pan";
  gesture = { kind, start: point, last: point, time: timeOf(point.x), moved: false };
});

canvas.addEventListener("pointermove", (event) => {
  const point = pointIn(canvas, event);
  view.cursor = point;
  if (!gesture) hover(point);
  else drag(point);
  redraw();
});

function drag(point) {
  const { start } = gesture;
  if (Math.hypot(point.x - start.x, point.y - start.y) > CLICK_SLACK) gesture.moved = true;
  if (!gesture.moved) return;
  hideTooltip();
  if (gesture.kind === "pan") {
    pan((gesture.last.x - point.x) * span() / layout.width);
    scrollAt(gesture.start.y, gesture.last.y - point.y);
  } else if (gesture.kind === "select") {
    const other = timeOf(point.x);
    view.selection = { begin: Math.min(gesture.time, other), end: Math.max(gesture.time, other) };
  } else {
    const share = (point.y - layout.upper.top) / (layout.height - layout.upper.top);
    view.split = Math.min(0.9, Math.max(0.1, share));
  }
  gesture.last = point;
}

canvas.addEventListener("pointerup", (event) => {
  const ended = gesture;
  gesture = null;
  if (!ended) return;
  const point = pointIn(canvas, event);
  if (ended.kind === "select" && ended.moved) select(ended.time, timeOf(point.x));
  else if (!ended.moved && ended.kind !== "split") click(point);
});

canvas.addEventListener("pointercancel", () => (gesture = null));
canvas.addEventListener("pointerleave", () => {
  view.cursor = null;
  hideTooltip();
  redraw();
});
canvas.addEventListener("dblclick", (event) => doubleClick(pointIn(canvas, event)));

// ---- the minimap: inside the brush it is dragged, elsewhere a new one is drawn ----

minimap.addEventListener("pointerdown", (event) => {
  const { x } = pointIn(minimap, event);
  minimap.setPointerCapture(event.pointerId);
  const isInside = x >= mapX(view.t0) && x <= mapX(view.t1) && span() < timeline.end * 0.98;
  gesture = { kind: "brush", isInside, start: x, offset: mapTime(x) - view.t0, moved: false };
});

minimap.addEventListener("pointermove", (event) => {
  if (!gesture || gesture.kind !== "brush") return;
  const { x } = pointIn(minimap, event), length = span();
  gesture.moved = gesture.moved || Math.abs(x - gesture.start) > CLICK_SLACK;
  if (!gesture.moved) return;
  if (gesture.isInside) setRange(mapTime(x) - gesture.offset, mapTime(x) - gesture.offset + length);
  else setRange(Math.min(mapTime(x), mapTime(gesture.start)), Math.max(mapTime(x), mapTime(gesture.start)));
});

minimap.addEventListener("pointerup", (event) => {
  const ended = gesture;
  gesture = null;
  if (!ended || ended.kind !== "brush" || ended.moved) return;
  const middle = mapTime(pointIn(minimap, event).x), length = span();
  setRange(middle - length / 2, middle + length / 2);
});
minimap.addEventListener("dblclick", fitAll);

// ---- keys ----

const viewButtons = document.querySelectorAll("[data-view]");

function setMode(mode) {
  view.mode = mode;
  for (const button of viewButtons)
    button.setAttribute("aria-pressed", String(Number(button.dataset.view) === mode));
  redraw();
}

function goToPeak() {
  let best = 0;
  memory.forEach((series, i) => peakOf(series) > peakOf(memory[best]) && (best = i));
  pinPeak(memory[best]);
}

function fitPicked() {
  const { pinned, selection } = view;
  if (selection) fitRange(selection.begin, selection.end);
  else if (pinned && pinned.kind !== "moment") {
    const table = pinned.kind === "op" ? timeline.op : timeline.alloc;
    fitRange(table.begin[pinned.index], Math.min(table.end[pinned.index], timeline.end));
  } else fitAll();
}

// At the cursor, or in the middle; one that is there already goes.
function toggleMarker() {
  const time = middleTime(), slack = 5 * span() / layout.width;
  const near = view.markers.findIndex((other) => Math.abs(other - time) < slack);
  if (near >= 0) view.markers.splice(near, 1);
  else view.markers.push(time);
  redraw();
}

// The next operation of the row in which one is pinned; else the first that is in view.
function stepOperation(step) {
  const { pinned } = view;
  if (!rows.length) return;
  const isOp = pinned && pinned.kind === "op", row = isOp ? placedRowOf(pinned.index).row : rows[0];
  const at = isOp ? row.ops.indexOf(pinned.index) + step : lowerBound(row.ends, view.t0);
  if (at >= 0 && at < row.ops.length) goTo({ kind: "op", index: row.ops[at] });
}

function clearAll() {
  searchBox.value = "";
  search("");
  unpin();
  hideTooltip();
}

// Where keys act: under the mouse, else in the middle.
function middleTime() {
  const { cursor } = view;
  return cursor && cursor.x > layout.left ? timeOf(cursor.x) : (view.t0 + view.t1) / 2;
}

const KEYS = {
  w: () => zoomAt(middleTime(), 0.75),
  s: () => zoomAt(middleTime(), 1 / 0.75),
  a: () => pan(-span() * 0.12),
  d: () => pan(span() * 0.12),
  arrowleft: () => pan(-span() * 0.12),
  arrowright: () => pan(span() * 0.12),
  arrowup: () => scrollAt(view.cursor ? view.cursor.y : layout.height, -ROW * 2),
  arrowdown: () => scrollAt(view.cursor ? view.cursor.y : layout.height, ROW * 2),
  "+": () => zoomAt(middleTime(), 0.75),
  "-": () => zoomAt(middleTime(), 1 / 0.75),
  f: fitPicked,
  r: () => select(Math.max(0, view.t0), Math.min(timeline.end, view.t1)),
  0: fitAll,
  home: fitAll,
  1: () => setMode(1),
  2: () => setMode(2),
  3: () => setMode(3),
  m: toggleMarker,
  p: goToPeak,
  y: () => {
    view.followScale = !view.followScale;
    redraw();
  },
  t: () => setTheme(view.theme === "dark" ? "light" : "dark"),
  "/": () => searchBox.select(),
  "?": () => byId("keys").showModal(),
  ".": () => stepOperation(1),
  ",": () => stepOperation(-1),
  escape: clearAll,
};

// In the panel and on buttons the arrows and letters that these need stay theirs.
document.addEventListener("keydown", (event) => {
  if (byId("keys").open) return;
  const key = event.key.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && key === "f") {
    event.preventDefault();
    return searchBox.select();
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (panel.contains(document.activeElement) && key.startsWith("arrow")) return;
  if (!KEYS[key]) return;
  event.preventDefault();
  KEYS[key]();
});

for (const button of viewButtons) button.addEventListener("click", () => setMode(Number(button.dataset.view)));
byId("peak").addEventListener("click", goToPeak);
byId("fit").addEventListener("click", fitAll);
byId("theme").addEventListener("click", KEYS.t);
byId("help").addEventListener("click", KEYS["?"]);
window.addEventListener("resize", redraw);

// Paper is white.
let themeOnScreen = null;
window.addEventListener("beforeprint", () => {
  themeOnScreen = view.theme;
  setTheme("light");
  drawNow();
});
window.addEventListener("afterprint", () => setTheme(themeOnScreen || "light"));
