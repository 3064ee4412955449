// rsqrt.c — 1 / sqrt(x).
#include "graph/op/elementwise.h"

static float invert_root(float x) {
    return 1.0f / sqrtf(x);
}

static rn_status reference(const rn_call *call) {
    return rn_map(call, invert_root);
}

// From y, so that x may be overwritten: dx = -dy y^3 / 2.
static rn_status gradient(rn_backward *b) {
    rn_value cube = rn_op_pow(b->graph, b->node.outputs[0], 3.0f);
    rn_value product = rn_op_mul(b->graph, b->out_gradients[0], cube);
    b->in_gradients[0] = rn_op_scale(b->graph, product, -0.5f, 0.0f);
    return RN_OK;
}

extern const rn_op_info rn_rsqrt_op;
const rn_op_info rn_rsqrt_op = {
    .name = "rsqrt",
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

rn_value rn_op_rsqrt(rn_graph *g, rn_value x) {
    return rn_graph_add(g, RN_OP_RSQRT, &x, 1, NULL);
}
