// layernorm.c — (x - mean) rstd weight + bias along the last axis; rstd is 1 / sqrt(variance +
// eps).
//
// Outputs: y, mean, rstd. The last two, one number a row, are there for the gradient.
#include "graph/op/grads.h"
#include "graph/op/rows.h"

#include <math.h>
#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    uint64_t channels = 0;
    RN_TRY(rn_shape_want_channels(s, &channels));
    RN_TRY(rn_shape_want_shape(s, 1, "the weight", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, 2, "the bias", RN_SHAPE(channels)));
    s->out[0].shape = s->in[0].shape;
    s->out[1].shape = s->out[2].shape = rn_shape_without_last(s->in[0].shape);
    return RN_OK;
}

static void measure_row(const float *x /* (n) */, uint64_t n, double *out_mean,
                        double *out_variance) {
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i];
    double mean = sum / (double)n;
    for (uint64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    *out_mean = mean;
    *out_variance = squares / (double)n;
}

static rn_status reference(const rn_call *call) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data;                                    // (rows, width)
    const float *weight = call->inputs[1].data, *bias = call->inputs[2].data; // (width) or NULL
    float *y = call->outputs[0].data;                                         // (rows, width)
    float *means = call->outputs[1].data, *rstds = call->outputs[2].data;     // (rows) or NULL
    for (uint64_t row = 0; row < n.rows; row++, x += n.width, y += n.width) {
        double mean = 0, variance = 0;
        measure_row(x, n.width, &mean, &variance);
        double rstd = 1.0 / sqrt(variance + attrs->eps);
        for (uint64_t i = 0; i < n.width; i++)
            y[i] = (float)((x[i] - mean) * rstd * (weight ? weight[i] : 1.0f) +
                           (bias ? bias[i] : 0.0f));
        if (means) means[row] = (float)mean;
        if (rstds) rstds[row] = (float)rstd;
    }
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_node *n = &b->node;
    rn_value first = rn_op_layernorm_grad(b->graph, n->inputs[0], n->inputs[1], n->outputs[1],
                                          n->outputs[2], b->out_gradients[0]);
    for (uint32_t i = 0; i < 3; i++)
        if (b->wanted[i]) b->in_gradients[i] = rn_graph_output_of(b->graph, first, i);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_norm_attrs *a = attrs;
    snprintf(out, bytes, "eps %g", (double)a->eps);
}

extern const rn_op_info rn_layernorm_op;
const rn_op_info rn_layernorm_op = {
    .name = "layernorm",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 0x6,
    .output_count = 3,
    .optional_outputs = 0x6,
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

rn_value rn_op_layernorm(rn_graph *g, rn_value x, rn_value weight, rn_value bias, float eps) {
    return rn_graph_add(g, RN_OP_LAYERNORM, (rn_value[]){x, weight, bias}, 3,
                        &(rn_norm_attrs){eps});
}
