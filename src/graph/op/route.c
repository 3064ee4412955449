// route.c — which experts a row goes to, and with what weights.
//
//     p = gating(logits)                c = p + bias             groups: all but the best are out
//     ids = the k largest of c          w = p[ids]  [softmax]  [/ sum]  * scale  [* scale[ids]]
//
// All of it is in f32, sums in the order of the experts (of the choices for the weights' sum). The
// choice never looks at the weights, and the weights never see the bias.
#include "graph/op/route.h"

#include "graph/op.h"

#include <math.h>
#include <stdio.h>

enum { LOGITS, BIAS, SCALE, INPUTS };
enum { IDS, WEIGHTS };

static const char *const gatings[RN_GATING_COUNT] = {
    [RN_GATING_SOFTMAX] = "softmax",
    [RN_GATING_SIGMOID] = "sigmoid",
    [RN_GATING_SOFTMAX_CHOSEN] = "softmax of the chosen",
    [RN_GATING_SQRT_SOFTPLUS] = "sqrt softplus",
};

static rn_status check_groups(const rn_shaping *s, const rn_route_attrs *a, uint64_t experts) {
    if (a->groups < 2) return RN_OK;
    uint64_t each = experts / a->groups;
    if (experts % a->groups || a->groups_chosen == 0 || a->groups_chosen > a->groups)
        return rn_shape_fail(s, "%u of %u groups of %llu experts are not possible",
                             a->groups_chosen, a->groups, (unsigned long long)experts);
    if (a->chosen > a->groups_chosen * each)
        return rn_shape_fail(s, "%u groups have fewer than %u experts", a->groups_chosen,
                             a->chosen);
    return RN_OK;
}

static rn_status shape(rn_shaping *s) {
    const rn_route_attrs *a = s->attrs;
    rn_shape logits = s->in[LOGITS].shape;
    RN_TRY(rn_shape_want(s, LOGITS, RN_DTYPE_F32));
    if (logits.rank != 2) return rn_shape_fail(s, "logits are (rows, experts)");
    uint64_t experts = logits.dims[1];
    if (a->chosen == 0 || a->chosen > experts || experts > RN_ROUTE_EXPERTS)
        return rn_shape_fail(s, "%u of %llu experts cannot be chosen, of %u at most", a->chosen,
                             (unsigned long long)experts, RN_ROUTE_EXPERTS);
    if ((unsigned)a->gating >= RN_GATING_COUNT)
        return rn_shape_fail(s, "there is no gating %d", (int)a->gating);
    RN_TRY(check_groups(s, a, experts));
    for (uint32_t i = BIAS; i < INPUTS; i++) {
        if (s->in[i].dtype == RN_DTYPE_NONE) continue;
        RN_TRY(rn_shape_want(s, i, RN_DTYPE_F32));
        if (!rn_shape_equal(s->in[i].shape, RN_SHAPE(experts)))
            return rn_shape_fail(s, "bias and scale must be (experts)");
    }
    logits.dims[1] = a->chosen;
    s->out[IDS].shape = s->out[WEIGHTS].shape = logits;
    s->out[IDS].dtype = RN_DTYPE_I32;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 20.0 * (double)rn_tensor_elements(&call->inputs[LOGITS]);
}

// ---- a row --------------------------------------------------------------------------------------

static void softmax(const float *from, uint64_t count, float *to) {
    float most = -INFINITY, sum = 0;
    for (uint64_t i = 0; i < count; i++)
        most = fmaxf(most, from[i]);
    for (uint64_t i = 0; i < count; i++)
        sum += to[i] = expf(from[i] - most);
    for (uint64_t i = 0; i < count; i++)
        to[i] /= sum;
}

