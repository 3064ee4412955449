// lion8.c — one step of Lion with a momentum of 8 bits, in place, as bitsandbytes' block-wise
// kernel does it: graph/blocks8.h.
//
// Inputs: weight, gradient, m (u8 codes), its scales (f32, one for 256 elements), guard. Outputs:
// the new weight, m and scales, which are inputs 0, 2 and 3.
#include "graph/blocks8.h"

#include <stdio.h>

enum { GUARD = 4 };

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_update(s, GUARD));
    return rn_shape_codes(s, 2, 3);
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 30.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static rn_status reference(const rn_call *call) {
    static const uint32_t from[] = {0, 2, 3};
    const rn_lion_attrs *a = call->attrs;
    rn_update_keep(call, from);
    if (rn_update_skips(call, GUARD)) return RN_OK;
    rn_step8 s = rn_lion8_step(a, call->scalars);
    rn_noise noise = rn_update_noise(call, a->seed, a->step, a->stream);
    const rn_tensor *out = call->outputs;
    uint64_t n = rn_tensor_elements(&out[0]);
    for (uint64_t block = 0, at = 0; at < n; block++, at += RN_STATE_BLOCK) {
        uint32_t words[RN_STATE_BLOCK] = {0};
        uint32_t count = n - at < RN_STATE_BLOCK ? (uint32_t)(n - at) : RN_STATE_BLOCK;
        float w[RN_STATE_BLOCK];
        rn_update_get(&out[0], at, count, w);
        rn_lion8_block(w, (const float *)call->inputs[1].data + at, (uint8_t *)out[1].data + at,
                       (float *)out[2].data + block, count, &s);
        if (rn_is_bf16(&out[0])) rn_noise_words(&noise, at, count, words);
        rn_update_put(&out[0], at, count, w, words, RN_NOISE_WEIGHT);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_lion_attrs *a = attrs;
    snprintf(out, bytes, "betas %g %g, decay %g", a->beta1, a->beta2, a->weight_decay);
}

extern const rn_op_info rn_lion8_op;
const rn_op_info rn_lion8_op = {
    .name = "lion8",
    .min_inputs = 4,
    .max_inputs = 5,
    .optional_inputs = 1u << GUARD,
    .output_count = 3,
    .half_inputs = 2,
    .attrs_bytes = sizeof(rn_lion_attrs),
    .traits = RN_TRAIT_UPDATE,
    .alias = {RN_ALIAS_MUST(0), RN_ALIAS_MUST(2), RN_ALIAS_MUST(3)},
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_lion8(rn_graph *g, rn_value weight, rn_value gradient, const rn_value states[2],
                     rn_value guard, rn_lion_attrs attrs) {
    rn_value in[] = {weight, gradient, states[0], states[1], guard};
    return rn_graph_add(g, RN_OP_LION8, in, guard == RN_NO_VALUE ? 4 : 5, &attrs);
}
