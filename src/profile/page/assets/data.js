// data.js — what the file holds: columns of numbers, one entry a row; texts by number.
//
// A million rows as objects would take seconds to parse and a gigabyte to keep. As typed arrays they
// are decoded once, in tens of milliseconds, and every loop over them is a loop over numbers.

const RESERVED_BY = 2, INNER = 1, BEFORE = 4; // alloc.flags: is an arena, is a part, was there before
const MARKS = ["stage", "checkpoint", "snapshot", "refusal", "out of memory", "signal", "fork", "start"];
const MARK = { STAGE: 0, CHECKPOINT: 1, PERIODIC: 2, REFUSAL: 3, NO_MEMORY: 4, SIGNAL: 5, FORK: 6, START: 7 };
const COUNTER = { OTHER: 0, RESIDENT: 1, BUDGET: 2, PREDICTED: 3, PREDICTED_PEAK: 4 };
const DEVICE_ANY = 255;

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

// The runs of page_lz.h: bytes as they are, then bytes that were there before.
function unpack(packed, size) {
  const bytes = new Uint8Array(size);
  let at = 0, to = 0;
  const number = () => {
    let byte = packed[at++], value = byte & 127;
    for (let factor = 128; byte & 128; factor *= 128) {
      byte = packed[at++];
      value += (byte & 127) * factor;
    }
    return value;
  };
  while (at < packed.length) {
    const literals = number();
    bytes.set(packed.subarray(at, at + literals), to);
    at += literals;
    to += literals;
    if (at >= packed.length) break;
    const end = to + number() + 4, distance = number();
    if (distance >= end - to) bytes.copyWithin(to, to - distance, end - distance);
    else for (let i = to; i < end; i++) bytes[i] = bytes[i - distance]; // it reaches into itself
    to = end;
  }
  return bytes;
}

// The forms of page_columns.h.
const FORMS = {
  0: (bytes, count) => new Uint8Array(count), // all zero: not even written
  u1: (bytes) => bytes,
  u2: (bytes) => new Uint16Array(bytes.buffer),
  u4: (bytes) => new Uint32Array(bytes.buffer),
  f8: (bytes) => new Float64Array(bytes.buffer),
  v: readVarying,
};

// Products, not shifts: those end at 32 bits.
function readVarying(bytes, count) {
  const values = new Float64Array(count);
  for (let i = 0, at = 0; i < count; i++) {
    let byte = bytes[at++], value = byte & 127;
    for (let factor = 128; byte & 128; factor *= 128) {
      byte = bytes[at++];
      value += (byte & 127) * factor;
    }
    values[i] = value;
  }
  return values;
}

// 0, 1, 2, 3, ... stand for 0, -1, 1, -2, ...
function addSigns(column) {
  const values = new Float64Array(column.length);
  for (let i = 0; i < column.length; i++) {
    const half = Math.floor(column[i] / 2);
    values[i] = column[i] === 2 * half ? half : -half - 1;
  }
  return values;
}

function sumUp(column) {
  const values = new Float64Array(column.length);
  let sum = 0;
  for (let i = 0; i < column.length; i++) values[i] = sum += column[i];
  return values;
}

function addRows(column) {
  for (let i = 0; i < column.length; i++) column[i] += i;
  return column;
}

// Time 0, all begins and ends of operations, the recording's end.
function findEdges({ op }, end) {
  const edges = new Float64Array(2 * op.count + 2);
  edges[1] = end;
  edges.set(op.begin, 2);
  edges.set(op.end, 2 + op.count);
  return edges.sort();
}

// First how many edges on each value lies, then how far from there.
function fromEdges(column, edges, sign) {
  const count = column.length / 2, values = new Float64Array(count);
  for (let i = 0, edge = 0; i < count; i++) {
    edge += column[i];
    values[i] = edges[edge] + sign * column[count + i];
  }
  return values;
}
const EDGE_RULES = { "behind-edge": 1, "before-edge": -1 };

