// modernbert.c — ModernBERT: an encoder with norms before what they norm (the first layer's
// attention has none: embeddings are normed already), rope, a gated feed-forward in one product, no
// biases, and windows on both sides in two of three layers. One layer:
//
//     x ─ norm ─ qkv ─ slices ─ rope ─ attention ─ o ─ + ─ norm ─ wi ─ gelu(a) * b ─ wo ─ + ─▶
//     └────────────────────────────────────────────────┘└─────────────────────────────────┘
#include "model/text/decoder.h"

#include <stdio.h>

enum { PERIOD = 3, WINDOW = 128 };

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"model.embeddings.tok_embeddings", "token_embd", RN_SIZE_VOCAB,
                           RN_SIZE_DIM},
    [RN_TEXT_EMBEDDING_NORM] = {"model.embeddings.norm", "token_embd_norm", RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"model.final_norm", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"attn_norm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_QKV] = {"attn.Wqkv", "attn_qkv", RN_SIZE_QKV, RN_SIZE_DIM},
    [RN_TEXT_O] = {"attn.Wo", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_FFN_NORM] = {"mlp_norm", "ffn_norm", RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.Wi", "ffn_up", RN_SIZE_TWO_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.Wo", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    uint64_t ffn = d->c->ffn;
    rn_value y = d->layer ? rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM) : x;
    x = rn_op_add(d->g, x, rn_build_attend_qkv(d, y));
    y = rn_build_norm(d, x, RN_TEXT_FFN_NORM);
    y = rn_build_project(d, y, RN_TEXT_UP, d->c->ffn_bias);
    rn_value gate = rn_op_slice(d->g, y, 1, 0, ffn), up = rn_op_slice(d->g, y, 1, ffn, ffn);
    y = rn_op_gated(d->g, gate, up, d->c->activation);
    return rn_op_add(d->g, x, rn_build_project(d, y, RN_TEXT_DOWN, d->c->ffn_bias));
}

// ---- settings -----------------------------------------------------------------------------------

// Files say how many tokens the whole window has, to both sides of a row.
static void fill(rn_llama_config *l, uint32_t whole) {
    l->both_ways = l->tied = true;
    l->window = whole / 2 + 1;
    l->window_behind = true;
}

// "full_attention", "sliding_attention", ...: the second that sees all gives the period.
static rn_status read_layer_types(const rn_fields *f, rn_llama_config *l) {
    l->window_period = l->layers;
    for (uint32_t i = 0; i < l->layers; i++) {
        char field[32];
        rn_str type = {0};
        snprintf(field, sizeof field, "layer_types.%u", i);
        RN_TRY(rn_fields_need_text(f, field, &type));
        bool all = rn_str_equal(type, RN_STR("full_attention"));
        if (all && i && l->window_period == l->layers) l->window_period = i;
        if (all != (i % l->window_period == 0))
            return rn_fail(RN_UNSUPPORTED, "%s: layer %u of '%.*s' where one in %u sees all",
                           f->source, i, RN_STR_ARG(type), l->window_period);
    }
    return RN_OK;
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    uint32_t whole = WINDOW;
    l->activation = RN_ACTIVATION_GELU;
    RN_TRY(rn_text_json_act(f, "hidden_activation", c));
    RN_TRY(rn_text_refuse_flag(f, "norm_bias", false));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_fields_number(f, "norm_eps", &l->norm_eps));
    RN_TRY(rn_text_json_ropes(f, c));
    if (!rn_fields_find(f, "rope_parameters")) { // before transformers 5
        l->rope.base = 160000;
        l->local_rope.base = 10000;
        RN_TRY(rn_fields_number(f, "global_rope_theta", &l->rope.base));
        RN_TRY(rn_fields_number(f, "local_rope_theta", &l->local_rope.base));
    }
    RN_TRY(rn_fields_u32(f, "local_attention", &whole));
    fill(l, whole);
    l->window_period = PERIOD;
    RN_TRY(rn_fields_u32(f, "global_attn_every_n_layers", &l->window_period));
    return rn_fields_find(f, "layer_types") ? read_layer_types(f, l) : RN_OK;
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    rn_str act = {0};
    l->local_rope = (rn_rope_attrs){.pairing = l->rope.pairing, .base = 10000};
    RN_TRY(rn_fields_number(f, "modern-bert.rope.freq_base_swa", &l->local_rope.base));
    RN_TRY(rn_fields_text(f, "modern-bert.hidden_activation", &act));
    l->activation = rn_str_equal(act, RN_STR("silu")) ? RN_ACTIVATION_SILU : RN_ACTIVATION_GELU;
    l->window_period = PERIOD;
    RN_TRY(rn_fields_u32(f, "modern-bert.attention.sliding_window_pattern", &l->window_period));
    bool windows = l->window > 0;
    fill(l, l->window);
    if (!windows) l->window = 0;
    return RN_OK;
}

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    bool silu = l->activation == RN_ACTIVATION_SILU;
    if (!silu && l->activation != RN_ACTIVATION_GELU)
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say this hidden_activation");
    RN_TRY(
        rn_pairs_text(out, "modern-bert.hidden_activation", rn_str_from(silu ? "silu" : "gelu")));
    RN_TRY(rn_pairs_f32(out, "modern-bert.rope.freq_base_swa", l->local_rope.base));
    return rn_pairs_u32(out, "modern-bert.attention.sliding_window_pattern", l->window_period);
}

// For transformers 4, and for 5.
static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    rn_text_settings_to_json(c, json);
    rn_json_u64(json, "local_attention", l->window ? 2 * (l->window - 1) : c->context);
    rn_json_u64(json, "global_attn_every_n_layers", l->window_period);
    rn_text_json_float(json, "global_rope_theta", l->rope.base);
    rn_text_json_float(json, "local_rope_theta", l->local_rope.base);
    rn_text_json_layer_types(l, NULL, json);
    rn_text_json_ropes_object(l, json);
}

extern const rn_text_architecture rn_text_modernbert;
const rn_text_architecture rn_text_modernbert = {
    .name = "modern-bert",
    .model_type = "modernbert",
    .layers = {"model.layers", "blk", "layers"},
    .outer = "model.",
    .parts = parts,
    .layernorm = true,
    .no_norm_bias = true,
    .layer = layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .model_class = "ModernBertModel",
    .json_epsilon = "norm_eps",
    .json_activation = "hidden_activation",
    .to_gguf = to_gguf,
    .to_json = to_json,
};
