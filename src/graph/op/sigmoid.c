// sigmoid.c — 1 / (1 + e^-x).
#include "graph/op/activation.h"
#include "graph/op/elementwise.h"

static rn_status reference(const rn_call *call) {
    return rn_map(call, rn_sigmoid);
}

// From y, so that x may be overwritten: dx = dy y (1 - y).
static rn_status gradient(rn_backward *b) {
    rn_graph *g = b->graph;
    rn_value y = b->node.outputs[0];
    rn_value slope = rn_op_mul(g, y, rn_op_scale(g, y, -1.0f, 1.0f));
    b->in_gradients[0] = rn_op_mul(g, slope, b->out_gradients[0]);
    return RN_OK;
}

extern const rn_op_info rn_sigmoid_op;
const rn_op_info rn_sigmoid_op = {
    .name = "sigmoid",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = rn_shape_like_first,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
};

rn_value rn_op_sigmoid(rn_graph *g, rn_value x) {
    if (rn_graph_takes_any(g, x)) return rn_op_unary(g, RN_UNARY_SIGMOID, x);
    return rn_graph_add(g, RN_OP_SIGMOID, &x, 1, NULL);
}
