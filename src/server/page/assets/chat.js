// chat.js — the conversation: one answer at a time, shown as text while it comes and as Markdown once it is there.

let conversation = []; // [{role, content}]: what was said, and answered
let answering = null;  // an AbortController while an answer is under way

// ---- on the page ----

function addArticle(who, className, text) {
  const words = element("div", "words", document.createTextNode(text));
  const article = element("article", className, element("h3", "", who), words, element("p", "facts"), element("p", "actions"));
  byId("opening").hidden = true;
  byId("turns").append(article);
  return article;
}

// The end stays in view for who is there, and for nobody else.
function keepEnd(change) {
  const box = byId("turns"), isThere = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  change();
  if (isThere) box.scrollTop = box.scrollHeight;
}

function showTurnOfUser(isTheirs) {
  const [here, gone] = isTheirs ? [byId("send"), byId("stop")] : [byId("stop"), byId("send")];
  const hadFocus = document.activeElement === gone;
  here.hidden = false;
  gone.hidden = true;
  if (hadFocus) here.focus();
}

// Read out by sentences: single words would interrupt each other.
const voice = { pending: "" };
function speak(text, isEnd) {
  voice.pending += text;
  const whole = isEnd ? [voice.pending] : voice.pending.match(/^[^]*(?:[.!?:;]["”’)]*\s|\n)/);
  const end = whole ? whole[0].length : 0;
  const sentence = voice.pending.slice(0, end).trim();
  voice.pending = voice.pending.slice(end);
  if (sentence) byId("spoken").append(element("p", "", sentence));
}

// ---- an answer ----

function pieceOf(event) {
  const choice = (event.choices || [])[0];
  return choice ? (choice.delta ? choice.delta.content : choice.text) || "" : "";
}

function note(answer, event) {
  const choice = (event.choices || [])[0], piece = pieceOf(event);
  if (choice && choice.finish_reason) answer.finish = choice.finish_reason;
  if (event.usage) answer.tokens = event.usage.completion_tokens;
  if (!piece) return;
  if (!answer.text) answer.first = performance.now();
  answer.last = performance.now();
  answer.pieces++;
  answer.text += piece;
  keepEnd(() => answer.words.appendData(piece));
  speak(piece, false);
}

async function receive(answer, turns, signal) {
  const { path, body } = makeRequest(turns);
  const response = await ask(path, { body, signal });
  if (!response.ok) throw await readRefusal(response);
  for await (const event of readEvents(response)) note(answer, event);
}

// "24 tokens · 31.0 tokens/s · first after 85 ms". The first token's time is the prompt's.
function factsOf(answer) {
  const tokens = answer.tokens || answer.pieces, seconds = (answer.last - answer.first) / 1000;
  const facts = [];
  if (tokens) facts.push(tokens + (tokens === 1 ? " token" : " tokens"));
  if (tokens > 1 && seconds > 0) facts.push(rateText((tokens - 1) / seconds) + " tokens/s");
  if (answer.text) facts.push("first after " + timeText((answer.first - answer.begin) / 1000));
  if (answer.finish === "length") facts.push("cut at max tokens");
  if (answer.finish === "stopped") facts.push("stopped");
  return facts.join(" · ");
}

// ---- refusals ----

function problemText({ status, message, retrySeconds }) {
  const words = { 401: "A key is needed", 429: "Too much at once", 503: "Not available now" }[status];
  const head = words ? `${words} (${status}): ` : status ? `Refused (${status}): ` : "Failed: ";
  return head + message + (retrySeconds ? `. It may be tried again in ${retrySeconds} s.` : "");
}

// Not before the server wants to be asked again.
function retryButton(seconds, again) {
  const button = element("button", "", "Try again");
  button.type = "button";
  button.disabled = seconds > 0;
  setTimeout(() => { button.disabled = false; }, seconds * 1000);
  button.addEventListener("click", again);
  return button;
}

function showProblem(article, problem, again) {
  const line = element("p", "problem", problemText(problem), retryButton(problem.retrySeconds || 0, again));
  line.setAttribute("role", "alert");
  keepEnd(() => article.append(line));
  if (problem.status === 401) askForKey(problem.message);
}

function asRefusal(problem) {
  if (problem instanceof Refusal) return problem;
  return new Refusal(0, { message: "the server cannot be reached" }, 0);
}

// ---- a turn ----

function actionButton(name, what) {
  const button = element("button", "small", name);
  button.type = "button";
  button.addEventListener("click", what);
  return button;
}

// Only the last turn can be said or answered again: what came later would not fit to it.
function showActions(answer, question, text) {
  for (const old of byId("turns").querySelectorAll(".actions .again")) old.remove();
  const again = actionButton("Regenerate", () => tryAgain(answer, question, text));
  const edit = actionButton("Edit", () => editTurn(answer, question, text));
  again.classList.add("again");
  edit.classList.add("again");
  answer.article.querySelector(".actions").append(copyButton(() => answer.text), again);
  question.querySelector(".actions").append(edit);
}

function endTurn(answer, question, text) {
  answer.article.setAttribute("aria-busy", "false");
  keepEnd(() => {
    showMarkdown(answer.article.querySelector(".words"), answer.text);
    if (!answer.problem) showActions(answer, question, text);
  });
  keepEnd(() => setText(answer.article.querySelector(".facts"), factsOf(answer)));
  speak("", true);
  if (!answer.problem || answer.text)
    answer.turns = [{ role: "user", content: text }, { role: "assistant", content: answer.text }];
  conversation.push(...answer.turns);
  if (answer.problem) showProblem(answer.article, answer.problem, () => tryAgain(answer, question, text));
}

// What was left of an answer is not part of the conversation any more.
function takeBack(answer, question) {
  conversation = conversation.filter((turn) => !answer.turns.includes(turn));
  question.remove();
  answer.article.remove();
}

function tryAgain(answer, question, text) {
  if (answering) return;
  takeBack(answer, question);
  say(text);
}

// The text goes back to where it was written.
function editTurn(answer, question, text) {
  if (answering) return;
  takeBack(answer, question);
  byId("opening").hidden = byId("turns").querySelector("article") !== null;
  byId("text").value = text;
  byId("text").focus();
}

async function say(text) {
  const question = addArticle("You", "mine", text), article = addArticle("Answer", "answer", "");
  const answer = {
    article, words: article.querySelector(".words").firstChild, text: "", pieces: 0, tokens: 0,
    begin: performance.now(), first: 0, last: 0, finish: "", problem: null, turns: [],
  };
  byId("turns").scrollTop = byId("turns").scrollHeight;
  byId("spoken").replaceChildren();
  voice.pending = "";
  article.setAttribute("aria-busy", "true");
  answering = new AbortController();
  showTurnOfUser(false);
  try {
    await receive(answer, [...conversation, { role: "user", content: text }], answering.signal);
  } catch (problem) {
    if (answering.signal.aborted) answer.finish = "stopped";
    else answer.problem = asRefusal(problem);
  }
  answering = null;
  showTurnOfUser(true);
  if (article.isConnected) endTurn(answer, question, text); // else a new conversation has begun
}

// ---- what the user does ----

function send(event) {
  if (event) event.preventDefault();
  const field = byId("text"), text = field.value.trim();
  if (answering || !text || !checkSettings()) return;
  field.value = "";
  if (isDrawing) paint(text);
  else say(text);
}

function stop() {
  if (answering) answering.abort();
}

function startAnew() {
  stop();
  conversation = [];
  for (const article of byId("turns").querySelectorAll("article")) article.remove();
  byId("opening").hidden = false;
  byId("spoken").replaceChildren();
  byId("text").focus();
}

function onKey(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  send(event);
}
