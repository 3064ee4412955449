// compare.c — two results of the same model: which variants changed, and by how much for certain.
//
// Others on the machine make a run longer, never shorter; so what a process takes undisturbed, its
// *floor*, says more about the program than its median. Samples of one process say nothing of what
// differs between processes that measure the same (memory layout, clock rates, neighbours), so
// floors of many processes are compared, by their ranks: no distribution is assumed, and a few
// processes that were disturbed from begin to end do not widen the interval. The interval is one of
// 99.9 %, because a gate is asked about many variants many times.
//
// Floors of two runs also differ by what happened to the machine in between: clock rates and
// neighbours move it by 5 % within minutes. Where both sides were measured in turns, both have met
// it alike; and there is a second interval, of the differences between the k-th process of one and
// the k-th of the other, by signed ranks, which does not see it at all. Where the machine drifts
// that one is narrow; where others disturb processes at random, that of all differences is. What
// lies in both counts.
//
// Fewer than seven processes have no such interval by ranks. Then medians are compared, as
// logarithms: where several processes measured a variant, their scatter is known, and the interval
// is Student's; of one process each there are the medians' own 95 % intervals, and the error
// between processes is a constant. On a quiet machine it is small. Where runs are interrupted, as
// their slowest show, whole processes are slower or faster, too: with 15 others at work on 2 cores,
// medians of the same loop in 12 processes were 41 to 49 us, each with an interval under 1 %.
#include "bench/bench_report.h"
#include "bench/ranks.h"
#include "bench/samples.h"

#include "memory/account.h"

#include <math.h>
#include <string.h>

static const double stored_z = 1.96; // of rn_bench_latency's interval: 95 %
static const double wanted = 0.999, wanted_z = 3.29;
static const double quiet_error = 0.006; // standard error between processes, as a share
static const double few_error = 0.2;     // of a median of so few samples that it has no interval
static const double busy_error = 0.06;   // where p99 is 4 medians and more

bool rn_bench_has_figures(const rn_bench_result *r) {
    return r->outcome == RN_BENCH_SUCCESS || r->outcome == RN_BENCH_WRONG;
}

// Between processes: from quiet, where p99 is within 1.5 medians, to busy.
static double process_error(const rn_bench_latency *t) {
    double busy = (t->p99_s / t->p50_s - 1.5) / 2.5;
    if (!(busy > 0)) return quiet_error; // also where p99 is not known
    return quiet_error + (busy < 1 ? busy : 1) * (busy_error - quiet_error);
}

// Squared standard error of the median's logarithm.
static double variance(const rn_bench_latency *t) {
    double between = process_error(t), within = few_error;
    if (t->samples >= RN_BENCH_FEW && t->p50_low_s > 0 && t->p50_high_s >= t->p50_low_s)
        within = log(t->p50_high_s / t->p50_low_s) / (2 * stored_z);
    return within * within + between * between;
}

static bool of_several(const rn_bench_latency *t) {
    return t->processes != RN_BENCH_UNKNOWN && t->processes >= 2 && t->between >= 0;
}

// Where several processes measured one of the two, what differs between processes is known: its
// variance, pooled of both, counts for each of the other's processes, too.
static double margin_by_processes(const rn_bench_latency *before, const rn_bench_latency *after) {
    const rn_bench_latency *both[2] = {before, after};
    double squares = 0, share = 0;
    uint64_t degrees = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t n = of_several(both[i]) ? both[i]->processes : 1;
        if (n > 1) squares += (double)(n - 1) * both[i]->between * both[i]->between;
        degrees += n - 1;
        share += 1 / (double)n;
    }
    return rn_student_999(degrees) * sqrt(squares / (double)degrees * share);
}

static size_t read_floors(const rn_bench_latency *t, double *out_logs) {
    size_t n = 0;
    for (; n < RN_BENCH_PROCESSES && t->floors_s[n] > 0; n++)
        out_logs[n] = log(t->floors_s[n]);
    return n;
}

// Half of what is left of certainty goes to each of the two intervals, so that what lies in both
// has all of it.
static void cut_by_pairs(const double *before, const double *after, size_t n, double certain,
                         rn_interval *interval) {
    double differences[RN_BENCH_PROCESSES], shift;
    rn_interval pairs;
    for (size_t k = 0; k < n; k++)
        differences[k] = after[k] - before[k];
    if (!rn_ranks_pairs(differences, n, certain, &shift, &pairs)) return;
    if (pairs.low > interval->low && pairs.low < interval->high) interval->low = pairs.low;
    if (pairs.high < interval->high && pairs.high > interval->low) interval->high = pairs.high;
}

// False: there are too few.
static bool compare_floors(rn_bench_change *c) {
    double before[RN_BENCH_PROCESSES], after[RN_BENCH_PROCESSES], shift;
    rn_interval interval;
    size_t n = read_floors(&c->before->latency, before), m = read_floors(&c->after->latency, after);
    double certain = c->in_turns ? (1 + wanted) / 2 : wanted;
    if (!rn_ranks_shift(before, n, after, m, certain, &shift, &interval)) return false;
    if (c->in_turns && n == m) cut_by_pairs(before, after, n, certain, &interval);
    c->before_s = exp(rn_median(before, n));
    c->after_s = exp(rn_median(after, m));
    c->slower = expm1(shift);
    c->slower_low = expm1(interval.low);
    c->slower_high = expm1(interval.high);
    return true;
}

