// lfm2.c — Liquid's LFM2: layers of two kinds, most of them a gated short convolution in the place
// of attention. One layer:
//
//     x ─ norm ─ [b | c | v] ─ conv (b v) ─ times c ─ out ─ + ─ norm ─ gate, up ─ down ─ + ─▶
//     x ─ norm ─ attention (q and k normed) ─────────────── + ─ norm ─ gate, up ─ down ─ + ─▶
//
// A layer of the first kind keeps the last two rows of b v as its state and no keys. GGUF calls the
// norm before the head that of the embedding.
#include "model/text/decoder.h"

#include "base/checked.h"

#include <stdio.h>

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"model.embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"model.embedding_norm", "token_embd_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"operator_norm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},
    [RN_TEXT_K] = {"self_attn.k_proj", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_V] = {"self_attn.v_proj", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_O] = {"self_attn.out_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_Q_NORM] = {"self_attn.q_layernorm", "attn_q_norm", RN_SIZE_HEAD_DIM},
    [RN_TEXT_K_NORM] = {"self_attn.k_layernorm", "attn_k_norm", RN_SIZE_HEAD_DIM},
    [RN_TEXT_MIX_IN] = {"conv.in_proj", "shortconv.in_proj", RN_SIZE_THREE_DIM, RN_SIZE_DIM},
    [RN_TEXT_CONV] = {"conv.conv", "shortconv.conv"},
    [RN_TEXT_MIX_OUT] = {"conv.out_proj", "shortconv.out_proj", RN_SIZE_DIM, RN_SIZE_DIM},
    [RN_TEXT_FFN_NORM] = {"ffn_norm", "ffn_norm", RN_SIZE_DIM},
    [RN_TEXT_GATE] = {"feed_forward.w1", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_UP] = {"feed_forward.w3", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"feed_forward.w2", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
};

static rn_value convolve(rn_text_builder *d, rn_value x) {
    rn_graph *g = d->g;
    uint64_t dim = d->c->dim;
    rn_value mixed = rn_build_project(d, x, RN_TEXT_MIX_IN, false);
    rn_value b = rn_op_slice(g, mixed, 1, 0, dim), c = rn_op_slice(g, mixed, 1, dim, dim);
    rn_value v = rn_op_slice(g, mixed, 1, 2 * dim, dim);
    rn_value y = rn_build_conv(d, rn_op_mul(g, b, v), dim);
    return rn_build_project(d, rn_op_mul(g, c, y), RN_TEXT_MIX_OUT, false);
}

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM);
    y = rn_build_is_recurrent(d) ? convolve(d, y) : rn_build_attend(d, y);
    x = rn_op_add(d->g, x, y);
    y = rn_build_gated(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_op_add(d->g, x, y);
}

// ---- settings -----------------------------------------------------------------------------------

static rn_status check_taps(const rn_fields *f, const rn_llama_config *l) {
    if (l->recurrent.taps >= 2 && l->recurrent.taps <= 64) return RN_OK;
    return rn_fail(RN_CORRUPT, "%s: convolutions of %u rows", f->source, l->recurrent.taps);
}

// config.json says a width from which that of the feed-forward is found.
static rn_status read_ffn(const rn_fields *f, rn_llama_config *l) {
    bool adjust = true;
    float factor = 1;
    uint32_t multiple = 256;
    RN_TRY(rn_fields_u32(f, "block_ff_dim", &l->ffn));
    RN_TRY(rn_fields_bool(f, "block_auto_adjust_ff_dim", &adjust));
    RN_TRY(rn_fields_number(f, "block_ffn_dim_multiplier", &factor));
    RN_TRY(rn_fields_u32(f, "block_multiple_of", &multiple));
    if (!adjust) return RN_OK;
    double wide = (double)factor * (double)(2 * (uint64_t)l->ffn / 3);
    if (!(wide >= 1 && wide < 1 << 24) || multiple == 0 || multiple > 1 << 24)
        return rn_fail(RN_CORRUPT, "%s: a feed-forward of %g in multiples of %u", f->source, wide,
                       multiple);
    l->ffn = (uint32_t)rn_round_up((uint64_t)wide, multiple);
    return RN_OK;
}

