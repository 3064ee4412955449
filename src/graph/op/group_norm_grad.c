// group_norm_grad.c — x, weight, bias, mean, rstd, dy -> dx, d weight, d bias.
//
// With u = (x - mean) rstd and z = u weight + bias, dz is dy, or dy times the slope of SiLU at z
// (the bias is read for that alone). With g = dz weight:
//     dx = rstd (g - mean(g) - u mean(g u)),   d weight = sum of dz u,   d bias = sum of dz
// where means go over a group and its pixels, sums over all pixels of all images.
#include "graph/op/group_norm.h"

#include "graph/op/activation.h"
#include "graph/op/grads.h"
#include "graph/op/rows.h"

#include <string.h>

enum { X, WEIGHT, BIAS, MEAN, RSTD, DY };

static rn_status shape(rn_shaping *s) {
    uint64_t channels = 0;
    rn_shape groups;
    RN_TRY(rn_group_norm_check(s, &channels, &groups));
    RN_TRY(rn_shape_want_shape(s, WEIGHT, "the weight", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, BIAS, "the bias", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, MEAN, "the mean", groups));
    RN_TRY(rn_shape_want_shape(s, RSTD, "rstd", groups));
    RN_TRY(rn_shape_want_shape(s, DY, "dy", s->in[X].shape));
    s->out[0].shape = s->in[X].shape;
    s->out[1].shape = s->out[2].shape = RN_SHAPE(channels);
    return RN_OK;
}

// The sums for d weight and d bias.
static uint64_t workspace(const rn_call *call) {
    rn_shape x = call->inputs[X].shape;
    return 2 * x.dims[x.rank - 1] * sizeof(double);
}

typedef struct group {
    const rn_call *call;
    rn_group_sizes of;
    uint64_t first, at; // the first channel; where it lies in x
    double mean, rstd;
} group;

// u and dz of an element: channel c of pixel p.
static double slope_at(const group *g, uint64_t p, uint64_t c, double *out_u) {
    const rn_group_norm_attrs *attrs = g->call->attrs;
    const float *weight = g->call->inputs[WEIGHT].data, *bias = g->call->inputs[BIAS].data;
    uint64_t at = g->at + p * g->of.channels + c;
    double dy = ((const float *)g->call->inputs[DY].data)[at];
    *out_u = (((const float *)g->call->inputs[X].data)[at] - g->mean) * g->rstd;
    if (!attrs->silu) return dy;
    double z = *out_u * (weight ? weight[g->first + c] : 1.0) + (bias ? bias[g->first + c] : 0.0);
    return dy * (double)rn_silu_slope((float)z);
}

static void differentiate(const group *g, double *d_weight /* (channels) */,
                          double *d_bias /* (channels) */) {
    const float *weight = g->call->inputs[WEIGHT].data;
    float *dx = g->call->outputs[0].data;
    double sum = 0, dot = 0, u, count = (double)(g->of.pixels * g->of.each); // of g, of g u
    for (uint64_t p = 0; p < g->of.pixels; p++)
        for (uint64_t c = 0; c < g->of.each; c++) {
            double dz = slope_at(g, p, c, &u), w = weight ? weight[g->first + c] : 1.0;
            d_weight[g->first + c] += dz * u;
            d_bias[g->first + c] += dz;
            sum += dz * w;
            dot += dz * w * u;
        }
    for (uint64_t p = 0; dx && p < g->of.pixels; p++)
        for (uint64_t c = 0; c < g->of.each; c++) {
            double dz = slope_at(g, p, c, &u), w = weight ? weight[g->first + c] : 1.0;
            dx[g->at + p * g->of.channels + c] =
                (float)(g->rstd * (dz * w - sum / count - u * dot / count));
        }
}

static rn_status reference(const rn_call *call) {
    rn_group_sizes of = rn_group_sizes_of(call->inputs[X].shape, call->attrs);
    const float *means = call->inputs[MEAN].data, *rstds = call->inputs[RSTD].data; // (N, groups)
    float *out_weight = call->outputs[1].data, *out_bias = call->outputs[2].data;   // or NULL
    double *d_weight = call->workspace, *d_bias = d_weight + of.channels;
    memset(call->workspace, 0, workspace(call));
    for (uint64_t i = 0; i < of.images * of.groups; i++) {
        uint64_t first = i % of.groups * of.each;
        group g = {call,     of,      first, i / of.groups * of.pixels * of.channels + first,
                   means[i], rstds[i]};
        differentiate(&g, d_weight, d_bias);
    }
    for (uint64_t c = 0; c < of.channels; c++) {
        if (out_weight) out_weight[c] = (float)d_weight[c];
        if (out_bias) out_bias[c] = (float)d_bias[c];
    }
    return RN_OK;
}

extern const rn_op_info rn_group_norm_grad_op;
const rn_op_info rn_group_norm_grad_op = {
    .name = "group_norm_grad",
    .min_inputs = 6,
    .max_inputs = 6,
    .optional_inputs = 0x6,
    .output_count = 3,
    .optional_outputs = 0x7,
    .half_inputs = 0x21,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_group_norm_attrs),
    .alias = {RN_ALIAS_MAY(DY)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .workspace = workspace,
    .reference = reference,
    .print = rn_group_norm_print,
};

rn_value rn_op_group_norm_grad(rn_graph *g, rn_value x, rn_value weight, rn_value bias,
                               rn_value mean, rn_value rstd, rn_value dy,
                               const rn_group_norm_attrs *attrs) {
    return rn_graph_add(g, RN_OP_GROUP_NORM_GRAD, (rn_value[]){x, weight, bias, mean, rstd, dy}, 6,
                        attrs);
}
