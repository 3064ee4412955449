// lion.c — one step of Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"), in
// place, in f32:
//
//     w *= 1 - rate * decay                              decay does not go through the momentum
//     w -= rate * sign(beta1 * m + (1 - beta1) * g)
//     m  = beta2 * m + (1 - beta2) * g
//
// One state a weight where AdamW has two. What is the same for all elements is computed in double
// and rounded to f32 once. The sign of 0 is 0, that of a NaN is a NaN: a broken gradient shows.
//
// Outputs: the new w and m, which are inputs 0 and 2.
#include "graph/op.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_like_first(s));
    s->out[1].shape = s->in[0].shape;
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 9.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static rn_status reference(const rn_call *call) {
    const rn_lion_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64;
    float keep = (float)(1 - rate * a->weight_decay), pace = (float)rate;
    float beta1 = (float)a->beta1, take1 = (float)(1 - a->beta1);
    float beta2 = (float)a->beta2, take2 = (float)(1 - a->beta2);
    const float *w = call->inputs[0].data, *g = call->inputs[1].data, *m = call->inputs[2].data;
    float *new_w = call->outputs[0].data, *new_m = call->outputs[1].data;
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    for (uint64_t i = 0; i < n; i++) {
        float mixed = m[i] * beta1 + take1 * g[i];
        float sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
        float momentum = m[i] * beta2 + take2 * g[i];
        new_w[i] = w[i] * keep - pace * sign;
        new_m[i] = momentum;
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_lion_attrs *a = attrs;
    snprintf(out, bytes, "betas %g %g, decay %g", a->beta1, a->beta2, a->weight_decay);
}

extern const rn_op_info rn_lion_op;
const rn_op_info rn_lion_op = {
    .name = "lion",
    .min_inputs = 3,
    .max_inputs = 3,
    .output_count = 2,
    .half_inputs = 2,
    .attrs_bytes = sizeof(rn_lion_attrs),
    .traits = RN_TRAIT_UPDATE,
    .alias = {RN_ALIAS_MUST(0), RN_ALIAS_MUST(2)},
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_lion(rn_graph *g, rn_value weight, rn_value gradient, rn_value m,
                    rn_lion_attrs attrs) {
    return rn_graph_add(g, RN_OP_LION, (rn_value[]){weight, gradient, m}, 3, &attrs);
}
