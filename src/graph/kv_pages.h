// kv_pages.h — where a token's key and value lie in a layer's KV cache.
//
//     page_table (sequences, max_pages)      kv (pages, 2, HK, page_tokens, D)
//     sequence 1: [ 7 | 2 | -1 | -1 ]   ──▶  page 7: keys (HK, page_tokens, D), values the same
//
// With 1 in the place of 2 there are keys only, and a token's value is the beginning of its key.
//
// The token at position p of a sequence is slot p % page_tokens of its page p / page_tokens. Tables
// and positions come with each run and are not to be trusted: check, then use.
#ifndef RN_GRAPH_KV_PAGES_H
#define RN_GRAPH_KV_PAGES_H

#include "graph/op.h"

typedef struct rn_kv_pages {
    uint8_t *data;
    rn_dtype dtype;                                   // f16, f32 or q8_0
    uint64_t pages, planes, heads, page_tokens, dims; // planes: 2, or 1: keys only; heads: HK
    const int32_t *table;                             // (sequences, max_pages)
    uint64_t sequences, max_pages;
    const int32_t *sequence, *position; // (rows)
    uint64_t rows;
} rn_kv_pages;

// Shape rule: inputs kv, and from `first` on sequence, position, page_table; each row of them
// belongs to axis 0 of input `rows_of`.
RN_MUST_USE rn_status rn_kv_pages_shape(const rn_shaping *s, uint32_t kv, uint32_t rows_of,
                                        uint32_t first);
// The same inputs of a call; `kv` is the state as it is now.
rn_kv_pages rn_kv_pages_of(const rn_tensor *kv, const rn_tensor *sequence,
                           const rn_tensor *position, const rn_tensor *page_table);
// Whether row `row` may touch the tokens [first, its position]; RN_INVALID names `op`, the row and
// what is wrong with it. Not for rows of sequence -1, which touch nothing.
RN_MUST_USE rn_status rn_kv_pages_check(const rn_kv_pages *kv, const char *op, uint64_t row,
                                        uint64_t first);
// (D) elements: the key or the value of a head, after the check; a value that is a part of its key
// has fewer.
void *rn_kv_key(const rn_kv_pages *kv, uint64_t sequence, uint64_t position, uint64_t head);
void *rn_kv_value(const rn_kv_pages *kv, uint64_t sequence, uint64_t position, uint64_t head);

#endif
