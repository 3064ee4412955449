// draw.js — a server of pictures: what is written is drawn, step by step, and each picture can be kept.

let isDrawing = false; // the server draws instead of writing

function fitDrawing({ images }) {
  if (!images || isDrawing) return;
  isDrawing = true;
  byId("text-fields").hidden = true;
  byId("image-fields").hidden = false;
  byId("kv").closest("div").hidden = true;
  for (const id of ["rate", "context"]) byId(id).closest("div").hidden = true;
  setText(byId("clear"), "New page");
  setText(byId("opening"), "Nothing was drawn yet.");
  setText(byId("text-label"), "What to draw");
  byId("text").placeholder = "What to draw";
  setText(byId("send"), "Draw");
}

// Fields that are empty are left to the model.
function drawingRequest(prompt) {
  const body = { prompt, stream: true };
  const negative = byId("negative").value.trim(), size = byId("size").value.trim();
  if (negative) body.negative_prompt = negative;
  if (size) body.size = size;
  for (const [field, name] of [["steps", "steps"], ["seed", "seed"], ["pictures", "n"], ["guidance", "guidance"]]) {
    const value = byId(field).valueAsNumber;
    if (!Number.isNaN(value)) body[name] = value;
  }
  return body;
}

function showStep(drawing, { index, step, steps }) {
  drawing.steps++;
  drawing.bar.max = steps;
  drawing.bar.value = step;
  const which = drawing.body.n > 1 ? `picture ${index + 1} of ${drawing.body.n}, ` : "";
  setText(drawing.note, `${which}step ${step} of ${steps}`);
}

function showPicture(drawing, event) {
  const image = element("img", "drawn"), link = element("a", "", image);
  image.alt = drawing.body.prompt;
  image.src = link.href = "data:image/png;base64," + event.b64_json;
  link.download = `${event.seed}.png`;
  link.title = `seed ${event.seed}, ${event.size}: keep as a file`;
  drawing.seeds.push(event.seed);
  keepEnd(() => drawing.article.querySelector(".words").append(link));
}

async function receivePictures(drawing, signal) {
  const response = await ask("v1/images/generations", { body: drawing.body, signal });
  if (!response.ok) throw await readRefusal(response);
  for await (const event of readEvents(response)) {
    if (event.type === "image_generation.progress") showStep(drawing, event);
    else if (event.b64_json) showPicture(drawing, event);
  }
}

function endDrawing(drawing, question, text) {
  const seconds = (performance.now() - drawing.begin) / 1000;
  drawing.bar.remove();
  drawing.note.remove();
  drawing.article.setAttribute("aria-busy", "false");
  const seeds = drawing.seeds.length ? `seed ${drawing.seeds.join(", ")} · ` : "";
  setText(drawing.article.querySelector(".facts"), drawing.stopped ? "stopped" : seeds + timeText(seconds));
  if (drawing.problem)
    return showProblem(drawing.article, drawing.problem, () => { question.remove(); drawing.article.remove(); paint(text); });
  speak("The picture is there.", true);
}

async function paint(text) {
  const question = addArticle("You", "mine", text), article = addArticle("Picture", "answer picture", "");
  const bar = element("progress"), note = element("p", "quiet");
  bar.setAttribute("aria-label", "Steps");
  article.append(bar, note);
  const drawing = { article, bar, note, body: drawingRequest(text), seeds: [], steps: 0, begin: performance.now() };
  byId("turns").scrollTop = byId("turns").scrollHeight;
  article.setAttribute("aria-busy", "true");
  answering = new AbortController();
  showTurnOfUser(false);
  try {
    await receivePictures(drawing, answering.signal);
  } catch (problem) {
    if (answering.signal.aborted) drawing.stopped = true;
    else drawing.problem = asRefusal(problem);
  }
  answering = null;
  showTurnOfUser(true);
  if (article.isConnected) endDrawing(drawing, question, text);
}
