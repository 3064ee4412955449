// view.js — what is shown: the range of time, what is picked, where things lie on the canvas; and
// when it is drawn. Everything else changes `view` and calls redraw().

const GUTTER = 132;      // names and scales, left of the drawing
const AXIS = 22;         // the times, on top
const FLAGS = 18;        // stages, checkpoints, refusals
const SPLITTER = 7;
const ROW = 17;          // of operations
const LANE_GAP = 7;
const LEAST_PANEL = 84;  // of a device
const LEAST_SPAN = 20;   // nanoseconds across the canvas, at the closest

const view = {
  t0: 0, t1: 1,
  mode: 1,              // 1 memory, 2 addresses, 3 both
  split: 0.55,          // the upper half's share
  scroll: { upper: 0, lanes: 0 },
  followScale: false,   // memory scaled to what is in view
  selection: null,      // {begin, end}
  pinned: null,         // {kind: "op" | "alloc" | "moment", ...}
  markers: [],          // times
  cursor: null,         // {x, y} while the mouse is over the canvas
  matches: null,        // see search.js
  theme: "light",
};

let timeline = null;     // data.js
let changeOrder = null;  // series.js
let memory = [];         // a MemorySeries for each of timeline.devices
let counters = {};
let rows = [];
let layout = null;

// Kept in ordinary memory: most of its pixels are computed here (Raster), not by a graphics card.
const canvas = byId("canvas");
const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });

// ---- colours ----

// Told apart with every kind of colour vision (after Paul Tol's schemes); in the order of rn_purpose.
const PURPOSE_COLOURS = [
  "#4477aa", "#88ccee", "#44aa99", "#cc6677", "#aa4499", "#ddcc77",
  "#999933", "#117733", "#882255", "#a7aeb8", "#707884", "#332288",
];
const OP_COLOURS = [
  "#6f9fd8", "#7cc3b2", "#d8b365", "#c98aa8", "#9a94d0",
  "#8fb56a", "#d99a78", "#76b7d6", "#b3a17c", "#a8b4c4",
];

// Those of page.css.
const COLOUR_NAMES = [
  "ground", "raised", "edge", "grid", "text", "quiet", "accent", "select",
  "budget", "predicted", "resident", "alarm", "found", "hatch",
];
const colours = {};

function purposeColour(purpose) {
  return PURPOSE_COLOURS[purpose % PURPOSE_COLOURS.length];
}

// A colour as a canvas stores a pixel: little-endian red, green, blue, opaque.
function packed(colour) {
  const n = parseInt(colour.slice(1), 16);
  return (0xff000000 | (n & 255) << 16 | (n & 0xff00) | n >> 16) >>> 0;
}

// From the bottom up: what stays is the ground for what comes and goes.
const STACK = [9, 0, 1, 4, 7, 8, 10, 6, 3, 2, 5];

const PURPOSE_PIXELS = Uint32Array.from(PURPOSE_COLOURS, packed);

// The same name has the same colour, in every lane. Digits do not count, so that "layer 7" looks like
// "layer 8". The first names of a file, which are most of it, get colours of their own.
let opColours = [];
function colourNames() {
  const stems = new Map();
  opColours = Array.from({ length: timeline.nameCount }, (_, id) => {
    const stem = timeline.name(id).replace(/\d+/g, "");
    if (!stems.has(stem)) stems.set(stem, OP_COLOURS[stems.size % OP_COLOURS.length]);
    return stems.get(stem);
  });
}

function opColour(name) {
  return opColours[name];
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of COLOUR_NAMES) colours[name] = style.getPropertyValue("--" + name).trim();
}

function setTheme(theme) {
  view.theme = theme;
  document.documentElement.dataset.theme = theme;
  readColours();
  redraw();
}

// ---- time and pixels ----

const FONT = '11px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif';

function span() {
  return view.t1 - view.t0;
}

function xOf(time) {
  return layout.left + (time - view.t0) / span() * layout.width;
}

function timeOf(x) {
  return view.t0 + (x - layout.left) / layout.width * span();
}

// The middle stays within the recording, so that one cannot get lost.
function setRange(t0, t1) {
  const length = Math.min(Math.max(t1 - t0, LEAST_SPAN), timeline.end * 1.5);
  const middle = Math.min(Math.max((t0 + t1) / 2, 0), timeline.end);
  view.t0 = middle - length / 2;
  view.t1 = middle + length / 2;
  hideTooltip(); // something else is under the mouse now
  redraw();
}

function fitAll() {
  setRange(-timeline.end * 0.005, timeline.end * 1.005);
}

// With a little room on both sides.
function fitRange(begin, end) {
  end = Math.min(end, timeline.end);
  const room = Math.max((end - begin) * 0.06, LEAST_SPAN / 2);
  setRange(begin - room, end + room);
}

function zoomAt(time, factor) {
  const length = Math.min(Math.max(span() * factor, LEAST_SPAN), timeline.end * 1.5);
  const share = (time - view.t0) / span();
  setRange(time - share * length, time + (1 - share) * length);
}

function pan(time) {
  setRange(view.t0 + time, view.t1 + time);
}

// ---- where things lie ----

function lanesHeight() {
  let height = 0, lane = -1;
  for (const row of rows) {
    if (row.lane !== lane) height += LANE_GAP;
    lane = row.lane;
    height += ROW;
  }
  return height + LANE_GAP;
}

