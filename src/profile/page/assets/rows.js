// rows.js — operations in the rows in which they are drawn: a lane is a thread or a device's queue,
// and has one row for each depth of nesting. Two operations are beside each other in different lanes
// only if they ran on different threads or queues.

class Row {
  constructor(op, lane, depth, ops) {
    this.op = op;
    this.lane = lane;
    this.depth = depth;
    this.ops = ops; // numbers of operations, by begin
    // A queue's spans may overlap; the largest end so far always rises, so it can be searched.
    this.ends = new Float64Array(ops.length);
    const lengths = new Float64Array(ops.length);
    let end = -1;
    for (let i = 0; i < ops.length; i++) {
      lengths[i] = op.end[ops[i]] - op.begin[ops[i]];
      this.ends[i] = end = Math.max(end, op.end[ops[i]]);
    }
    this.longest = new Pyramid(lengths);
  }

  // Calls draw(begin, end, op, count) from left to right for what lies in [t0, t1). Operations that
  // together are narrower than `pixel` come as one, called after the longest of them.
  walk(t0, t1, pixel, draw) {
    const { ops, ends } = this, { begin, end } = this.op, { levels } = this.longest;
    for (let i = lowerBound(ends, t0); i < ops.length && begin[ops[i]] < t1;) {
      let size = 1, level = 0; // the largest group that begins here and is narrow enough
      while (level < levels.length && (i & size * GROUP - 1) === 0 && i + size * GROUP <= ops.length &&
             ends[i + size * GROUP - 1] - begin[ops[i]] < pixel) {
        size *= GROUP;
        level++;
      }
      const named = level ? levels[level - 1][i / size] : i;
      draw(begin[ops[i]], size === 1 ? end[ops[i]] : ends[i + size - 1], ops[named], size);
      i += size;
    }
  }

  // The innermost-drawn operation at `time`, or the nearest within `slack`; -1: none.
  find(time, slack) {
    const { ops, ends } = this, { begin, end } = this.op;
    let found = -1, distance = Infinity;
    for (let i = lowerBound(ends, time - slack); i < ops.length && begin[ops[i]] <= time + slack; i++) {
      const away = Math.max(begin[ops[i]] - time, time - end[ops[i]], 0);
      if (away <= distance) {
        found = ops[i];
        distance = away;
      }
      if (begin[ops[i]] > time) break;
    }
    return found;
  }
}

// The rows' numbers: a lane's first, and one more for each depth. Found by counting, since a search
// for every operation would take longer than all else.
function numberRows(op) {
  const depths = [], first = [];
  for (let i = 0; i < op.count; i++) {
    const lane = op.lane[i];
    while (depths.length <= lane) depths.push(0);
    if (op.depth[i] >= depths[lane]) depths[lane] = op.depth[i] + 1;
  }
  let count = 0;
  for (const depth of depths) {
    first.push(count);
    count += depth;
  }
  return { first, depths, count };
}

// Threads first, then queues, each in the order of the file. `only`: of operations with only[name].
function buildRows(data, only) {
  const { op } = data, { first, depths, count } = numberRows(op);
  const sizes = new Uint32Array(count), filled = new Uint32Array(count);
  for (let i = 0; i < op.count; i++) if (!only || only[op.name[i]]) sizes[first[op.lane[i]] + op.depth[i]]++;
  const lists = Array.from(sizes, (size) => new Uint32Array(size));
  for (let i = 0; i < op.count; i++) {
    if (only && !only[op.name[i]]) continue;
    const number = first[op.lane[i]] + op.depth[i];
    lists[number][filled[number]++] = i;
  }
  const isQueue = (lane) => (data.facts.lanes[lane] && data.facts.lanes[lane].is_queue ? 1 : 0);
  const lanes = [...depths.keys()].sort((a, b) => isQueue(a) - isQueue(b) || a - b);
  const rowsOf = (lane) => lists.slice(first[lane], first[lane] + depths[lane])
    .map((ops, depth) => new Row(op, lane, depth, ops));
  return lanes.flatMap(rowsOf).filter((row) => row.ops.length > 0);
}
