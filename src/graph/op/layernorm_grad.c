// layernorm_grad.c — x, weight, mean, rstd, dy -> dx, d weight, d bias.
//
// With u = (x - mean) rstd, the normalised row, and g = dy weight:
//     dx = rstd (g - mean(g) - u mean(g u)),   d weight = sum of dy u,   d bias = sum of dy
// where means are along a row and sums go over the rows.
#include "graph/op/grads.h"
#include "graph/op/rows.h"

#include <string.h>

static rn_status shape(rn_shaping *s) {
    uint64_t channels = 0;
    RN_TRY(rn_shape_want_channels(s, &channels));
    rn_shape rows = rn_shape_without_last(s->in[0].shape);
    RN_TRY(rn_shape_want_shape(s, 1, "the weight", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, 2, "the mean", rows));
    RN_TRY(rn_shape_want_shape(s, 3, "rstd", rows));
    RN_TRY(rn_shape_want_shape(s, 4, "dy", s->in[0].shape));
    s->out[0].shape = s->in[0].shape;
    s->out[1].shape = s->out[2].shape = RN_SHAPE(channels);
    return RN_OK;
}

// The sums for d weight and d bias.
static uint64_t workspace(const rn_call *call) {
    return 2 * rn_rows_of(&call->inputs[0]).width * sizeof(double);
}

typedef struct row {
    const float *x, *dy, *weight; // (n); weight may be NULL
    double mean, rstd;
    uint64_t n;
} row;

static void add_sums(const row *r, double *d_weight /* (n) */, double *d_bias /* (n) */) {
    for (uint64_t i = 0; i < r->n; i++) {
        d_weight[i] += r->dy[i] * (r->x[i] - r->mean) * r->rstd;
        d_bias[i] += r->dy[i];
    }
}

static void differentiate_row(const row *r, float *dx /* (n) */) {
    double sum = 0, dot = 0; // of g, of g u
    for (uint64_t i = 0; i < r->n; i++) {
        double g = (double)r->dy[i] * (r->weight ? r->weight[i] : 1.0f);
        sum += g;
        dot += g * (r->x[i] - r->mean) * r->rstd;
    }
    double mean = sum / (double)r->n, slope = dot / (double)r->n;
    for (uint64_t i = 0; i < r->n; i++) {
        double g = (double)r->dy[i] * (r->weight ? r->weight[i] : 1.0f);
        double u = (r->x[i] - r->mean) * r->rstd;
        dx[i] = (float)(r->rstd * (g - mean - u * slope));
    }
}

static void store(const double *sums /* (n) */, float *out /* (n), or NULL: unread */, uint64_t n) {
    for (uint64_t i = 0; out && i < n; i++)
        out[i] = (float)sums[i];
}

static rn_status reference(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data, *dy = call->inputs[4].data;        // (rows, width)
    const float *means = call->inputs[2].data, *rstds = call->inputs[3].data; // (rows)
    float *dx = call->outputs[0].data;                                // (rows, width) or NULL
    double *d_weight = call->workspace, *d_bias = d_weight + n.width; // (width)
    memset(call->workspace, 0, workspace(call));
    for (uint64_t i = 0; i < n.rows; i++) {
        uint64_t at = i * n.width;
        row r = {x + at, dy + at, call->inputs[1].data, means[i], rstds[i], n.width};
        add_sums(&r, d_weight, d_bias); // before dx overwrites dy
        if (dx) differentiate_row(&r, dx + at);
    }
    store(d_weight, call->outputs[1].data, n.width);
    store(d_bias, call->outputs[2].data, n.width);
    return RN_OK;
}

extern const rn_op_info rn_layernorm_grad_op;
const rn_op_info rn_layernorm_grad_op = {
    .name = "layernorm_grad",
    .min_inputs = 5,
    .max_inputs = 5,
    .optional_inputs = 0x2,
    .output_count = 3,
    .optional_outputs = 0x7,
    .half_inputs = 0x11,
    .half_outputs = 1,
    .alias = {RN_ALIAS_MAY(4)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .workspace = workspace,
    .reference = reference,
};

rn_value rn_op_layernorm_grad(rn_graph *g, rn_value x, rn_value weight, rn_value mean,
                              rn_value rstd, rn_value dy) {
    return rn_graph_add(g, RN_OP_LAYERNORM_GRAD, (rn_value[]){x, weight, mean, rstd, dy}, 5, NULL);
}
