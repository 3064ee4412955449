// memory.js — memory over time: bands of what is in use, by purpose; above them, hatched, what is
// reserved and not in use; the budget, the prediction and what the system says as lines.

const bandRaster = new Raster();
const bandBytes = new Float64Array(32);

// What is drawn in each pixel column of a panel: columns[x] = {reserved, active, purposes, state}.
// The tests read the same.
function memoryColumns(series, width) {
  const columns = [], purposes = new Float64Array(series.visible.length), step = span() / width;
  for (let x = 0; x < width; x++) {
    const peak = series.peakBetween(view.t0 + x * step, view.t0 + (x + 1) * step, purposes);
    columns.push({ ...peak, purposes: Array.from(purposes) });
  }
  return columns;
}

// Bytes at the top edge of a panel. Lines far above all else do not flatten it: they are left out.
function memoryScale(panel) {
  const { series } = panel, lines = counters[panel.device.id] || {};
  const [begin, end] = view.followScale ? [view.t0, view.t1] : [0, Infinity];
  const peak = series.peakBetween(begin, end, bandBytes.subarray(0, series.visible.length));
  const used = Math.max(1, peak.reserved, peak.active);
  let most = used;
  for (const kind of [COUNTER.PREDICTED_PEAK, COUNTER.PREDICTED, COUNTER.RESIDENT, COUNTER.BUDGET]) {
    const value = lines[kind] ? lines[kind].largest(begin, end) : NaN;
    if (value <= used * 3 || (used === 1 && value > 1)) most = Math.max(most, value);
  }
  return most * 1.08;
}

function drawBands(panel, scale, most) {
  const { series } = panel, top = Math.max(panel.top, layout.upper.top);
  const bottom = Math.min(panel.top + panel.height, layout.upper.bottom);
  bandRaster.begin(layout.left, top, layout.width, bottom - top, scale, packed(colours.ground));
  const floor = Math.round((panel.top + panel.height - 1) * scale) - bandRaster.y;
  const perByte = (panel.height - 14) * scale / most, { width } = bandRaster, step = span() / width;
  const hatch = packed(colours.hatch), edge = packed(colours.quiet);
  const purposes = bandBytes.subarray(0, series.visible.length);
  for (let x = 0; x < width; x++) {
    const peak = series.peakBetween(view.t0 + x * step, view.t0 + (x + 1) * step, purposes);
    let sum = 0, y = floor;
    for (const purpose of STACK) {
      if (!purposes[purpose]) continue;
      sum += purposes[purpose];
      const next = floor - Math.round(sum * perByte);
      bandRaster.column(x, next, y, PURPOSE_PIXELS[purpose]);
      y = next;
    }
    const reserved = floor - Math.round(Math.max(peak.reserved, sum) * perByte);
    if (peak.reserved > sum) bandRaster.hatchedColumn(x, reserved, y, hatch);
    if (reserved < floor) bandRaster.column(x, reserved, reserved + Math.ceil(scale), edge);
  }
  bandRaster.put(context);
}

function drawLine(panel, series, most, colour, dash, width) {
  const floor = panel.top + panel.height - 1, perByte = (panel.height - 14) / most;
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  let isDown = false;
  for (let x = 0; x <= layout.width; x++) {
    const begin = view.t0 + span() * x / layout.width;
    if (begin > timeline.end) break;
    const value = series.largest(begin, begin + span() / layout.width);
    if (!(value <= most)) { // also NaN: none yet
      isDown = false;
      continue;
    }
    const y = floor - value * perByte;
    if (isDown) context.lineTo(layout.left + x, y);
    else context.moveTo(layout.left + x, y);
    isDown = true;
  }
  context.stroke();
  context.setLineDash([]);
}

function drawLines(panel, most) {
  const lines = counters[panel.device.id] || {};
  const draw = (kind, colour, dash, width) => {
    if (lines[kind]) drawLine(panel, lines[kind], most, colour, dash, width);
  };
  draw(COUNTER.RESIDENT, colours.resident, [], 1);
  draw(COUNTER.PREDICTED_PEAK, colours.predicted, [2, 3], 1);
  draw(COUNTER.PREDICTED, colours.predicted, [], 1.5);
  draw(COUNTER.BUDGET, colours.budget, [7, 4], 1.5);
}

// Bytes at the left, with faint lines across.
function drawByteScale(panel, most) {
  const perByte = (panel.height - 14) / most, floor = panel.top + panel.height - 1;
  const step = roundByteStep(most * 32 / panel.height);
  context.textAlign = "right";
  for (let bytes = 0; bytes <= most; bytes += step) {
    const y = floor - bytes * perByte;
    if (y < panel.top + 16) break; // the device's name is there
    context.fillStyle = colours.grid;
    context.fillRect(layout.left, y, layout.width, 1);
    context.fillStyle = colours.quiet;
    if (bytes) context.fillText(bytesText(bytes), layout.left - 6, y);
  }
}

// The budget where it is too far up to be drawn.
function drawBudgetNote(panel, most) {
  const budget = (counters[panel.device.id] || {})[COUNTER.BUDGET];
  if (!budget) return;
  const value = budget.largest(view.t0, view.t1);
  if (!(value > most)) return;
  context.textAlign = "right";
  context.fillStyle = colours.budget;
  context.fillText("budget " + bytesText(value) + " ↑", layout.right - 8, panel.top + 9);
}

// The peak, said: where it is in view.
function drawPeak(panel, most) {
  const { series } = panel, state = series.peakState();
  if (state < 0 || series.times[state] < view.t0 || series.times[state] > view.t1) return;
  const bytes = series.reserved[state], x = xOf(series.times[state]);
  const y = panel.top + panel.height - 1 - bytes * (panel.height - 14) / most;
  const isRight = x < layout.right - 130;
  context.fillStyle = colours.text;
  context.beginPath();
  context.arc(x, y, 2.5, 0, 7);
  context.fill();
  context.textAlign = isRight ? "left" : "right";
  context.fillText("peak " + bytesText(bytes), x + (isRight ? 6 : -6), Math.max(panel.top + 8, y - 7));
}

function drawPanelName(panel, text) {
  context.textAlign = "left";
  context.fillStyle = colours.text;
  context.font = "600 " + FONT;
  context.fillText(fitText(panel.device.name, GUTTER - 14), 10, panel.top + 10);
  context.font = FONT;
  context.fillStyle = colours.quiet;
  if (panel.height > 60) context.fillText(fitText(text, GUTTER - 60), 10, panel.top + 24);
}

function isInSight(panel) {
  return panel.top < layout.upper.bottom && panel.top + panel.height > layout.upper.top;
}

function clipUpper() {
  context.save();
  context.beginPath();
  context.rect(0, layout.upper.top, layout.right, layout.upper.bottom - layout.upper.top);
  context.clip();
}

painters.push(function paintMemory(target, scale) {
  clipUpper();
  for (const panel of layout.panels) {
    if (panel.picture !== "memory" || !isInSight(panel)) continue;
    const most = memoryScale(panel);
    drawBands(panel, scale, most);
    drawByteScale(panel, most);
    drawLines(panel, most);
    drawBudgetNote(panel, most);
    drawPeak(panel, most);
    drawPanelName(panel, "");
    target.fillStyle = colours.edge;
    target.fillRect(0, panel.top + panel.height - 1, layout.right, 1);
  }
  target.restore();
});