// Older files list the layers that attend.
static rn_status read_layers(const rn_fields *f, rn_text_config *c) {
    rn_recurrent_config *r = &c->llama.recurrent;
    const rn_field *list = rn_fields_find(f, "full_attn_idxs");
    if (rn_fields_find(f, "layer_types") || !list) return rn_text_json_recurrent(f, "conv", c);
    for (uint32_t i = 0; i < c->llama.layers; i++)
        RN_TRY(rn_text_add_recurrent(r, i));
    for (uint32_t i = 0; i < list->count; i++) {
        char field[40];
        uint32_t at = 0;
        snprintf(field, sizeof field, "full_attn_idxs.%u", i);
        RN_TRY(rn_fields_need_u32(f, field, &at));
        if (at >= c->llama.layers)
            return rn_fail(RN_CORRUPT, "%s: '%s' cannot be %u", f->source, field, at);
        r->layers[at / 64] &= ~((uint64_t)1 << at % 64);
    }
    return RN_OK;
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    bool newer = rn_fields_find(f, "rope_parameters") != NULL;
    l->tied = true;
    RN_TRY(rn_text_refuse_flag(f, "conv_bias", false));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_fields_bool(f, "tie_embedding", &l->tied));
    RN_TRY(rn_text_json_rope(f, newer ? "rope_parameters" : "rope_scaling", c));
    if (!rn_fields_find(f, "rope_theta") && !rn_fields_find(f, "rope_parameters.rope_theta"))
        l->rope.base = 1e6f;
    l->norm_eps = 1e-5f;
    RN_TRY(rn_fields_number(f, "norm_eps", &l->norm_eps));
    l->recurrent.taps = 3;
    RN_TRY(rn_fields_u32(f, "conv_L_cache", &l->recurrent.taps));
    RN_TRY(check_taps(f, l));
    RN_TRY(read_ffn(f, l));
    return read_layers(f, c);
}

// Layers without kv heads are the convolutions.
static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    RN_TRY(rn_fields_need_u32(f, "lfm2.shortconv.l_cache", &l->recurrent.taps));
    RN_TRY(check_taps(f, l));
    for (uint32_t i = 0; i < l->layers && i <= RN_RECURRENT_LAYERS; i++) {
        char field[64];
        uint32_t heads = l->kv_heads;
        snprintf(field, sizeof field, "lfm2.attention.head_count_kv.%u", i);
        RN_TRY(rn_fields_u32(f, field, &heads));
        if (heads == 0) RN_TRY(rn_text_add_recurrent(&l->recurrent, i));
    }
    return RN_OK;
}

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    return rn_pairs_u32(out, "lfm2.shortconv.l_cache", c->llama.recurrent.taps);
}

static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    rn_text_settings_to_json(c, json);
    rn_json_u64(json, "block_ff_dim", l->ffn);
    rn_json_bool(json, "block_auto_adjust_ff_dim", false);
    rn_json_u64(json, "conv_L_cache", l->recurrent.taps);
    rn_json_bool(json, "conv_bias", false);
    rn_json_bool(json, "tie_embedding", l->tied);
    rn_text_json_layer_types(l, "conv", json);
}

extern const rn_text_architecture rn_text_lfm2;
const rn_text_architecture rn_text_lfm2 = {
    .name = "lfm2",
    .layers = {"model.layers", "blk", "model.layers"},
    .parts = parts,
    .layer = layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .qk_norm = true,
    .model_class = "Lfm2ForCausalLM",
    .json_epsilon = "norm_eps",
    .kv_heads_by_layer = true,
    .to_gguf = to_gguf,
    .to_json = to_json,
};
