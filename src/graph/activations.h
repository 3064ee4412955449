// activations.h — a policy for activations: held in 16 bits, computed in f32.
//
//     f32      a ─▶ matmul ─▶ y ─▶ readers                                    y is kept as f32
//     bf16     a ─▶ matmul ─▶ y ─▶ cast ─▶ [y16] ─▶ cast ─▶ readers           y16 is kept
//
// Held so is what is kept for long: every activation that the backward pass reads, or another
// block. It is rounded where it is made, and all its readers get the rounded numbers, widened just
// before they need them: once for each block and pass. So the graph means one thing, whatever a
// plan then streams, repeats or offloads, and a plan counts its bytes as it counts all others.
//
// What stays f32: values within a block that the backward pass does not read; what softmax, losses
// and reductions read or make (RN_TRAIT_EXACT); statistics of norms and attention (an op's further
// outputs); weights, states, gradients and outputs. Every op computes and sums in f32.
#ifndef RN_GRAPH_ACTIVATIONS_H
#define RN_GRAPH_ACTIVATIONS_H

#include <ration/graph.h>

// A copy of a finished graph, with or without a backward pass, whose activations are held as
// `dtype`: bf16 or f16; with f32, or nothing to hold, the same graph again. RN_INVALID for other
// types.
RN_MUST_USE rn_status rn_graph_hold_activations(const rn_graph *graph, rn_dtype dtype,
                                                rn_graph **out);
// The same in the place of *graph; f32, or 0: it stays as it is. Where it fails, *graph is as it
// was.
RN_MUST_USE rn_status rn_graph_hold_activations_in(rn_graph **graph, rn_dtype dtype);

#endif
