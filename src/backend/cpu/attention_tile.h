// attention_tile.h — queries against one tile of 64 keys: what all attention kernels of the CPU do.
//
// The meaning is graph/attention_row.h's: keys in tiles by absolute position, an online softmax a
// query. Several queries share a tile; each one's sums run in the same order as alone, over the
// keys that it sees and no others.
#ifndef RN_BACKEND_CPU_ATTENTION_TILE_H
#define RN_BACKEND_CPU_ATTENTION_TILE_H

#include "backend/cpu/spans.h"

// Queries of one head that are worked on together.
typedef struct rn_query_block {
    const float *q;  // (count, dims), rows `stride` elements apart
    float *y;        // (count, value_dims): the accumulators, then the result
    uint64_t stride; // of q's rows
    uint64_t y_stride;
    uint64_t count;
    uint64_t dims, value_dims;
    float scale, cap;                  // cap 0: none
    const float *sinks;                // a score without a value for each query; NULL: none
    uint64_t sink_step;                // from one query's to the next's: 0 or 1
    float *top, *sum;                  // (count)
    const rn_attention_range *visible; // (count)
} rn_query_block;

// 64 keys, of which those that no query of the block sees need not be there: key_columns (dims, 64)
// then hold anything finite in their columns, and their values are not read.
typedef struct rn_key_tile {
    uint64_t first; // position of the first key: a multiple of 64
    const float *key_columns;
    const float *values; // (64, value_dims), rows `value_stride` elements apart
    uint64_t value_stride;
    const float *mask; // (count, mask_stride): added to the scores, from key `first` on; or NULL
    uint64_t mask_stride;
} rn_key_tile;

void rn_query_block_begin(const rn_query_block *block);
void rn_query_block_add(const rn_query_block *block, const rn_key_tile *tile);
// Divides by the sums. out_logsumexp (count) or NULL.
void rn_query_block_end(const rn_query_block *block, float *out_logsumexp);
// The positions that some query of the block may see.
rn_attention_range rn_query_block_range(const rn_query_block *block);

// What a query that sees `visible` sees of the tile that begins at `first`, counted from there; an
// empty range is [0, 0).
rn_key_row rn_key_row_of(rn_attention_range visible, uint64_t first, float scale, float cap);

// rows (count, dims), `stride` elements apart -> columns (dims, 64), zeros behind the count-th.
void rn_columns_of(const float *rows, uint64_t stride, uint64_t count, uint64_t dims,
                   float *columns);

#endif
