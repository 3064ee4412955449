// sum_squares.c — the sum of the squares of all elements: one number.
#include "graph/op/reduce.h"

static rn_status shape(rn_shaping *s) {
    return rn_shape_want(s, 0, RN_DTYPE_F32);
}

static rn_status reference(const rn_call *call) {
    const float *x = call->inputs[0].data; // (n)
    float *y = call->outputs[0].data;      // ()
    uint64_t n = rn_tensor_elements(&call->inputs[0]);
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    *y = (float)sum;
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    rn_value twice = rn_op_scale(b->graph, b->out_gradients[0], 2.0f, 0.0f);
    b->in_gradients[0] = rn_op_mul(b->graph, b->node.inputs[0], twice);
    return RN_OK;
}

extern const rn_op_info rn_sum_squares_op;
const rn_op_info rn_sum_squares_op = {
    .name = "sum_squares",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .half_inputs = 1,
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_reduce_cost,
    .gradient = gradient,
    .reference = reference,
};

rn_value rn_op_sum_squares(rn_graph *g, rn_value x) {
    return rn_graph_add(g, RN_OP_SUM_SQUARES, &x, 1, NULL);
}
