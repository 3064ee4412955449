// table.js — the tables: variants that sort and open, tokens a second, changes.

const accuracy = item => item.accuracy && item.accuracy.reference !== item.name ? item.accuracy : {};
// What a variant computes in: a device's own memory, else the host's.
const memoryOf = item => (item.device_memory && item.device_memory.planned_bytes ? item.device_memory : item.host_memory) || {};

const columns = [
  {title: "variant", key: item => item.asked || item.name, left: true},
  {title: "batch", key: item => item.batch_size, show: showNumber, when: showBatches},
  {title: "budget", key: item => item.budget_bytes, show: showSize, when: showBudgets},
  {title: "median", key: item => item.latency.p50_s, show: showTime},
  {title: "95 %", key: item => hasInterval(item) ? (item.latency.p50_high_s - item.latency.p50_low_s) / 2 / item.latency.p50_s : null, show: x => "±" + (100 * x).toFixed(1) + " %"},
  {title: "p90", key: item => item.latency.p90_s, show: showTime},
  {title: "p99", key: item => item.latency.p99_s, show: showTime},
  {title: "min", key: item => item.latency.min_s, show: showTime},
  {title: "items/s", key: item => item.throughput, show: showNumber},
  {title: "speed-up", key: item => item.speedup && item.speedup.ratio, show: (x, item) => `${x.toFixed(2)} (${item.speedup.low.toFixed(2)}–${item.speedup.high.toFixed(2)})`},
  {title: "planned", key: item => memoryOf(item).planned_bytes, show: showSize},
  {title: "measured", key: item => memoryOf(item).measured_bytes, show: showSize},
  {title: "resident", key: item => item.resident_peak_bytes, show: showSize},
  {title: "on device", key: item => item.device_memory && item.device_memory.peak_bytes || null, show: showSize},
  {title: "load", key: item => item.load_s, show: showTime},
  {title: "compile", key: item => item.compile_s, show: showTime},
  {title: "first", key: item => item.first_s, show: showTime},
  {title: "read", key: item => item.read_bytes, show: showSize},
  {title: "max rel. error", key: item => accuracy(item).max_rel, show: showSmall},
  {title: "cosine", key: item => accuracy(item).cosine, show: x => x.toFixed(6)},
  {title: "top-1", key: item => accuracy(item).top1, show: showNumber},
  {title: "J", key: item => item.joules, show: showNumber},
  {title: "device", key: item => item.device, left: true},
];

const isKnown = value => value !== null && value !== undefined && !Number.isNaN(value);

function valueOf(column, item) {
  if (!works(item) && !["variant", "batch", "budget"].includes(column.title)) return null;
  return column.key(item);
}

const sorting = {column: -1, down: false};

function sortedItems(used) {
  if (sorting.column < 0) return [...items];
  const column = used[sorting.column], sign = sorting.down ? -1 : 1;
  return [...items].sort((a, b) => {
    const [x, y] = [valueOf(column, a), valueOf(column, b)];
    if (!isKnown(x) || !isKnown(y)) return isKnown(y) - isKnown(x); // what is not known stands last
    return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
  });
}

function drawTable() {
  const used = columns.filter(column => column.when !== false && items.some(item => isKnown(valueOf(column, item))));
  const head = make("tr");
  used.forEach((column, i) => {
    const button = make("button", {type: "button"}, column.title);
    button.onclick = () => {
      sorting.down = sorting.column === i && !sorting.down;
      sorting.column = i;
      drawTable();
      document.querySelectorAll("#table th button")[i].focus();
    };
    const sort = sorting.column !== i ? "none" : sorting.down ? "descending" : "ascending";
    head.append(make("th", {"aria-sort": sort, class: column.left ? "left" : ""}, button));
  });
  const body = make("tbody");
  for (const item of sortedItems(used)) body.append(rowOf(item, used));
  put("table", make("thead", {}, head), body);
}

