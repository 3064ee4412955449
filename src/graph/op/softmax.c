// softmax.c — e^x over the sum of e^x, along the last axis.
//
// The row's largest element is taken away first, so that nothing overflows. A row of -infinity
// alone, or with NaN or +infinity in it, becomes NaN.
#include "graph/op/grads.h"
#include "graph/op/rows.h"

#include <math.h>

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_want_rows(s));
    return rn_shape_like_first(s);
}

static void soften_row(const float *x /* (n) */, float *y /* (n) */, uint64_t n) {
    float largest = -INFINITY;
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (uint64_t i = 0; i < n; i++) {
        y[i] = expf(x[i] - largest);
        sum += y[i];
    }
    for (uint64_t i = 0; i < n; i++)
        y[i] = (float)(y[i] / sum);
}

static rn_status reference(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data; // (rows, width)
    float *y = call->outputs[0].data;      // (rows, width)
    for (uint64_t row = 0; row < n.rows; row++)
        soften_row(x + row * n.width, y + row * n.width, n.width);
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    b->in_gradients[0] = rn_op_softmax_grad(b->graph, b->node.outputs[0], b->out_gradients[0]);
    return RN_OK;
}

extern const rn_op_info rn_softmax_op;
const rn_op_info rn_softmax_op = {
    .name = "softmax",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .traits = RN_TRAIT_EXACT,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
};

rn_value rn_op_softmax(rn_graph *g, rn_value x) {
    return rn_graph_add(g, RN_OP_SOFTMAX, &x, 1, NULL);
}
