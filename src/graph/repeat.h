// repeat.h — a copy of a graph in which some forward nodes run a second time, in the backward pass:
// what they make the second time is read there, and what they made the first time is not kept.
// Which nodes, and where: by blocks (recompute.c), or because it costs next to nothing (cheap.c).
#ifndef RN_GRAPH_REPEAT_H
#define RN_GRAPH_REPEAT_H

#include "graph/op.h"
#include "graph/storage.h"

typedef struct rn_repeats {
    // (nodes): the backward node in front of which the node is repeated, or RN_NO_NODE. A repeated
    // node reads repeated values where there are any by then: they are made in build order.
    uint32_t *at;
    bool within_block; // repeated values are read in the block that made them, and in no other
} rn_repeats;

RN_MUST_USE rn_status rn_graph_repeat(const rn_graph *graph, const rn_repeats *repeats,
                                      rn_graph **out);
// Whether the node would make the same numbers at `at`: it comes before, and nothing that it reads
// has changed by then.
bool rn_node_can_repeat(const rn_graph *graph, const rn_storage *storage, uint32_t node,
                        uint32_t at);

// A copy in which values that are cheap to make again are not kept for the backward pass: one clone
// of the node stands before the first backward reader and serves all of them. At no node are more
// bytes alive than without; where blocks are to be repeated too, that comes first. Values of the
// original keep their numbers.
RN_MUST_USE rn_status rn_graph_recompute_cheap(const rn_graph *graph, rn_graph **out);

#endif
