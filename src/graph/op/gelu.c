// gelu.c — x times the cumulative normal distribution at x, by the error function.
#include "graph/op/activation.h"
#include "graph/op/elementwise.h"
#include "graph/op/grads.h"

static rn_status reference(const rn_call *call) {
    return rn_map(call, rn_gelu);
}

static rn_status gradient(rn_backward *b) {
    b->in_gradients[0] = rn_op_gelu_grad(b->graph, b->node.inputs[0], b->out_gradients[0]);
    return RN_OK;
}

extern const rn_op_info rn_gelu_op;
const rn_op_info rn_gelu_op = {
    .name = "gelu",
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

rn_value rn_op_gelu(rn_graph *g, rn_value x) {
    if (rn_graph_takes_any(g, x)) return rn_op_unary(g, RN_UNARY_GELU, x);
    return rn_graph_add(g, RN_OP_GELU, &x, 1, NULL);
}
