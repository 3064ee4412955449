// update.c — see op/update.h.
#include "graph/op/update.h"

rn_status rn_shape_update(rn_shaping *s, uint32_t guard) {
    if (s->in[0].dtype != RN_DTYPE_F32 && s->in[0].dtype != RN_DTYPE_BF16)
        return rn_shape_fail(s, "a weight that is trained is f32 or bf16");
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_F32));
    if (!rn_shape_equal(s->in[1].shape, s->in[0].shape))
        return rn_shape_fail(s, "input 1 must have the shape of the first");
    s->out[0].shape = s->in[0].shape;
    s->out[0].dtype = s->in[0].dtype;
    if (guard >= s->input_count || s->in[guard].dtype == RN_DTYPE_NONE) return RN_OK;
    RN_TRY(rn_shape_want(s, guard, RN_DTYPE_F32));
    if (rn_shape_elements(s->in[guard].shape, UINT64_MAX) != 1)
        return rn_shape_fail(s, "a guard is one number");
    return RN_OK;
}

rn_status rn_shape_update_state(rn_shaping *s, uint32_t input, uint32_t output, bool half) {
    if (!half || s->in[input].dtype != RN_DTYPE_BF16) RN_TRY(rn_shape_want(s, input, RN_DTYPE_F32));
    if (!rn_shape_equal(s->in[input].shape, s->in[0].shape))
        return rn_shape_fail(s, "input %u must have the shape of the first", input);
    s->out[output].shape = s->in[input].shape;
    s->out[output].dtype = s->in[input].dtype;
    return RN_OK;
}

bool rn_update_skips(const rn_call *call, uint32_t input) {
    if (input >= call->input_count || !rn_tensor_given(&call->inputs[input])) return false;
    return !isfinite(*(const float *)call->inputs[input].data);
}

void rn_update_keep(const rn_call *call, const uint32_t *from) {
    for (uint32_t i = 0; i < call->output_count; i++) {
        const rn_tensor *in = &call->inputs[from[i]], *out = &call->outputs[i];
        if (rn_tensor_given(in) && out->data && out->data != in->data)
            memcpy(out->data, in->data, rn_tensor_bytes(in));
    }
}

void rn_update_get(const rn_tensor *tensor, uint64_t first, uint64_t count, float *out) {
    if (!rn_is_bf16(tensor)) {
        memcpy(out, (const float *)tensor->data + first, count * sizeof *out);
        return;
    }
    const uint16_t *from = (const uint16_t *)tensor->data + first;
    for (uint64_t i = 0; i < count; i++)
        out[i] = rn_bf16_to_f32(from[i]);
}

void rn_update_put(const rn_tensor *tensor, uint64_t first, uint64_t count, const float *values,
                   const uint32_t *words, int which) {
    if (!rn_is_bf16(tensor)) {
        memcpy((float *)tensor->data + first, values, count * sizeof *values);
        return;
    }
    uint16_t *to = (uint16_t *)tensor->data + first;
    for (uint64_t i = 0; i < count; i++)
        to[i] = rn_bf16_stochastic(values[i], rn_noise_bits(words[i], which));
}

static double whole(const rn_call *call, uint32_t scalar) {
    double value = call->scalars[scalar].f64;
    return value >= 0 && value < 0x1p53 ? value : 0;
}

rn_noise rn_update_noise(const rn_call *call, uint32_t seed, uint32_t step, uint32_t stream) {
    return (rn_noise){.seed = (uint64_t)whole(call, seed),
                      .step = (uint32_t)(uint64_t)whole(call, step),
                      .stream = stream};
}
