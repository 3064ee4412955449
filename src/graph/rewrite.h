// rewrite.h — a graph written anew, node by node, with some nodes replaced: what fusing (fuse.c)
// and holding activations in fewer bits (activations.c) share.
//
//     rn_rewrite r;
//     RN_TRY(rn_rewrite_begin(&r, graph));            // inputs are there, in their order
//     for each node: rn_rewrite_node(&r, node), or whatever takes its place
//     return rn_rewrite_end(&r, status, out);         // what nobody reads; destroys it where it
//     failed
//
// Weights, states and constants come into being with their first reader, so that the order of
// values is that of a graph that was built this way.
#ifndef RN_GRAPH_REWRITE_H
#define RN_GRAPH_REWRITE_H

#include "base/arena.h"
#include "graph/op.h"

typedef struct rn_rewrite {
    const rn_graph *from;
    rn_graph *to;
    rn_arena memory; // for as long as the rewrite goes on
    rn_value *now;   // (values + 1): its number in `to`, RN_NO_VALUE while it has none
} rn_rewrite;

RN_MUST_USE rn_status rn_rewrite_begin(rn_rewrite *r, const rn_graph *graph);
// The numbers in `to` of values that are written by now, or that no node makes.
RN_MUST_USE rn_status rn_rewrite_inputs(rn_rewrite *r, const rn_value *inputs, uint32_t count,
                                        rn_value *out);
// From here on nodes of `to` are in the old node's block and phase.
void rn_rewrite_place(rn_rewrite *r, const rn_node *node);
// The old value goes on as `value`: with its name, where it was given one, its purpose, and as an
// output.
void rn_rewrite_output(rn_rewrite *r, rn_value old, rn_value value);
// The same node, with `inputs` of `to`; NULL: its own.
RN_MUST_USE rn_status rn_rewrite_node(rn_rewrite *r, const rn_node *node, const rn_value *inputs);
// Ends it, well (`s` is RN_OK, *out the new graph) or not.
RN_MUST_USE rn_status rn_rewrite_end(rn_rewrite *r, rn_status s, rn_graph **out);

#endif
