// softmax_grad.c — y, dy -> dx = y (dy - the row's sum of y dy).
#include "graph/op/grads.h"
#include "graph/op/rows.h"

static void differentiate_row(const float *y, const float *dy, float *dx, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)y[i] * dy[i];
    for (uint64_t i = 0; i < n; i++)
        dx[i] = (float)(y[i] * (dy[i] - sum));
}

static rn_status reference(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *y = call->inputs[0].data, *dy = call->inputs[1].data; // (rows, width)
    float *dx = call->outputs[0].data;                                 // (rows, width)
    for (uint64_t row = 0; row < n.rows; row++) {
        uint64_t at = row * n.width;
        differentiate_row(y + at, dy + at, dx + at, n.width);
    }
    return RN_OK;
}

extern const rn_op_info rn_softmax_grad_op;
const rn_op_info rn_softmax_grad_op = {
    .name = "softmax_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 3,
    .half_outputs = 1,
    .traits = RN_TRAIT_EXACT,
    .alias = {RN_ALIAS_MAY(1)},
    .shape = rn_shape_like_first,
    .cost = rn_cost_elementwise,
    .reference = reference,
};

rn_value rn_op_softmax_grad(rn_graph *g, rn_value y, rn_value dy) {
    return rn_graph_add(g, RN_OP_SOFTMAX_GRAD, (rn_value[]){y, dy}, 2, NULL);
}
