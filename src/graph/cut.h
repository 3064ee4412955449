// cut.h — graphs cut up: weights in slices of rows (row_slices.c), some blocks alone
// (keep_blocks.c), products and heads dealt out to ranks (share_heads.c).
#ifndef RN_GRAPH_CUT_H
#define RN_GRAPH_CUT_H

#include "graph/op.h"

// A copy in which every product with a weight of more than `most_bytes` is several, each with some
// of the weight's rows (rn_value_info.tensor), joined by a concat; the numbers are the same.
// Weights whose file has more than one component (int8 with its scales), that are trained or that
// anything else than a lookup reads stay whole. *out is NULL where nothing is larger.
RN_MUST_USE rn_status rn_graph_slice_rows(const rn_graph *graph, uint64_t most_bytes,
                                          rn_graph **out);
// Bytes of the largest weight that can be cut so; 0: there is none.
RN_MUST_USE rn_status rn_graph_find_sliceable(const rn_graph *graph, uint64_t *out_bytes);

// The name of what enters and leaves a graph of some blocks.
#define RN_CROSSING "@crossing"
// A copy of the nodes of some blocks only, with what they read. A block that is left out between
// others is stepped over: who reads what it makes reads what it read. What blocks behind the last
// kept one read becomes the output RN_CROSSING, what the kept ones read of blocks before them the
// input of that name. RN_UNSUPPORTED: a block that is stepped over reads or makes more than one
// value for others, or values of different shapes.
RN_MUST_USE rn_status rn_graph_keep_blocks(const rn_graph *graph, const bool *keep /* (blocks) */,
                                           rn_graph **out);

// A copy of what rank `rank` of `ranks` computes where products and heads are dealt out to all of
// them (share_heads.c), joined by collective ops; the numbers are those of the whole graph. Weights
// that cannot be dealt out are whole on every rank. RN_INVALID: the ranks do not divide the
// key-value heads; RN_UNSUPPORTED: nothing can be dealt out.
RN_MUST_USE rn_status rn_graph_share_heads(const rn_graph *graph, uint32_t rank, uint32_t ranks,
                                           rn_graph **out);

#endif
