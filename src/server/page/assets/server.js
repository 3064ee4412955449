// server.js — asking the server: with the key where one is needed, answers as events, refusals as
// what the server says about them.

const KEY_NAME = "ration-key";
let apiKey = sessionStorage.getItem(KEY_NAME) || "";

function setApiKey(key) {
  apiKey = key;
  sessionStorage.setItem(KEY_NAME, key);
}

// Paths are relative: the page may be served from below another address.
function ask(path, { body, signal } = {}) {
  const headers = {};
  if (apiKey) headers.Authorization = "Bearer " + apiKey;
  if (body) headers["Content-Type"] = "application/json";
  return fetch(path, {
    method: body ? "POST" : "GET", headers, signal, cache: "no-store",
    body: body && JSON.stringify(body),
  });
}

class Refusal extends Error {
  constructor(status, error, retrySeconds) {
    super(error.message || "no reason was given");
    this.status = status; // 0: after the answer had begun
    this.code = error.code;
    this.retrySeconds = retrySeconds;
  }
}

async function readRefusal(response) {
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch { /* not ours: something between us and the server answered */ }
  const seconds = Number(response.headers.get("Retry-After")) || 0;
  return new Refusal(response.status, error, seconds);
}

// The lines of a text that arrives bit by bit.
async function* readLines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    yield* lines;
  }
}

// The objects of a stream of server-sent events. Ends well only with the word that all was sent.
async function* readEvents(response) {
  for await (const line of readLines(response)) {
    if (!line.startsWith("data:")) continue;
    const data = line.slice(5).trim();
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new Refusal(0, event.error, 0);
    yield event;
  }
  throw new Refusal(0, { message: "the connection ended in the middle of the answer" }, 0);
}
