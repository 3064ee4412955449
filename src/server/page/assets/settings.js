// settings.js — what is asked for beside the text. A model without a form for conversations
// continues texts instead: the server says so when it is first asked, and it is asked differently
// from then on.

let isChat = true;
let isTokensTouched = false;

// Half of the context for an answer, unless somebody said how much.
function fitSettings({ context: tokens, chat }) {
  const field = byId("max-tokens");
  if (!tokens) return; // not loaded yet, or a server of pictures (draw.js)
  if (chat !== isChat) setChat(chat);
  field.max = tokens;
  if (!isTokensTouched) field.value = Math.min(256, Math.floor(tokens / 2));
}

function setChat(chat) {
  isChat = chat;
  byId("system-label").hidden = !chat;
  byId("form-note").hidden = chat;
  setText(byId("text-label"), chat ? "Message" : "Text to continue");
  byId("text").placeholder = chat ? "Message" : "Once upon a time";
}

// `turns`: [{role, content}], the last is what was just said.
function makeRequest(turns) {
  const shared = {
    temperature: byId("temperature").valueAsNumber,
    max_tokens: byId("max-tokens").valueAsNumber,
    stream: true,
    stream_options: { include_usage: true },
  };
  if (!isChat) return { path: "v1/completions", body: { prompt: turns[turns.length - 1].content, ...shared } };
  const system = byId("system").value.trim();
  const messages = system ? [{ role: "system", content: system }, ...turns] : turns;
  return { path: "v1/chat/completions", body: { messages, ...shared } };
}

// A number that is missing or out of range is shown, not sent.
function checkSettings() {
  const wrong = [...byId("settings").querySelectorAll("input")].find((field) => !field.checkValidity());
  if (wrong) byId("settings").open = true;
  return !wrong || wrong.reportValidity();
}
