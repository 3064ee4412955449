// search.js — a text is looked for in names, blocks and shapes; operations and allocations that are
// called so are the hits, in the order of time.

const searchBox = byId("search"), searchCount = byId("search-count");

// Which names have the text, whatever its case: an entry a name.
function matchingNames(text) {
  const wanted = text.toLowerCase(), only = new Uint8Array(timeline.nameCount);
  let any = false;
  for (let id = 1; id < timeline.nameCount; id++) {
    const whole = `${timeline.name(id)}\n${timeline.group(id)}\n${timeline.detail(id)}`;
    if (whole.toLowerCase().includes(wanted)) only[id] = any = 1;
  }
  return any ? only : null;
}

function hitsOf(table, kind, only) {
  const hits = [];
  for (let i = 0; i < table.count; i++)
    if (only[table.name[i]]) hits.push({ kind, index: i, time: table.begin[i] });
  return hits;
}

function search(text) {
  view.matches = null;
  if (text) {
    const only = matchingNames(text);
    const hits = only ? [...hitsOf(timeline.op, "op", only), ...hitsOf(timeline.alloc, "alloc", only)] : [];
    hits.sort((a, b) => a.time - b.time);
    view.matches = { text, hits, at: -1, rows: only ? buildRows(timeline, only) : [] };
  }
  sayCount();
  redraw();
  return view.matches ? view.matches.hits.length : 0;
}

function sayCount() {
  const { matches } = view;
  const all = matches ? countText(matches.hits.length) : "";
  searchCount.textContent = matches && matches.at >= 0 ? `${countText(matches.at + 1)} / ${all}` : all;
}

// Shows the next hit (or the previous one), with something around it, and pins it.
function nextHit(step) {
  const { matches } = view;
  if (!matches || !matches.hits.length) return;
  const count = matches.hits.length;
  matches.at = matches.at < 0 ? (step > 0 ? 0 : count - 1) : (matches.at + step + count) % count;
  goTo(matches.hits[matches.at]);
  sayCount();
}

function goTo(hit) {
  const table = hit.kind === "op" ? timeline.op : timeline.alloc;
  const begin = table.begin[hit.index], end = Math.min(table.end[hit.index], timeline.end);
  const isSeen = begin >= view.t0 && end <= view.t1 && (end - begin) / span() > 0.005;
  if (!isSeen) fitRange(begin - (end - begin) * 2, end + (end - begin) * 2);
  pin({ kind: hit.kind, index: hit.index });
  if (hit.kind === "op") showRow(hit.index);
}

// Scrolls the lanes so that the operation's row is in sight.
function showRow(op) {
  measureLayout();
  const placed = placedRowOf(op);
  if (!placed) return;
  if (placed.top < layout.lanes.top || placed.top + ROW > layout.lanes.bottom)
    view.scroll.lanes += placed.top - (layout.lanes.top + layout.lanes.bottom) / 2;
  redraw();
}

searchBox.addEventListener("input", () => search(searchBox.value.trim()));
searchBox.addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    event.preventDefault();
    nextHit(event.shiftKey ? -1 : 1);
  }
  if (event.key === "Escape") {
    searchBox.value = "";
    search("");
    canvas.focus();
  }
  event.stopPropagation(); // letters are letters here
});
