// add.c — a + b, stretched to each other by NumPy's rule.
#include "graph/op/elementwise.h"

static float apply(float a, float b) {
    return a + b;
}

static rn_status reference(const rn_call *call) {
    return rn_map_broadcast(call, apply);
}

static rn_status gradient(rn_backward *b) {
    for (uint32_t i = 0; i < 2; i++)
        if (b->wanted[i])
            b->in_gradients[i] =
                rn_graph_unbroadcast(b->graph, b->out_gradients[0], b->node.inputs[i]);
    return RN_OK;
}

extern const rn_op_info rn_add_op;
const rn_op_info rn_add_op = {
    .name = "add",
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

rn_value rn_op_add(rn_graph *g, rn_value a, rn_value b) {
    if (rn_graph_takes_any(g, a)) return rn_op_binary(g, RN_BINARY_ADD, a, b);
    return rn_graph_add(g, RN_OP_ADD, (rn_value[]){a, b}, 2, NULL);
}