function rowOf(item, used) {
  const row = make("tr", {class: "item", tabindex: 0, "aria-expanded": "false"});
  const given = used.filter(column => works(item) || ["variant", "batch", "budget"].includes(column.title));
  for (const column of given) {
    const value = valueOf(column, item);
    const cell = make("td", {class: column.left ? "left" : ""}, !isKnown(value) ? UNKNOWN : column.show ? column.show(value, item) : String(value));
    if (column === columns[0] && item.asked && item.asked !== item.name) cell.append(make("span", {class: "asked"}, item.name));
    if (column === columns[0] && item.outcome === "wrong") cell.append(make("span", {class: "bad"}, " wrong"));
    row.append(cell);
  }
  if (!works(item)) row.append(make("td", {class: "why", colspan: used.length - given.length}, reasonOf(item)));
  row.onclick = () => toggle(row, item, used.length);
  row.onkeydown = event => { if (event.key === "Enter") toggle(row, item, used.length); };
  return row;
}

function toggle(row, item, width) {
  if (row.nextSibling && row.nextSibling.className === "more") {
    row.nextSibling.remove();
    row.setAttribute("aria-expanded", "false");
    return;
  }
  row.after(make("tr", {class: "more"}, make("td", {colspan: width}, ...detailsOf(item))));
  row.setAttribute("aria-expanded", "true");
}

function detailsOf(item) {
  const list = make("dl"), failure = item.failure || {};
  const add = (title, value) => { if (isKnown(value) && value !== "") list.append(make("dt", {}, title), make("dd", {}, String(value))); };
  add("again", item.command);
  add("engine", item.engine);
  add("weights", item.weights);
  add("activations", item.activations);
  add("mode", item.mode);
  if (item.latency) add("samples", `${item.latency.samples}, after ${item.latency.warm_up} to warm up${item.latency.steady ? "" : " (not steady)"}`);
  if (item.left_bytes) add("left behind", showSize(item.left_bytes));
  add("exit code", failure.exit_code >= 0 ? failure.exit_code : null);
  add("status", failure.status);
  add("hint", failure.hint);
  const parts = [list];
  for (const [title, memory] of [["host", item.host_memory], ["device", item.device_memory]])
    if (memory && Object.keys(memory.purposes || {}).length) parts.push(purposesOf(title, memory));
  if (failure.log) parts.push(make("pre", {}, failure.log));
  return parts;
}

function purposesOf(title, memory) {
  const table = make("table", {}, make("tr", {}, make("th", {}, title), make("th", {}, "planned"), make("th", {}, "measured")));
  const add = (name, part) => table.append(make("tr", {}, make("td", {}, name), make("td", {}, showSize(part.planned_bytes)), make("td", {}, showSize(part.measured_bytes))));
  for (const [name, part] of Object.entries(memory.purposes)) add(name, part);
  add("together", memory);
  return table;
}

// ---- text models, changes ----

function drawTexts() {
  const tests = [...new Set(items.flatMap(item => item.texts.map(text => text.test)))];
  document.getElementById("texts-section").hidden = !tests.length;
  if (!tests.length) return;
  const body = make("tbody");
  for (const item of items.filter(one => one.texts.length)) {
    const row = make("tr", {}, make("td", {}, labelOf(item)));
    for (const test of tests) {
      const text = item.texts.find(one => one.test === test);
      row.append(make("td", {}, text ? showNumber(text.tokens_per_s) : UNKNOWN));
    }
    body.append(row);
  }
  put("texts", make("thead", {}, make("tr", {}, make("th", {}, "variant"), ...tests.map(test => make("th", {}, test)))), body);
}

function drawChanges() {
  document.getElementById("changes-section").hidden = !changes;
  if (!changes) return;
  const titles = ["variant", "before", "now", "change", "99.9 %", "peak", "change", ""];
  const body = make("tbody");
  for (const c of changes) {
    const verdict = make("td", {class: "left " + (c.failed ? "bad" : c.verdict === "faster" ? "good" : "")}, c.verdict);
    const interval = isKnown(c.slower) ? `${showShare(c.slower_low)} to ${showShare(c.slower_high)}` : UNKNOWN;
    body.append(make("tr", {}, make("td", {}, c.name), ...[showTime(c.before_s), showTime(c.now_s), showShare(c.slower), interval, showSize(c.now_bytes), showShare(c.larger)].map(text => make("td", {}, text)), verdict));
  }
  put("changes", make("thead", {}, make("tr", {}, ...titles.map(title => make("th", {}, title)))), body);
}
