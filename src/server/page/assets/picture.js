// picture.js — memory over the last two minutes: bands by purpose, one panel for each device, with
// the budget, the predicted peak and what the system says is resident as lines; tokens a second
// below. A sample stands for the time since the one before it.

const SPAN = 120;      // seconds across
const LONGEST = 3;     // seconds that one sample may stand for: what is older is a gap
const GUTTER = 62;     // scales, left of the drawing
const PANEL = 200;     // pixels: a device
const STRIP = 44;      // tokens a second
const AXIS = 18;
const HEAD = 14;       // above what is drawn of a panel

// Told apart with every kind of colour vision (after Paul Tol's schemes). From the bottom up: what
// stays is the ground for what comes and goes.
const PURPOSES = {
  unaccounted: "#a7aeb8", weights: "#4477aa", kv: "#88ccee", optimizer: "#aa4499", io: "#117733",
  profiler: "#882255", other: "#707884", staging: "#999933", gradients: "#cc6677",
  activations: "#44aa99", workspace: "#ddcc77",
};
const LINES = [["resident", []], ["predicted", [2, 3]], ["budget", [7, 4]]];

const canvas = byId("picture");
const context = canvas.getContext("2d");
let samples = []; // oldest first: {time (s), rate, devices: [{name, purposes, bytes, budget, ...}]}
let drawn = [];   // where the panels are, and what is in them: for tests
const colours = {};

// The host, and those that hold something: a target that was left holds nothing.
function devicesInUse({ devices }) {
  return devices.filter(({ bytes }, i) => i === 0 || bytes > 0);
}

// What the picture needs of what /health answers.
function makeSample(time, health) {
  const { memory } = health;
  const devices = devicesInUse(memory).map((device, i) => ({
    name: device.device, purposes: device.purposes, bytes: device.bytes, budget: device.budget_bytes,
    // Both are the process's: of the host, which is the first.
    predicted: i === 0 ? memory.predicted_peak_bytes : null,
    resident: i === 0 ? memory.resident_bytes : null,
  }));
  return { time, rate: health.tokens_per_second, devices };
}

function addSample(sample) {
  samples.push(sample);
  samples = samples.filter(({ time }) => time >= sample.time - SPAN - LONGEST);
  redraw();
}

// ---- where things lie ----

function xOf(time) {
  const last = samples[samples.length - 1].time, width = canvas.clientWidth - GUTTER;
  return GUTTER + Math.max(0, 1 - (last - time) / SPAN) * width;
}

function beginOf(i) {
  const { time } = samples[i];
  return i ? Math.max(samples[i - 1].time, time - LONGEST) : time - 1;
}

// Bytes at a panel's top. A line far above all that is used would flatten it: it is left out.
function topOf(states) {
  const most = (name) => Math.max(0, ...states.map((state) => state[name] || 0));
  const used = Math.max(1, most("bytes"), most("resident"));
  const lines = [most("budget"), most("predicted")].filter((value) => value <= used * 6);
  return Math.max(used, ...lines) * 1.04;
}

function makePanel(name, index) {
  const states = samples.map(({ devices }) => devices.find((device) => device.name === name) || {});
  const top = index * PANEL, floor = top + PANEL - 6, most = topOf(states);
  const perByte = (floor - top - HEAD) / most;
  return { name, states, top, floor, most, yOf: (bytes) => floor - bytes * perByte };
}

// ---- drawing ----

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "grid", "text", "quiet", "accent", "budget", "predicted", "resident"])
    colours[name] = style.getPropertyValue("--" + name).trim();
}

