// nomic_bert.c — nomic-embed-text (v1, v1.5): a BERT with rope instead of learned positions, a
// gated feed-forward, and products without biases. One layer:
//
//     x ─ qkv ─ slices ─ rope ─ attention ─ o ─ + ─ norm ─ gate, up ─ down ─ + ─ norm ─▶
//     └─────────────────────────────────────────┘      └─────────────────────┘
#include "model/text/decoder.h"

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"embeddings.word_embeddings", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_TYPES] = {"embeddings.token_type_embeddings", "token_types", RN_SIZE_TYPES,
                       RN_SIZE_DIM},
    [RN_TEXT_EMBEDDING_NORM] = {"emb_ln", "token_embd_norm", RN_SIZE_DIM},
    [RN_TEXT_QKV] = {"attn.Wqkv", "attn_qkv", RN_SIZE_QKV, RN_SIZE_DIM},
    [RN_TEXT_O] = {"attn.out_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_POST_ATTENTION_NORM] = {"norm1", "attn_output_norm", RN_SIZE_DIM},
    [RN_TEXT_GATE] = {"mlp.fc12", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.fc11", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.fc2", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
    [RN_TEXT_POST_FFN_NORM] = {"norm2", "layer_output_norm", RN_SIZE_DIM},
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    x = rn_op_add(d->g, x, rn_build_attend_qkv(d, x));
    x = rn_build_norm(d, x, RN_TEXT_POST_ATTENTION_NORM);
    x = rn_op_add(d->g, x, rn_build_gated(d, x));
    return rn_build_norm(d, x, RN_TEXT_POST_FFN_NORM);
}

// ---- settings -----------------------------------------------------------------------------------

// The published files have GPT-2's spelling, those that transformers writes BERT's.
static rn_status read_older(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    float share = 1, scaling = 0;
    RN_TRY(rn_text_json_activation(f, "activation_function", "swiglu", "swiglu"));
    RN_TRY(rn_text_refuse_flag(f, "prenorm", false));
    RN_TRY(rn_text_refuse_flag(f, "qkv_proj_bias", false));
    RN_TRY(rn_text_refuse_flag(f, "mlp_fc1_bias", false));
    RN_TRY(rn_text_refuse_flag(f, "mlp_fc2_bias", false));
    RN_TRY(rn_text_refuse_flag(f, "rotary_emb_interleaved", false));
    RN_TRY(rn_text_refuse_flag(f, "use_rms_norm", false));
    RN_TRY(rn_fields_number(f, "rotary_emb_fraction", &share));
    RN_TRY(rn_fields_number(f, "rotary_scaling_factor", &scaling));
    if (share != 1)
        return rn_fail(RN_UNSUPPORTED, "%s: a rotary_emb_fraction of %g is not built", f->source,
                       (double)share);
    RN_TRY(rn_fields_need_u32(f, "n_layer", &l->layers));
    RN_TRY(rn_fields_need_u32(f, "n_embd", &l->dim));
    RN_TRY(rn_fields_need_u32(f, "n_head", &l->heads));
    RN_TRY(rn_fields_need_u32(f, "n_inner", &l->ffn));
    RN_TRY(rn_fields_need_u32(f, "vocab_size", &l->vocab));
    RN_TRY(rn_fields_need_u32(f, "n_positions", &c->context));
    if (l->heads == 0) return rn_fail(RN_CORRUPT, "%s: there are no heads", f->source);
    l->kv_heads = l->heads;
    l->head_dim = l->dim / l->heads;
    l->norm_eps = 1e-12f;
    RN_TRY(rn_fields_number(f, "layer_norm_epsilon", &l->norm_eps));
    l->rope = (rn_rope_attrs){.pairing = RN_ROPE_HALVES, .base = 1000};
    RN_TRY(rn_fields_number(f, "rotary_emb_base", &l->rope.base));
    // Beyond what it was trained for the base grows with the text; here it does not.
    return rn_fields_u32(f, "max_trained_positions", &c->context);
}

static rn_status read_newer(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    RN_TRY(rn_text_json_activation(f, "hidden_act", "silu", "swish"));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_rope(f, "rope_parameters", c));
    l->norm_eps = 1e-12f;
    return rn_fields_number(f, "layer_norm_eps", &l->norm_eps);
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    bool older = rn_fields_find(f, "n_embd") != NULL;
    RN_TRY(older ? read_older(f, c) : read_newer(f, c));
    c->llama.both_ways = c->llama.tied = true;
    c->llama.token_types = 2;
    return rn_fields_u32(f, "type_vocab_size", &c->llama.token_types);
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    c->llama.both_ways = c->llama.tied = true;
    c->llama.token_types = 2;
    return rn_fields_u32(f, "tokenizer.ggml.token_type_count", &c->llama.token_types);
}

// The spelling of transformers' own class.
static void to_json(const rn_text_config *c, rn_json *json) {
    rn_text_settings_to_json(c, json);
    rn_json_u64(json, "type_vocab_size", c->llama.token_types);
}

extern const rn_text_architecture rn_text_nomic_bert;
const rn_text_architecture rn_text_nomic_bert = {
    .name = "nomic-bert",
    .model_type = "nomic_bert",
    .also = "nomic-embed-text",
    .layers = {"encoder.layers", "blk", "encoder.layers"},
    .parts = parts,
    .layernorm = true,
    .layer = layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .model_class = "NomicBertModel",
    .json_epsilon = "layer_norm_eps",
    .json_rope = true,
    .to_json = to_json,
};
