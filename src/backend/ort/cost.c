// cost.c — seconds of a graph's node under ONNX Runtime. Pure.
//
// Weights are f32 there, whatever the model has, and products are computed in f32. One of our nodes
// is several of ONNX's, each with a cost of its own and a result in memory of its own.
#include "backend/ort/ort.h"

#include "graph/op.h"

// ONNX nodes of an op's text (exchange/onnx_export*.c), after its own rewriting.
static double nodes_of(rn_op op) {
    switch (op) {
    case RN_OP_PAGED_ATTENTION:
    case RN_OP_ATTEND:
        return 40;
    case RN_OP_VARLEN_ATTENTION:
    case RN_OP_ATTENTION:
        return 12;
    case RN_OP_ROPE:
        return 16;
    case RN_OP_KV_APPEND:
        return 12;
    case RN_OP_RMSNORM:
        return 5;
    default:
        return 1;
    }
}

// What weights of other dtypes take more than the graph counts.
static double widened_bytes(const rn_call *call) {
    double more = 0;
    rn_product product;
    if (!rn_call_product(call, 0, &product)) return 0;
    for (uint32_t i = 1; i < call->input_count; i++) {
        const rn_tensor *w = &call->inputs[i];
        if (!rn_tensor_given(w) || w->shape.rank != 2) continue;
        double bytes = (double)sizeof(float) * (double)rn_shape_elements(w->shape, 1);
        double counted = (double)rn_tensor_bytes(w);
        if (bytes > counted) more += bytes - counted;
    }
    return more;
}

double rn_ort_cost(const rn_device_caps *caps, const rn_call *call, rn_workload workload) {
    rn_cost cost = rn_cost_count(call);
    (void)workload;
    double memory =
        (cost.read_bytes + cost.write_bytes + widened_bytes(call)) / caps->memory_bytes_second;
    double arithmetic = cost.flops / caps->flops;
    return (arithmetic > memory ? arithmetic : memory) + nodes_of(call->op) * caps->step_seconds;
}
