// minimap.js — the whole recording on top, with the part that is shown as a brush.

const minimap = byId("minimap"), mapContext = minimap.getContext("2d", { alpha: false });

function mapX(time) {
  return GUTTER + time / timeline.end * (minimap.clientWidth - GUTTER);
}

function mapTime(x) {
  return (x - GUTTER) / Math.max(1, minimap.clientWidth - GUTTER) * timeline.end;
}

// The whole does not change while one pans, so it is drawn once and copied.
let mapPicture = null, mapKey = "";

function drawWhole(scale) {
  const width = minimap.width, height = minimap.height;
  const picture = document.createElement("canvas");
  picture.width = width;
  picture.height = height;
  const target = picture.getContext("2d", { alpha: false });
  const left = Math.round(GUTTER * scale), room = Math.max(1, width - left);
  target.fillStyle = colours.raised;
  target.fillRect(0, 0, width, height);
  target.fillStyle = colours.quiet;
  target.font = FONT.replace("11px", `${11 * scale}px`);
  target.textBaseline = "middle";
  target.fillText(timeText(timeline.facts.end_ns), 10 * scale, height / 2);
  // Devices above each other, each at its largest within a pixel.
  const most = memory.reduce((sum, one) => sum + peakOf(one), 0);
  const purposes = new Float64Array(timeline.purposes.length);
  for (let x = 0; most > 0 && x < room; x++) {
    let y = height;
    memory.forEach((one, i) => {
      const { reserved } = one.peakBetween(timeline.end * x / room, timeline.end * (x + 1) / room, purposes);
      const h = Math.ceil(reserved / most * (height - 6 * scale));
      target.fillStyle = PURPOSE_COLOURS[i % PURPOSE_COLOURS.length];
      target.fillRect(left + x, y - h, 1, h);
      y -= h;
    });
  }
  return picture;
}

function drawMatchTicks() {
  if (!view.matches) return;
  mapContext.fillStyle = colours.found;
  let last = -1;
  for (const hit of view.matches.hits) {
    const x = Math.round(mapX(hit.time));
    if (x !== last) mapContext.fillRect(x, 0, 1, 7);
    last = x;
  }
}

painters.push(function paintMinimap() {
  const scale = fitCanvas(minimap);
  const key = [minimap.width, minimap.height, view.theme, memory[0].visible.join()].join();
  if (key !== mapKey) mapPicture = drawWhole(scale);
  mapKey = key;
  mapContext.setTransform(1, 0, 0, 1, 0, 0);
  mapContext.drawImage(mapPicture, 0, 0);
  mapContext.setTransform(scale, 0, 0, scale, 0, 0);
  drawMatchTicks();
  const height = minimap.clientHeight;
  const begin = Math.max(GUTTER, mapX(view.t0)), end = Math.min(minimap.clientWidth, mapX(view.t1));
  mapContext.globalAlpha = 0.55;
  mapContext.fillStyle = colours.ground;
  mapContext.fillRect(GUTTER, 0, begin - GUTTER, height);
  mapContext.fillRect(end, 0, minimap.clientWidth - end, height);
  mapContext.globalAlpha = 1;
  mapContext.strokeStyle = colours.accent;
  mapContext.lineWidth = 2;
  mapContext.strokeRect(begin, 1, Math.max(2, end - begin), height - 2);
  const percent = Math.round(100 * Math.min(1, Math.max(0, (view.t0 + view.t1) / 2 / timeline.end)));
  minimap.setAttribute("aria-valuenow", String(percent));
  const from = Math.max(0, view.t0), to = Math.min(timeline.end, view.t1), step = span() / 100;
  minimap.setAttribute("aria-valuetext", `${momentText(from, step)} to ${momentText(to, step)}`);
});
