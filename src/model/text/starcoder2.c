// starcoder2.c — StarCoder2: layer norms and products with biases, a feed-forward without a gate,
// and a window in all layers, which GGUF files do not mention. One layer:
//
//     x ─ norm ─ q, k, v ─ rope ─ attention ─ o ─ + ─ norm ─ up ─ gelu ─ down ─ + ─▶
#include "model/text/decoder.h"

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"model.embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"model.norm", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},
    [RN_TEXT_K] = {"self_attn.k_proj", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_V] = {"self_attn.v_proj", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_FFN_NORM] = {"post_attention_layernorm", "ffn_norm", RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.c_fc", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.c_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_attend(d, rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM));
    x = rn_op_add(d->g, x, y);
    y = rn_build_ffn(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_op_add(d->g, x, y);
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    bool newer = rn_fields_find(f, "rope_parameters") != NULL, bias = true;
    l->activation = RN_ACTIVATION_GELU_TANH;
    RN_TRY(rn_text_json_activation(f, "hidden_act", "gelu_pytorch_tanh", "gelu_new"));
    l->tied = true;
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_fields_bool(f, "use_bias", &bias));
    l->qkv_bias = l->output_bias = l->ffn_bias = bias;
    l->norm_eps = 1e-5f;
    RN_TRY(rn_fields_number(f, "norm_epsilon", &l->norm_eps));
    RN_TRY(rn_text_json_rope(f, newer ? "rope_parameters" : "rope_scaling", c));
    return rn_fields_u32(f, "sliding_window", &l->window);
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    (void)f;
    c->llama.activation = RN_ACTIVATION_GELU_TANH;
    return RN_OK;
}

static void to_json(const rn_text_config *c, rn_json *json) {
    rn_text_settings_to_json(c, json);
    rn_json_bool(json, "use_bias", c->llama.qkv_bias);
}

extern const rn_text_architecture rn_text_starcoder2;
const rn_text_architecture rn_text_starcoder2 = {
    .name = "starcoder2",
    .layers = {"model.layers", "blk", "model.layers"},
    .parts = parts,
    .layernorm = true,
    .layer = layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .window = true,
    .model_class = "Starcoder2ForCausalLM",
    .json_epsilon = "norm_epsilon",
    .to_json = to_json,
};
