// plan_page.c — the picture as a page: one file, nothing to load. What lies under the pointer is
// named above the picture, what rn_plan_print says stands below it.
#include "plan/plan_show.h"

#include <string.h>

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<style>body{margin:0;height:100vh;display:flex;flex-direction:column;font:14px sans-serif}"
    "p{margin:.6em 1em;min-height:1.2em}svg{flex:1;min-height:0;cursor:grab;touch-action:none;"
    "user-select:none}details{margin:.6em 1em;max-height:45vh;overflow:auto}"
    "pre{font-size:12px}</style>\n<title>ration plan: ";

// The wheel zooms at the pointer, dragging moves.
static const char script[] =
    "<script>\n"
    "const svg = document.querySelector('svg'), at = document.querySelector('p');\n"
    "const help = at.textContent, whole = svg.getAttribute('viewBox').split(' ').map(Number);\n"
    "let view = [...whole], held = null;\n"
    "const show = v => { view = v; svg.setAttribute('viewBox', v.join(' ')); };\n"
    "const place = e => new DOMPoint(e.clientX, e.clientY)"
    ".matrixTransform(svg.getScreenCTM().inverse());\n"
    "svg.addEventListener('wheel', e => {\n"
    "  e.preventDefault();\n"
    "  const p = place(e), wide = Math.min(Math.max(view[2] * Math.exp(e.deltaY / 400), .01),"
    " 2 * whole[2]);\n"
    "  const k = wide / view[2];\n"
    "  show([p.x - (p.x - view[0]) * k, p.y - (p.y - view[1]) * k, wide, view[3] * k]);\n"
    "}, {passive: false});\n"
    "svg.addEventListener('pointerdown', e => { held = place(e);"
    " svg.setPointerCapture(e.pointerId); });\n"
    "svg.addEventListener('pointermove', e => {\n"
    "  const p = place(e), title = e.target.querySelector(':scope > title');\n"
    "  if (held) show([view[0] + held.x - p.x, view[1] + held.y - p.y, view[2], view[3]]);\n"
    "  else at.textContent = title ? title.textContent.replaceAll('\\n', ' \\u00b7 ') : help;\n"
    "});\n"
    "for (const name of ['pointerup', 'pointercancel'])\n"
    "  svg.addEventListener(name, () => { held = null; });\n"
    "svg.addEventListener('dblclick', () => show([...whole]));\n"
    "</script></body></html>\n";

static rn_status write_text(rn_sink sink, const char *text) {
    return rn_sink_write(sink, text, strlen(text));
}

rn_status rn_plan_page_begin(const char *title, rn_sink sink) {
    RN_TRY(write_text(sink, head));
    RN_TRY(write_text(rn_plan_escaped(&sink), title));
    return write_text(sink, "</title></head><body>\n<p>Point at a buffer for its name. Wheel: "
                            "zoom. Drag: move. Double-click: all of it.</p>\n");
}

rn_status rn_plan_page_end(rn_sink sink) {
    return write_text(sink, script);
}

rn_status rn_plan_html(const rn_plan *plan, rn_sink sink) {
    rn_sink escaped = rn_plan_escaped(&sink);
    RN_TRY(rn_plan_page_begin(plan->name, sink));
    RN_TRY(rn_plan_svg(plan, sink));
    RN_TRY(write_text(sink, "<details><summary>The plan in words</summary><pre>\n"));
    RN_TRY(rn_plan_print(plan, escaped));
    RN_TRY(write_text(sink, "</pre></details>\n"));
    return rn_plan_page_end(sink);
}
