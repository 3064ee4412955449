// markdown.js — an answer as it was meant: headings, lists, code, emphasis. Elements are made, never parsed: whatever the
// model writes, it stays text in them.

const FENCE = /^\s{0,3}(```+|~~~+)\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,3}[.)])\s+(.*)$/;

// Whether there is anything to make of it; a plain text stays one text node.
function hasMarkdown(text) {
  return /(^|\n)\s{0,3}(```|~~~|#{1,6}\s|[-*+]\s|\d{1,3}[.)]\s|>\s)|`[^`\n]+`|\*\*[^*\n]+\*\*|\]\(https?:/.test(text);
}

// `code`, **bold**, *italic*, [text](https://...); the first that begins counts.
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/;
function addInline(where, text) {
  for (let rest = text; rest;) {
    const found = INLINE.exec(rest);
    if (!found) {
      where.append(rest);
      return;
    }
    where.append(rest.slice(0, found.index));
    const [whole, code, bold, italic, label, address] = found;
    if (code !== undefined) where.append(element("code", "", code));
    else if (bold !== undefined) where.append(element("strong", "", bold));
    else if (italic !== undefined) where.append(element("em", "", italic));
    else {
      const link = element("a", "", label);
      link.href = address;
      link.target = "_blank";
      link.rel = "noopener noreferrer";
      where.append(link);
    }
    rest = rest.slice(found.index + whole.length);
  }
}

function withInline(tag, text) {
  const made = element(tag, "");
  addInline(made, text);
  return made;
}

function copyButton(textOf) {
  const button = element("button", "small", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(textOf());
      setText(button, "Copied");
    } catch {
      setText(button, "Not allowed");
    }
    setTimeout(() => setText(button, "Copy"), 2000);
  });
  return button;
}

function codeBlock(language, text) {
  const head = element("div", "code-head", element("span", "", language || "code"), copyButton(() => text));
  return element("div", "code", head, element("pre", "", element("code", "", text)));
}

// Lines [at, ...) of a list, deeper ones within; returns where it ends.
function addList(where, lines, at) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const list = element(/\d/.test(mark) ? "ol" : "ul", "");
  if (/\d/.test(mark)) list.start = parseInt(mark, 10);
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || item[1].length < indent.length) break;
    if (item[1].length > indent.length && list.lastChild) {
      at = addList(list.lastChild, lines, at);
      continue;
    }
    list.append(withInline("li", item[3]));
    at++;
  }
  where.append(list);
  return at;
}

function isPlainLine(line) {
  return line.trim() && !FENCE.test(line) && !HEADING.test(line) && !ITEM.test(line) && !line.startsWith(">");
}

function addMarkdown(where, text) {
  const lines = text.split("\n");
  for (let at = 0; at < lines.length;) {
    const line = lines[at], fence = FENCE.exec(line), heading = HEADING.exec(line);
    if (fence) {
      let end = at + 1;
      while (end < lines.length && !lines[end].trim().startsWith(fence[1])) end++;
      where.append(codeBlock(fence[2], lines.slice(at + 1, end).join("\n")));
      at = end + 1;
    } else if (heading) {
      where.append(withInline("h4", heading[2]));
      at++;
    } else if (ITEM.test(line)) {
      at = addList(where, lines, at);
    } else if (line.startsWith(">")) {
      let end = at;
      while (end < lines.length && lines[end].startsWith(">")) end++;
      const quote = element("blockquote", "");
      addMarkdown(quote, lines.slice(at, end).map((each) => each.replace(/^> ?/, "")).join("\n"));
      where.append(quote);
      at = end;
    } else if (line.trim()) {
      let end = at;
      while (end < lines.length && isPlainLine(lines[end])) end++;
      end = Math.max(end, at + 1);
      where.append(withInline("p", lines.slice(at, end).join("\n")));
      at = end;
    } else {
      at++;
    }
  }
}

// The words of an answer that has ended.
function showMarkdown(words, text) {
  if (!hasMarkdown(text)) return;
  words.replaceChildren();
  words.classList.add("rich");
  addMarkdown(words, text);
}
