// report_page.c — the page: markup and style, the results as the JSON that --output writes, the
// changes, and the scripts, which compute all that is drawn (page/README.md). The assembler
// includes the files where they lie in the source tree (RATION_BENCH_PAGE, from CMake).
#include "bench/bench_report.h"

#include "base/json.h"
#include "base/script_text.h"
#include "base/str.h"

#include <math.h>

#define BEGIN_FILE(symbol) ".pushsection .rodata\n" symbol ":\n"
#define INCLUDE(file)      ".incbin \"" RATION_BENCH_PAGE "/" file "\"\n"
#define END_FILE(symbol)   symbol "_end:\n.byte 0\n.popsection\n"

__asm__(BEGIN_FILE("rn_bench_html") INCLUDE("page.html") END_FILE("rn_bench_html"));
__asm__(BEGIN_FILE("rn_bench_css") INCLUDE("page.css") END_FILE("rn_bench_css"));
__asm__(BEGIN_FILE("rn_bench_js") INCLUDE("text.js") INCLUDE("data.js") INCLUDE("charts.js")
            INCLUDE("table.js") INCLUDE("main.js") END_FILE("rn_bench_js"));
extern const char rn_bench_html[], rn_bench_html_end[];
extern const char rn_bench_css[], rn_bench_css_end[];
extern const char rn_bench_js[], rn_bench_js_end[];

static rn_status write_file(rn_sink sink, const char *begin, const char *end) {
    return rn_sink_write(sink, begin, (size_t)(end - begin));
}

static rn_status write_results(const rn_bench_results *results, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "<script type=\"application/json\" id=\"results-data\">"));
    RN_TRY(rn_bench_results_write(results, rn_script_text(&sink)));
    return rn_sink_print(sink, "</script>\n");
}

static void put_bytes(rn_json *json, const char *key, uint64_t bytes) {
    if (bytes == RN_BENCH_UNKNOWN)
        rn_json_null(json, key);
    else
        rn_json_u64(json, key, bytes);
}

// What was compared; of a variant that is on one side alone, its median.
static double known(double compared, const rn_bench_result *r) {
    return isnan(compared) && r ? r->latency.p50_s : compared;
}

static void put_change(const rn_bench_change *c, rn_json *json) {
    rn_json_object(json, NULL);
    rn_json_string(json, "name", (c->after ? c->after : c->before)->name);
    rn_json_string(json, "verdict", rn_bench_verdict(c));
    rn_json_bool(json, "failed", c->too_slow || c->too_large || c->broken);
    rn_json_f64(json, "before_s", known(c->before_s, c->before));
    rn_json_f64(json, "now_s", known(c->after_s, c->after));
    rn_json_f64(json, "slower", c->slower);
    rn_json_f64(json, "slower_low", c->slower_low);
    rn_json_f64(json, "slower_high", c->slower_high);
    put_bytes(json, "now_bytes", c->after_bytes);
    rn_json_f64(json, "larger", c->larger);
    rn_json_end(json);
}

static rn_status write_changes(const rn_bench_changes *changes, rn_sink sink) {
    rn_json json;
    RN_TRY(rn_sink_print(sink, "<script type=\"application/json\" id=\"changes-data\">"));
    if (!changes) return rn_sink_print(sink, "null</script>\n");
    rn_json_begin(&json, rn_script_text(&sink), false);
    rn_json_array(&json, NULL);
    for (size_t i = 0; i < changes->count; i++)
        put_change(&changes->items[i], &json);
    rn_json_end(&json);
    RN_TRY(rn_json_finish(&json));
    return rn_sink_print(sink, "</script>\n");
}

// Writes the markup up to the line that is `hole`; returns what is behind it.
static rn_status write_up_to(rn_sink sink, const char *hole, const char **html) {
    const char *at = strstr(*html, hole); // the file is followed by a NUL
    if (!at) return rn_fail(RN_INTERNAL, "page.html has no %s", hole);
    RN_TRY(write_file(sink, *html, at));
    *html = at + strlen(hole);
    return RN_OK;
}

rn_status rn_bench_page_write(const rn_bench_results *results, const rn_bench_changes *changes,
                              rn_sink sink) {
    const char *html = rn_bench_html;
    RN_TRY(write_up_to(sink, "<!-- style -->\n", &html));
    RN_TRY(rn_sink_print(sink, "<style>\n"));
    RN_TRY(write_file(sink, rn_bench_css, rn_bench_css_end));
    RN_TRY(rn_sink_print(sink, "</style>\n"));
    RN_TRY(write_up_to(sink, "<!-- data -->\n", &html));
    RN_TRY(write_results(results, sink));
    RN_TRY(write_changes(changes, sink));
    RN_TRY(write_up_to(sink, "<!-- scripts -->\n", &html));
    RN_TRY(rn_sink_print(sink, "<script>\n\"use strict\";\n(() => {\n"));
    RN_TRY(write_file(sink, rn_bench_js, rn_bench_js_end));
    RN_TRY(rn_sink_print(sink, "})();\n</script>\n"));
    return write_file(sink, html, rn_bench_html_end);
}
