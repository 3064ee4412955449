// metrics.h — what /metrics counts. Any thread; nothing waits.
#ifndef RN_SERVER_METRICS_H
#define RN_SERVER_METRICS_H

#include "server/rate.h"

#include <ration/text.h>

typedef enum rn_count {
    RN_COUNT_REQUESTS, // entered
    RN_COUNT_DONE,     // answered in full
    RN_COUNT_FAILED,   // 500, 503 after they had entered
    RN_COUNT_CANCELLED,
    RN_COUNT_REFUSED_400, // everything 4xx but 429
    RN_COUNT_REFUSED_429,
    RN_COUNT_REFUSED_503,
    RN_COUNT_PROMPT_TOKENS,
    RN_COUNT_SHARED_TOKENS, // of them, not read again
    RN_COUNT_NEW_TOKENS,
    RN_COUNT_STEPS,
    RN_COUNT_FALLBACKS, // to a later target while serving
    RN_COUNT_CONNECTIONS,
    RN_COUNT_OF_COUNTS
} rn_count;

typedef enum rn_span {
    RN_SPAN_QUEUE,      // entered until admitted
    RN_SPAN_FIRST,      // entered until the first token
    RN_SPAN_BETWEEN,    // between tokens of a choice
    RN_SPAN_END_TO_END, // entered until the last piece
    RN_SPAN_OF_SPANS
} rn_span;

#define RN_BUCKETS 20                                  // the last is +Inf
extern const double rn_bucket_seconds[RN_BUCKETS - 1]; // upper bounds of the others, rising

// A time is counted in the first bucket whose bound it does not exceed, and in no other.
typedef struct rn_histogram {
    _Atomic uint64_t buckets[RN_BUCKETS];
    _Atomic uint64_t sum_ns;
} rn_histogram;

typedef struct rn_metrics {
    _Atomic uint64_t counts[RN_COUNT_OF_COUNTS];
    rn_histogram spans[RN_SPAN_OF_SPANS];
    _Atomic uint64_t connections_now;
    rn_rate new_tokens; // of the last seconds
} rn_metrics;

// All zero is a beginning.
void rn_metrics_add(rn_metrics *metrics, rn_count which, uint64_t amount);
void rn_metrics_time(rn_metrics *metrics, rn_span which, uint64_t nanoseconds);

#endif
