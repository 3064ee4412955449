// addresses.js — where memory lies: allocations as rectangles, from their begin to their end, at
// their address from the bottom up. Addresses that were never used take no room (page_space.h).

const addressRaster = new Raster();

// What there is to draw of each device: arenas, everything else, and the end of its last piece.
const spaces = new Map();
function spaceOf(device) {
  if (!spaces.has(device)) spaces.set(device, makeSpace(device));
  return spaces.get(device);
}

function makeSpace(device) {
  const { piece, alloc } = timeline, arenas = [], parts = [];
  for (let a = 0; a < alloc.count; a++)
    if (alloc.device[a] === device && alloc.place[a]) (alloc.flags[a] & RESERVED_BY ? arenas : parts).push(a);
  let end = 1;
  for (let i = 0; i < piece.count; i++)
    if (piece.device[i] === device) end = Math.max(end, piece.place[i] + piece.bytes[i]);
  return { arenas: gather(arenas), parts: gather(parts), end };
}

// Their columns, one behind the other in memory: a frame reads all of them.
function gather(found) {
  const { begin, end, place, bytes, purpose } = timeline.alloc;
  return {
    begin: Float64Array.from(found, (a) => begin[a]),
    end: Float64Array.from(found, (a) => end[a]),
    bottom: Float64Array.from(found, (a) => place[a] - 1),
    top: Float64Array.from(found, (a) => place[a] - 1 + bytes[a]),
    purpose: Uint8Array.from(found, (a) => purpose[a]),
  };
}

// Calls draw(purpose, left, top, right, bottom) for those in view, in pixels of the raster; each is at
// least one pixel wide and high. A frame may have hundreds of thousands: no objects here, and "| 0"
// for rounding, which is right where numbers are small.
function placeAll(panel, columns, scale, draw) {
  const { begin, end, bottom, top, purpose } = columns, { visible } = panel.series;
  const { t0, t1 } = view, { width } = addressRaster;
  const perTime = width / span(), perPlace = addressScale(panel) * scale;
  const floor = Math.round((panel.top + panel.height - 1) * scale) - addressRaster.y;
  const last = upperBound(begin, t1);
  for (let i = 0; i < last; i++) {
    if (end[i] < t0 || !visible[purpose[i]]) continue;
    const left = begin[i] < t0 ? -1 : ((begin[i] - t0) * perTime) | 0;
    const right = end[i] > t1 ? width : ((end[i] - t0) * perTime + 0.999) | 0;
    const low = floor - ((bottom[i] * perPlace) | 0), high = floor - ((top[i] * perPlace + 0.5) | 0);
    draw(purpose[i], left, high < low ? high : low - 1, right > left ? right : left + 1, low);
  }
}

// Arenas are the ground on which their parts lie.
function drawRectangles(panel, scale) {
  const { arenas, parts } = spaceOf(panel.device.id);
  const hatch = packed(colours.hatch), ground = packed(colours.ground);
  placeAll(panel, arenas, scale, (purpose, left, top, right, bottom) => {
    const end = Math.min(right, addressRaster.width);
    for (let x = Math.max(0, left); x < end; x++) addressRaster.hatchedColumn(x, top, bottom, hatch);
  });
  placeAll(panel, parts, scale, (purpose, left, top, right, bottom) => {
    if (right - left === 1 && left >= 0) return addressRaster.column(left, top, bottom, PURPOSE_PIXELS[purpose]);
    addressRaster.rectangle(left, top, right, bottom, PURPOSE_PIXELS[purpose]);
    if (right - left < 4 || bottom - top < 4) return;
    // An edge, so that neighbours of one purpose are seen to be two.
    addressRaster.rectangle(left, top, right, top + 1, ground);
    addressRaster.rectangle(left, top, left + 1, bottom, ground);
  });
}

function drawPieces(panel, perPlace) {
  const { piece } = timeline, floor = panel.top + panel.height - 1;
  let lastY = Infinity;
  context.textAlign = "right";
  for (let i = 0; i < piece.count; i++) {
    if (piece.device[i] !== panel.device.id) continue;
    const y = floor - (piece.place[i] - 1) * perPlace;
    if (lastY - y < 15) continue;
    lastY = y;
    if (y - 14 < panel.top + 34) break; // the names are there
    context.fillStyle = colours.quiet;
    context.fillText("0x" + piece.address[i].toString(16), layout.left - 6, y - 7);
    context.fillStyle = colours.grid;
    context.fillRect(layout.left - 4, y, layout.width + 4, 1);
  }
}

function addressScale(panel) {
  return (panel.height - 14) / spaceOf(panel.device.id).end;
}

// The allocation under a point of a panel, parts before their arenas; -1: none.
function allocationAt(panel, time, y) {
  const { begin, end, place, bytes, device, flags, purpose, count } = timeline.alloc;
  const perPlace = addressScale(panel), at = (panel.top + panel.height - 1 - y) / perPlace + 1;
  const slack = 1.5 / perPlace, pixel = 1.5 * span() / layout.width;
  let found = -1;
  for (let a = 0; a < count && begin[a] <= time + pixel; a++) {
    if (end[a] < time - pixel || device[a] !== panel.device.id || !place[a]) continue;
    if (!panel.series.visible[purpose[a]]) continue;
    if (place[a] > at + slack || place[a] + bytes[a] < at - slack) continue;
    if (found >= 0 && flags[a] & RESERVED_BY && !(flags[found] & RESERVED_BY)) continue;
    found = a;
  }
  return found;
}

painters.push(function paintAddresses(target, scale) {
  clipUpper();
  for (const panel of layout.panels) {
    if (panel.picture !== "addresses" || !isInSight(panel)) continue;
    const top = Math.max(panel.top, layout.upper.top);
    const bottom = Math.min(panel.top + panel.height, layout.upper.bottom);
    addressRaster.begin(layout.left, top, layout.width, bottom - top, scale, packed(colours.ground));
    drawRectangles(panel, scale);
    addressRaster.put(target);
    drawPieces(panel, addressScale(panel));
    drawPanelName(panel, "addresses");
    target.fillStyle = colours.edge;
    target.fillRect(0, panel.top + panel.height - 1, layout.right, 1);
  }
  target.restore();
});
