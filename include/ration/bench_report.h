// bench_report.h — results of rn_bench_run for people, and what has changed since older ones.
//
//     rn_bench_results *before;
//     rn_bench_changes *changes;
//     RN_TRY(rn_bench_results_read("old.json", &before));
//     RN_TRY(rn_bench_compare(before, results, &(rn_bench_limits){.slower = 0.05}, &changes));
//     RN_TRY(rn_bench_report(results, RN_BENCH_TEXT, &(rn_bench_report_options){.changes =
//     changes},
//                            rn_sink_file(stdout)));
//     bool passed = changes->failed_count == 0;
#ifndef RATION_BENCH_REPORT_H
#define RATION_BENCH_REPORT_H

#include <ration/bench.h>

RN_BEGIN_DECLS

// ---- comparing ----------------------------------------------------------------------------------

// One variant (name, batch, budget) in two results. Where seven and more processes measured it
// each time, their floors (rn_bench_latency) are compared: the change is Hodges and Lehmann's
// estimate, and its interval of 99.9 % goes by ranks (Mann and Whitney's test, exact; of results
// that were measured in turns also Wilcoxon's of the pairs: what lies in both intervals). Else
// medians are, in the logarithm: of several processes with Student's interval, and of one process
// each with the medians' own intervals and an error for what differs between two processes that
// measure the same (0.6 %; up to 6 % where the slowest runs show a busy machine). A change is
// significant where its interval leaves out 0.
typedef struct rn_bench_change {
    const rn_bench_result *before, *after;  // of the two results; NULL: not there
    double before_s, after_s;               // what is compared: medians of the floors, or medians
    bool of_floors;                         // floors
    bool in_turns;                          // of processes that ran side by side
    double slower, slower_low, slower_high; // 0.10: it takes 10 % longer; NAN: not comparable
    double larger;                          // the same of the peak memory
    uint64_t before_bytes, after_bytes; // that peak: of what a plan decides, else of the ledger,
                                        // else resident; with the device's
    bool significant;
    bool too_slow, too_large; // beyond the limits
    bool broken;              // it succeeded before, and does not now
} rn_bench_change;

typedef struct rn_bench_changes {
    rn_bench_change *items; // (count) in the order of `after`, then what is gone
    size_t count;
    size_t failed_count; // too slow, too large or broken; 0 without limits
} rn_bench_changes;

// 0: no limit. Too slow is a variant whose whole interval is above `slower`.
typedef struct rn_bench_limits {
    double slower, larger; // 0.05: 5 %
} rn_bench_limits;

// Both results must outlive *out. `limits` may be NULL.
RN_API RN_MUST_USE rn_status rn_bench_compare(const rn_bench_results *before,
                                              const rn_bench_results *after,
                                              const rn_bench_limits *limits,
                                              rn_bench_changes **out);
// NULL-safe.
RN_API void rn_bench_changes_destroy(rn_bench_changes *changes);

// ---- reports ------------------------------------------------------------------------------------

typedef enum rn_bench_form {
    RN_BENCH_TEXT,     // aligned for a terminal of options.width
    RN_BENCH_MARKDOWN, // the same table
    RN_BENCH_CSV,      // every figure of every variant; unknown ones are empty
    RN_BENCH_HTML      // one page that needs nothing else
} rn_bench_form;

typedef struct rn_bench_report_options {
    uint32_t width;                  // columns of a terminal; 0: 100
    const rn_bench_changes *changes; // of these results; may be NULL
    uint64_t reserved[4];            // zero
} rn_bench_report_options;

// `options` may be NULL.
RN_API RN_MUST_USE rn_status rn_bench_report(const rn_bench_results *results, rn_bench_form form,
                                             const rn_bench_report_options *options, rn_sink sink);

RN_END_DECLS

#endif
