// header.js — what is said once: the file, the legend, and a summary for who does not see the canvas.

function makeHeader() {
  const { facts } = timeline, file = facts.path.split("/").pop() || facts.format;
  document.title = `${file} – ration timeline`;
  byId("file").textContent = file;
  byId("file").title = facts.path;
  byId("command").textContent = facts.command;
  const notes = facts.notes.slice();
  if (facts.dropped_count) notes.push(`${countText(facts.dropped_count)} events were dropped.`);
  byId("notes").textContent = notes.join("\n");
  byId("notes").hidden = notes.length === 0;
  makeFacts(clear(byId("facts-list")));
}

function makeFacts(list) {
  const { facts } = timeline;
  const add = (term, text) =>
    list.append(element("div", "", element("dt", "", term), element("dd", "", text)));
  const date = new Date(facts.start_unix_ns / 1e6);
  if (facts.start_unix_ns) add("recorded", date.toISOString().slice(0, 19).replace("T", " ") + " UTC");
  add("duration", timeText(facts.end_ns));
  timeline.devices.slice(0, 4).forEach((device, i) => {
    add(`peak of ${device.name}`, bytesText(Math.max(peakOf(memory[i]), device.counted)));
  });
  add("operations", countText(timeline.op.count));
  add("allocations", countText(timeline.alloc.count));
}

// ---- legend ----

function makeLegend() {
  const legend = clear(byId("legend"));
  for (const purpose of distinct(timeline.alloc.purpose)) legend.append(purposeButton(purpose));
  for (const { kind, text, colour, style } of LINES) {
    if (!Object.values(counters).some((lines) => lines[kind])) continue;
    const line = element("i");
    line.style.borderTopStyle = style;
    line.style.borderTopColor = `var(--${colour})`;
    legend.append(element("span", "line", line, text));
  }
  if (distinct(timeline.alloc.flags).some((flags) => flags & RESERVED_BY))
    legend.append(element("span", "line", element("i", "hatched"), "reserved, not in use"));
}

function purposeButton(purpose) {
  const button = element("button", "", swatch(purpose), timeline.purposes[purpose]);
  button.type = "button";
  button.title = `Show or hide ${timeline.purposes[purpose]}`;
  button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    const visible = memory[0].visible.slice();
    visible[purpose] = !visible[purpose];
    button.setAttribute("aria-pressed", String(visible[purpose]));
    for (const series of memory) series.show(visible);
    redraw();
  });
  return button;
}

// ---- summary ----

function makeSummary() {
  const { facts, op, alloc } = timeline, summary = clear(byId("summary"));
  const say = (text) => summary.append(element("p", "", text));
  say(`${facts.format} ${facts.path}. ${timeText(facts.end_ns)}, ${countText(op.count)} operations, ` +
    `${countText(alloc.count)} allocations.`);
  timeline.devices.forEach((device, i) => {
    if (memory[i].peakState() >= 0) say(peakSentence(device, memory[i]));
  });
  const sums = operationsBetween(timeline, 0, Infinity).slice(0, 5);
  const longest = sums.map((sum) => `${sum.name} ${timeText(sum.time)} in ${countText(sum.count)}`);
  if (longest.length) say(`Operations by time: ${longest.join("; ")}.`);
}

function peakSentence(device, series) {
  const state = series.peakState(), bytes = purposesAt(series, state);
  const parts = largestPurposes(bytes).map((k) => `${timeline.purposes[k]} ${bytesText(bytes[k])}`);
  return `Peak of ${device.name}: ${exactBytesText(series.reserved[state])} reserved at ` +
    `${momentText(series.times[state], timeline.end / 1e4)}; in use: ${parts.join(", ") || "nothing"}.`;
}
