// stacks.js — who asked for what was live: call stacks as a flame graph, and as a table of sites.
// Where a recording has none, nothing of this is shown.

const FLAME_ROWS = 60, FLAME_LEAST = 0.004; // of the whole; narrower frames are left out

// { frame, bytes, count, children: Map } of the stacks of these allocations.
function stackTree(data, found) {
  const root = { frame: "all", bytes: 0, count: 0, children: new Map() };
  const { alloc } = data, frames = new Map();
  for (const a of found) {
    const site = alloc.site[a];
    if (!site) continue;
    if (!frames.has(site)) frames.set(site, (data.detail(site) || data.name(site)).split("\n").slice(0, 100));
    let node = root;
    for (const frame of [null, ...frames.get(site)]) {
      if (frame !== null) {
        if (!node.children.has(frame)) node.children.set(frame, { frame, bytes: 0, count: 0, children: new Map() });
        node = node.children.get(frame);
      }
      node.bytes += alloc.bytes[a];
      node.count++;
    }
  }
  return root;
}

function childrenBySize(node) {
  return [...node.children.values()].sort((a, b) => b.bytes - a.bytes);
}

// Rows of boxes, each as wide as its bytes, callers above what they call. A click on a box shows it
// over the whole width; a click on "all" goes back.
function flameGraph(root) {
  const graph = element("div", "flame");
  const draw = (top) => {
    clear(graph);
    let row = [{ node: top, left: 0 }];
    for (let depth = 0; row.length && depth < FLAME_ROWS; depth++) {
      const line = element("div", "flame-row"), next = [];
      for (const { node, left } of row) {
        const share = node.bytes / top.bytes, box = element("button", "", node.frame);
        box.type = "button";
        box.title = `${node.frame}\n${exactBytesText(node.bytes)} in ${countText(node.count)} blocks`;
        box.style.left = `${100 * left}%`;
        box.style.width = `${100 * share}%`;
        box.style.setProperty("--hue", String(30 + (hashOf(node.frame) % 40)));
        box.addEventListener("click", () => draw(node === top ? root : node));
        line.append(box);
        let at = left;
        for (const child of childrenBySize(node)) {
          if (child.bytes / top.bytes >= FLAME_LEAST) next.push({ node: child, left: at });
          at += child.bytes / top.bytes;
        }
      }
      graph.append(line);
      row = next;
    }
  };
  draw(root);
  return graph;
}

function hashOf(text) {
  let hash = 7;
  for (let i = 0; i < text.length; i++) hash = (hash * 31 + text.charCodeAt(i)) | 0;
  return Math.abs(hash);
}

// By site: the innermost Python frame, or C's; as memray's table.
function siteSums(data, found) {
  const { alloc } = data, sums = new Map();
  for (const a of found) {
    const name = alloc.site[a] ? data.name(alloc.site[a]) : "";
    if (!name) continue;
    const sum = sums.get(name) || { name, bytes: 0, count: 0 };
    sum.bytes += alloc.bytes[a];
    sum.count++;
    sums.set(name, sum);
  }
  return [...sums.values()].sort((a, b) => b.bytes - a.bytes);
}

// For the panel: nothing where no stack is known.
function stackParts(found) {
  const root = stackTree(timeline, found);
  if (!root.bytes) return [];
  const lines = siteSums(timeline, found).slice(0, 30).map((sum) => ({ cells: [sum.name, countText(sum.count), bytesText(sum.bytes)] }));
  return [heading("Who asked for it"), flameGraph(root), makeTable(["site", ">blocks", ">bytes"], lines)];
}
