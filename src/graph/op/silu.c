// silu.c — x sigmoid(x), also called swish.
#include "graph/op/activation.h"
#include "graph/op/elementwise.h"
#include "graph/op/grads.h"

static rn_status reference(const rn_call *call) {
    return rn_map(call, rn_silu);
}

static rn_status gradient(rn_backward *b) {
    b->in_gradients[0] = rn_op_silu_grad(b->graph, b->node.inputs[0], b->out_gradients[0]);
    return RN_OK;
}

extern const rn_op_info rn_silu_op;
const rn_op_info rn_silu_op = {
    .name = "silu",
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

rn_value rn_op_silu(rn_graph *g, rn_value x) {
    return rn_graph_add(g, RN_OP_SILU, &x, 1, NULL);
}
