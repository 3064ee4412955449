// series.js — values over time that are asked "the largest between here and there?" once for every
// pixel column, at every zoom: a peak is seen whatever its width.

// ---- largest in a range ----

const GROUP_SHIFT = 4, GROUP = 1 << GROUP_SHIFT;

function bestOfGroup(values, below, first) {
  let best = below ? below[first] : first;
  for (let i = first + 1; i < first + GROUP; i++) {
    const other = below ? below[i] : i;
    if (values[other] > values[best]) best = other;
  }
  return best;
}

// Where the largest of each 16 values is, of each 16 * 16, ...: any range is then a few dozen looks.
class Pyramid {
  constructor(values) {
    this.values = values;
    this.levels = [];
    let below = null;
    for (let count = Math.floor(values.length / GROUP); count >= 1; count = Math.floor(count / GROUP)) {
      const level = new Uint32Array(count);
      for (let group = 0; group < count; group++) level[group] = bestOfGroup(values, below, group * GROUP);
      this.levels.push(level);
      below = level;
    }
  }

  // The index of the first largest in [from, to), which is not empty.
  best(from, to) {
    const { values, levels } = this;
    let best = from, most = values[from];
    for (let i = from; i < to;) {
      let shift = 0, level = 0; // the largest group that begins here and ends in time
      while (level < levels.length && (i & (GROUP << shift) - 1) === 0 && i + (GROUP << shift) <= to) {
        shift += GROUP_SHIFT;
        level++;
      }
      const other = level ? levels[level - 1][i >> shift] : i;
      if (values[other] > most) most = values[best = other];
      i += 1 << shift;
    }
    return best;
  }
}

// The states that were there at some moment of [begin, end): [from, to), where from may be -1, the
// state before the first change.
function statesBetween(times, begin, end) {
  const first = lowerBound(times, begin);
  const from = first < times.length && times[first] === begin ? first : first - 1;
  return [from, Math.max(lowerBound(times, end, first), from + 1)];
}

// A number that changes from time to time: a counter.
class StepSeries {
  constructor(times, values) {
    this.times = times;
    this.values = values;
    this.pyramid = new Pyramid(values);
  }

  // NaN where there is none yet.
  largest(begin, end) {
    const [from, to] = statesBetween(this.times, begin, end);
    return to <= 0 ? NaN : this.values[this.pyramid.best(Math.max(0, from), to)];
  }
}

// ---- memory ----

// All begins and ends of allocations in the order in which they count: within one moment what ends
// (and began before), then what begins, then what lived no time at all.
//   changes[p] = 2 * allocation + (1 if it ends); beginAt, endAt: the p of each allocation
function orderChanges(alloc) {
  const { count, begin, end, by_end: byEnd } = alloc;
  let ends = count;
  while (ends > 0 && end[byEnd[ends - 1]] === Infinity) ends--;
  const changes = new Uint32Array(count + ends);
  const beginAt = new Uint32Array(count), endAt = new Uint32Array(count).fill(0xffffffff);
  let b = 0, e = 0, p = 0;
  const takeEnds = (moment, begunBefore) => {
    for (; e < ends && end[byEnd[e]] === moment && begin[byEnd[e]] < begunBefore; e++) {
      endAt[byEnd[e]] = p;
      changes[p++] = 2 * byEnd[e] + 1;
    }
  };
  while (b < count || e < ends) {
    const moment = Math.min(b < count ? begin[b] : Infinity, e < ends ? end[byEnd[e]] : Infinity);
    takeEnds(moment, moment);
    for (; b < count && begin[b] === moment; b++) {
      beginAt[b] = p;
      changes[p++] = 2 * b;
    }
    takeEnds(moment, Infinity);
  }
  return { changes, beginAt, endAt };
}

const CHECKPOINT = 64; // changes between two that are stored with all their purposes

// The memory of one device: state i is what holds after change i of it.
class MemorySeries {
  constructor(data, device, count) {
    this.data = data;
    this.device = device;
    this.at = new Uint32Array(count); // its p in the order of all
    this.changes = new Uint32Array(count);
    this.times = new Float64Array(count);
  }

