// batchnorm_grad.c — x, weight, mean, rstd, dy -> dx, d weight, d bias, for each channel.
//
// With u = (x - mean) rstd and n rows:
//     d bias = sum of dy,   d weight = sum of dy u
//     dx = weight rstd (dy - d bias / n - u d weight / n)
// The last two terms are there in training only, where mean and rstd depend on x.
#include "graph/op/grads.h"
#include "graph/op/rows.h"

#include <stdio.h>
#include <string.h>

static rn_status shape(rn_shaping *s) {
    uint64_t channels = 0;
    RN_TRY(rn_shape_want_channels(s, &channels));
    RN_TRY(rn_shape_want_shape(s, 1, "the weight", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, 2, "the mean", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, 3, "rstd", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, 4, "dy", s->in[0].shape));
    s->out[0].shape = s->in[0].shape;
    s->out[1].shape = s->out[2].shape = RN_SHAPE(channels);
    return RN_OK;
}

// d weight and d bias.
static uint64_t workspace(const rn_call *call) {
    return 2 * rn_rows_of(&call->inputs[0]).width * sizeof(double);
}

typedef struct sums {
    double *d_weight, *d_bias; // (width)
} sums;

static void add_up(const rn_call *call, sums s) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data, *dy = call->inputs[4].data;      // (rows, width)
    const float *mean = call->inputs[2].data, *rstd = call->inputs[3].data; // (width)
    memset(call->workspace, 0, workspace(call));
    for (uint64_t i = 0; i < n.rows * n.width; i += n.width)
        for (uint64_t c = 0; c < n.width; c++) {
            s.d_weight[c] += dy[i + c] * ((double)x[i + c] - mean[c]) * rstd[c];
            s.d_bias[c] += dy[i + c];
        }
}

static void differentiate(const rn_call *call, sums s, bool training) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data, *dy = call->inputs[4].data;      // (rows, width)
    const float *mean = call->inputs[2].data, *rstd = call->inputs[3].data; // (width)
    const float *weight = call->inputs[1].data;                             // (width)
    float *dx = call->outputs[0].data;                                      // (rows, width)
    double share = training ? 1.0 / (double)n.rows : 0.0;
    for (uint64_t i = 0; i < n.rows * n.width; i += n.width)
        for (uint64_t c = 0; c < n.width; c++) {
            double u = ((double)x[i + c] - mean[c]) * rstd[c];
            double inner = dy[i + c] - share * (s.d_bias[c] + u * s.d_weight[c]);
            dx[i + c] = (float)(inner * weight[c] * rstd[c]);
        }
}

static rn_status reference(const rn_call *call) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    uint64_t width = rn_rows_of(&call->inputs[0]).width;
    float *d_weight = call->outputs[1].data, *d_bias = call->outputs[2].data; // (width) or NULL
    double *memory = call->workspace;
    sums s = {memory, memory + width};
    add_up(call, s);
    for (uint64_t c = 0; d_weight && c < width; c++)
        d_weight[c] = (float)s.d_weight[c];
    for (uint64_t c = 0; d_bias && c < width; c++)
        d_bias[c] = (float)s.d_bias[c];
    if (call->outputs[0].data) differentiate(call, s, attrs->training);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_batchnorm_attrs *a = attrs;
    snprintf(out, bytes, "%s", a->training ? "training" : "constant statistics");
}

extern const rn_op_info rn_batchnorm_grad_op;
const rn_op_info rn_batchnorm_grad_op = {
    .name = "batchnorm_grad",
    .min_inputs = 5,
    .max_inputs = 5,
    .output_count = 3,
    .optional_outputs = 0x7,
    .half_inputs = 0x11,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_batchnorm_attrs),
    .alias = {RN_ALIAS_MAY(4)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .workspace = workspace,
    .reference = reference,
    .print = print,
};

rn_value rn_op_batchnorm_grad(rn_graph *g, rn_value x, rn_value weight, rn_value mean,
                              rn_value rstd, rn_value dy, const rn_batchnorm_attrs *attrs) {
    return rn_graph_add(g, RN_OP_BATCHNORM_GRAD, (rn_value[]){x, weight, mean, rstd, dy}, 5, attrs);
}
