// cohere2.c — Cohere's Command R7B: one layer norm (without a bias) for two parallel branches, a
// tied head with a scale, windows in three of four layers, and no rope in the fourth. One layer:
//
//     x ─ norm ─┬─ attention ──┐
//     │         └─ gate, up ─ down ─ + ─ + ─▶
//     └──────────────────────────────────┘
//
// Pairs of rope are neighbours in both kinds of files.
#include "model/text/decoder.h"

enum { PERIOD = 4 };

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"model.embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"model.norm", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_SHARED_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},
    [RN_TEXT_K] = {"self_attn.k_proj", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_V] = {"self_attn.v_proj", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_GATE] = {"mlp.gate_proj", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.up_proj", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.down_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value normed = rn_build_norm(d, x, RN_TEXT_SHARED_NORM);
    x = rn_op_add(d->g, x, rn_build_attend(d, normed));
    return rn_op_add(d->g, x, rn_build_gated(d, normed));
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    bool newer = rn_fields_find(f, "rope_parameters") != NULL;
    RN_TRY(rn_text_json_activation(f, "hidden_act", "silu", "swish"));
    l->tied = true;
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    l->norm_eps = 1e-5f;
    RN_TRY(rn_fields_number(f, "layer_norm_eps", &l->norm_eps));
    RN_TRY(rn_text_json_rope(f, newer ? "rope_parameters" : "rope_scaling", c));
    l->rope.pairing = RN_ROPE_NEIGHBOURS;
    l->logit_scale = 0.0625f;
    RN_TRY(rn_fields_number(f, "logit_scale", &l->logit_scale));
    l->window = 4096;
    RN_TRY(rn_text_json_windows(f, PERIOD, c));
    l->unturned_period = l->window_period;
    return RN_OK;
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    l->window_period = PERIOD;
    RN_TRY(rn_text_gguf_period(f, c));
    l->unturned_period = l->window_period;
    return rn_fields_need_number(f, "cohere2.logit_scale", &l->logit_scale);
}

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    if (!l->tied) return rn_fail(RN_UNSUPPORTED, "GGUF cannot say a head of its own");
    RN_TRY(rn_pairs_f32(out, "cohere2.logit_scale", l->logit_scale));
    return rn_pairs_u32(out, "cohere2.attention.sliding_window_pattern", l->window_period);
}

static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    rn_text_settings_to_json(c, json);
    rn_text_json_float(json, "logit_scale", l->logit_scale);
    rn_json_u64(json, "sliding_window_pattern", l->window_period);
    rn_text_json_layer_types(l, NULL, json);
}

extern const rn_text_architecture rn_text_cohere2;
const rn_text_architecture rn_text_cohere2 = {
    .name = "cohere2",
    .also = "Command R7B",
    .layers = {"model.layers", "blk", "model.layers"},
    .parts = parts,
    .layernorm = true,
    .no_norm_bias = true,
    .layer = layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .gguf_rope = RN_ROPE_NEIGHBOURS,
    .window = true,
    .model_class = "Cohere2ForCausalLM",
    .json_epsilon = "layer_norm_eps",
    .to_gguf = to_gguf,
    .to_json = to_json,
};
