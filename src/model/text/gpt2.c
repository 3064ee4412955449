// gpt2.c — the GPT-2 family: learned positions, layer norms with biases, q, k and v in one product,
// a feed-forward of two products with gelu (its tanh form) between. One layer:
//
//     x ─ norm ─ qkv ─ slices ─ attention ─ o ─ + ─ norm ─ up ─ gelu ─ down ─ + ─▶
//
// Hugging Face's files hold products' weights as (in, out) ("Conv1D"), GGUF's as (out, in). Files
// of the model without its head ("wte.weight") lack the prefix "transformer.".
#include "model/text/decoder.h"

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"transformer.wte", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_POSITIONS] = {"transformer.wpe", "position_embd", RN_SIZE_POSITIONS, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"transformer.ln_f", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"ln_1", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_QKV] = {"attn.c_attn", "attn_qkv", RN_SIZE_QKV, RN_SIZE_DIM, true},
    [RN_TEXT_O] = {"attn.c_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE, true},
    [RN_TEXT_FFN_NORM] = {"ln_2", "ffn_norm", RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.c_fc", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM, true},
    [RN_TEXT_DOWN] = {"mlp.c_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN, true},
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_attend_qkv(d, rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM));
    x = rn_op_add(d->g, x, y);
    y = rn_build_ffn(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_op_add(d->g, x, y);
}

// ---- settings -----------------------------------------------------------------------------------

// What both kinds of files leave unsaid.
static void fill(rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    l->positions = c->context;
    l->activation = RN_ACTIVATION_GELU_TANH;
    l->qkv_bias = l->output_bias = l->ffn_bias = true;
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    RN_TRY(rn_text_json_activation(f, "activation_function", "gelu_new", "gelu_pytorch_tanh"));
    RN_TRY(rn_text_refuse_flag(f, "scale_attn_weights", true));
    RN_TRY(rn_text_refuse_flag(f, "scale_attn_by_inverse_layer_idx", false));
    RN_TRY(rn_text_refuse_flag(f, "add_cross_attention", false));
    RN_TRY(rn_fields_need_u32(f, "n_layer", &l->layers));
    RN_TRY(rn_fields_need_u32(f, "n_embd", &l->dim));
    RN_TRY(rn_fields_need_u32(f, "n_head", &l->heads));
    RN_TRY(rn_fields_need_u32(f, "vocab_size", &l->vocab));
    RN_TRY(rn_fields_need_u32(f, "n_positions", &c->context));
    if (l->heads == 0 || l->dim > UINT32_MAX / 4 || l->dim % l->heads)
        return rn_fail(RN_CORRUPT, "%s: %u wide cannot be %u heads", f->source, l->dim, l->heads);
    l->kv_heads = l->heads;
    l->head_dim = l->dim / l->heads;
    l->ffn = 4 * l->dim;
    fill(c);
    RN_TRY(rn_fields_u32(f, "n_inner", &l->ffn));
    l->norm_eps = 1e-5f;
    l->tied = true;
    RN_TRY(rn_fields_bool(f, "tie_word_embeddings", &l->tied));
    return rn_fields_number(f, "layer_norm_epsilon", &l->norm_eps);
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    const rn_llama_config *l = &c->llama;
    fill(c);
    if (l->kv_heads == l->heads && l->heads * l->head_dim == l->dim) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: a gpt2 of %u kv heads and %u heads of %u is not built",
                   f->source, l->kv_heads, l->heads, l->head_dim);
}

static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    rn_json_u64(json, "n_layer", l->layers);
    rn_json_u64(json, "n_embd", l->dim);
    rn_json_u64(json, "n_head", l->heads);
    rn_json_u64(json, "n_inner", l->ffn);
    rn_json_u64(json, "n_positions", c->context);
    rn_json_u64(json, "vocab_size", l->vocab);
    rn_text_json_float(json, "layer_norm_epsilon", l->norm_eps);
    rn_json_string(json, "activation_function", "gelu_new");
    rn_json_bool(json, "tie_word_embeddings", l->tied);
}

extern const rn_text_architecture rn_text_gpt2;
const rn_text_architecture rn_text_gpt2 = {
    .name = "gpt2",
    .layers = {"transformer.h", "blk", "h"},
    .outer = "transformer.",
    .parts = parts,
    .layernorm = true,
    .layer = layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .model_class = "GPT2LMHeadModel",
    .to_json = to_json,
};
