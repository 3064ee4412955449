// group_norm.c — (x - mean) rstd weight + bias, where mean and rstd = 1 / sqrt(variance + eps) are
// those of a group of neighbouring channels over all pixels of an image; then SiLU, where asked
// for. Sums are in double.
//
// Outputs: y, mean, rstd; the last two, (N, groups), are there for the gradient. Whoever reads them
// alone gets the statistics of a picture without its normalised copy, and with mean and rstd as
// inputs nothing is measured: so a picture can be normalised in tiles by the statistics of the
// whole.
#include "graph/op/group_norm.h"

#include "graph/op/activation.h"
#include "graph/op/grads.h"
#include "graph/op/rows.h"

#include <stdio.h>

enum { X, WEIGHT, BIAS, MEAN, RSTD };

rn_status rn_group_norm_check(const rn_shaping *s, uint64_t *out_channels, rn_shape *out_groups) {
    const rn_group_norm_attrs *attrs = s->attrs;
    rn_shape x = s->in[X].shape;
    RN_TRY(rn_shape_want_channels(s, out_channels));
    if (x.rank < 2) return rn_shape_fail(s, "x is (N, ..., C)");
    if (attrs->groups == 0 || *out_channels % attrs->groups)
        return rn_shape_fail(s, "%llu channels do not stand in %u groups",
                             (unsigned long long)*out_channels, attrs->groups);
    *out_groups = RN_SHAPE(x.dims[0], attrs->groups);
    return RN_OK;
}

static rn_status shape(rn_shaping *s) {
    uint64_t channels = 0;
    rn_shape groups;
    RN_TRY(rn_group_norm_check(s, &channels, &groups));
    RN_TRY(rn_shape_want_shape(s, WEIGHT, "the weight", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, BIAS, "the bias", RN_SHAPE(channels)));
    RN_TRY(rn_shape_want_shape(s, MEAN, "the mean", groups));
    RN_TRY(rn_shape_want_shape(s, RSTD, "rstd", groups));
    if ((s->in[MEAN].dtype == RN_DTYPE_NONE) != (s->in[RSTD].dtype == RN_DTYPE_NONE))
        return rn_shape_fail(s, "mean and rstd come together");
    s->out[0].shape = s->in[X].shape;
    s->out[1].shape = s->out[2].shape = groups;
    return RN_OK;
}

typedef struct group {
    rn_group_sizes of;
    const float *x; // (pixels, channels): of the group's image, from its first channel on
    double mean, rstd;
} group;

static void measure(group *g, double eps) {
    double sum = 0, squares = 0, count = (double)(g->of.pixels * g->of.each);
    for (uint64_t p = 0; p < g->of.pixels; p++)
        for (uint64_t c = 0; c < g->of.each; c++)
            sum += g->x[p * g->of.channels + c];
    g->mean = sum / count;
    for (uint64_t p = 0; p < g->of.pixels; p++)
        for (uint64_t c = 0; c < g->of.each; c++) {
            double away = g->x[p * g->of.channels + c] - g->mean;
            squares += away * away;
        }
    g->rstd = 1.0 / sqrt(squares / count + eps);
}

static rn_status reference(const rn_call *call) {
    const rn_group_norm_attrs *attrs = call->attrs;
    rn_group_sizes of = rn_group_sizes_of(call->inputs[X].shape, attrs);
    const float *weight = call->inputs[WEIGHT].data, *bias = call->inputs[BIAS].data; // (channels)
    const float *mean = call->inputs[MEAN].data, *rstd = call->inputs[RSTD].data;     // (N, groups)
    float *means = call->outputs[1].data, *rstds = call->outputs[2].data; // (N, groups) or NULL
    for (uint64_t i = 0; i < of.images * of.groups; i++) {
        uint64_t first = i % of.groups * of.each;
        uint64_t at = i / of.groups * of.pixels * of.channels + first;
        group g = {of, (const float *)call->inputs[X].data + at, 0, 0};
        if (mean)
            g.mean = mean[i], g.rstd = rstd[i];
        else
            measure(&g, attrs->eps);
        float *y = call->outputs[0].data ? (float *)call->outputs[0].data + at : NULL;
        for (uint64_t p = 0; y && p < of.pixels; p++)
            for (uint64_t c = 0; c < of.each; c++) {
                uint64_t to = p * of.channels + c;
                float z = (float)((g.x[to] - g.mean) * g.rstd * (weight ? weight[first + c] : 1.0) +
                                  (bias ? bias[first + c] : 0.0));
                y[to] = attrs->silu ? rn_silu(z) : z;
            }
        if (means) means[i] = (float)g.mean;
        if (rstds) rstds[i] = (float)g.rstd;
    }
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_node *n = &b->node;
    if (n->inputs[MEAN] != RN_NO_VALUE)
        return rn_fail(RN_UNSUPPORTED, "%s: no gradient flows through statistics that are given",
                       n->name);
    if (b->out_gradients[1] != RN_NO_VALUE || b->out_gradients[2] != RN_NO_VALUE)
        return rn_fail(RN_UNSUPPORTED, "%s: no gradient flows through the statistics", n->name);
    rn_value first =
        rn_op_group_norm_grad(b->graph, n->inputs[X], n->inputs[WEIGHT], n->inputs[BIAS],
                              n->outputs[1], n->outputs[2], b->out_gradients[0], n->attrs);
    for (uint32_t i = 0; i < 3; i++)
        if (b->wanted[i]) b->in_gradients[i] = rn_graph_output_of(b->graph, first, i);
    return RN_OK;
}

void rn_group_norm_print(const void *attrs, char *out, size_t bytes) {
    const rn_group_norm_attrs *a = attrs;
    snprintf(out, bytes, "%u groups, eps %g%s", a->groups, (double)a->eps, a->silu ? ", silu" : "");
}

extern const rn_op_info rn_group_norm_op;
const rn_op_info rn_group_norm_op = {
    .name = "group_norm",
    .min_inputs = 5,
    .max_inputs = 5,
    .optional_inputs = 0x1e,
    .output_count = 3,
    .optional_outputs = 0x7,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_group_norm_attrs),
    .alias = {RN_ALIAS_MAY(X)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
    .print = rn_group_norm_print,
};

rn_value rn_op_group_norm(rn_graph *g, rn_value x, rn_value weight, rn_value bias,
                          rn_group_norm_attrs attrs) {
    return rn_op_group_norm_by(g, x, weight, bias, RN_NO_VALUE, RN_NO_VALUE, attrs);
}

rn_value rn_op_group_norm_by(rn_graph *g, rn_value x, rn_value weight, rn_value bias, rn_value mean,
                             rn_value rstd, rn_group_norm_attrs attrs) {
    return rn_graph_add(g, RN_OP_GROUP_NORM, (rn_value[]){x, weight, bias, mean, rstd}, 5, &attrs);
}
