// accumulate.c — sum += gradient, in place.
#include "graph/op.h"

static rn_status reference(const rn_call *call) {
    const float *sum = call->inputs[0].data, *gradient = call->inputs[1].data;
    float *out = call->outputs[0].data;
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    for (uint64_t i = 0; i < n; i++)
        out[i] = sum[i] + gradient[i];
    return RN_OK;
}

extern const rn_op_info rn_accumulate_op;
const rn_op_info rn_accumulate_op = {
    .name = "accumulate",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 2,
    .traits = RN_TRAIT_ACCUMULATE,
    .alias = {RN_ALIAS_MUST(0)},
    .shape = rn_shape_like_first,
    .cost = rn_cost_elementwise,
    .reference = reference,
};

rn_value rn_op_accumulate(rn_graph *g, rn_value sum, rn_value gradient) {
    return rn_graph_add(g, RN_OP_ACCUMULATE, (rn_value[]){sum, gradient}, 2, NULL);
}
