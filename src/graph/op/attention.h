// attention.h — what attention and its gradient share: the shapes, and which key is where.
#ifndef RN_GRAPH_OP_ATTENTION_H
#define RN_GRAPH_OP_ATTENTION_H

#include "graph/attention_row.h"
#include "graph/op.h"

typedef struct rn_attention_sizes {
    uint64_t batch, queries, keys, heads, kv_heads, dims; // B, T, S, H, HK, D
} rn_attention_sizes;

static inline rn_attention_sizes rn_attention_sizes_of(rn_shape q, rn_shape k) {
    return (rn_attention_sizes){q.dims[0], q.dims[1], k.dims[1], q.dims[2], k.dims[2], q.dims[3]};
}

// Inputs 0 to 3: q, k, v, mask.
RN_MUST_USE rn_status rn_attention_check(const rn_shaping *s);
// A multiplication and an addition for each of `products` per (query, key, dim) that is visible
// (half of them when causal).
double rn_attention_flops(const rn_call *call, double products);

// Where (b, t, head) begins in a (B, T, H, D) tensor.
static inline uint64_t rn_attention_at(uint64_t b, uint64_t t, uint64_t head, uint64_t length,
                                       uint64_t heads, uint64_t dims) {
    return ((b * length + t) * heads + head) * dims;
}

// The keys that query t of batch b may see: T queries are the last ones of S keys. An i32 mask
// (B, T) says where a query's document begins: it sees no key before that. What comes with a run is
// not to be trusted: a beginning below 0 is 0, one behind the query leaves it without keys.
static inline rn_attention_range rn_attention_keys(const rn_attention_attrs *attrs,
                                                   const rn_attention_sizes *of,
                                                   const rn_tensor *mask, uint64_t b, uint64_t t) {
    int64_t at = (int64_t)t + (int64_t)of->keys - (int64_t)of->queries;
    rn_attention_range keys = rn_attention_visible(attrs, at, of->keys);
    if (mask->data && mask->dtype == RN_DTYPE_I32) {
        int32_t first = ((const int32_t *)mask->data)[b * of->queries + t];
        if (first > 0 && (uint64_t)first > keys.first) keys.first = (uint64_t)first;
        if (keys.first > keys.end) keys.first = keys.end;
    }
    return keys;
}

// The row (S) of the mask for query t of batch b, or NULL. The mask is (T, S) or (B, T, S) f32.
static inline const float *
rn_attention_mask_row(const rn_tensor *mask, const rn_attention_sizes *of, uint64_t b, uint64_t t) {
    if (!mask->data || mask->dtype != RN_DTYPE_F32) return NULL;
    uint64_t batch = mask->shape.rank == 3 ? b : 0;
    return (const float *)mask->data + (batch * of->queries + t) * of->keys;
}

#endif
