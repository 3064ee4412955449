// sub.c — a - b, stretched to each other by NumPy's rule.
#include "graph/op/elementwise.h"

static float apply(float a, float b) {
    return a - b;
}

static rn_status reference(const rn_call *call) {
    return rn_map_broadcast(call, apply);
}

static rn_status gradient(rn_backward *b) {
    rn_graph *g = b->graph;
    rn_value dy = b->out_gradients[0];
    if (b->wanted[0]) b->in_gradients[0] = rn_graph_unbroadcast(g, dy, b->node.inputs[0]);
    // Summed first: the negative of the smaller tensor is the cheaper one.
    if (b->wanted[1])
        b->in_gradients[1] = rn_op_neg(g, rn_graph_unbroadcast(g, dy, b->node.inputs[1]));
    return RN_OK;
}

extern const rn_op_info rn_sub_op;
const rn_op_info rn_sub_op = {
    .name = "sub",
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

rn_value rn_op_sub(rn_graph *g, rn_value a, rn_value b) {
    if (rn_graph_takes_any(g, a)) return rn_op_binary(g, RN_BINARY_SUB, a, b);
    return rn_graph_add(g, RN_OP_SUB, (rn_value[]){a, b}, 2, NULL);
}
