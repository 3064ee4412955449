// phi3.c — Phi-3 and Phi-4: a Llama whose q, k and v are one product, and whose gate and up are
// another; with LongRoPE where the context is long, and a rope of a part of each head in
// Phi-4-mini. One layer:
//
//     x ─ norm ─ qkv ─ slices ─ rope ─ attention ─ o ─ + ─ norm ─ gate up ─ slices ─ down ─ + ─▶
//
// GGUF files of Phi-4 say a window of 0.
#include "model/text/decoder.h"

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"model.embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"model.norm", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_QKV] = {"self_attn.qkv_proj", "attn_qkv", RN_SIZE_QKV, RN_SIZE_DIM},
    [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_FFN_NORM] = {"post_attention_layernorm", "ffn_norm", RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.gate_up_proj", "ffn_up", RN_SIZE_TWO_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.down_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
};

static rn_value feed_forward(rn_text_builder *d, rn_value x) {
    uint64_t ffn = rn_build_size(d, RN_SIZE_FFN);
    rn_value both = rn_build_project(d, x, RN_TEXT_UP, false);
    rn_value gate = rn_op_slice(d->g, both, 1, 0, ffn);
    rn_value up = rn_op_slice(d->g, both, 1, ffn, ffn);
    return rn_build_project(d, rn_op_gated(d->g, gate, up, d->c->activation), RN_TEXT_DOWN, false);
}

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_attend_qkv(d, rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM));
    x = rn_op_add(d->g, x, y);
    y = feed_forward(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_op_add(d->g, x, y);
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    bool newer = rn_fields_find(f, "rope_parameters") != NULL;
    RN_TRY(rn_text_json_activation(f, "hidden_act", "silu", "swish"));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_text_json_rope(f, newer ? "rope_parameters" : "rope_scaling", c));
    return rn_fields_u32(f, "sliding_window", &c->llama.window);
}

// The tables of LongRoPE are tensors. A window of 0 says that there is none.
static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    if (l->window == 0) RN_TRY(rn_pairs_u32(out, "phi3.attention.sliding_window", 0));
    if (c->long_from == 0) return RN_OK;
    RN_TRY(rn_pairs_u32(out, "phi3.rope.scaling.original_context_length", c->long_from));
    if (l->rope.attention_factor == 0) return RN_OK;
    return rn_pairs_f32(out, "phi3.rope.scaling.attn_factor", l->rope.attention_factor);
}

extern const rn_text_architecture rn_text_phi3;
const rn_text_architecture rn_text_phi3 = {
    .name = "phi3",
    .also = "Phi-4",
    .layers = {"model.layers", "blk", "model.layers"},
    .parts = parts,
    .layer = layer,
    .from_json = from_json,
    .partial_rope = true,
    .long_rope = true,
    .window = true,
    .model_class = "Phi3ForCausalLM",
    .to_gguf = to_gguf,
};
