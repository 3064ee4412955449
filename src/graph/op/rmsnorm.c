// rmsnorm.c — x rstd weight along the last axis; rstd is 1 / sqrt(mean(x x) + eps).
//
// Outputs: y and rstd, one number a row, for the gradient.
#include "graph/op/grads.h"
#include "graph/op/rows.h"

#include <math.h>
#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    uint64_t channels = 0;
    RN_TRY(rn_shape_want_channels(s, &channels));
    RN_TRY(rn_shape_want_shape(s, 1, "the weight", RN_SHAPE(channels)));
    s->out[0].shape = s->in[0].shape;
    s->out[1].shape = rn_shape_without_last(s->in[0].shape);
    return RN_OK;
}

static double sum_squares(const float *x /* (n) */, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

static rn_status reference(const rn_call *call) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data;      // (rows, width)
    const float *weight = call->inputs[1].data; // (width) or NULL
    float *y = call->outputs[0].data;           // (rows, width)
    float *rstds = call->outputs[1].data;       // (rows) or NULL
    for (uint64_t row = 0; row < n.rows; row++, x += n.width, y += n.width) {
        double rstd = 1.0 / sqrt(sum_squares(x, n.width) / (double)n.width + attrs->eps);
        for (uint64_t i = 0; i < n.width; i++)
            y[i] = (float)(x[i] * rstd * (weight ? weight[i] : 1.0f));
        if (rstds) rstds[row] = (float)rstd;
    }
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_node *n = &b->node;
    rn_value first = rn_op_rmsnorm_grad(b->graph, n->inputs[0], n->inputs[1], n->outputs[1],
                                        b->out_gradients[0]);
    for (uint32_t i = 0; i < 2; i++)
        if (b->wanted[i]) b->in_gradients[i] = rn_graph_output_of(b->graph, first, i);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_norm_attrs *a = attrs;
    snprintf(out, bytes, "eps %g", (double)a->eps);
}

extern const rn_op_info rn_rmsnorm_op;
const rn_op_info rn_rmsnorm_op = {
    .name = "rmsnorm",
    .min_inputs = 2,
    .max_inputs = 2,
    .optional_inputs = 0x2,
    .output_count = 2,
    .optional_outputs = 0x2,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_norm_attrs),
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_rmsnorm(rn_graph *g, rn_value x, rn_value weight, float eps) {
    return rn_graph_add(g, RN_OP_RMSNORM, (rn_value[]){x, weight}, 2, &(rn_norm_attrs){eps});
}
