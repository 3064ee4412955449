// recurrent_layer.c — layers that keep a state a sequence: which they are, and their parts.
#include "model/text/decoder.h"

#include <stdio.h>

// ---- parts --------------------------------------------------------------------------------------

bool rn_text_is_recurrent(const rn_llama_config *c, uint32_t layer) {
    return layer < RN_RECURRENT_LAYERS && c->recurrent.layers[layer / 64] >> layer % 64 & 1;
}

bool rn_build_is_recurrent(const rn_text_builder *d) {
    return rn_text_is_recurrent(d->c, d->layer);
}

static rn_value state(rn_text_builder *d, const char *what, rn_shape shape) {
    char name[32];
    snprintf(name, sizeof name, "layers.%u.%s", d->layer, what);
    return rn_graph_state(d->g, name, RN_DTYPE_F32, shape, RN_PURPOSE_STATE);
}

rn_value rn_build_conv(rn_text_builder *d, rn_value x, uint64_t channels) {
    uint64_t taps = d->c->recurrent.taps;
    // As PyTorch's Conv1d holds it, or as GGUF does.
    rn_shape shape =
        d->c->naming == RN_NAMES_GGUF ? RN_SHAPE(channels, taps) : RN_SHAPE(channels, 1, taps);
    rn_value kept = state(d, "conv", RN_SHAPE(d->c->sequences, taps - 1, channels));
    return rn_op_short_conv(d->g, x, rn_build_f32(d, RN_TEXT_CONV, "weight", shape), kept,
                            d->sequence, d->positions);
}

rn_value rn_build_delta(rn_text_builder *d, rn_value qkv, rn_value a, rn_value b, rn_value rate,
                        rn_value bias) {
    const rn_recurrent_config *r = &d->c->recurrent;
    rn_delta_rule_attrs attrs = {
        .key_heads = r->key_heads, .keys_in_turn = r->keys_in_turn, .eps = 1e-6f};
    rn_value kept =
        state(d, "delta", RN_SHAPE(d->c->sequences, r->value_heads, r->key_dim, r->value_dim));
    return rn_op_delta_rule(d->g, qkv, a, b, rate, bias, kept, d->sequence, d->positions, attrs);
}

// ---- settings -----------------------------------------------------------------------------------

rn_status rn_text_add_recurrent(rn_recurrent_config *r, uint32_t layer) {
    if (layer >= RN_RECURRENT_LAYERS)
        return rn_fail(RN_UNSUPPORTED, "more than %d layers, some with states, are not built",
                       RN_RECURRENT_LAYERS);
    r->layers[layer / 64] |= (uint64_t)1 << layer % 64;
    return RN_OK;
}

rn_status rn_text_json_recurrent(const rn_fields *f, const char *type, rn_text_config *c) {
    for (uint32_t i = 0; i < c->llama.layers; i++) {
        rn_str is = {0};
        char field[32];
        snprintf(field, sizeof field, "layer_types.%u", i);
        RN_TRY(rn_fields_need_text(f, field, &is));
        if (rn_str_equal(is, rn_str_from(type)))
            RN_TRY(rn_text_add_recurrent(&c->llama.recurrent, i));
        else if (!rn_str_equal(is, RN_STR("full_attention")))
            return rn_fail(RN_UNSUPPORTED, "%s: layers of '%.*s' are not built", f->source,
                           RN_STR_ARG(is));
    }
    return RN_OK;
}

rn_status rn_text_gguf_recurrent(const rn_fields *f, const char *key, rn_text_config *c) {
    for (uint32_t i = 0; i < c->llama.layers; i++) {
        char field[128];
        snprintf(field, sizeof field, "%s.%u", key, i);
        const rn_field *flag = rn_fields_find(f, field);
        if (!flag || (flag->kind != RN_FIELD_BOOL && flag->kind != RN_FIELD_NUMBER))
            return rn_fail(RN_CORRUPT, "%s: '%s' has no flag for layer %u", f->source, key, i);
        bool is = flag->kind == RN_FIELD_BOOL ? flag->boolean : flag->number != 0;
        if (is) RN_TRY(rn_text_add_recurrent(&c->llama.recurrent, i));
    }
    return RN_OK;
}
