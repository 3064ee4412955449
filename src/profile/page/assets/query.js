// query.js — questions whose answers are tables: what was live then, what happened between.

const TABLE_ROWS = 200; // the rest is summed in one line

// The largest `rows` of `found` (numbers of allocations), and what the others are together.
function largestFirst(alloc, found, rows = TABLE_ROWS) {
  found.sort((a, b) => alloc.bytes[b] - alloc.bytes[a] || a - b);
  const rest = found.slice(rows);
  return { top: found.slice(0, rows), restCount: rest.length, restBytes: sumOf(alloc, rest) };
}

function sumOf(alloc, found) {
  let bytes = 0;
  for (const a of found) bytes += alloc.bytes[a];
  return bytes;
}

function isInUse(alloc, a) {
  return !(alloc.flags[a] & RESERVED_BY);
}

// What was in use in state `i` of a series: exact also where much happened in one nanosecond,
// because the order of changes is asked, not the clock.
function liveInState(data, order, series, i) {
  const { alloc } = data;
  if (i < 0) return [];
  const at = series.at[i], found = [];
  for (let a = 0; a < alloc.count && order.beginAt[a] <= at; a++) {
    if (order.endAt[a] <= at || !isInUse(alloc, a) || !series.visible[alloc.purpose[a]]) continue;
    if (alloc.device[a] === series.device) found.push(a);
  }
  return found;
}

function emptySums(data) {
  return data.purposes.map(() => ({ before: 0, allocated: 0, allocations: 0, freed: 0, frees: 0, after: 0 }));
}

// What was there and what happened in [a, b): of each purpose the bytes in use before and after, and
// those that came and went; before + allocated - freed = after. `touched`: all that was live in it.
function rangeTable(data, begin, end, visible) {
  const { alloc } = data, sums = emptySums(data), touched = [];
  for (let a = 0; a < alloc.count && alloc.begin[a] < end; a++) {
    if (alloc.end[a] < begin || !isInUse(alloc, a) || !visible[alloc.purpose[a]]) continue;
    const sum = sums[alloc.purpose[a]], bytes = alloc.bytes[a];
    touched.push(a);
    if (alloc.begin[a] < begin) sum.before += bytes;
    else {
      sum.allocated += bytes;
      sum.allocations++;
    }
    if (alloc.end[a] < end) {
      sum.freed += bytes;
      sum.frees++;
    } else sum.after += bytes;
  }
  const ops = operationsBetween(data, begin, end), moved = movedBetween(data.move, begin, end);
  return { begin, end, sums, touched, ops, moved };
}

// By name: how often, and how long within the range. Time in an operation is also time in those
// around it. The same name in another block (layer) is the same operation here.
function operationsBetween(data, begin, end) {
  const { op } = data, byId = new Map(), byName = new Map();
  for (let i = 0; i < op.count && op.begin[i] < end; i++) {
    if (op.end[i] < begin) continue;
    let sum = byId.get(op.name[i]);
    if (!sum) {
      const name = data.name(op.name[i]) || "(no name)";
      sum = byName.get(name) || { name, count: 0, time: 0, delta: 0 };
      byName.set(name, sum);
      byId.set(op.name[i], sum);
    }
    sum.count++;
    sum.time += Math.min(op.end[i], end) - Math.max(op.begin[i], begin);
    sum.delta += op.delta[i];
  }
  return [...byName.values()].sort((a, b) => b.time - a.time);
}

function movedBetween(move, begin, end) {
  let bytes = 0, count = 0;
  for (let i = lowerBound(move.time, begin); i < move.count && move.time[i] < end; i++) {
    bytes += move.bytes[i];
    count++;
  }
  return { bytes, count };
}

// The address of an allocation, from its place among the pieces (see page_space.h); NaN: none.
function addressOf(data, a) {
  const { piece, alloc } = data;
  if (!alloc.place[a]) return NaN;
  for (let i = 0; i < piece.count; i++) {
    const inside = alloc.place[a] - piece.place[i];
    if (piece.device[i] !== alloc.device[a] || inside < 0 || inside >= piece.bytes[i]) continue;
    return piece.address[i] + inside;
  }
  return NaN;
}
