// gelu_grad.c — dy times the slope of gelu at x.
#include "graph/op/activation.h"
#include "graph/op/elementwise.h"
#include "graph/op/grads.h"

static float apply(float x, float dy) {
    return dy * rn_gelu_slope(x);
}

static rn_status reference(const rn_call *call) {
    return rn_map_pairs(call, apply);
}

extern const rn_op_info rn_gelu_grad_op;
const rn_op_info rn_gelu_grad_op = {
    .name = "gelu_grad",
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

rn_value rn_op_gelu_grad(rn_graph *g, rn_value x, rn_value dy) {
    return rn_graph_add(g, RN_OP_GELU_GRAD, (rn_value[]){x, dy}, 2, NULL);
}
