// halves.h — values of 16 bits in the place of f32: what a policy for activations is made of.
//
//     f32     a ─▶ gated ─▶ y ─▶ cast ─▶ [y16] ─▶ cast ─▶ matmul
//     half    a ─▶ gated ─▶ [y16] ─▶ matmul                          the same bits, fewer passes
//
// An op says which of its inputs and outputs may be bf16 or f16 where its shape rule says f32
// (rn_op_info.half_inputs, half_outputs), in any mix. Such a call means: the inputs are widened to
// f32, the op computes as ever, and the outputs are rounded once, as rn_dtype_convert does. The
// shape rule never sees it, and the value's dtype is all that says so.
//
// An input that takes 16 bits by its own rule (the weights of a product, a table) is no half. A
// back end whose kernels take halves says so (rn_fusion RN_FUSE_HALVES); plans for all others have
// casts.
#ifndef RN_GRAPH_HALVES_H
#define RN_GRAPH_HALVES_H

#include "graph/op.h"

static inline bool rn_dtype_is_half(rn_dtype dtype) {
    return dtype == RN_DTYPE_BF16 || dtype == RN_DTYPE_F16;
}

// Whether input `input`, output `output` of an op may be a half.
bool rn_op_takes_half(rn_op op, uint32_t input);
bool rn_op_makes_half(rn_op op, uint32_t output);

// From here on, ops of the graph (and of what is rewritten from it) take and make halves; else they
// refuse them as ever.
void rn_graph_allow_halves(rn_graph *graph);
bool rn_graph_has_halves(const rn_graph *graph); // or may have
// Whether the node takes its input `input`, which it has, as a half; makes its output so.
bool rn_node_takes_half(const rn_graph *graph, const rn_node *node, uint32_t input);
bool rn_node_makes_half(const rn_graph *graph, const rn_node *node, uint32_t output);

// Makes a value of a graph that was just added, and that nobody reads yet, one of 16 bits. A value
// that cannot be spoils the graph.
void rn_graph_make_half(rn_graph *graph, rn_value value, rn_dtype dtype);

// Whether the call has halves.
bool rn_call_has_halves(const rn_call *call);

// The op's reference loop, with or without halves, and its workspace. Pure views: nothing.
RN_MUST_USE rn_status rn_reference_run(const rn_call *call);
uint64_t rn_reference_workspace(const rn_call *call);

#endif
