// attention_row.h — one query against its keys: the meaning that all attention ops share.
//
// Keys are taken in tiles of 64 by their absolute position: [0, 64), [64, 128), ... whatever the
// page they lie in and whoever asks. Within a tile only the keys that the query may see count.
// Everything is f32:
//
//     score_j = scale * (sum over d, in order, by fmaf) [cap * tanhf(score_j / cap)] + mask_j
//     top'    = max(top, all score_j)              -inf at first
//     sum     = sum * expf(top - top')             0 at first; then += expf(score_j - top') in
//     order acc[d]  = acc[d] * expf(top - top')          0 at first; then fmaf(p_j, v_j[d], acc[d])
//     y[d]    = acc[d] / sum                       logsumexp = top + logf(sum)
//
// A query that sees no key (or only keys with a score of -inf) gives 0 and -inf. A sink is a score
// without a value that comes before all others: the top begins as it, the sum as 1.
#ifndef RN_GRAPH_ATTENTION_ROW_H
#define RN_GRAPH_ATTENTION_ROW_H

#include <ration/graph.h>

#define RN_ATTENTION_TILE 64

// The visible keys of one tile, in order.
typedef struct rn_attention_tile {
    uint32_t count;
    rn_dtype dtype;                        // of keys and values: f32, f16 or q8_0
    const void *keys[RN_ATTENTION_TILE];   // (count) rows of (dims)
    const void *values[RN_ATTENTION_TILE]; // (count) rows of (value_dims)
    const float *mask;                     // (count) or NULL
} rn_attention_tile;

typedef struct rn_attention_row {
    const float *q; // (dims)
    float *y;       // (value_dims): the accumulator, then the result
    uint64_t dims, value_dims;
    float scale, cap, top, sum;
} rn_attention_row;

// `y` must not overlap q or any value. The cap is the caller's to set; value_dims 0: dims.
rn_attention_row rn_attention_begin(const float *q, float *y, uint64_t dims, uint64_t value_dims,
                                    float scale);
// The row's sink, before the first tile; -inf is none.
void rn_attention_sink(rn_attention_row *row, float sink);
void rn_attention_add(rn_attention_row *row, const rn_attention_tile *tile);
// Divides, and returns the logsumexp.
float rn_attention_end(rn_attention_row *row);

// The scale that the attributes mean.
float rn_attention_scale(const rn_attention_attrs *attrs, uint64_t dims);
// The keys [first, end) of `keys` that a query at position `at` may see. A window bounds the keys
// from above, too, causal or not. `at` may be negative.
typedef struct rn_attention_range {
    uint64_t first, end;
} rn_attention_range;
rn_attention_range rn_attention_visible(const rn_attention_attrs *attrs, int64_t at, uint64_t keys);
// "causal, window 4096": for printing.
void rn_attention_print(const void *attrs, char *out, size_t bytes);

#endif
