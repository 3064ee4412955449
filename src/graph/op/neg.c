// neg.c — -x.
#include "graph/op/elementwise.h"

static float negate(float x) {
    return -x;
}

static rn_status reference(const rn_call *call) {
    return rn_map(call, negate);
}

static rn_status gradient(rn_backward *b) {
    b->in_gradients[0] = rn_op_neg(b->graph, b->out_gradients[0]);
    return RN_OK;
}

extern const rn_op_info rn_neg_op;
const rn_op_info rn_neg_op = {
    .name = "neg",
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

rn_value rn_op_neg(rn_graph *g, rn_value x) {
    if (rn_graph_takes_any(g, x)) return rn_op_unary(g, RN_UNARY_NEG, x);
    return rn_graph_add(g, RN_OP_NEG, &x, 1, NULL);
}
