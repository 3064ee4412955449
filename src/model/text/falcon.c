// falcon.c — Falcon: parallel branches of one layer norm (7B, 11B) or one each (40B), few heads of
// k and v, q, k and v in one product, a feed-forward without a gate. One layer:
//
//     x ─ norm ─┬─ qkv ─ slices ─ rope ─ attention ─ o ─┐
//     │         └─ up ─ gelu ─ down ─────────────────── + ─ + ─▶
//     └─────────────────────────────────────────────────────┘
//
// Rows of qkv are grouped by heads of k in Hugging Face's files, all of q, of k, of v in GGUF's,
// where "attn_norm" is the feed-forward's once there are two.
#include "model/text/decoder.h"

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"transformer.word_embeddings", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"transformer.ln_f", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_SHARED_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"ln_attn", "attn_norm_2", RN_SIZE_DIM},
    [RN_TEXT_FFN_NORM] = {"ln_mlp", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_QKV] = {"self_attention.query_key_value", "attn_qkv", RN_SIZE_QKV, RN_SIZE_DIM},
    [RN_TEXT_O] = {"self_attention.dense", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_UP] = {"mlp.dense_h_to_4h", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.dense_4h_to_h", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    bool two = d->c->two_norms;
    rn_value normed = rn_build_norm(d, x, two ? RN_TEXT_ATTENTION_NORM : RN_TEXT_SHARED_NORM);
    rn_value sum = rn_op_add(d->g, x, rn_build_attend_qkv(d, normed));
    if (two) normed = rn_build_norm(d, x, RN_TEXT_FFN_NORM);
    return rn_op_add(d->g, sum, rn_build_ffn(d, normed));
}

// ---- settings -----------------------------------------------------------------------------------

static rn_status read_sizes(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    bool newer = false, few = true;
    RN_TRY(rn_fields_need_u32(f, "num_hidden_layers", &l->layers));
    RN_TRY(rn_fields_need_u32(f, "hidden_size", &l->dim));
    RN_TRY(rn_fields_need_u32(f, "num_attention_heads", &l->heads));
    RN_TRY(rn_fields_need_u32(f, "vocab_size", &l->vocab));
    if (l->heads == 0 || l->dim > UINT32_MAX / 4 || l->dim % l->heads)
        return rn_fail(RN_CORRUPT, "%s: %u wide cannot be %u heads", f->source, l->dim, l->heads);
    l->head_dim = l->dim / l->heads;
    l->ffn = 4 * l->dim;
    RN_TRY(rn_fields_u32(f, "ffn_hidden_size", &l->ffn));
    RN_TRY(rn_fields_bool(f, "new_decoder_architecture", &newer));
    RN_TRY(rn_fields_bool(f, "multi_query", &few));
    l->kv_heads = !newer && few ? 1 : l->heads;
    if (newer) RN_TRY(rn_fields_u32(f, "num_kv_heads", &l->kv_heads));
    uint32_t norms = newer ? 2 : 1;
    RN_TRY(rn_fields_u32(f, "num_ln_in_parallel_attn", &norms));
    l->two_norms = newer && norms == 2;
    c->context = 2048;
    return rn_fields_u32(f, "max_position_embeddings", &c->context);
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    bool newer = false, rope = rn_fields_find(f, "rope_parameters") != NULL, bias = false;
    RN_TRY(rn_fields_bool(f, "new_decoder_architecture", &newer));
    RN_TRY(rn_text_refuse_flag(f, "alibi", false));
    if (!newer) RN_TRY(rn_text_refuse_flag(f, "parallel_attn", true));
    RN_TRY(read_sizes(f, c));
    l->activation = RN_ACTIVATION_GELU;
    RN_TRY(rn_text_json_act(f, "activation", c));
    RN_TRY(rn_fields_bool(f, "bias", &bias));
    l->qkv_bias = l->output_bias = l->ffn_bias = bias;
    l->norm_eps = 1e-5f;
    RN_TRY(rn_fields_number(f, "layer_norm_epsilon", &l->norm_eps));
    l->tied = true;
    RN_TRY(rn_fields_bool(f, "tie_word_embeddings", &l->tied));
    return rn_text_json_rope(f, rope ? "rope_parameters" : "rope_scaling", c);
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    (void)f;
    c->llama.activation = RN_ACTIVATION_GELU;
    return RN_OK;
}

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    if (c->llama.activation != RN_ACTIVATION_GELU)
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say this activation");
    return rn_pairs_text(out, "falcon.tensor_data_layout", RN_STR("jploski"));
}

// The older form has one head of k and v or as many as of q, and one norm.
static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    bool newer = l->two_norms || (l->kv_heads != 1 && l->kv_heads != l->heads);
    rn_json_u64(json, "num_hidden_layers", l->layers);
    rn_json_u64(json, "hidden_size", l->dim);
    rn_json_u64(json, "num_attention_heads", l->heads);
    rn_json_u64(json, "ffn_hidden_size", l->ffn);
    rn_json_u64(json, "vocab_size", l->vocab);
    rn_json_u64(json, "max_position_embeddings", c->context);
    rn_text_json_float(json, "layer_norm_epsilon", l->norm_eps);
    rn_json_string(json, "activation", "gelu");
    rn_json_bool(json, "tie_word_embeddings", l->tied);
    rn_text_rope_to_json(c, json);
    rn_json_bool(json, "new_decoder_architecture", newer);
    rn_json_bool(json, "multi_query", l->kv_heads == 1);
    rn_json_bool(json, "parallel_attn", true);
    rn_json_bool(json, "alibi", false);
    rn_json_bool(json, "bias", l->qkv_bias);
    if (!newer) return;
    rn_json_u64(json, "num_kv_heads", l->kv_heads);
    rn_json_u64(json, "num_ln_in_parallel_attn", l->two_norms ? 2 : 1);
}

extern const rn_text_architecture rn_text_falcon;
const rn_text_architecture rn_text_falcon = {
    .name = "falcon",
    .layers = {"transformer.h", "blk", "h"},
    .outer = "transformer.",
    .parts = parts,
    .layernorm = true,
    .layer = layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .grouped_qkv = true,
    .model_class = "FalconForCausalLM",
    .to_gguf = to_gguf,
    .to_json = to_json,
};
