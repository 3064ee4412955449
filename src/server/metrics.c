// metrics.c — counting: an atomic add each, no lock.
#include "server/metrics.h"

#include "base/clock.h"

// From a token of a tiny model to an answer that took two minutes.
const double rn_bucket_seconds[RN_BUCKETS - 1] = {
    .001, .002, .003, .005, .01, .02, .03, .05, .1, .2, .3, .5, 1, 2, 5, 10, 30, 60, 120};

static void add(_Atomic uint64_t *count, uint64_t amount) {
    atomic_fetch_add_explicit(count, amount, memory_order_relaxed);
}

void rn_metrics_add(rn_metrics *metrics, rn_count which, uint64_t amount) {
    add(&metrics->counts[which], amount);
    if (which == RN_COUNT_NEW_TOKENS)
        rn_rate_add(&metrics->new_tokens, rn_clock_ns(), (uint32_t)amount);
}

static size_t find_bucket(double seconds) {
    size_t i = 0;
    while (i < RN_BUCKETS - 1 && seconds > rn_bucket_seconds[i])
        i++;
    return i;
}

void rn_metrics_time(rn_metrics *metrics, rn_span which, uint64_t nanoseconds) {
    rn_histogram *histogram = &metrics->spans[which];
    add(&histogram->buckets[find_bucket((double)nanoseconds * 1e-9)], 1);
    add(&histogram->sum_ns, nanoseconds);
}
