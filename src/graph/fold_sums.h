// fold_sums.h — a sum with a product becomes a product that adds to what is there.
//
//     a, x w ─▶ add                 matmul_add(x, w, a)
//     a, (x w, u v) ─▶ add, add     matmul_add(u, v, matmul_add(x, w, a))     low-rank additions
//
// For graphs of 16-bit values (graph/halves.h), where the two passes of an add cost as much as many
// products of a low rank: W x + B (A x), and gradients of what several products read. The sum is
// then rounded once. A product is folded where its only reader is the sum, both are of one block
// and phase, and it and what it is added to are of one 16-bit dtype.
#ifndef RN_GRAPH_FOLD_SUMS_H
#define RN_GRAPH_FOLD_SUMS_H

#include <ration/graph.h>

// A copy of a finished graph; one without 16-bit values is the same again.
RN_MUST_USE rn_status rn_graph_fold_sums(const rn_graph *graph, rn_graph **out);

#endif
