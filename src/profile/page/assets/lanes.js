// lanes.js — operations: one rectangle each where there is room; where there is none, one for all
// that share a pixel, in the colour of the longest.

// What is drawn in a row: [{x, width, op, count}] in CSS pixels. The tests read the same.
function rowBoxes(row) {
  const boxes = [], pixel = span() / layout.width;
  let open = null;
  row.walk(view.t0, view.t1, pixel, (begin, end, op, count) => {
    const x = Math.max(layout.left - 2, xOf(begin)), right = Math.min(layout.right + 2, xOf(end));
    const longest = timeline.op.end[op] - timeline.op.begin[op];
    if (open && x < open.x + 1 && right < open.x + 1.5) { // in the same pixel
      open.count += count;
      open.right = Math.max(open.right, right);
      if (longest > open.longest) {
        open.longest = longest;
        open.op = op;
      }
      return;
    }
    open = { x, right, op, count, longest };
    boxes.push(open);
  });
  for (const box of boxes) box.width = Math.max(1, box.right - box.x);
  return boxes;
}

// Changing the colour costs more than a rectangle: all of one colour together.
function fillBoxes(boxes, top) {
  const byColour = new Map();
  for (const box of boxes) {
    const colour = opColour(timeline.op.name[box.op]);
    if (!byColour.has(colour)) byColour.set(colour, []);
    byColour.get(colour).push(box);
  }
  for (const [colour, same] of byColour) {
    context.fillStyle = colour;
    for (const { x, width } of same) context.fillRect(x, top + 1, width > 4 ? width - 1 : width, ROW - 2);
  }
}

function drawRow(row, top, dim) {
  const { name, unfinished } = timeline.op, boxes = rowBoxes(row);
  context.globalAlpha = dim ? 0.3 : 1;
  fillBoxes(boxes, top);
  context.fillStyle = "#14181f"; // is read on every colour of OP_COLOURS
  context.textAlign = "left";
  for (const box of boxes) {
    if (box.width < 28 || box.count > 1) continue;
    const left = Math.max(box.x, layout.left), room = box.x + box.width - left - 8;
    const text = timeline.name(name[box.op]) + (unfinished[box.op] ? " (no end)" : "");
    context.fillText(fitText(text, room), left + 4, top + ROW / 2 + 0.5);
  }
  context.globalAlpha = 1;
}

// Matches of the search in their own colour, over rows that are dimmed.
function drawMatches(placed) {
  if (!view.matches) return;
  for (const { row, top } of placed) {
    const found = view.matches.rows.find((match) => match.lane === row.lane && match.depth === row.depth);
    if (!found) continue;
    drawRow(found, top, false);
    context.fillStyle = colours.found;
    for (const box of rowBoxes(found)) context.fillRect(box.x, top + ROW - 3, Math.max(2, box.width - 1), 2);
  }
}

function drawLaneNames() {
  let lane = -1;
  context.textAlign = "left";
  for (const { row, top } of layout.rows) {
    if (row.lane === lane) continue;
    lane = row.lane;
    context.fillStyle = colours.edge;
    context.fillRect(0, top - LANE_GAP / 2, layout.right, 1);
    context.fillStyle = colours.text;
    context.fillText(fitText(timeline.lane(lane), GUTTER - 16), 10, top + ROW / 2);
  }
}

function drawPinnedBox() {
  const { pinned } = view;
  if (!pinned || pinned.kind !== "op") return;
  const { op } = timeline, i = pinned.index;
  const placed = placedRowOf(i);
  if (!placed) return;
  context.strokeStyle = colours.text;
  context.lineWidth = 2;
  const x = Math.max(layout.left - 4, xOf(op.begin[i])), right = Math.min(layout.right + 4, xOf(op.end[i]));
  context.strokeRect(x, placed.top, Math.max(2, right - x), ROW - 1);
}

painters.push(function paintLanes(target) {
  const { top, bottom } = layout.lanes;
  target.fillStyle = colours.raised;
  target.fillRect(0, top - SPLITTER, layout.right, SPLITTER);
  target.fillStyle = colours.edge;
  target.fillRect(layout.right / 2 - 18, top - SPLITTER / 2 - 1, 36, 2);
  target.save();
  target.beginPath();
  target.rect(0, top, layout.right, Math.max(0, bottom - top));
  target.clip();
  drawLaneNames();
  target.beginPath();
  target.rect(layout.left, top, layout.width, Math.max(0, bottom - top));
  target.clip();
  const shown = layout.rows.filter((placed) => placed.top + ROW > top && placed.top < bottom);
  for (const { row, top: y } of shown) drawRow(row, y, view.matches !== null);
  drawMatches(shown);
  drawPinnedBox();
  target.restore();
});

// ---- what lies over both halves: the axis, flags, the selection, the cursor ----

const FLAG_COLOURS = {
  [MARK.REFUSAL]: "alarm", [MARK.NO_MEMORY]: "alarm", [MARK.SIGNAL]: "alarm",
  [MARK.CHECKPOINT]: "accent", [MARK.STAGE]: "text",
};

function drawAxis() {
  const step = roundStep(span() * 90 / layout.width);
  context.textAlign = "center";
  for (let n = Math.ceil(view.t0 / step); n * step <= view.t1; n++) {
    const x = xOf(n * step);
    context.fillStyle = colours.grid;
    context.fillRect(Math.round(x), AXIS, 1, layout.height - AXIS);
    context.fillStyle = colours.quiet;
    if (x < layout.left + 20 || x > layout.right - 24) continue; // would be cut
    context.fillText(n === 0 ? "0" : momentText(n * step, step), x, AXIS / 2 + 1);
  }
}