static void compare_medians(rn_bench_change *c) {
    const rn_bench_latency *before = &c->before->latency, *after = &c->after->latency;
    c->before_s = before->p50_s;
    c->after_s = after->p50_s;
    if (!(before->p50_s > 0) || !(after->p50_s > 0)) return;
    double change = log(after->p50_s / before->p50_s);
    double margin = of_several(before) || of_several(after)
                        ? margin_by_processes(before, after)
                        : wanted_z * sqrt(variance(before) + variance(after));
    c->slower = expm1(change);
    c->slower_low = expm1(change - margin);
    c->slower_high = expm1(change + margin);
}

static void compare_times(rn_bench_change *c) {
    c->of_floors = compare_floors(c);
    if (!c->of_floors) compare_medians(c);
    c->significant = c->slower_low > 0 || c->slower_high < 0;
}

static uint64_t sum_known(uint64_t a, uint64_t b) {
    if (a == RN_BENCH_UNKNOWN) return RN_BENCH_UNKNOWN;
    return b == RN_BENCH_UNKNOWN ? a : a + b;
}

// What the plan decides is the same in every run; the whole ledger's peak has the process image in
// it, which the system pages in as it likes.
static uint64_t ledger_bytes(const rn_bench_memory *m) {
    return m->measured_bytes != RN_BENCH_UNKNOWN ? m->measured_bytes : m->peak_bytes;
}

uint64_t rn_bench_peak(const rn_bench_result *r, bool of_ledger) {
    return sum_known(of_ledger ? ledger_bytes(&r->host) : r->resident_peak_bytes,
                     ledger_bytes(&r->device_memory));
}

static void compare_memory(rn_bench_change *c) {
    for (int of_ledger = 1; of_ledger >= 0; of_ledger--) {
        c->before_bytes = rn_bench_peak(c->before, of_ledger);
        c->after_bytes = rn_bench_peak(c->after, of_ledger);
        if (c->before_bytes == RN_BENCH_UNKNOWN || c->before_bytes == 0) continue;
        if (c->after_bytes == RN_BENCH_UNKNOWN || c->after_bytes == 0) continue;
        c->larger = (double)c->after_bytes / (double)c->before_bytes - 1;
        return;
    }
}

static void compare_one(rn_bench_change *c, const rn_bench_limits *limits) {
    c->before_s = c->after_s = c->slower = c->slower_low = c->slower_high = c->larger = NAN;
    c->before_bytes = c->after_bytes = RN_BENCH_UNKNOWN;
    bool worked = c->before && rn_bench_has_figures(c->before),
         works = c->after && rn_bench_has_figures(c->after);
    if (worked && works) {
        compare_times(c);
        compare_memory(c);
    }
    if (!limits || (limits->slower <= 0 && limits->larger <= 0)) return;
    c->broken = worked && c->after && !works;
    c->too_slow = limits->slower > 0 && c->slower_low > limits->slower;
    c->too_large = limits->larger > 0 && c->larger > limits->larger + 1e-9;
}

static const rn_bench_result *find(const rn_bench_results *in, const rn_bench_result *like) {
    for (size_t i = 0; i < in->count; i++) {
        const rn_bench_result *r = &in->items[i];
        if (strcmp(r->name, like->name) == 0 && r->batch == like->batch &&
            r->budget_bytes == like->budget_bytes)
            return r;
    }
    return NULL;
}

rn_status rn_bench_compare(const rn_bench_results *before, const rn_bench_results *after,
                           const rn_bench_limits *limits, rn_bench_changes **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_bench_changes), &block));
    rn_bench_changes *changes = block;
    changes->count = after->count;
    for (size_t i = 0; i < before->count; i++)
        if (!find(after, &before->items[i])) changes->count++;
    rn_status s = rn_alloc_zeroed(RN_HOST_OTHER, changes->count, sizeof *changes->items, &block);
    if (s != RN_OK) {
        changes->count = 0;
        rn_bench_changes_destroy(changes);
        return s;
    }
    changes->items = block;
    rn_bench_change *c = changes->items;
    for (size_t i = 0; i < after->count; i++, c++) {
        c->after = &after->items[i];
        c->before = find(before, c->after);
    }
    for (size_t i = 0; i < before->count; i++)
        if (!find(after, &before->items[i])) c++->before = &before->items[i];
    for (size_t i = 0; i < changes->count; i++) {
        c = &changes->items[i];
        c->in_turns = before->in_turns && after->in_turns;
        compare_one(c, limits);
        if (c->too_slow || c->too_large || c->broken) changes->failed_count++;
    }
    *out = changes;
    return RN_OK;
}

const char *rn_bench_verdict(const rn_bench_change *c) {
    if (c->broken) return "broken";
    if (!c->before) return "new";
    if (!c->after) return "gone";
    if (!rn_bench_has_figures(c->after)) return rn_bench_outcome_name(c->after->outcome);
    if (!rn_bench_has_figures(c->before)) return "works now";
    if (c->too_slow) return "too slow";
    if (c->too_large) return "too large";
    if (!c->significant) return "";
    return c->slower > 0 ? "slower" : "faster";
}

void rn_bench_changes_destroy(rn_bench_changes *changes) {
    if (!changes) return;
    rn_free(RN_HOST_OTHER, changes->items, changes->count * sizeof *changes->items);
    rn_free(RN_HOST_OTHER, changes, sizeof *changes);
}
