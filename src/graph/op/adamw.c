// adamw.c — one step of PyTorch's AdamW, in place, computed in f32:
//
//     w *= 1 - rate * decay                    decay does not go through the moments
//     m += (1 - beta1) * (g - m)
//     v  = beta2 * v + (1 - beta2) * g * g
//     w -= rate / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
//
// What is the same for all elements is computed in double and rounded to f32 once.
//
// Outputs: the new w, m and v, which are inputs 0, 2 and 3. Input 4 is the guard (update.h).
#include "graph/op/update.h"

#include <stdio.h>

enum { GUARD = 4, PIECE = 64 };

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_update(s, GUARD));
    RN_TRY(rn_shape_update_state(s, 2, 1, true));
    return rn_shape_update_state(s, 3, 2, true);
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 14.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static rn_status reference(const rn_call *call) {
    const rn_adamw_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64, step = call->scalars[a->step].f64;
    if (!(step >= 1)) return rn_fail(RN_INVALID, "adamw: steps count from 1, this one is %g", step);
    if (rn_update_skips(call, GUARD)) {
        rn_update_keep(call, (uint32_t[]){0, 2, 3});
        return RN_OK;
    }
    float keep = (float)(1 - rate * a->weight_decay);
    float beta2 = (float)a->beta2, take1 = (float)(1 - a->beta1), eps = (float)a->eps;
    float take2 = (float)(1 - a->beta2);
    float pace = (float)(rate / (1 - pow(a->beta1, step)));
    float spread = (float)sqrt(1 - pow(a->beta2, step));
    const float *gradient = call->inputs[1].data;
    rn_noise noise = rn_update_noise(call, a->seed, a->step, a->stream);
    uint64_t n = rn_tensor_elements(&call->outputs[0]), count = 0;
    for (uint64_t at = 0; at < n; at += count) {
        float w[PIECE], m[PIECE], v[PIECE];
        uint32_t words[PIECE];
        count = n - at < PIECE ? n - at : PIECE;
        rn_noise_words(&noise, at, count, words);
        rn_update_get(&call->inputs[0], at, count, w);
        rn_update_get(&call->inputs[2], at, count, m);
        rn_update_get(&call->inputs[3], at, count, v);
        for (uint64_t i = 0; i < count; i++) {
            float g = gradient[at + i];
            m[i] = m[i] + take1 * (g - m[i]);
            v[i] = v[i] * beta2 + take2 * (g * g);
            w[i] = w[i] * keep - pace * m[i] / (sqrtf(v[i]) / spread + eps);
        }
        rn_update_put(&call->outputs[0], at, count, w, words, RN_NOISE_WEIGHT);
        rn_update_put(&call->outputs[1], at, count, m, words, RN_NOISE_FIRST);
        rn_update_put(&call->outputs[2], at, count, v, words, RN_NOISE_SECOND);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_adamw_attrs *a = attrs;
    snprintf(out, bytes, "betas %g %g, eps %g, decay %g", a->beta1, a->beta2, a->eps,
             a->weight_decay);
}

extern const rn_op_info rn_adamw_op;
const rn_op_info rn_adamw_op = {
    .name = "adamw",
    .min_inputs = 4,
    .max_inputs = 5,
    .optional_inputs = 1u << GUARD,
    .output_count = 3,
    .half_inputs = 2,
    .attrs_bytes = sizeof(rn_adamw_attrs),
    .traits = RN_TRAIT_UPDATE,
    .alias = {RN_ALIAS_MUST(0), RN_ALIAS_MUST(2), RN_ALIAS_MUST(3)},
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_adamw_guarded(rn_graph *g, rn_value weight, rn_value gradient, rn_value m,
                             rn_value v, rn_value guard, rn_adamw_attrs attrs) {
    return rn_graph_add(g, RN_OP_ADAMW, (rn_value[]){weight, gradient, m, v, guard},
                        guard == RN_NO_VALUE ? 4 : 5, &attrs);
}

rn_value rn_op_adamw(rn_graph *g, rn_value weight, rn_value gradient, rn_value m, rn_value v,
                     rn_adamw_attrs attrs) {
    return rn_op_adamw_guarded(g, weight, gradient, m, v, RN_NO_VALUE, attrs);
}
