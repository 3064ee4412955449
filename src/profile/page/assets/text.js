// text.js — numbers as people read them, and the few helpers that make elements.

const KINDS_OF_BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

// Three digits that matter: "12 B", "1.50 MiB", "128 MiB".
function bytesText(bytes) {
  let size = Math.abs(bytes), kind = 0;
  while (size >= 1023.5 && kind < KINDS_OF_BYTES.length - 1) {
    size /= 1024;
    kind++;
  }
  const digits = kind === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return (bytes < 0 ? "−" : "") + size.toFixed(digits) + " " + KINDS_OF_BYTES[kind];
}

// For comparing to the byte: "1.50 MiB (1 572 864 B)".
function exactBytesText(bytes) {
  const short = bytesText(bytes);
  return Math.abs(bytes) < 1024 ? short : `${short} (${countText(bytes)} B)`;
}

function deltaText(bytes) {
  return bytes > 0 ? "+" + bytesText(bytes) : bytesText(bytes);
}

function countText(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

const KINDS_OF_TIME = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"], [60e9, "min"], [3600e9, "h"]];

// The unit is the largest that gives at least 1.
function timeText(ns) {
  const size = Math.abs(ns);
  let kind = 0;
  while (kind < KINDS_OF_TIME.length - 1 && size >= KINDS_OF_TIME[kind + 1][0] * 0.9995) kind++;
  const value = size / KINDS_OF_TIME[kind][0];
  const digits = kind === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return (ns < 0 ? "−" : "") + value.toFixed(digits) + " " + KINDS_OF_TIME[kind][1];
}

// A moment, precise enough to tell it from one `step` away. Seconds and milliseconds only: moments
// stand below each other, and are compared.
function momentText(ns, step) {
  const unit = Math.abs(ns) >= 1e9 || step >= 1e8 ? 1e9 : 1e6;
  const digits = Math.max(0, Math.min(unit === 1e9 ? 9 : 6, Math.ceil(Math.log10(unit / step) - 1e-9)));
  return (ns / unit).toFixed(digits) + (unit === 1e9 ? " s" : " ms");
}

// 1, 2 or 5 times a power of ten, at least `least`.
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of [1, 2, 5]) if (factor * power >= least * 0.999999) return factor * power;
  return 10 * power;
}

// A power of two: what memory is counted in.
function roundByteStep(least) {
  return 2 ** Math.ceil(Math.log2(Math.max(1, least)));
}

// ---- elements: texts of a recording go through textContent only, so they stay texts ----

function byId(id) {
  return document.getElementById(id);
}

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  for (const child of children) made.append(child);
  return made;
}

function clear(parent) {
  parent.replaceChildren();
  return parent;
}
