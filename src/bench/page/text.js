// text.js — numbers as text; making elements. A text of the data reaches the page as text only.

const UNKNOWN = "";

function showTime(s) {
  if (s === null || s === undefined) return UNKNOWN;
  const steps = [[1e-6, 1e9, "ns"], [1e-3, 1e6, "µs"], [1, 1e3, "ms"], [Infinity, 1, "s"]];
  const [, scale, unit] = steps.find(([below]) => s < below);
  return showNumber(s * scale) + " " + unit;
}

function showSize(bytes) {
  if (bytes === null || bytes === undefined) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return (unit ? showNumber(bytes) : bytes) + " " + units[unit];
}

// Three digits, and whole numbers above 1000.
function showNumber(x) {
  if (x === null || x === undefined) return UNKNOWN;
  return x >= 1000 ? String(Math.round(x)) : String(Number(x.toPrecision(3)));
}

function showShare(x) {
  if (x === null || x === undefined) return UNKNOWN;
  return (x > 0 ? "+" : "") + (100 * x).toFixed(Math.abs(x) < 0.0995 ? 1 : 0) + " %";
}

function showSmall(x) {
  return x === null || x === undefined ? UNKNOWN : x === 0 ? "0" : x.toExponential(1);
}

// make("p", {class: "quiet"}, "text", element, ...)
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  for (const child of children) element.append(child);
  return element;
}

function draw(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  for (const child of children) element.append(child);
  return element;
}

function put(id, ...children) {
  document.getElementById(id).replaceChildren(...children);
}
