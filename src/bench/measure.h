// measure.h — what the harness knows of a benchmark under way, and the measuring of one variant by
// one worker process.
#ifndef RN_BENCH_MEASURE_H
#define RN_BENCH_MEASURE_H

#include "bench/accuracy.h"

enum { RN_BENCH_REFERENCES = 32 };

// Of all processes, of both sides where two are measured in turns.
typedef struct rn_bench_pace {
    uint64_t done, wanted, begin_ns;
} rn_bench_pace;

typedef struct rn_bench_run_state {
    const rn_bench_variant *variants;
    size_t count;
    rn_bench_pace *pace;
    bool is_before; // rn_bench_run_in_turns: the other side
    const rn_bench_options *options;
    rn_bench_results *results;
    struct {
        uint64_t batch;
        rn_reference outputs;
    } references[RN_BENCH_REFERENCES]; // the baseline's, of each batch
    size_t reference_count;
    size_t baseline;
    double (*medians)[RN_BENCH_PROCESSES]; // (count): logarithms of each process's, in seconds
    rn_bench_result *again;                // of a process behind a variant's first
} rn_bench_run_state;

bool rn_bench_is_cancelled(const rn_bench_run_state *b);
// Whether the variant has the baseline's name.
bool rn_bench_is_baseline(const rn_bench_run_state *b, size_t index);
// Starts a worker, watches it to its end, and says what became of it: into the variant's result, or
// into one of its own for a process behind the first. The first of the baseline's name leaves its
// outputs as the reference of its batch. RN_OK also where the worker fails.
RN_MUST_USE rn_status rn_bench_measure(rn_bench_run_state *b, size_t index,
                                       rn_bench_result *result);

#endif
