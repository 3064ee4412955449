// rmsnorm_grad.c — x, weight, rstd, dy -> dx, d weight.
//
// With u = x rstd, the normalised row, and g = dy weight:
//     dx = rstd (g - u mean(g u)),   d weight = sum of dy u
// where the mean is along a row and the sum goes over the rows.
#include "graph/op/grads.h"
#include "graph/op/rows.h"

#include <string.h>

static rn_status shape(rn_shaping *s) {
    uint64_t channels = 0;
    RN_TRY(rn_shape_want_channels(s, &channels));
    RN_TRY(rn_shape_want_shape(s, 1, "the weight", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, 2, "rstd", rn_shape_without_last(s->in[0].shape)));
    RN_TRY(rn_shape_want_shape(s, 3, "dy", s->in[0].shape));
    s->out[0].shape = s->in[0].shape;
    s->out[1].shape = RN_SHAPE(channels);
    return RN_OK;
}

// The sums for d weight.
static uint64_t workspace(const rn_call *call) {
    return rn_rows_of(&call->inputs[0]).width * sizeof(double);
}

typedef struct row {
    const float *x, *dy, *weight; // (n); weight may be NULL
    double rstd;
    uint64_t n;
} row;

static void add_sums(const row *r, double *d_weight /* (n) */) {
    for (uint64_t i = 0; i < r->n; i++)
        d_weight[i] += r->dy[i] * (r->x[i] * r->rstd);
}

static void differentiate_row(const row *r, float *dx /* (n) */) {
    double dot = 0; // of g u
    for (uint64_t i = 0; i < r->n; i++)
        dot += (double)r->dy[i] * (r->weight ? r->weight[i] : 1.0f) * (r->x[i] * r->rstd);
    double slope = dot / (double)r->n;
    for (uint64_t i = 0; i < r->n; i++) {
        double g = (double)r->dy[i] * (r->weight ? r->weight[i] : 1.0f);
        dx[i] = (float)(r->rstd * (g - r->x[i] * r->rstd * slope));
    }
}

static rn_status reference(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *x = call->inputs[0].data, *dy = call->inputs[3].data; // (rows, width)
    const float *rstds = call->inputs[2].data;                         // (rows)
    float *dx = call->outputs[0].data;                                 // (rows, width), or NULL
    float *d_weight = call->outputs[1].data;                           // (width), or NULL
    double *sums = call->workspace;                                    // (width)
    memset(sums, 0, workspace(call));
    for (uint64_t i = 0; i < n.rows; i++) {
        uint64_t at = i * n.width;
        row r = {x + at, dy + at, call->inputs[1].data, rstds[i], n.width};
        add_sums(&r, sums); // before dx overwrites dy
        if (dx) differentiate_row(&r, dx + at);
    }
    for (uint64_t i = 0; d_weight && i < n.width; i++)
        d_weight[i] = (float)sums[i];
    return RN_OK;
}

extern const rn_op_info rn_rmsnorm_grad_op;
const rn_op_info rn_rmsnorm_grad_op = {
    .name = "rmsnorm_grad",
    .min_inputs = 4,
    .max_inputs = 4,
    .optional_inputs = 0x2,
    .output_count = 2,
    .optional_outputs = 0x3,
    .half_inputs = 0x9,
    .half_outputs = 1,
    .alias = {RN_ALIAS_MAY(3)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .workspace = workspace,
    .reference = reference,
};

rn_value rn_op_rmsnorm_grad(rn_graph *g, rn_value x, rn_value weight, rn_value rstd, rn_value dy) {
    return rn_graph_add(g, RN_OP_RMSNORM_GRAD, (rn_value[]){x, weight, rstd, dy}, 4, NULL);
}
