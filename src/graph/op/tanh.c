// tanh.c — the hyperbolic tangent.
#include "graph/op/elementwise.h"

static rn_status reference(const rn_call *call) {
    return rn_map(call, tanhf);
}

// From y, so that x may be overwritten: dx = dy (1 - y y).
static rn_status gradient(rn_backward *b) {
    rn_graph *g = b->graph;
    rn_value y = b->node.outputs[0];
    rn_value slope = rn_op_scale(g, rn_op_mul(g, y, y), -1.0f, 1.0f);
    b->in_gradients[0] = rn_op_mul(g, slope, b->out_gradients[0]);
    return RN_OK;
}

extern const rn_op_info rn_tanh_op;
const rn_op_info rn_tanh_op = {
    .name = "tanh",
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

rn_value rn_op_tanh(rn_graph *g, rn_value x) {
    if (rn_graph_takes_any(g, x)) return rn_op_unary(g, RN_UNARY_TANH, x);
    return rn_graph_add(g, RN_OP_TANH, &x, 1, NULL);
}
