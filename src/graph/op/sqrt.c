// sqrt.c — the square root.
#include "graph/op/elementwise.h"

static rn_status reference(const rn_call *call) {
    return rn_map(call, sqrtf);
}

// From y, so that x may be overwritten: dx = dy / 2y.
static rn_status gradient(rn_backward *b) {
    rn_value quotient = rn_op_div(b->graph, b->out_gradients[0], b->node.outputs[0]);
    b->in_gradients[0] = rn_op_scale(b->graph, quotient, 0.5f, 0.0f);
    return RN_OK;
}

extern const rn_op_info rn_sqrt_op;
const rn_op_info rn_sqrt_op = {
    .name = "sqrt",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = rn_shape_like_first,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
};

rn_value rn_op_sqrt(rn_graph *g, rn_value x) {
    if (rn_graph_takes_any(g, x)) return rn_op_unary(g, RN_UNARY_SQRT, x);
    return rn_graph_add(g, RN_OP_SQRT, &x, 1, NULL);
}
