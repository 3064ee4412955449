// data.js — the results, and what is asked of each of them.

const read = id => JSON.parse(document.getElementById(id).textContent);
const results = read("results-data");
const changes = read("changes-data"); // or null
const items = results.results;

const works = item => item.status === "success" && item.latency;
// Fewer than six samples have none of 95 %.
const hasInterval = item => item.latency.samples >= 6 && item.latency.p50_low_s !== null && item.latency.p50_high_s !== null;
const several = values => new Set(values).size > 1;
const showBatches = several(items.map(item => item.batch_size).filter(batch => batch !== null));
const showBudgets = several(items.map(item => item.budget_bytes));

// The name that was asked for; with batch and budget where these differ.
function labelOf(item) {
  const more = [];
  if (showBatches && item.batch_size !== null) more.push("batch " + item.batch_size);
  if (showBudgets) more.push(item.budget_bytes === null ? "no budget" : showSize(item.budget_bytes));
  return (item.asked || item.name) + (more.length ? ", " + more.join(", ") : "");
}

function reasonOf(item) {
  const failure = item.failure || {};
  let text = (item.outcome || "failed").replace("_", " ");
  if (failure.signal) text += " by signal " + failure.signal;
  if (failure.stage) text += " while " + failure.stage;
  return failure.message ? text + ": " + failure.message : text;
}

// Bytes at the peak, the device's among them.
const memories = {
  resident: {title: "resident, as the system counts", of: item => withDevice(item, item.resident_peak_bytes)},
  ledger: {title: "on the ledger", of: item => withDevice(item, item.host_memory ? item.host_memory.peak_bytes : null)},
};

function withDevice(item, bytes) {
  if (bytes === null || bytes === undefined) return null;
  return bytes + (item.device_memory && item.device_memory.peak_bytes || 0);
}

// Those that no other beats in both: in the order of latency, each with less memory than all before.
function paretoFront(points) {
  let least = Infinity;
  return [...points].sort((a, b) => a.x - b.x || a.y - b.y).filter(p => p.y < least && ((least = p.y), true));
}
