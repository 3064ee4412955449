// report_csv.c — every figure of every variant: a line a variant, a column a figure, named as in
// the JSON ("latency.p50_s"). Unknown figures are empty, so that a spreadsheet's mean leaves them
// out.
#include "bench/bench_report.h"
#include "bench/result.h"

#include <string.h>

typedef struct line {
    rn_sink sink;
    bool titles; // of the columns, and not the values
    bool begun;
} line;

static rn_status put_quoted(rn_sink sink, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) return rn_sink_write(sink, text, strlen(text));
    RN_TRY(rn_sink_write(sink, "\"", 1));
    for (; *text; text++)
        RN_TRY(*text == '"' ? rn_sink_write(sink, "\"\"", 2) : rn_sink_write(sink, text, 1));
    return rn_sink_write(sink, "\"", 1);
}

static rn_status put_figure(void *self, const char *object, const char *key, const char *value) {
    line *l = self;
    if (l->begun) RN_TRY(rn_sink_write(l->sink, ",", 1));
    l->begun = true;
    if (l->titles)
        return rn_sink_print(l->sink, "%s%s%s", object ? object : "", object ? "." : "", key);
    return value ? put_quoted(l->sink, value) : RN_OK;
}

rn_status rn_bench_csv_write(const rn_bench_results *results, rn_sink sink) {
    if (!results->count) return RN_OK;
    RN_TRY(rn_bench_result_visit(results->items, &(line){sink, true, false}, put_figure));
    RN_TRY(rn_sink_write(sink, "\n", 1));
    for (size_t i = 0; i < results->count; i++) {
        RN_TRY(rn_bench_result_visit(&results->items[i], &(line){sink, false, false}, put_figure));
        RN_TRY(rn_sink_write(sink, "\n", 1));
    }
    return RN_OK;
}
