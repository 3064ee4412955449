// batchnorm.c — (x - mean) rstd weight + bias for each channel, the last axis.
//
// In training mean and variance are those of the batch, and the running ones move towards them:
//     running += momentum (batch - running)
// with the variance of n values divided by n - 1 there, by n for normalising: as in PyTorch.
// Otherwise the running ones are used and stay.
//
// Outputs: y; the mean and rstd = 1 / sqrt(variance + eps) that were used, for the gradient; the
// running mean and variance, in place (in training) or as they are.
#include "graph/op/grads.h"
#include "graph/op/rows.h"

#include <math.h>
#include <stdio.h>

static const char *const names[] = {"x", "the weight", "the bias", "the running mean",
                                    "the running variance"};

static rn_status shape(rn_shaping *s) {
    const rn_batchnorm_attrs *attrs = s->attrs;
    uint64_t channels = 0;
    RN_TRY(rn_shape_want_channels(s, &channels));
    for (uint32_t i = 1; i < 5; i++) {
        RN_TRY(rn_shape_want_shape(s, i, names[i], RN_SHAPE(channels)));
        s->out[i].shape = RN_SHAPE(channels);
        if (attrs->training && i >= 3 && s->in[i].role != RN_ROLE_STATE)
            return rn_shape_fail(s, "%s changes in training: it must be a state", names[i]);
    }
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

static rn_alias alias_of(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    (void)out_offset_bytes;
    if (output == 0) return (rn_alias)RN_ALIAS_MAY(0);
    if (output < 3) return (rn_alias){RN_ALIAS_KIND_NONE, 0};
    return attrs->training ? (rn_alias)RN_ALIAS_MUST(output) : (rn_alias)RN_ALIAS_VIEW(output);
}

// Mean and variance of each channel.
static uint64_t workspace(const rn_call *call) {
    return 2 * rn_rows_of(&call->inputs[0]).width * sizeof(double);
}

typedef struct statistics {
    double *mean, *variance; // (channels), in the workspace
    rn_row_count n;
} statistics;

static void measure(const statistics *s, const float *x /* (rows, width) */) {
    uint64_t rows = s->n.rows, width = s->n.width;
    for (uint64_t c = 0; c < width; c++)
        s->mean[c] = s->variance[c] = 0;
    for (uint64_t i = 0; i < rows * width; i += width)
        for (uint64_t c = 0; c < width; c++)
            s->mean[c] += x[i + c];
    for (uint64_t c = 0; c < width; c++)
        s->mean[c] /= (double)rows;
    for (uint64_t i = 0; i < rows * width; i += width)
        for (uint64_t c = 0; c < width; c++)
            s->variance[c] += (x[i + c] - s->mean[c]) * (x[i + c] - s->mean[c]);
    for (uint64_t c = 0; c < width; c++)
        s->variance[c] /= (double)rows;
}

// Moves the running statistics, outputs 3 and 4, which lie in inputs 3 and 4.
static void update_running(const rn_call *call, const statistics *s, double momentum) {
    float *mean = call->outputs[3].data, *variance = call->outputs[4].data; // (channels)
    double unbiased = (double)s->n.rows / (double)(s->n.rows - 1);
    for (uint64_t c = 0; c < s->n.width; c++) {
        mean[c] += (float)(momentum * (s->mean[c] - mean[c]));
        variance[c] += (float)(momentum * (s->variance[c] * unbiased - variance[c]));
    }
}

static void use_running(const rn_call *call, const statistics *s) {
    const float *mean = call->inputs[3].data, *variance = call->inputs[4].data; // (channels)
    for (uint64_t c = 0; c < s->n.width; c++) {
        s->mean[c] = mean[c];
        s->variance[c] = variance[c];
    }
}

// Turns the variances into rstds and keeps what the gradient reads.
static void invert(const rn_call *call, const statistics *s, double eps) {
    float *means = call->outputs[1].data, *rstds = call->outputs[2].data; // (channels) or NULL
    for (uint64_t c = 0; c < s->n.width; c++) {
        s->variance[c] = 1.0 / sqrt(s->variance[c] + eps);
        if (means) means[c] = (float)s->mean[c];
        if (rstds) rstds[c] = (float)s->variance[c];
    }
}

static rn_status reference(const rn_call *call) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data;                                    // (rows, width)
    const float *weight = call->inputs[1].data, *bias = call->inputs[2].data; // (width)
    float *y = call->outputs[0].data;                                         // (rows, width)
    double *memory = call->workspace;
    statistics s = {memory, memory + n.width, n};
    if (attrs->training && n.rows < 2)
        return rn_hint(rn_fail(RN_INVALID,
                               "batchnorm learns from 2 values a channel or more, not %llu",
                               (unsigned long long)n.rows),
                       "train with a larger batch");
    if (attrs->training) {
        measure(&s, x);
        update_running(call, &s, attrs->momentum);
    } else {
        use_running(call, &s);
    }
    invert(call, &s, attrs->eps);
    for (uint64_t i = 0; i < n.rows * n.width; i += n.width)
        for (uint64_t c = 0; c < n.width; c++)
            y[i + c] = (float)((x[i + c] - s.mean[c]) * s.variance[c] * weight[c] + bias[c]);
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_node *n = &b->node;
    rn_value first = rn_op_batchnorm_grad(b->graph, n->inputs[0], n->inputs[1], n->outputs[1],
                                          n->outputs[2], b->out_gradients[0], n->attrs);
    for (uint32_t i = 0; i < 3; i++)
        if (b->wanted[i]) b->in_gradients[i] = rn_graph_output_of(b->graph, first, i);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_batchnorm_attrs *a = attrs;
    snprintf(out, bytes, "eps %g, momentum %g%s", (double)a->eps, (double)a->momentum,
             a->training ? ", training" : "");
}

extern const rn_op_info rn_batchnorm_op;
const rn_op_info rn_batchnorm_op = {
    .name = "batchnorm",
    .min_inputs = 5,
    .max_inputs = 5,
    .output_count = 5,
    .optional_outputs = 0x6,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_batchnorm_attrs),
    .alias_of = alias_of,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .workspace = workspace,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_batchnorm(rn_graph *g, rn_value x, rn_value weight, rn_value bias,
                         rn_value running_mean, rn_value running_var, rn_batchnorm_attrs attrs) {
    return rn_graph_add(g, RN_OP_BATCHNORM,
                        (rn_value[]){x, weight, bias, running_mean, running_var}, 5, &attrs);
}
