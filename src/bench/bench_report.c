// bench_report.c — chooses the form.
#include "bench/bench_report.h"

rn_status rn_bench_report(const rn_bench_results *results, rn_bench_form form,
                          const rn_bench_report_options *options, rn_sink sink) {
    static const rn_bench_report_options usual;
    if (!options) options = &usual;
    switch (form) {
    case RN_BENCH_TEXT:
    case RN_BENCH_MARKDOWN:
        return rn_bench_tables_write(results, form, options, sink);
    case RN_BENCH_CSV:
        return rn_bench_csv_write(results, sink);
    case RN_BENCH_HTML:
        return rn_bench_page_write(results, options->changes, sink);
    }
    return rn_fail(RN_INVALID, "no such form of a report: %d", (int)form);
}