  // Counts what is of a purpose with visible[purpose] only.
  show(visible) {
    const { bytes, purpose, flags } = this.data.alloc;
    const count = this.changes.length, width = visible.length;
    this.visible = visible.slice();
    this.reserved = new Float64Array(count);
    this.active = new Float64Array(count);
    this.checkpoints = new Float64Array((Math.floor(count / CHECKPOINT) + 1) * width);
    const now = new Float64Array(width);
    let reserved = 0, active = 0, peak = -1;
    for (let i = 0; i < count; i++) {
      if (i % CHECKPOINT === 0) this.checkpoints.set(now, i / CHECKPOINT * width);
      const change = this.changes[i], a = change >>> 1;
      if (visible[purpose[a]]) {
        const signed = change & 1 ? -bytes[a] : bytes[a];
        if (!(flags[a] & INNER)) reserved += signed;
        if (!(flags[a] & RESERVED_BY)) {
          active += signed;
          now[purpose[a]] += signed;
        }
      }
      this.reserved[i] = reserved;
      this.active[i] = active;
      const above = peak < 0 ? 1 : reserved - this.reserved[peak];
      if (above > 0 || (above === 0 && active > this.active[peak])) peak = i;
    }
    this.peak = peak;
    this.mostReserved = new Pyramid(this.reserved);
    this.mostActive = new Pyramid(this.active);
  }

  // The bytes in use of each purpose in state i, which may be -1.
  purposesOf(i, out) {
    const { bytes, purpose, flags } = this.data.alloc;
    const width = this.visible.length;
    const block = Math.max(0, Math.floor(i / CHECKPOINT));
    for (let k = 0; k < width; k++) out[k] = this.checkpoints[block * width + k] || 0;
    for (let j = block * CHECKPOINT; j <= i; j++) {
      const change = this.changes[j], a = change >>> 1;
      if (!this.visible[purpose[a]] || flags[a] & RESERVED_BY) continue;
      out[purpose[a]] += change & 1 ? -bytes[a] : bytes[a];
    }
    return out;
  }

  // The largest reserved and the largest in use within [begin, end), each at its own moment, so
  // that neither hides the other; `purposes` are those of the latter.
  peakBetween(begin, end, purposes) {
    const [from, to] = statesBetween(this.times, begin, end);
    if (to <= 0) return { reserved: 0, active: 0, state: -1, purposes: purposes.fill(0) };
    const first = Math.max(0, from);
    const r = this.mostReserved.best(first, to), a = this.mostActive.best(first, to);
    this.purposesOf(a, purposes);
    return { reserved: this.reserved[r], active: this.active[a], state: a, reservedState: r, purposes };
  }

  // The state with the most reserved bytes, of these the one with the most in use (as the report has
  // it: an arena is reserved long before it is full); -1 where there are no changes.
  peakState() {
    return this.peak;
  }

  stateAt(time) {
    return upperBound(this.times, time) - 1;
  }
}

// The changes of all, given to their devices in one go.
function buildMemory(data, { changes }) {
  const { begin, end, device } = data.alloc, counts = new Uint32Array(256), filled = new Uint32Array(256);
  for (let p = 0; p < changes.length; p++) counts[device[changes[p] >>> 1]]++;
  const memory = data.devices.map(({ id }) => new MemorySeries(data, id, counts[id]));
  const seriesOf = [];
  for (const series of memory) seriesOf[series.device] = series;
  for (let p = 0; p < changes.length; p++) {
    const a = changes[p] >>> 1, series = seriesOf[device[a]], i = filled[device[a]]++;
    series.at[i] = p;
    series.changes[i] = changes[p];
    series.times[i] = changes[p] & 1 ? end[a] : begin[a];
  }
  for (const series of memory) series.show(data.purposes.map(() => true));
  return memory;
}

const NO_LIMIT = 2 ** 63; // RN_NO_LIMIT, and what is as good as none

// Counters by device and kind: counters[device][kind] is a StepSeries. What is said of no device in
// particular is said of the first.
function buildCounters(data) {
  const { time, value, kind, device, count } = data.counter;
  const lists = new Map();
  for (let i = 0; i < count; i++) {
    if (kind[i] === COUNTER.BUDGET && value[i] >= NO_LIMIT) continue;
    const key = (device[i] === DEVICE_ANY ? data.devices[0].id : device[i]) * 8 + kind[i];
    if (!lists.has(key)) lists.set(key, { times: [], values: [] });
    lists.get(key).times.push(time[i]);
    lists.get(key).values.push(value[i]);
  }
  const counters = {};
  for (const [key, list] of lists) {
    const id = Math.floor(key / 8);
    counters[id] = counters[id] || {};
    counters[id][key % 8] = new StepSeries(Float64Array.from(list.times), Float64Array.from(list.values));
  }
  return counters;
}