// Panels of the upper half from top to bottom: one for each device and picture.
function makePanels(top, height) {
  const pictures = view.mode === 3 ? ["memory", "addresses"] : [view.mode === 2 ? "addresses" : "memory"];
  const count = timeline.devices.length * pictures.length;
  const each = Math.max(LEAST_PANEL, height / count);
  const panels = [];
  timeline.devices.forEach((device, i) => pictures.forEach((picture) => {
    const y = top + panels.length * each - view.scroll.upper;
    panels.push({ device, series: memory[i], picture, top: y, height: each });
  }));
  return { panels, contentHeight: each * count };
}

function measureLayout() {
  const width = canvas.clientWidth, height = canvas.clientHeight;
  const upperTop = AXIS + FLAGS;
  const room = Math.max(60, height - upperTop - SPLITTER);
  const wanted = rows.length ? room * view.split : room;
  // Few lanes need no half of the canvas.
  const upperHeight = Math.round(rows.length ? Math.max(wanted, room - lanesHeight() - 12) : room);
  layout = {
    left: GUTTER, width: Math.max(20, width - GUTTER), height, right: width,
    upper: { top: upperTop, bottom: upperTop + upperHeight },
    lanes: { top: upperTop + upperHeight + SPLITTER, bottom: height },
  };
  const made = makePanels(upperTop, upperHeight);
  view.scroll.upper = clampScroll(view.scroll.upper, made.contentHeight, upperHeight);
  layout.panels = makePanels(upperTop, upperHeight).panels;
  view.scroll.lanes = clampScroll(view.scroll.lanes, lanesHeight(), height - layout.lanes.top);
  layout.rows = placeRows(layout.lanes.top - view.scroll.lanes);
}

function clampScroll(scroll, content, room) {
  return Math.max(0, Math.min(scroll, content - room));
}

function placeRows(top) {
  const placed = [];
  let y = top, lane = -1;
  for (const row of rows) {
    if (row.lane !== lane) y += LANE_GAP;
    lane = row.lane;
    placed.push({ row, top: y });
    y += ROW;
  }
  return placed;
}

function panelAt(x, y) {
  if (y < layout.upper.top || y >= layout.upper.bottom || x < layout.left) return null;
  return layout.panels.find((panel) => y >= panel.top && y < panel.top + panel.height) || null;
}

function placedRowOf(op) {
  const { lane, depth } = timeline.op;
  return layout.rows.find(({ row }) => row.lane === lane[op] && row.depth === depth[op]);
}

function rowAt(y) {
  if (y < layout.lanes.top) return null;
  const placed = layout.rows.find(({ top }) => y >= top && y < top + ROW);
  return placed ? placed.row : null;
}

// ---- when it is drawn ----

let isDue = false;
const painters = []; // of the canvas's parts, in order; each file adds its own
const frameTimes = []; // milliseconds of the last frames, for measuring

function redraw() {
  if (isDue || !layout) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    drawNow();
  });
}

function fitCanvas(target) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(target.clientWidth * scale));
  const height = Math.max(1, Math.round(target.clientHeight * scale));
  if (target.width !== width) target.width = width;
  if (target.height !== height) target.height = height;
  return scale;
}

function drawNow() {
  const begin = performance.now();
  const scale = fitCanvas(canvas);
  measureLayout();
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.fillStyle = colours.ground;
  context.fillRect(0, 0, layout.right, layout.height);
  context.font = FONT;
  context.textBaseline = "middle";
  for (const paint of painters) paint(context, scale);
  frameTimes.push(performance.now() - begin);
  if (frameTimes.length > 240) frameTimes.shift();
}

// ---- drawing of many small things: pixels written one by one ----

// Hundreds of thousands of rectangles are too many for the canvas's own calls, and few for a loop.
class Raster {
  // Covers this part of the canvas, in its own pixels.
  begin(x, y, width, height, scale, ground) {
    this.x = Math.round(x * scale);
    this.y = Math.round(y * scale);
    const w = Math.max(1, Math.round((x + width) * scale) - this.x);
    const h = Math.max(1, Math.round((y + height) * scale) - this.y);
    if (!this.image || this.image.width !== w || this.image.height !== h) {
      this.image = new ImageData(w, h);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.width = w;
    this.height = h;
    this.pixels.fill(ground);
  }

  // Rows [top, bottom) of one column.
  column(x, top, bottom, colour) {
    const end = Math.min(this.height, bottom) * this.width + x;
    for (let i = Math.max(0, top) * this.width + x; i < end; i += this.width) this.pixels[i] = colour;
  }

  hatchedColumn(x, top, bottom, colour) {
    for (let y = Math.max(0, top); y < Math.min(this.height, bottom); y++)
      if ((x + y) % 7 < 2) this.pixels[y * this.width + x] = colour;
  }

  // fill() has a price of its own: most rectangles are a few pixels.
  rectangle(left, top, right, bottom, colour) {
    const { pixels, width } = this, last = Math.min(this.height, bottom);
    const from = Math.max(0, left), to = Math.min(width, right);
    for (let y = Math.max(0, top); y < last; y++) {
      const begin = y * width + from, end = y * width + to;
      if (end - begin > 24) pixels.fill(colour, begin, end);
      else for (let i = begin; i < end; i++) pixels[i] = colour;
    }
  }

  put(target) {
    target.putImageData(this.image, this.x, this.y);
  }
}

// Text that ends with an ellipsis where there is no room. Measuring is slow, so letters are counted,
// by the width of an average one.
let letterWidth = 0;
function fitText(text, width) {
  if (!letterWidth) letterWidth = context.measureText("abcdefghijklmnopqrstuvwxyz_0123456789").width / 37;
  const letters = Math.floor(width / letterWidth);
  if (text.length <= letters) return text;
  return letters < 2 ? "" : text.slice(0, letters - 1) + "…";
}
