// olmo2.c — OLMo 2 and 3: a Llama whose branches are normed behind, not before, with norms of all
// heads of q, and of k, as one. OLMo 3 has windows in three of four layers, and those are turned
// without a scaling of rope. One layer:
//
//     x ─ attention ─ norm ─ + ─ gate, up ─ down ─ norm ─ + ─▶
//
// GGUF files of both are "olmo2"; a window tells OLMo 3.
#include "model/text/decoder.h"

enum { PERIOD = 4 };

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"model.embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"model.norm", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},
    [RN_TEXT_K] = {"self_attn.k_proj", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_V] = {"self_attn.v_proj", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_Q_NORM] = {"self_attn.q_norm", "attn_q_norm", RN_SIZE_WIDE},
    [RN_TEXT_K_NORM] = {"self_attn.k_norm", "attn_k_norm", RN_SIZE_NARROW},
    [RN_TEXT_POST_ATTENTION_NORM] = {"post_attention_layernorm", "post_attention_norm",
                                     RN_SIZE_DIM},
    [RN_TEXT_GATE] = {"mlp.gate_proj", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.up_proj", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.down_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
    [RN_TEXT_POST_FFN_NORM] = {"post_feedforward_layernorm", "post_ffw_norm", RN_SIZE_DIM},
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_attend(d, x);
    x = rn_op_add(d->g, x, rn_build_norm(d, y, RN_TEXT_POST_ATTENTION_NORM));
    y = rn_build_gated(d, x);
    return rn_op_add(d->g, x, rn_build_norm(d, y, RN_TEXT_POST_FFN_NORM));
}

// OLMo 2 is read as a Llama.
static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    if (!c->llama.architecture->window) return rn_text_llama_json(f, c);
    RN_TRY(rn_text_json_activation(f, "hidden_act", "silu", "swish"));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_text_json_ropes(f, c));
    return rn_text_json_windows(f, PERIOD, c);
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    if (l->window == 0) return RN_OK;
    l->window_period = PERIOD;
    l->local_rope = (rn_rope_attrs){.pairing = l->rope.pairing, .base = l->rope.base};
    RN_TRY(rn_fields_number(f, "olmo2.rope.freq_base_swa", &l->local_rope.base));
    return rn_text_gguf_period(f, c);
}

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    if (l->tied) return rn_fail(RN_UNSUPPORTED, "GGUF cannot say that OLMo's head is tied");
    if (l->window == 0) return RN_OK;
    if (l->local_rope.base != l->rope.base)
        RN_TRY(rn_pairs_f32(out, "olmo2.rope.freq_base_swa", l->local_rope.base));
    return rn_pairs_u32(out, "olmo2.attention.sliding_window_pattern", l->window_period);
}

// OLMo 3: for transformers 4, and the ropes of both kinds of layers for 5.
static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    rn_text_settings_to_json(c, json);
    if (!l->architecture->window) return;
    rn_text_json_layer_types(l, NULL, json);
    rn_text_json_ropes_object(l, json);
}

#define FAMILY                                                                                     \
    .name = "olmo2", .layers = {"model.layers", "blk", "model.layers"}, .parts = parts,            \
    .layer = layer, .from_json = from_json, .from_gguf = from_gguf, .qk_norm = true,               \
    .to_gguf = to_gguf, .to_json = to_json

extern const rn_text_architecture rn_text_olmo2;
const rn_text_architecture rn_text_olmo2 = {FAMILY, .model_class = "Olmo2ForCausalLM"};
extern const rn_text_architecture rn_text_olmo3;
const rn_text_architecture rn_text_olmo3 = {FAMILY, .model_type = "olmo3", .window = true,
                                            .model_class = "Olmo3ForCausalLM",
                                            .gguf_name = "olmo2"};
