// gptneox.c — GPT-NeoX and Pythia: layer norms and products with biases, q, k and v in one product,
// a rope of a part of each head, and parallel branches with a norm each. One layer:
//
//     x ─┬─ norm ─ qkv ─ slices ─ rope ─ attention ─ o ─┐
//     │  └─ norm ─ up ─ gelu ─ down ─────────────────── + ─ + ─▶
//     └─────────────────────────────────────────────────────┘
//
// Some files have the branches one after the other. Rows of qkv are q, k, v of one head after the
// other in Hugging Face's files, all of q, of k, of v in GGUF's.
#include "model/text/decoder.h"

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"gpt_neox.embed_in", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"gpt_neox.final_layer_norm", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"embed_out", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_QKV] = {"attention.query_key_value", "attn_qkv", RN_SIZE_QKV, RN_SIZE_DIM},
    [RN_TEXT_O] = {"attention.dense", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_FFN_NORM] = {"post_attention_layernorm", "ffn_norm", RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.dense_h_to_4h", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.dense_4h_to_h", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM);
    rn_value sum = rn_op_add(d->g, x, rn_build_attend_qkv(d, y));
    y = rn_build_norm(d, d->c->parallel ? x : sum, RN_TEXT_FFN_NORM);
    return rn_op_add(d->g, sum, rn_build_ffn(d, y));
}

// ---- settings -----------------------------------------------------------------------------------

// Older files have a "rotary_pct" and a "rotary_emb_base".
static rn_status read_rope(const rn_fields *f, rn_text_config *c) {
    rn_rope_attrs *rope = &c->llama.rope;
    float share = 0.25f;
    if (rn_fields_find(f, "rope_parameters")) return rn_text_json_rope(f, "rope_parameters", c);
    RN_TRY(rn_text_json_rope(f, "rope_scaling", c));
    RN_TRY(rn_fields_number(f, "rotary_pct", &share));
    if (!(share > 0 && share <= 1))
        return rn_fail(RN_CORRUPT, "%s: a rotary_pct of %g", f->source, (double)share);
    if (share < 1) rope->dims = (uint32_t)((float)c->llama.head_dim * share);
    return rn_fields_number(f, "rotary_emb_base", &rope->base);
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    bool bias = true;
    l->activation = RN_ACTIVATION_GELU;
    l->parallel = true;
    RN_TRY(rn_text_json_act(f, "hidden_act", c));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_fields_bool(f, "attention_bias", &bias));
    l->qkv_bias = l->output_bias = bias;
    l->ffn_bias = true;
    l->norm_eps = 1e-5f;
    RN_TRY(rn_fields_number(f, "layer_norm_eps", &l->norm_eps));
    RN_TRY(rn_fields_bool(f, "use_parallel_residual", &l->parallel));
    return read_rope(f, c);
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    c->llama.activation = RN_ACTIVATION_GELU;
    c->llama.parallel = true;
    return rn_fields_bool(f, "gptneox.use_parallel_residual", &c->llama.parallel);
}

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    if (l->activation != RN_ACTIVATION_GELU || l->tied)
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say this %s",
                       l->tied ? "tied head" : "hidden_act");
    return rn_pairs_bool(out, "gptneox.use_parallel_residual", l->parallel);
}

static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    rn_text_settings_to_json(c, json);
    rn_json_bool(json, "use_parallel_residual", l->parallel);
    rn_text_json_float(json, "rotary_emb_base", l->rope.base);
    rn_text_json_float(json, "rotary_pct",
                       l->rope.dims ? (float)l->rope.dims / (float)l->head_dim : 1);
}

extern const rn_text_architecture rn_text_gptneox;
const rn_text_architecture rn_text_gptneox = {
    .name = "gptneox",
    .model_type = "gpt_neox",
    .also = "Pythia",
    .layers = {"gpt_neox.layers", "blk", "gpt_neox.layers"},
    .parts = parts,
    .layernorm = true,
    .layer = layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .partial_rope = true,
    .grouped_qkv = true,
    .model_class = "GPTNeoXForCausalLM",
    .json_epsilon = "layer_norm_eps",
    .to_gguf = to_gguf,
    .to_json = to_json,
};
