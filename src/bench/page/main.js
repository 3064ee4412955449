// main.js — the start, and `window.rationBench` for tests.

const shown = {front: []};

function drawHeader() {
  document.title = results.model + " · ration bench";
  put("model", results.model || "");
  put("where", [results.cpu, results.threads ? results.threads + " threads" : "", results.system, results.date].filter(Boolean).join(" · "));
  const facts = [["parameters", isKnown(results.parameters) ? showNumber(results.parameters / 1e6) + " million" : null], ["variants", `${items.filter(works).length} of ${items.length}`],
    ["against", results.baseline], ["harness", showTime(results.empty_s)], ["all in", showTime(results.elapsed_s)], ["ration", results.version]];
  put("facts", ...facts.filter(([, value]) => value).map(([title, value]) => make("div", {}, make("dt", {}, title), make("dd", {}, value))));
  const notes = [];
  if (results.cancelled) notes.push("Cancelled: not all variants were measured.");
  const unsteady = items.filter(item => works(item) && !item.latency.steady).map(labelOf);
  if (unsteady.length) notes.push("Times were not steady when measuring began: " + unsteady.join(", "));
  document.getElementById("notes").hidden = !notes.length;
  put("notes", notes.join("\n"));
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
}

const darkness = matchMedia("(prefers-color-scheme: dark)");
setTheme(darkness.matches ? "dark" : "light");
document.getElementById("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

drawHeader();
drawSweep();
drawBars();
drawChoice();
drawTexts();
drawChanges();
drawTable();
window.rationBench = {results, shown, paretoFront};