static void gate(rn_gating gating, const float *logits, uint64_t count, float *p) {
    if (gating == RN_GATING_SOFTMAX) {
        softmax(logits, count, p);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        if (gating == RN_GATING_SIGMOID)
            p[i] = 1 / (1 + expf(-logits[i]));
        else if (gating == RN_GATING_SQRT_SOFTPLUS)
            p[i] = sqrtf(fmaxf(logits[i], 0) + log1pf(expf(-fabsf(logits[i]))));
        else
            p[i] = logits[i];
}

static bool is_marked(const uint64_t *marks, uint64_t i) {
    return marks[i / 64] >> i % 64 & 1;
}

// The place of the largest that is not marked, the first of equals, NaN behind all; marks it. Where
// all but it are -INFINITY, out, the first of those.
static uint64_t take_largest(const float *c, uint64_t count, uint64_t *marks) {
    uint64_t best = 0;
    while (best + 1 < count && is_marked(marks, best))
        best++;
    for (uint64_t i = best + 1; i < count; i++)
        if (!is_marked(marks, i) && (c[i] > c[best] || (isnan(c[best]) && !isnan(c[i])))) best = i;
    marks[best / 64] |= (uint64_t)1 << best % 64;
    return best;
}

static float score_group(const float *c, uint64_t count, bool by_max) {
    uint64_t taken[RN_ROUTE_EXPERTS / 64] = {0};
    float best = c[take_largest(c, count, taken)];
    return by_max || count < 2 ? best : best + c[take_largest(c, count, taken)];
}

// Leaves the best groups, of equals the first; all others are out.
static void keep_groups(const rn_route_attrs *a, float *c, uint64_t experts, float *scores) {
    uint64_t each = experts / a->groups, kept[RN_ROUTE_EXPERTS / 64] = {0};
    for (uint32_t g = 0; g < a->groups; g++)
        scores[g] = score_group(c + g * each, each, a->group_by_max);
    for (uint32_t n = 0; n < a->groups_chosen; n++)
        (void)take_largest(scores, a->groups, kept);
    for (uint64_t i = 0; i < experts; i++)
        if (!is_marked(kept, i / each)) c[i] = -INFINITY;
}

void rn_route_row(const rn_route_attrs *a, const float *logits, const float *bias,
                  const float *scale, uint64_t experts, float *room, int32_t *ids, float *weights) {
    float *p = room, *c = room + experts, sum = 0;
    uint64_t taken[RN_ROUTE_EXPERTS / 64] = {0};
    gate(a->gating, logits, experts, p);
    for (uint64_t i = 0; i < experts; i++)
        c[i] = bias ? p[i] + bias[i] : p[i];
    if (a->groups > 1) keep_groups(a, c, experts, c + experts);
    for (uint32_t k = 0; k < a->chosen; k++) {
        ids[k] = (int32_t)take_largest(c, experts, taken);
        weights[k] = p[ids[k]];
    }
    if (a->gating == RN_GATING_SOFTMAX_CHOSEN) softmax(weights, a->chosen, weights);
    for (uint32_t k = 0; k < a->chosen; k++)
        sum += weights[k];
    for (uint32_t k = 0; k < a->chosen; k++) {
        if (a->norm) weights[k] /= fmaxf(sum, 0x1p-14f);
        if (a->scale != 0) weights[k] *= a->scale;
        if (scale) weights[k] *= scale[ids[k]];
    }
}

static uint64_t workspace(const rn_call *call) {
    return rn_route_room_bytes(call->inputs[LOGITS].shape.dims[1]);
}

static rn_status reference(const rn_call *call) {
    const rn_route_attrs *a = call->attrs;
    const rn_tensor *logits = &call->inputs[LOGITS];
    uint64_t experts = logits->shape.dims[1];
    for (uint64_t r = 0; r < logits->shape.dims[0]; r++)
        rn_route_row(a, (const float *)logits->data + r * experts, call->inputs[BIAS].data,
                     call->inputs[SCALE].data, experts, call->workspace,
                     (int32_t *)call->outputs[IDS].data + r * a->chosen,
                     (float *)call->outputs[WEIGHTS].data + r * a->chosen);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_route_attrs *a = attrs;
    char groups[48] = "";
    if (a->groups > 1)
        snprintf(groups, sizeof groups, ", %u of %u groups", a->groups_chosen, a->groups);
    snprintf(out, bytes, "%u, %s%s%s", a->chosen, gatings[a->gating], a->norm ? ", norm" : "",
             groups);
}

extern const rn_op_info rn_route_op;
const rn_op_info rn_route_op = {
    .name = "route",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << BIAS | 1u << SCALE,
    .output_count = 2,
    .attrs_bytes = sizeof(rn_route_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .workspace = workspace,
    .reference = reference,
    .print = print,
};

rn_value rn_op_route(rn_graph *g, rn_value logits, rn_value bias, rn_value scale,
                     rn_route_attrs attrs) {
    return rn_graph_add(g, RN_OP_ROUTE, (rn_value[]){logits, bias, scale}, INPUTS, &attrs);
}
