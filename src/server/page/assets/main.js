// main.js — the start: who listens to what.

function start() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(redraw).observe(canvas.parentElement);
  document.addEventListener("visibilitychange", lookAgain);
  byId("access").addEventListener("submit", useKey);
  byId("composer").addEventListener("submit", send);
  byId("text").addEventListener("keydown", onKey);
  byId("stop").addEventListener("click", stop);
  byId("clear").addEventListener("click", startAnew);
  byId("max-tokens").addEventListener("input", () => { isTokensTouched = true; });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
  byId("text").focus();
  lookAgain();
}

start();
