// varlen.h — texts packed one behind the other: which rows a row's text has, and which it sees.
//
//     rows   0 1 2 3 | 4 5 | 6 7 8        span (rows, 2): {0, 4} x 4, {4, 6} x 2, {6, 9} x 3
//
// Positions count from the beginning of a row's own text, so that its result does not depend on
// what is packed beside it. Spans come with each run and are not to be trusted: check, then use.
#ifndef RN_GRAPH_VARLEN_H
#define RN_GRAPH_VARLEN_H

#include "graph/attention_row.h"
#include "graph/op.h"

typedef struct rn_varlen {
    const float *q, *k, *v; // (rows, heads, dims), (rows, kv_heads, dims)
    const int32_t *span;    // (rows, 2): the rows [first, end) of a row's text
    const float *bias;      // (heads, 2 * reach + 1), or NULL
    float *y;               // (rows, heads, dims)
    uint64_t rows, heads, kv_heads, dims;
    uint64_t reach;
    float scale;
} rn_varlen;

// The tensors of a varlen_attention call.
rn_varlen rn_varlen_of(const rn_call *call);
// RN_INVALID names the row whose span does not hold it, or goes beyond the rows of the run. An
// empty span is allowed: such a row gives zeros.
RN_MUST_USE rn_status rn_varlen_check(const rn_varlen *texts);
// The keys that row `row` sees, as positions in its text.
rn_attention_range rn_varlen_keys(const rn_varlen *texts, const rn_attention_attrs *attrs,
                                  uint64_t row);
// What is added to the score of the key at position `key` for a query at position `query`.
static inline float rn_varlen_bias(const rn_varlen *texts, uint64_t head, uint64_t query,
                                   uint64_t key) {
    uint64_t reach = texts->reach, at;
    if (key >= query)
        at = reach + (key - query < reach ? key - query : reach);
    else
        at = reach - (query - key < reach ? query - key : reach);
    return texts->bias[head * (2 * reach + 1) + at];
}

#endif
