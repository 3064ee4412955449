// fuse.h — fusion as a rewrite: a graph of plain ops in, a graph with a device's fused ops out.
//
//     rn_graph *fused;
//     RN_TRY(rn_graph_fuse(graph, RN_FUSE_ALL, &fused)); // graph is as it was
//
// A model writes each layer once, of plain ops. Where a device has kernels for fused ops
// (rn_device_caps.fusions) the planner has the rewrite put them in; `unfold` (graph/fused.h) is the
// way back, so that both graphs mean the same calls in the same order and give the same bits on a
// back end that runs a fused op as its parts.
//
//     pattern                                                becomes
//     rmsnorm ─▶ three matmuls                               project_three
//     rmsnorm ─▶ two matmuls ─▶ gated                        project_gated
//     [rmsnorm ─▶] matmul [─▶ add to a residual]             project (either of both, at least)
//     rope q, rope k ─▶ kv_append ─▶ paged_attention         attend
//     conv2d or conv of f32 ─▶ relu or clamp                 conv_clamp
//     product of bytes ─▶ cast ─▶ mul [─▶ add]               product_scaled
//     matmul without a bias ─▶ add of a given vector (N)     matmul with it: the same bits
//
// A pattern is left alone where a value between its nodes is an output or has another reader, where
// its nodes are in different blocks, where a weight is made in the run, or a bias or norm (casts
// and scalings of given ones are fine), and where a product reads another product's result at once
// or is read by one: those are the two halves of an adapter, which stays a chain of plain ops.
//
// On a device of launches a cast of a norm costs as much as the norm. So where the weights' source
// widens vectors (rn_recipe.widens_vectors), cast(weight (N) of 16 bits) to f32 becomes the weight,
// declared as f32.
#ifndef RN_GRAPH_FUSE_H
#define RN_GRAPH_FUSE_H

#include <ration/graph.h>

// Which fused ops a device has.
typedef enum rn_fusion {
    RN_FUSE_PROJECT = 1u << 0,
    RN_FUSE_PROJECT_THREE = 1u << 1,
    RN_FUSE_PROJECT_GATED = 1u << 2,
    RN_FUSE_ATTEND = 1u << 3,
    RN_FUSE_ALL = (1u << 4) - 1,
    RN_FUSE_WIDEN = 1u << 4, // no op of a device: vectors are declared as f32
    RN_FUSE_CONV = 1u << 5, // conv_clamp, of the CPU: no launches are saved, but passes over images
    RN_FUSE_BYTES = 1u << 6, // product_scaled, of the CPU
    RN_FUSE_BIAS = 1u << 7,  // the matmul that there is: a pass is saved
    RN_FUSE_HALVES = 1u << 8 // no op: kernels take and make 16 bits in the place of f32 (halves.h)
} rn_fusion;

// Whether there may be something for it in the graph: false only where no more than RN_FUSE_CONV,
// RN_FUSE_BYTES and RN_FUSE_BIAS is asked for, and no convolution has a relu or clamp, no product
// of whole numbers a cast, no matmul an add of a vector behind it.
bool rn_graph_may_fuse(const rn_graph *graph, uint32_t fusions);

// A copy of an inference graph in which the patterns of `fusions` are fused ops. A fused node
// stands where the first of its parts stood, behind what it needs; names, blocks, inputs, weights,
// states and outputs are kept. RN_INVALID for a graph with a backward pass: fused ops have no
// gradient.
RN_MUST_USE rn_status rn_graph_fuse(const rn_graph *graph, uint32_t fusions, rn_graph **out);

#endif