// Also what is drawn for it: sharp where pixels are small.
function fitCanvas(height) {
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(height * scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = '11px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif';
  context.textBaseline = "middle";
}

function write(text, x, y, colour, align) {
  context.fillStyle = colour;
  context.textAlign = align;
  context.fillText(text, x, y);
}

function drawScale({ top, most, floor, yOf }) {
  const step = 2 ** Math.ceil(Math.log2(most / 5));
  for (let bytes = 0; bytes <= most; bytes += step) {
    const y = Math.round(yOf(bytes));
    context.fillStyle = colours.grid;
    context.fillRect(GUTTER, y, canvas.clientWidth, 1);
    if (bytes && y > top + HEAD) write(bytesText(bytes), GUTTER - 6, y, colours.quiet, "right");
  }
  write("0", GUTTER - 6, floor, colours.quiet, "right");
}

// Edges on whole pixels: no seams between neighbours.
function fillBox(x0, x1, y0, y1, colour) {
  context.fillStyle = colour;
  context.fillRect(Math.round(x0), Math.round(y0), Math.round(x1) - Math.round(x0), Math.round(y1) - Math.round(y0));
}

function drawBands({ states, yOf }) {
  states.forEach(({ purposes = {} }, i) => {
    const x0 = xOf(beginOf(i)), x1 = xOf(samples[i].time);
    let sum = 0;
    for (const [purpose, colour] of Object.entries(PURPOSES)) {
      const bytes = purposes[purpose] || 0;
      fillBox(x0, x1, yOf(sum + bytes), yOf(sum), colour);
      sum += bytes;
    }
  });
}

function drawLine({ states, most, yOf }, name, dash) {
  context.strokeStyle = colours[name];
  context.lineWidth = 1.5;
  context.setLineDash(dash);
  context.beginPath();
  let end = NaN; // one stroke while there is no gap: dashes go on
  states.forEach((state, i) => {
    const value = state[name], begin = beginOf(i);
    if (value == null || value > most) return;
    if (begin === end) context.lineTo(xOf(begin), yOf(value));
    else context.moveTo(xOf(begin), yOf(value));
    end = samples[i].time;
    context.lineTo(xOf(end), yOf(value));
  });
  context.stroke();
  context.setLineDash([]);
}

function drawNames({ name, states, most, top, yOf }) {
  const { budget } = states[states.length - 1];
  write(name, 0, top + 7, colours.text, "left");
  if (!budget) return;
  const isAbove = budget > most;
  const text = "budget " + bytesText(budget) + (isAbove ? " ↑" : "");
  write(text, canvas.clientWidth, isAbove ? top + 7 : Math.max(top + 7, yOf(budget) - 8), colours.budget, "right");
}

function drawRates(top) {
  const floor = top + STRIP - 2, most = Math.max(1, ...samples.map(({ rate }) => rate));
  samples.forEach(({ rate, time }, i) => {
    fillBox(xOf(beginOf(i)), xOf(time), floor - rate / most * (STRIP - 12), floor, colours.accent);
  });
  context.fillStyle = colours.grid;
  context.fillRect(GUTTER, floor, canvas.clientWidth, 1);
  write("tokens/s", 0, floor - 5, colours.quiet, "left");
  write(rateText(most), GUTTER - 6, top + 12, colours.quiet, "right");
}

function drawTimes(top) {
  const width = canvas.clientWidth - GUTTER;
  write("2 min ago", GUTTER, top, colours.quiet, "left");
  write("1 min ago", GUTTER + width / 2, top, colours.quiet, "center");
  write("now", GUTTER + width, top, colours.quiet, "right");
}

function draw() {
  if (!samples.length || !canvas.clientWidth) return; // nothing yet, or folded away
  const names = samples[samples.length - 1].devices.map(({ name }) => name);
  readColours();
  fitCanvas(names.length * PANEL + STRIP + AXIS);
  drawn = names.map(makePanel);
  for (const panel of drawn) {
    drawScale(panel);
    drawBands(panel);
    for (const [name, dash] of LINES) drawLine(panel, name, dash);
    drawNames(panel);
  }
  drawRates(names.length * PANEL);
  drawTimes(names.length * PANEL + STRIP + AXIS / 2);
}

let isDue = false;
function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
}
