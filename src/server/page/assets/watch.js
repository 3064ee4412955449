// watch.js — asks /health once a second, unless nobody looks; and for a key, where one is needed.

const PERIOD = 1000;      // milliseconds from one question to the next
const PATIENCE = 10000;   // milliseconds for an answer
let timer = 0, isAsking = false;

async function look() {
  const response = await ask("health", { signal: AbortSignal.timeout(PATIENCE) });
  if (response.status === 401) return askForKey((await readRefusal(response)).message);
  // 503 says how it is, too.
  const health = await response.json();
  if (!health.memory) throw new Refusal(response.status, health.error || {}, 0);
  thankForKey();
  showNumbers(health);
  addSample(makeSample(performance.now() / 1000, health));
  fitSettings(health);
  fitDrawing(health);
}

async function lookAgain() {
  clearTimeout(timer);
  if (document.hidden || isAsking) return;
  isAsking = true;
  const begin = performance.now();
  try {
    await look();
  } catch (problem) {
    showStatus(problem instanceof Refusal ? `${problem.status}: ${problem.message}` : "not reachable", "bad");
  }
  isAsking = false;
  if (byId("access").hidden) timer = setTimeout(lookAgain, Math.max(0, begin + PERIOD - performance.now()));
}

// ---- the key ----

function askForKey(why) {
  const form = byId("access");
  clearTimeout(timer); // without a key, the next question would be refused as well
  setText(byId("access-note"), apiKey ? why : "");
  showStatus("asks for a key", "bad");
  if (!form.hidden) return;
  form.hidden = false;
  byId("key").focus();
}

function thankForKey() {
  const form = byId("access");
  if (!form.hidden) byId("text").focus();
  form.hidden = true;
}

function useKey(event) {
  event.preventDefault();
  setApiKey(byId("key").value.trim());
  lookAgain();
}
