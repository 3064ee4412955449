// work.h — what ration's own workers share.
#ifndef RN_BENCH_WORK_H
#define RN_BENCH_WORK_H

#include "bench/machine.h"
#include "bench/result.h"

#include <ration/device.h>
#include <ration/plan.h>

typedef struct rn_work {
    rn_bench_worker *worker;
    const rn_bench_work *options;
    rn_bench_name variant;
    rn_bench_result figures;
    rn_device *device;
    rn_energy energy;     // at the beginning of the samples
    uint64_t begin_bytes; // on the ledger, before anything was opened
} rn_work;

// Opens the variant's device, with its mode.
RN_MUST_USE rn_status rn_work_open_device(rn_work *w);
// Plans of the device within the budget that was given; `beside`: bytes that are held beside them.
RN_MUST_USE rn_status rn_work_plan_options(rn_work *w, uint64_t beside, rn_plan_options *out);
// What a plan says, and what the ledger has.
void rn_work_note_plan(rn_work *w, const rn_plan_summary *summary);
void rn_work_note_ledger(rn_work *w);
// Of `runs` runs, since energy was read.
void rn_work_note_energy(rn_work *w, uint64_t runs);
bool rn_work_is_cancelled(const rn_work *w);

RN_MUST_USE rn_status rn_work_graph(rn_work *w);
RN_MUST_USE rn_status rn_work_text(rn_work *w);

#endif
