// max.c — the largest over some of the axes; NaN where there is one, -infinity over nothing.
#include "graph/op/grads.h"
#include "graph/op/reduce.h"

#include <math.h>

static double take_larger(double largest, float x) {
    return rn_is_larger(x, (float)largest) ? x : largest;
}

static rn_status reference(const rn_call *call) {
    return rn_reduce(call, -INFINITY, take_larger, 1.0);
}

static rn_status gradient(rn_backward *b) {
    b->in_gradients[0] =
        rn_op_max_grad(b->graph, b->node.inputs[0], b->out_gradients[0], b->node.attrs);
    return RN_OK;
}

extern const rn_op_info rn_max_op;
const rn_op_info rn_max_op = {
    .name = "max",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_reduce_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = rn_reduce_shape,
    .cost = rn_reduce_cost,
    .gradient = gradient,
    .reference = reference,
    .print = rn_reduce_print,
};

rn_value rn_op_max(rn_graph *g, rn_value x, uint32_t axes, bool keep) {
    if (rn_graph_takes_any(g, x)) return rn_op_reduce(g, RN_REDUCE_MAX, x, axes, keep);
    return rn_graph_add(g, RN_OP_MAX, &x, 1, &(rn_reduce_attrs){axes, keep});
}
