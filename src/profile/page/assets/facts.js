// facts.js — what is known of one thing, as pairs of a word and a text: for tooltips and the panel.
// Pairs with an empty text are left out.

function opName(i) {
  return timeline.name(timeline.op.name[i]) || "(no name)";
}

// The axis that has another length in every run, as this one had it.
function withRows(text, i) {
  const rows = timeline.op.rows[i];
  return rows ? text.replace(/\[rows\b/g, `[${rows}`) : text;
}

// The tensors that an operation reads, and makes: "< ADDRESS DTYPE [SHAPE] NAME" a line.
function operandFacts(i) {
  const lines = timeline.detail(timeline.op.operands[i]).split("\n").map((line) => line.match(/^([<>]) \S+ (.*?\]) (.*)$/));
  const told = lines.filter((parts) => parts);
  return told.map(([, mark, shape, name]) => [mark === "<" ? "reads" : "makes", `${name}, ${withRows(shape, i)}`]);
}

function opFacts(i) {
  const { op } = timeline, length = op.end[i] - op.begin[i], step = Math.max(1, length / 100);
  const inArenas = op.inner_delta[i] ? `, in arenas ${deltaText(op.inner_delta[i])}` : "";
  const counts = `${bytesText(op.allocated[i])} in ${countText(op.allocs[i])} blocks, ${countText(op.frees[i])} freed`;
  return [
    ["duration", timeText(length) + (op.unfinished[i] ? ", no end was seen" : "")],
    ["start", momentText(op.begin[i], step)],
    ["end", momentText(op.end[i], step)],
    ["memory", deltaText(op.delta[i]) + inArenas],
    ["allocated", op.allocs[i] ? counts : ""],
    ["most above start", op.peak[i] ? bytesText(op.peak[i]) : ""],
    ["shapes", withRows(timeline.detail(op.name[i]), i)],
    ["block", timeline.group(op.name[i])],
    ["lane", timeline.lane(op.lane[i]) + (op.depth[i] ? `, depth ${op.depth[i] + 1}` : "")],
    ["within", op.back[i] ? opName(i - op.back[i]) : ""],
  ];
}

function allocName(a) {
  const { name, purpose, flags } = timeline.alloc;
  const kind = flags[a] & RESERVED_BY ? "arena" : "block";
  return timeline.name(name[a]) || `${timeline.purposes[purpose[a]]} ${kind}`;
}

function deviceName(id) {
  const device = timeline.devices.find((d) => d.id === id);
  return device ? device.name : `device ${id}`;
}

function allocFacts(a) {
  const { alloc } = timeline, isLive = alloc.end[a] === Infinity, address = addressOf(timeline, a);
  const step = Math.max(1, (Math.min(alloc.end[a], timeline.end) - alloc.begin[a]) / 100);
  return [
    ["size", exactBytesText(alloc.bytes[a])],
    ["purpose", timeline.purposes[alloc.purpose[a]]],
    ["lived", isLive ? "to the end" : timeText(alloc.end[a] - alloc.begin[a])],
    ["start", alloc.flags[a] & BEFORE ? "before the recording" : momentText(alloc.begin[a], step)],
    ["end", isLive ? "" : momentText(alloc.end[a], step)],
    ["shapes", timeline.detail(alloc.name[a])],
    ["block", timeline.group(alloc.name[a])],
    ["asked for by", alloc.site[a] ? timeline.detail(alloc.site[a]) : ""],
    ["address", address > 0 ? "0x" + address.toString(16) : ""],
    ["device", deviceName(alloc.device[a])],
    ["lane", timeline.lane(alloc.lane[a])],
    ["allocated by", alloc.op[a] ? opName(alloc.op[a] - 1) : ""],
    ["part of", alloc.parent[a] ? allocName(alloc.parent[a] - 1) : ""],
  ];
}

function markFacts(i) {
  const { time, kind } = timeline.mark;
  return [["at", momentText(time[i], Math.max(1, span() / 1e4))], ["kind", MARKS[kind[i]]]];
}

// The lines over memory: what they are called, and how they are drawn.
const LINES = [
  { kind: COUNTER.BUDGET, text: "budget", colour: "budget", style: "dashed" },
  { kind: COUNTER.PREDICTED, text: "predicted", colour: "predicted", style: "solid" },
  { kind: COUNTER.PREDICTED_PEAK, text: "predicted peak", colour: "predicted", style: "dotted" },
  { kind: COUNTER.RESIDENT, text: "resident", colour: "resident", style: "solid" },
];

// The largest value of a device's counter in [begin, end); NaN where there is none.
function counterBetween(device, kind, begin, end) {
  const series = counters[device] && counters[device][kind];
  return series ? series.largest(begin, end) : NaN;
}

// The largest of a device's memory within the pixel at x.
function momentAt(under, x) {
  const pixel = span() / layout.width, begin = timeOf(Math.floor(x));
  return under.series.peakBetween(begin, begin + pixel, new Float64Array(under.series.visible.length));
}

function memoryFacts(under, x) {
  const peak = momentAt(under, x), begin = timeOf(x), end = begin + span() / layout.width;
  const facts = [["in use", bytesText(peak.active)], ["reserved", bytesText(peak.reserved)]];
  peak.purposes.forEach((bytes, k) => bytes > 0 && facts.push([timeline.purposes[k], bytesText(bytes)]));
  for (const { kind, text } of LINES) {
    const value = counterBetween(under.device.id, kind, begin, end);
    if (value >= 0) facts.push([text, bytesText(value)]);
  }
  return facts;
}

function peakOf(series) {
  const state = series.peakState();
  return state < 0 ? 0 : series.reserved[state];
}

// Purposes that have bytes, the largest first.
function largestPurposes(bytes) {
  return [...bytes.keys()].filter((k) => bytes[k] > 0).sort((a, b) => bytes[b] - bytes[a]);
}

function purposesAt(series, state) {
  return Array.from(series.purposesOf(state, new Float64Array(series.visible.length)));
}
