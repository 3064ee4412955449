"use strict";
// text.js — numbers as people read them, and the few helpers that make elements.

const KINDS_OF_BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

// Three digits that matter: "12 B", "1.50 MiB", "128 MiB".
function bytesText(bytes) {
  let size = bytes, kind = 0;
  while (size >= 1023.5 && kind < KINDS_OF_BYTES.length - 1) {
    size /= 1024;
    kind++;
  }
  const digits = kind === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return size.toFixed(digits) + " " + KINDS_OF_BYTES[kind];
}

// Seconds: "85 ms", "1.25 s", "12 min", "3.0 h".
function timeText(seconds) {
  if (seconds < 1) return Math.round(seconds * 1000) + " ms";
  if (seconds < 100) return seconds.toFixed(seconds < 10 ? 2 : 1) + " s";
  return seconds < 6000 ? Math.round(seconds / 60) + " min" : (seconds / 3600).toFixed(1) + " h";
}

function rateText(rate) {
  return rate.toFixed(rate < 9.95 ? 2 : rate < 99.95 ? 1 : 0);
}

function shareText(part, whole) {
  return whole ? Math.round(part / whole * 100) + " %" : "";
}

// ---- elements: what the model or the server says goes through textContent only, and stays text ----

function byId(id) {
  return document.getElementById(id);
}

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

// Only what has changed is touched: a selection stays, and nothing is read out again.
function setText(where, text) {
  if (where.textContent !== text) where.textContent = text;
}
