// fused.h — a fused op as the calls that it means, one after the other.
//
//     project:   x ─ rmsnorm ─▶ [normed] ─ matmul ─▶ [product] ─ add ─▶ y
//
// It has no loop of its own. Its reference is its calls' references; a back end that has no kernel
// for it runs its kernels for them. So the bits are those of the ops it replaces, on that back end.
// What one call hands to the next (in brackets) lies at the front of the workspace, and what a call
// needs for itself behind that.
#ifndef RN_GRAPH_FUSED_H
#define RN_GRAPH_FUSED_H

#include "graph/op.h"

enum { RN_FUSED_CALLS = 4, RN_FUSED_TENSORS = 8 };

// Points into itself: not to be copied.
struct rn_fused {
    const rn_call *whole;
    rn_call calls[RN_FUSED_CALLS];
    rn_tensor tensors[RN_FUSED_CALLS][RN_FUSED_TENSORS]; // of each call: inputs, outputs
    uint32_t count;
    uint64_t handed_bytes; // of the workspace's front, a multiple of 64
    // Attributes of calls, where they are not a part of the whole's.
    rn_norm_attrs norm;
    rn_matmul_attrs product;
    rn_gated_attrs gated;
    rn_conv2d_attrs conv2d;
    rn_cast_attrs cast;
};

// ---- for an op's builder ------------------------------------------------------------------------

// Whether a value has that role. No value, or one that is none of the graph's, has none: adding the
// node refuses it.
bool rn_fused_is(const rn_graph *graph, rn_value value, rn_role role);

// ---- for an op's `unfold` -----------------------------------------------------------------------

// A tensor that one call hands to the next: f32, without data while planning.
rn_tensor rn_fused_hand(rn_fused *fused, rn_shape shape);
// The next call, with the ends of the whole or what was handed. `attrs` must live as long as
// `fused`.
void rn_fused_add(rn_fused *fused, rn_op op, const void *attrs, const rn_tensor *inputs,
                  uint32_t input_count, const rn_tensor *outputs, uint32_t output_count);

// ---- for an op's other rules --------------------------------------------------------------------

// Asks a part's own shape rule, with inputs as that op takes them; *out is its first result.
RN_MUST_USE rn_status rn_fused_shape(const rn_shaping *s, rn_op op, const void *attrs,
                                     const struct rn_typed *in, uint32_t input_count,
                                     struct rn_typed *out);
// The arithmetic of all parts, added to out->flops.
void rn_fused_flops(const rn_call *call, rn_cost *out);
rn_status rn_fused_reference(const rn_call *call);
uint64_t rn_fused_reference_workspace(const rn_call *call);

// ---- for back ends ------------------------------------------------------------------------------

// The whole, each part by `run`; and the workspace for that, where a part needs `workspace` bytes.
RN_MUST_USE rn_status rn_fused_run(const rn_call *call, rn_status (*run)(const rn_call *part));
uint64_t rn_fused_workspace(const rn_call *call, uint64_t (*workspace)(const rn_call *part));

#endif