// How values go on from row to row.
const RULES = {
  "plain": (column) => column,
  "difference": sumUp,
  "near-last": (column) => sumUp(addSigns(column)),
  "near-row": (column) => addRows(addSigns(column)),
  "signed": addSigns,
};

function readColumn(script, edges) {
  const { form, rule, packed } = script.dataset, count = Number(script.dataset.count);
  const text = decodeBase64(script.textContent), bytes = packed ? unpack(text, Number(packed)) : text;
  if (!EDGE_RULES[rule]) return RULES[rule](FORMS[form](bytes, count));
  return fromEdges(FORMS[form](bytes, 2 * count), edges(), EDGE_RULES[rule]);
}

// Lengths are written from 1; 0 is "no end was seen", which is `unseen` here.
function addEnds(table, unseen) {
  const { begin, length } = table;
  table.end = new Float64Array(begin.length);
  for (let i = 0; i < begin.length; i++) table.end[i] = length[i] ? begin[i] + length[i] - 1 : unseen;
  delete table.length;
}

// The ends that were seen are written in their own order.
function placeEnds(table) {
  const { ends, by_end } = table;
  table.end = new Float64Array(table.count).fill(Infinity);
  for (let i = 0; i < ends.length; i++) table.end[by_end[i]] = ends[i];
  delete table.ends;
}

// { alloc: {count, begin, end, bytes, ...}, op: {...}, mark, counter, move, piece }. `end`: of the
// recording.
function readTables(end) {
  const tables = {};
  let edges = null;
  const findEdgesOnce = () => {
    if (!edges) addEnds(tables.op, end);
    return edges = edges || findEdges(tables, end);
  };
  for (const script of document.querySelectorAll("script[data-column]")) {
    const [table, name] = script.dataset.column.split(".");
    tables[table] = tables[table] || { count: Number(script.dataset.count) };
    tables[table][name] = readColumn(script, findEdgesOnce);
    script.remove(); // the text is as large as the numbers
  }
  if (!edges) addEnds(tables.op, end);
  placeEnds(tables.alloc);
  return tables;
}

// The values that a column of small numbers has, in order.
function distinct(column) {
  const seen = new Uint8Array(256);
  for (let i = 0; i < column.length; i++) seen[column[i]] = 1;
  return [...seen.keys()].filter((value) => seen[value]);
}

// Devices that something is known of. A damaged file may name others than it lists.
function usedDevices(facts, tables) {
  const used = new Set([...distinct(tables.alloc.device), ...distinct(tables.counter.device)]);
  used.delete(DEVICE_ANY);
  if (!used.size) used.add(0);
  return [...used].sort((a, b) => a - b).map((id) => ({
    id, name: facts.devices[id] ? facts.devices[id].name : `device ${id}`,
    counted: facts.devices[id] ? facts.devices[id].counted_peak_bytes : 0,
  }));
}

function readTimeline() {
  const facts = JSON.parse(byId("facts").textContent);
  const tables = readTables(facts.end_ns);
  const texts = facts.names;
  return {
    facts, ...tables,
    purposes: facts.purposes,
    devices: usedDevices(facts, tables),
    nameCount: texts.length / 3,
    name: (id) => texts[3 * id] || "",
    group: (id) => texts[3 * id + 1] || "",
    detail: (id) => texts[3 * id + 2] || "",
    lane: (id) => (facts.lanes[id] && facts.lanes[id].name) || `lane ${id}`,
    // What is drawn: from 0 to at least something, so that nothing is ever divided by zero.
    end: Math.max(facts.end_ns, 100),
  };
}

// ---- searching in sorted columns ----

// The first index in [from, to) whose value is not below `value`; `to` where all are.
function lowerBound(column, value, from = 0, to = column.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (column[middle] < value) from = middle + 1;
    else to = middle;
  }
  return from;
}

// The first index whose value is above `value`.
function upperBound(column, value, from = 0, to = column.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (column[middle] <= value) from = middle + 1;
    else to = middle;
  }
  return from;
}
