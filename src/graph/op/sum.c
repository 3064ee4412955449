// sum.c — the sum over some of the axes.
#include "graph/op/reduce.h"

static double add(double sum, float x) {
    return sum + x;
}

static rn_status reference(const rn_call *call) {
    return rn_reduce(call, 0.0, add, 1.0);
}

static rn_status gradient(rn_backward *b) {
    b->in_gradients[0] = rn_reduce_spread(b);
    return RN_OK;
}

extern const rn_op_info rn_sum_op;
const rn_op_info rn_sum_op = {
    .name = "sum",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_reduce_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = rn_reduce_shape,
    .cost = rn_reduce_cost,
    .gradient = gradient,
    .reference = reference,
    .print = rn_reduce_print,
};

rn_value rn_op_sum(rn_graph *g, rn_value x, uint32_t axes, bool keep) {
    if (rn_graph_takes_any(g, x)) return rn_op_reduce(g, RN_REDUCE_SUM, x, axes, keep);
    return rn_graph_add(g, RN_OP_SUM, &x, 1, &(rn_reduce_attrs){axes, keep});
}