function markText(i) {
  const { mark } = timeline, name = timeline.name(mark.name[i]);
  const kind = MARKS[mark.kind[i]] || "mark";
  if (mark.kind[i] === MARK.STAGE || mark.kind[i] === MARK.CHECKPOINT) return name || kind;
  if (mark.kind[i] === MARK.SIGNAL) return `signal ${mark.bytes[i]}`;
  return kind + (mark.bytes[i] ? " " + bytesText(mark.bytes[i]) : "") + (name ? " " + name : "");
}

// Periodic snapshots are ticks; everything else has a line through the upper half and its name where
// there is room. At most one a pixel.
function drawFlags() {
  const { mark } = timeline, y = AXIS + FLAGS / 2;
  let lastLine = -Infinity, lastText = -Infinity;
  for (let i = lowerBound(mark.time, view.t0); i < mark.count && mark.time[i] <= view.t1; i++) {
    if (mark.kind[i] === MARK.START) continue;
    const x = Math.round(xOf(mark.time[i])), colour = colours[FLAG_COLOURS[mark.kind[i]] || "quiet"];
    if (x === lastLine && !FLAG_COLOURS[mark.kind[i]]) continue;
    lastLine = x;
    context.fillStyle = colour;
    if (mark.kind[i] === MARK.PERIODIC) {
      context.fillRect(x, AXIS + FLAGS - 4, 1, 4);
      continue;
    }
    context.globalAlpha = 0.55;
    context.fillRect(x, AXIS, 1, layout.upper.bottom - AXIS);
    context.globalAlpha = 1;
    context.beginPath();
    context.moveTo(x - 4, AXIS + 3);
    context.lineTo(x + 5, AXIS + 3);
    context.lineTo(x + 0.5, AXIS + 9);
    context.fill();
    if (x < lastText) continue;
    const text = markText(i).slice(0, 40), { width } = context.measureText(text);
    const isRight = x + 7 + width <= layout.right; // of its flag; at the edge it is left of it
    if (!isRight && x - 7 - width < lastText) continue;
    context.textAlign = isRight ? "left" : "right";
    context.fillText(text, x + (isRight ? 7 : -7), y);
    lastText = x + 14 + (isRight ? width : 0);
  }
}

function drawSelection() {
  const { selection } = view;
  if (!selection) return;
  const x = xOf(selection.begin), right = xOf(selection.end);
  context.fillStyle = colours.select;
  context.fillRect(x, 0, right - x, layout.height);
  context.fillStyle = colours.accent;
  context.fillRect(x, 0, 1, layout.height);
  context.fillRect(right, 0, 1, layout.height);
  context.textAlign = "center";
  const text = timeText(selection.end - selection.begin);
  if (right - x > 60) context.fillText(text, (x + right) / 2, AXIS + FLAGS / 2);
}

function drawMarkers() {
  context.textAlign = "left";
  view.markers.forEach((time, i) => {
    const x = Math.round(xOf(time));
    if (x < layout.left) return;
    context.fillStyle = colours.accent;
    context.fillRect(x, 0, 1, layout.height);
    context.fillText(`M${i + 1}`, x + 4, layout.height - 8);
  });
  if (view.pinned && view.pinned.kind === "moment") {
    context.fillStyle = colours.text;
    context.fillRect(Math.round(xOf(view.pinned.time)), AXIS, 1, layout.upper.bottom - AXIS);
  }
}

// The life of the pinned allocation, over the upper half; in the picture of addresses, its place.
function drawPinnedLife() {
  const { pinned } = view, { alloc } = timeline;
  if (!pinned || pinned.kind !== "alloc") return;
  const a = pinned.index, { top, bottom } = layout.upper;
  const x = Math.max(layout.left - 4, xOf(alloc.begin[a]));
  const right = Math.min(layout.right + 4, xOf(Math.min(alloc.end[a], timeline.end)));
  context.fillStyle = colours.text;
  context.fillRect(x, top, 1, bottom - top);
  context.fillRect(right, top, 1, bottom - top);
  context.strokeStyle = colours.text;
  context.lineWidth = 2;
  for (const under of layout.panels) {
    if (under.picture !== "addresses" || under.device.id !== alloc.device[a] || !alloc.place[a]) continue;
    const perPlace = addressScale(under), height = alloc.bytes[a] * perPlace;
    const y = under.top + under.height - 1 - (alloc.place[a] - 1) * perPlace - height;
    if (y + height > top && y < bottom) context.strokeRect(x, y, Math.max(2, right - x), Math.max(2, height));
  }
}

function drawCursor() {
  if (!view.cursor || view.cursor.x < layout.left) return;
  context.fillStyle = colours.quiet;
  context.globalAlpha = 0.6;
  context.fillRect(Math.round(view.cursor.x), AXIS, 1, layout.height - AXIS);
  context.globalAlpha = 1;
}

painters.push(function paintOver(target) {
  target.save();
  target.beginPath();
  target.rect(layout.left, 0, layout.width, layout.height);
  target.clip();
  drawAxis();
  drawFlags();
  drawSelection();
  drawMarkers();
  drawPinnedLife();
  drawCursor();
  target.restore();
});
