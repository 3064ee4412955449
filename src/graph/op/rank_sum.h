// rank_sum.h — what ranks of a job tell each other within a step: sums of what each has computed of
// its own samples, and weights of which each has updated a part.
//
// Ranks call these in the same order and with the same shapes. An op does not know how they reach
// each other: a session brings that (rn_call.ranks), from the communicator that it was given.
//
// Elements of a tensor are divided among ranks in rows of whole blocks of 256 elements, which
// 8-bit states need: row r is elements [r * row, (r + 1) * row), as far as there are any.
#ifndef RN_GRAPH_OP_RANK_SUM_H
#define RN_GRAPH_OP_RANK_SUM_H

#include "base/sum_tree.h"
#include "graph/op.h"

// Parts of a sum: of each rank one, which are added in the order of ranks; or with `samples` the
// nodes of a tree over samples that a rank's share of them leaves (rn_sum_tree_parts), joined as in
// that tree: the same bits for any number of ranks.
typedef struct rn_rank_parts {
    rn_dtype dtype; // f32 or bf16
    uint64_t count; // elements of a part
    void *first;    // (count) this rank's first part; the sum, in the end
    void *rest;     // (parts - 1, count)
    uint64_t samples;
    void *workspace; // (rn_rank_parts_bytes)
} rn_rank_parts;

struct rn_call_ranks {
    void *self;
    uint32_t rank, ranks;
    rn_status (*sum)(void *self, const rn_rank_parts *parts);
    // data: (count) elements of `bytes` each, of which this rank has its row; all rows, in the end.
    rn_status (*gather)(void *self, void *data, uint64_t count, uint64_t row, uint64_t bytes);
};

// All parts of `ranks` ranks.
uint32_t rn_rank_parts_count(uint64_t samples, uint32_t ranks);
// Those of one rank.
uint32_t rn_rank_parts_of(uint64_t samples, uint32_t rank, uint32_t ranks);
// What `sum` needs to put parts of others in.
uint64_t rn_rank_parts_bytes(rn_dtype dtype, uint64_t count, uint64_t samples, uint32_t ranks);
// Elements of a row. Tensors of fewer than `ranks` whole rows have empty ones.
uint64_t rn_rank_row(uint64_t count, uint32_t ranks);
typedef struct rn_rank_range {
    uint64_t begin, end; // elements
} rn_rank_range;
rn_rank_range rn_rank_range_of(uint64_t count, uint64_t row, uint32_t rank);

// Small tensors are sent whole to all, large ones row by row, in pieces.
enum { RN_RANK_SMALL_BYTES = 64 << 10, RN_RANK_PIECE_BYTES = 1 << 20 };

typedef struct rn_rank_sum_attrs {
    uint32_t rank, ranks;
    uint64_t samples; // as rn_rank_parts; 0: in the order of ranks
    bool in_place;    // the sum is a state; else it may be overwritten where nobody reads it later
} rn_rank_sum_attrs;
enum { RN_RANK_SUM_FIRST, RN_RANK_SUM_REST, RN_RANK_SUM_AFTER }; // inputs

// parts: RN_NO_VALUE where the rank has one. after: what must have been done before, so that all
// ranks keep one order; or RN_NO_VALUE.
rn_value rn_op_rank_sum(rn_graph *g, rn_value first, rn_value rest, rn_value after,
                        rn_rank_sum_attrs attrs);

typedef struct rn_rank_gather_attrs {
    uint32_t rank, ranks;
} rn_rank_gather_attrs;
// A weight of which each rank has updated its row, in place. updated: the value of that update.
rn_value rn_op_rank_gather(rn_graph *g, rn_value weight, rn_value updated, rn_value after,
                           rn_rank_gather_attrs attrs);

#endif
