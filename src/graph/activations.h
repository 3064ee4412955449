// activations.h — a policy for activations: in 16 bits, computed in f32. Two forms of it, by what
// the device's kernels take.
//
//     f32      a ─▶ matmul ─▶ y ─▶ readers                                    y is kept as f32
//     held     a ─▶ matmul ─▶ y ─▶ cast ─▶ [y16] ─▶ cast ─▶ readers           y16 is kept
//     halves   a ─▶ matmul ─▶ [y16] ─▶ readers                                there is no f32 y
//
// Held is what is kept for long: every activation that the backward pass reads, or another block.
// It is rounded where it is made, and all its readers get the rounded numbers, widened just before
// they need them: once for each block and pass.
//
// With halves (graph/halves.h), where kernels take and make 16 bits, all activations are made so,
// and their gradients; casts stand only where an op knows f32 alone. Products then read f32 weights
// in 16 bits, too: each is rounded once for each block and pass.
//
// Either way the graph means one thing, whatever a plan then streams, repeats or offloads, and a
// plan counts its bytes as it counts all others. What stays f32: what softmax, losses and
// reductions of the forward pass read or make (RN_TRAIT_EXACT); statistics of norms and attention;
// vectors; weights, states and outputs; the gradients of weights, but for halves those of weights
// that are of the same 16 bits and are not added up over micro-batches; held: also values within a
// block that the backward pass does not read. Every op computes and sums in f32.
#ifndef RN_GRAPH_ACTIVATIONS_H
#define RN_GRAPH_ACTIVATIONS_H

#include <ration/graph.h>

// A copy of a finished graph, with or without a backward pass, whose activations are `dtype`: bf16
// or f16; with f32, or nothing to hold, the same graph again. RN_INVALID for other types.
RN_MUST_USE rn_status rn_graph_hold_activations(const rn_graph *graph, rn_dtype dtype, bool halves,
                                                rn_graph **out);
// The same in the place of *graph; f32, or 0: it stays as it is. Where it fails, *graph is as it
// was.
RN_MUST_USE rn_status rn_graph_hold_activations_in(rn_graph **graph, rn_dtype dtype, bool halves);

#endif
