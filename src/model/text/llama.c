// llama.c — the Llama decoder and its relatives: Mistral (a window), Qwen2 (biases of q, k and v),
// Qwen3 (norms of q and k). One layer:
//
//     x ─ norm ─ q, k, v ─ [norm q, k] ─ rope ─ attention ─ o ─ + ─ norm ─ gate, up ─ down ─ + ─▶
//     └────────────────────────────────────────────────────────┘└──────────────────────────┘
//
// For devices with fused ops the planner rewrites it (graph/fuse.h); a layer is then five nodes:
//
//     x ─ three ─ [norm q, k] ─ attend ─ project (+ x) ─ gated ─ project (+) ─▶
#include "model/text/decoder.h"

#include <stdio.h>

const rn_text_part rn_text_llama_parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"model.embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"model.norm", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},
    [RN_TEXT_K] = {"self_attn.k_proj", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_V] = {"self_attn.v_proj", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_Q_NORM] = {"self_attn.q_norm", "attn_q_norm", RN_SIZE_HEAD_DIM},
    [RN_TEXT_K_NORM] = {"self_attn.k_norm", "attn_k_norm", RN_SIZE_HEAD_DIM},
    [RN_TEXT_FFN_NORM] = {"post_attention_layernorm", "ffn_norm", RN_SIZE_DIM},
    [RN_TEXT_GATE] = {"mlp.gate_proj", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.up_proj", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.down_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
};

rn_value rn_text_llama_layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_attend(d, rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM));
    x = rn_build_add(d, x, y);
    y = rn_build_gated(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_build_add(d, x, y);
}

// ---- config.json --------------------------------------------------------------------------------

// "full_attention" ... then "sliding_attention" ...: the first that slides.
static rn_status read_layer_types(const rn_fields *f, rn_text_config *c) {
    uint32_t first = c->llama.layers;
    for (uint32_t i = 0; i < c->llama.layers; i++) {
        char field[32];
        rn_str type = {0};
        snprintf(field, sizeof field, "layer_types.%u", i);
        RN_TRY(rn_fields_need_text(f, field, &type));
        bool slides = rn_str_equal(type, RN_STR("sliding_attention"));
        if (!slides && !rn_str_equal(type, RN_STR("full_attention")))
            return rn_fail(RN_UNSUPPORTED, "%s: layers of '%.*s' are not built", f->source,
                           RN_STR_ARG(type));
        if (slides && first == c->llama.layers) first = i;
        if (!slides && i > first)
            return rn_fail(RN_UNSUPPORTED,
                           "%s: layer %u attends to all after one that slides, which is not built",
                           f->source, i);
    }
    c->llama.window_from = first;
    return RN_OK;
}

static rn_status read_window(const rn_fields *f, rn_text_config *c) {
    const rn_text_architecture *a = c->llama.architecture;
    bool on = a->window && !a->window_switch;
    if (a->window_switch) RN_TRY(rn_fields_bool(f, "use_sliding_window", &on));
    if (!on) return RN_OK;
    RN_TRY(rn_fields_u32(f, "sliding_window", &c->llama.window));
    if (c->llama.window == 0) return RN_OK;
    if (rn_fields_find(f, "layer_types")) return read_layer_types(f, c);
    return a->window_switch ? rn_fields_u32(f, "max_window_layers", &c->llama.window_from) : RN_OK;
}

rn_status rn_text_llama_json(const rn_fields *f, rn_text_config *c) {
    bool newer = rn_fields_find(f, "rope_parameters") != NULL;
    RN_TRY(rn_text_json_activation(f, "hidden_act", "silu", "swish"));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_text_json_rope(f, newer ? "rope_parameters" : "rope_scaling", c));
    return read_window(f, c);
}

// ---- the rows -----------------------------------------------------------------------------------

#define FAMILY                                                                                     \
    .layers = {"model.layers", "blk", "layers"}, .outer = "model.", .parts = rn_text_llama_parts,  \
    .layer = rn_text_llama_layer, .from_json = rn_text_llama_json

extern const rn_text_architecture rn_text_llama;
const rn_text_architecture rn_text_llama = {FAMILY, .name = "llama", .also = "TinyLlama, SmolLM",
                                            .gguf_rope = RN_ROPE_NEIGHBOURS,
                                            .model_class = "LlamaForCausalLM"};
extern const rn_text_architecture rn_text_mistral;
const rn_text_architecture rn_text_mistral = {FAMILY,
                                              .name = "mistral",
                                              .window = true,
                                              .gguf_rope = RN_ROPE_NEIGHBOURS,
                                              .model_class = "MistralForCausalLM",
                                              .gguf_name = "llama"};
extern const rn_text_architecture rn_text_qwen2;
const rn_text_architecture rn_text_qwen2 = {FAMILY,
                                            .name = "qwen2",
                                            .also = "Qwen 2.5",
                                            .qkv_bias = true,
                                            .window = true,
                                            .window_switch = true,
                                            .model_class = "Qwen2ForCausalLM"};
extern const rn_text_architecture rn_text_qwen3;
const rn_text_architecture rn_text_qwen3 = {
    FAMILY,         .name = "qwen3",       .qk_norm = true,
    .window = true, .window_switch = true, .model_class = "Qwen3ForCausalLM"};
