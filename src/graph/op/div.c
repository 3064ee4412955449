// div.c — a / b, stretched to each other by NumPy's rule.
#include "graph/op/elementwise.h"

static float apply(float a, float b) {
    return a / b;
}

static rn_status reference(const rn_call *call) {
    return rn_map_broadcast(call, apply);
}

// With y = a / b: da = dy / b, and db = -da y.
static rn_status gradient(rn_backward *b) {
    rn_graph *g = b->graph;
    rn_value da = rn_op_div(g, b->out_gradients[0], b->node.inputs[1]);
    if (b->wanted[0]) b->in_gradients[0] = rn_graph_unbroadcast(g, da, b->node.inputs[0]);
    if (b->wanted[1]) {
        rn_value product = rn_op_mul(g, da, b->node.outputs[0]);
        b->in_gradients[1] = rn_op_neg(g, rn_graph_unbroadcast(g, product, b->node.inputs[1]));
    }
    return RN_OK;
}

extern const rn_op_info rn_div_op;
const rn_op_info rn_div_op = {
    .name = "div",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 3,
    .half_outputs = 1,
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias_of = rn_broadcast_alias,
    .shape = rn_shape_broadcast,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
};

rn_value rn_op_div(rn_graph *g, rn_value a, rn_value b) {
    if (rn_graph_takes_any(g, a)) return rn_op_binary(g, RN_BINARY_DIV, a, b);
    return rn_graph_add(g, RN_OP_DIV, (rn_value[]){a, b}, 2, NULL);
}
