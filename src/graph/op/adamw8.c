// adamw8.c — one step of AdamW with states of 8 bits, in place, as bitsandbytes' block-wise kernels
// do it: graph/blocks8.h.
//
// Inputs: weight, gradient, m and v (u8 codes), their scales (f32, one for 256 elements), guard.
// Outputs: the new weight, m, v and scales, which are inputs 0, 2, 3, 4 and 5.
#include "graph/blocks8.h"

#include <stdio.h>

enum { GUARD = 6 };

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_update(s, GUARD));
    RN_TRY(rn_shape_codes(s, 2, 4));
    return rn_shape_codes(s, 3, 5);
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 50.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static rn_status reference(const rn_call *call) {
    static const uint32_t from[] = {0, 2, 3, 4, 5};
    const rn_adamw_attrs *a = call->attrs;
    double step = call->scalars[a->step].f64;
    if (!(step >= 1))
        return rn_fail(RN_INVALID, "adamw8: steps count from 1, this one is %g", step);
    rn_update_keep(call, from);
    if (rn_update_skips(call, GUARD)) return RN_OK;
    rn_step8 s = rn_adamw8_step(a, call->scalars);
    rn_noise noise = rn_update_noise(call, a->seed, a->step, a->stream);
    const rn_tensor *out = call->outputs;
    uint64_t n = rn_tensor_elements(&out[0]);
    for (uint64_t block = 0, at = 0; at < n; block++, at += RN_STATE_BLOCK) {
        uint32_t words[RN_STATE_BLOCK] = {0};
        uint32_t count = n - at < RN_STATE_BLOCK ? (uint32_t)(n - at) : RN_STATE_BLOCK;
        float w[RN_STATE_BLOCK];
        rn_update_get(&out[0], at, count, w);
        rn_adamw8_block(w, (const float *)call->inputs[1].data + at, (uint8_t *)out[1].data + at,
                        (float *)out[3].data + block, (uint8_t *)out[2].data + at,
                        (float *)out[4].data + block, count, &s);
        if (rn_is_bf16(&out[0])) rn_noise_words(&noise, at, count, words);
        rn_update_put(&out[0], at, count, w, words, RN_NOISE_WEIGHT);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_adamw_attrs *a = attrs;
    snprintf(out, bytes, "betas %g %g, eps %g, decay %g", a->beta1, a->beta2, a->eps,
             a->weight_decay);
}

extern const rn_op_info rn_adamw8_op;
const rn_op_info rn_adamw8_op = {
    .name = "adamw8",
    .min_inputs = 6,
    .max_inputs = 7,
    .optional_inputs = 1u << GUARD,
    .output_count = 5,
    .half_inputs = 2,
    .attrs_bytes = sizeof(rn_adamw_attrs),
    .traits = RN_TRAIT_UPDATE,
    .alias = {RN_ALIAS_MUST(0), RN_ALIAS_MUST(2), RN_ALIAS_MUST(3), RN_ALIAS_MUST(4),
              RN_ALIAS_MUST(5)},
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_adamw8(rn_graph *g, rn_value weight, rn_value gradient, const rn_value states[4],
                      rn_value guard, rn_adamw_attrs attrs) {
    rn_value in[] = {weight, gradient, states[0], states[1], states[2], states[3], guard};
    return rn_graph_add(g, RN_OP_ADAMW8, in, guard == RN_NO_VALUE ? 6 : 7, &attrs);
}
