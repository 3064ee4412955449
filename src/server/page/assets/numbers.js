// numbers.js — the same as the picture, and more, in words: for reading, and for those who cannot
// see the picture.

// ---- the table ----

function lineRow(name, label, bytes, note) {
  return { key: name, swatch: "stroke " + name, label, bytes, note };
}

// From the top of the picture down, with what it draws each with.
function deviceRows(device, memory, isHost) {
  const rows = [{ key: "head", label: device.device }], budget = device.budget_bytes;
  if (budget) rows.push(lineRow("budget", "Budget", budget, ""));
  if (isHost && memory.predicted_peak_bytes) {
    const predicted = memory.predicted_peak_bytes;
    rows.push(lineRow("predicted", "Predicted peak", predicted, shareText(predicted, budget)));
  }
  if (isHost) rows.push(lineRow("resident", "Resident", memory.resident_bytes, shareText(memory.resident_bytes, budget)));
  rows.push({ key: "total", label: "On the ledger", bytes: device.bytes, note: "peak " + bytesText(device.peak_bytes) });
  for (const [purpose, colour] of Object.entries(PURPOSES).reverse()) {
    const bytes = device.purposes[purpose];
    if (bytes !== undefined) rows.push({ key: purpose, colour, label: purpose, bytes, note: shareText(bytes, device.bytes) });
  }
  return rows;
}

function makeRow(row) {
  if (row.bytes === undefined) {
    const head = element("th", "", row.label);
    head.colSpan = 3;
    head.scope = "rowgroup";
    return element("tr", "", head);
  }
  const head = element("th", "");
  head.scope = "row";
  if (row.swatch || row.colour) {
    const swatch = element("i", row.swatch || "");
    if (row.colour) swatch.style.background = row.colour;
    head.append(swatch);
  }
  head.append(row.label);
  const made = element("tr", "", head, element("td", "bytes"), element("td", "note"));
  made.dataset.key = row.key;
  return made;
}

let shownRows = "";
function showBytes(health) {
  const { memory } = health;
  const rows = devicesInUse(memory).flatMap((device, i) => deviceRows(device, memory, i === 0));
  const body = byId("bytes").tBodies[0], names = rows.map(({ key, label }) => key + label).join();
  if (names !== shownRows) body.replaceChildren(...rows.map(makeRow));
  shownRows = names;
  rows.forEach((row, i) => {
    if (row.bytes === undefined) return;
    setText(body.rows[i].cells[1], bytesText(row.bytes));
    setText(body.rows[i].cells[2], row.note);
  });
}

// ---- what is being done ----

function showPages({ pages_used: used, pages_kept: kept, pages_total: total, page_bytes, page_tokens }) {
  const each = page_bytes ? `, of ${page_tokens} tokens and ${bytesText(page_bytes)} each` : "";
  setText(byId("kv"), total ? `${used} used, ${kept} kept, ${total} in all${each}` : "none yet");
  const [usedBar, keptBar] = byId("kv-bar").children;
  usedBar.style.width = total ? used / total * 100 + "%" : "0";
  keptBar.style.width = total ? kept / total * 100 + "%" : "0";
}

function showQueue(queue) {
  const places = queue.sequences_limit ? `, ${queue.sequences} of ${queue.sequences_limit} sequences` : "";
  setText(byId("running"), queue.running + places);
  setText(byId("waiting"), `${queue.waiting} of ${queue.waiting_limit}`);
  setText(byId("connections"), `${queue.connections} of ${queue.connections_limit}`);
}

// ---- where it runs ----

function attemptItem(attempt) {
  const state = attempt.state.replace("_", " ");
  const item = element("li", "", element("b", "", attempt.target), ` ${state}`);
  item.dataset.is = attempt.state;
  if (attempt.stage) item.append(` at ${attempt.stage}`);
  item.append(`, ${timeText(attempt.seconds)}`);
  const reason = [attempt.class, attempt.meaning].filter(Boolean).join(": ");
  for (const line of [reason, attempt.message, attempt.hint]) if (line) item.append(element("p", "", line));
  return item;
}

let shownLadder = "";
function showLadder({ device, target_index, ladder = {} }) {
  const { targets = [], attempts = [] } = ladder;
  const place = targets.length > 1 ? ` (target ${target_index + 1} of ${targets.length})` : "";
  setText(byId("device"), device ? device + place : "none yet");
  byId("ladder").hidden = !attempts.some(({ state }) => state !== "in_use");
  const text = JSON.stringify(attempts);
  if (text !== shownLadder) byId("attempts").replaceChildren(...attempts.map(attemptItem));
  shownLadder = text;
}

function showFailure({ failure }) {
  byId("failure").hidden = !failure;
  if (failure) setText(byId("failure"), `${failure.class}: ${failure.meaning}. ${failure.message}. ${failure.hint}`);
}

function showStatus(text, kind) {
  setText(byId("status"), text);
  byId("status").dataset.is = kind;
}

// One line: what is left of the picture where it is folded away.
function showBrief({ memory, tokens_per_second: rate }) {
  const budget = memory.budget_bytes ? " of " + bytesText(memory.budget_bytes) : "";
  setText(byId("brief"), `${bytesText(memory.resident_bytes)}${budget} · ${rateText(rate)} tokens/s`);
}

function showNumbers(health) {
  showStatus(health.status, health.status === "ready" ? "ready" : health.status === "failed" ? "bad" : "");
  setText(byId("model"), health.model);
  showBytes(health);
  showPages(health.kv);
  showQueue(health.queue);
  showLadder(health);
  showFailure(health);
  showBrief(health);
  const { memory } = health;
  setText(byId("rate"), rateText(health.tokens_per_second));
  setText(byId("context"), health.context ? health.context + " tokens" : "none yet");
  setText(byId("requests"), `${bytesText(memory.requests_bytes)} of ${bytesText(memory.requests_limit_bytes)}`);
  setText(byId("uptime"), `${timeText(health.uptime_seconds)}, version ${health.version}`);
}
