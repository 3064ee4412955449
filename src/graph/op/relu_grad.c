// relu_grad.c — dy where relu's y (or its x) is positive, else 0.
#include "graph/op/elementwise.h"
#include "graph/op/grads.h"

static float apply(float y, float dy) {
    return y > 0.0f ? dy : 0.0f;
}

static rn_status reference(const rn_call *call) {
    return rn_map_pairs(call, apply);
}

extern const rn_op_info rn_relu_grad_op;
const rn_op_info rn_relu_grad_op = {
    .name = "relu_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 3,
    .half_outputs = 1,
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias = {RN_ALIAS_MAY(1)},
    .shape = rn_shape_like_first,
    .cost = rn_cost_elementwise,
    .reference = reference,
};

rn_value rn_op_relu_grad(rn_graph *g, rn_value y, rn_value dy) {
    return rn_graph_add(g, RN_OP_RELU_GRAD, (rn_value[]){y, dy}, 2, NULL);
}
