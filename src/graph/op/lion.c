// lion.c — one step of Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"), in
// place, computed in f32:
//
//     w *= 1 - rate * decay                              decay does not go through the momentum
//     w -= rate * sign(beta1 * m + (1 - beta1) * g)
//     m  = beta2 * m + (1 - beta2) * g
//
// One state a weight where AdamW has two. What is the same for all elements is computed in double
// and rounded to f32 once. The sign of 0 is 0, that of a NaN is a NaN: a broken gradient shows.
//
// Outputs: the new w and m, which are inputs 0 and 2. Input 3 is the guard (update.h).
#include "graph/op/update.h"

#include <stdio.h>

enum { GUARD = 3, PIECE = 64 };

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_update(s, GUARD));
    return rn_shape_update_state(s, 2, 1, true);
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 9.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static rn_status reference(const rn_call *call) {
    const rn_lion_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64;
    if (rn_update_skips(call, GUARD)) {
        rn_update_keep(call, (uint32_t[]){0, 2});
        return RN_OK;
    }
    float keep = (float)(1 - rate * a->weight_decay), pace = (float)rate;
    float beta1 = (float)a->beta1, take1 = (float)(1 - a->beta1);
    float beta2 = (float)a->beta2, take2 = (float)(1 - a->beta2);
    const float *gradient = call->inputs[1].data;
    rn_noise noise = rn_update_noise(call, a->seed, a->step, a->stream);
    uint64_t n = rn_tensor_elements(&call->outputs[0]), count = 0;
    for (uint64_t at = 0; at < n; at += count) {
        float w[PIECE], m[PIECE];
        uint32_t words[PIECE];
        count = n - at < PIECE ? n - at : PIECE;
        rn_noise_words(&noise, at, count, words);
        rn_update_get(&call->inputs[0], at, count, w);
        rn_update_get(&call->inputs[2], at, count, m);
        for (uint64_t i = 0; i < count; i++) {
            float g = gradient[at + i], mixed = m[i] * beta1 + take1 * g;
            float sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
            w[i] = w[i] * keep - pace * sign;
            m[i] = m[i] * beta2 + take2 * g;
        }
        rn_update_put(&call->outputs[0], at, count, w, words, RN_NOISE_WEIGHT);
        rn_update_put(&call->outputs[1], at, count, m, words, RN_NOISE_FIRST);
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
    .max_inputs = 4,
    .optional_inputs = 1u << GUARD,
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

rn_value rn_op_lion_guarded(rn_graph *g, rn_value weight, rn_value gradient, rn_value m,
                            rn_value guard, rn_lion_attrs attrs) {
    return rn_graph_add(g, RN_OP_LION, (rn_value[]){weight, gradient, m, guard},
                        guard == RN_NO_VALUE ? 3 : 4, &attrs);
}

rn_value rn_op_lion(rn_graph *g, rn_value weight, rn_value gradient, rn_value m,
                    rn_lion_attrs attrs) {
    return rn_op_lion_guarded(g, weight, gradient, m, RN_NO_VALUE, attrs);
}
