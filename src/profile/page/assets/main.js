// main.js — reads, builds, draws; and lets programs ask what is drawn.

const errors = [];
window.addEventListener("error", (event) => errors.push(String(event.message)));

const timings = { scripts: performance.now() }; // milliseconds since the page was asked for

function build() {
  timeline = readTimeline();
  timings.decoded = performance.now();
  changeOrder = orderChanges(timeline.alloc);
  memory = buildMemory(timeline, changeOrder);
  counters = buildCounters(timeline);
  rows = buildRows(timeline, null);
  colourNames();
  timings.built = performance.now();
}

const darkPreference = matchMedia("(prefers-color-scheme: dark)");

function preferredTheme() {
  return darkPreference.matches ? "dark" : "light";
}

function start() {
  build();
  makeHeader();
  makeLegend();
  setTheme(preferredTheme());
  darkPreference.addEventListener("change", () => setTheme(preferredTheme()));
  measureLayout();
  fitAll();
  drawNow();
  timings.drawn = performance.now();
  requestAnimationFrame(() => {
    timings.shown = performance.now(); // the first picture has been handed over
    showOverview();
    makeSummary();
  });
  new ResizeObserver(redraw).observe(byId("stage"));
}

// For tests and consoles: the numbers, and what the next frame draws of them.
window.rationTimeline = {
  errors, timings, frameTimes, view,
  get data() { return timeline; },
  get rows() { return rows; },
  get layout() { return layout; },
  setRange, fitAll, drawNow, search, nextHit, select, unpin, setMode, setTheme, goToPeak, clearAll,
  // Of device number i of `data.devices`: an entry for each pixel column.
  memoryColumns: (i) => memoryColumns(memory[i], Math.round(layout.width * window.devicePixelRatio)),
  peak: (i) => ({ bytes: peakOf(memory[i]), time: memory[i].times[memory[i].peakState()] || 0 }),
  rowBoxes: (i) => rowBoxes(rows[i]),
  range: (begin, end) => rangeTable(timeline, begin, end, memory[0].visible),
  liveAtPeak: (i) => liveInState(timeline, changeOrder, memory[i], memory[i].peakState()),
  underPoint, allocationAt, xOf, timeOf,
};

start();
