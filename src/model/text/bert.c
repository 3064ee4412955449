// bert.c — BERT and its relatives MiniLM, bge, e5 (encoders for embeddings), and MPNet, which adds
// a bias by the distance of key and query, one for all layers. Norms stand behind what they norm.
// One layer:
//
//     x ─ q, k, v ─ attention ─ o ─ + ─ norm ─ up ─ gelu ─ down ─ + ─ norm ─▶
//     └─────────────────────────────┘      └──────────────────────┘
//
// Files of a model with its masked language model head have a prefix: "bert.", "roberta.",
// "mpnet.".
#include "model/text/decoder.h"

// What both call the same, behind the prefix.
#define EMBEDDINGS(outer)                                                                          \
    [RN_TEXT_EMBEDDING] = {outer "embeddings.word_embeddings", "token_embd", RN_SIZE_VOCAB,        \
                           RN_SIZE_DIM},                                                           \
    [RN_TEXT_POSITIONS] = {outer "embeddings.position_embeddings", "position_embd",                \
                           RN_SIZE_POSITIONS, RN_SIZE_DIM},                                        \
    [RN_TEXT_EMBEDDING_NORM] = {outer "embeddings.LayerNorm", "token_embd_norm", RN_SIZE_DIM}
#define FEED_FORWARD                                                                               \
    [RN_TEXT_UP] = {"intermediate.dense", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},                     \
    [RN_TEXT_DOWN] = {"output.dense", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},                       \
    [RN_TEXT_POST_FFN_NORM] = {"output.LayerNorm", "layer_output_norm", RN_SIZE_DIM}

// Of BERT, and of RoBERTa, which differs in its positions only.
#define BERT_PARTS(outer)                                                                          \
    EMBEDDINGS(outer),                                                                             \
        [RN_TEXT_TYPES] = {outer "embeddings.token_type_embeddings", "token_types", RN_SIZE_TYPES, \
                           RN_SIZE_DIM},                                                           \
        [RN_TEXT_Q] = {"attention.self.query", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},               \
        [RN_TEXT_K] = {"attention.self.key", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},               \
        [RN_TEXT_V] = {"attention.self.value", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},             \
        [RN_TEXT_O] = {"attention.output.dense", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},        \
        [RN_TEXT_POST_ATTENTION_NORM] = {"attention.output.LayerNorm", "attn_output_norm",         \
                                         RN_SIZE_DIM},                                             \
        FEED_FORWARD

// Rerankers have a head behind the first row. GGUF files are RoBERTa's: llama.cpp's converter
// leaves BERT's pooler out.
#define RANK_PARTS(inner, outer)                                                                   \
    [RN_TEXT_RANK_IN] = {inner, "cls", RN_SIZE_DIM, RN_SIZE_DIM}, [RN_TEXT_RANK_OUT] = {           \
                                                                      outer, "cls.output",         \
                                                                      RN_SIZE_SCORE, RN_SIZE_DIM}

static const rn_text_part bert_parts[RN_TEXT_PARTS] = {
    BERT_PARTS("bert."), RANK_PARTS("bert.pooler.dense", "classifier")};
static const rn_text_part roberta_parts[RN_TEXT_PARTS] = {
    BERT_PARTS("roberta."), RANK_PARTS("classifier.dense", "classifier.out_proj")};

static const rn_text_part mpnet_parts[RN_TEXT_PARTS] = {
    EMBEDDINGS("mpnet."),
    [RN_TEXT_DISTANCES] = {"mpnet.encoder.relative_attention_bias", "attn_rel_b", RN_SIZE_BUCKETS,
                           RN_SIZE_HEADS},
    [RN_TEXT_Q] = {"attention.attn.q", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},
    [RN_TEXT_K] = {"attention.attn.k", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_V] = {"attention.attn.v", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_O] = {"attention.attn.o", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_POST_ATTENTION_NORM] = {"attention.LayerNorm", "attn_output_norm", RN_SIZE_DIM},
    FEED_FORWARD,
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    x = rn_op_add(d->g, x, rn_build_attend(d, x));
    x = rn_build_norm(d, x, RN_TEXT_POST_ATTENTION_NORM);
    x = rn_op_add(d->g, x, rn_build_ffn(d, x));
    return rn_build_norm(d, x, RN_TEXT_POST_FFN_NORM);
}

// ---- settings -----------------------------------------------------------------------------------

static void fill(rn_llama_config *l) {
    l->both_ways = true;
    l->tied = true; // there is no head
    l->qkv_bias = l->output_bias = l->ffn_bias = true;
}

static rn_status sizes_from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    rn_str positions = RN_STR("absolute");
    l->activation = RN_ACTIVATION_GELU;
    RN_TRY(rn_text_json_act(f, "hidden_act", c));
    RN_TRY(rn_text_refuse_flag(f, "is_decoder", false));
    RN_TRY(rn_fields_text(f, "position_embedding_type", &positions));
    if (!rn_str_equal(positions, RN_STR("absolute")))
        return rn_fail(RN_UNSUPPORTED, "%s: position_embedding_type '%.*s' is not built", f->source,
                       RN_STR_ARG(positions));
    RN_TRY(rn_text_json_sizes(f, c));
    l->positions = c->context;
    l->norm_eps = 1e-12f;
    RN_TRY(rn_fields_number(f, "layer_norm_eps", &l->norm_eps));
    fill(l);
    return RN_OK;
}

static rn_status bert_from_json(const rn_fields *f, rn_text_config *c) {
    RN_TRY(sizes_from_json(f, c));
    c->llama.token_types = 2;
    return rn_fields_u32(f, "type_vocab_size", &c->llama.token_types);
}

// Positions count from behind the padding token's number on.
static rn_status skip_positions(const rn_fields *f, uint32_t padding, rn_text_config *c) {
    RN_TRY(rn_fields_u32(f, "pad_token_id", &padding));
    if (padding >= c->context || c->context - padding < 2)
        return rn_fail(RN_CORRUPT, "%s: %u positions, of which %u are before the first", f->source,
                       c->context, padding);
    c->llama.first_position = padding + 1;
    c->context -= padding + 1;
    return RN_OK;
}

static rn_status roberta_from_json(const rn_fields *f, rn_text_config *c) {
    RN_TRY(bert_from_json(f, c));
    return skip_positions(f, 1, c);
}

static rn_status mpnet_from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    RN_TRY(sizes_from_json(f, c));
    l->distance_buckets = 32;
    RN_TRY(rn_fields_u32(f, "relative_attention_num_buckets", &l->distance_buckets));
    if (l->distance_buckets % 4 || l->distance_buckets > 1024 || l->distance_buckets == 0)
        return rn_fail(RN_CORRUPT, "%s: %u buckets of distances cannot be", f->source,
                       l->distance_buckets);
    return skip_positions(f, 1, c);
}

static rn_status bert_from_gguf(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    l->activation = RN_ACTIVATION_GELU;
    l->positions = c->context;
    fill(l);
    l->token_types = 2;
    return rn_fields_u32(f, "tokenizer.ggml.token_type_count", &l->token_types);
}

// GGUF files of RoBERTa are "bert", with the positions counted from 0.
static rn_status not_in_gguf(const rn_fields *f, rn_text_config *c) {
    return rn_hint(
        rn_fail(RN_UNSUPPORTED, "%s: %s in GGUF files is not known", f->source, c->architecture),
        "take the model's safetensors");
}

// ---- written down -------------------------------------------------------------------------------

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    (void)out;
    if (c->llama.activation == RN_ACTIVATION_GELU) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "GGUF cannot say this hidden_act");
}

static void to_json(const rn_text_config *c, rn_json *json) {
    rn_text_settings_to_json(c, json);
    rn_json_u64(json, "type_vocab_size", c->llama.token_types);
}

#define FAMILY                                                                                     \
    .layernorm = true, .layer = layer, .layers[RN_NAMES_GGUF] = "blk",                             \
    .layers[RN_NAMES_BARE] = "encoder.layer"

extern const rn_text_architecture rn_text_bert;
const rn_text_architecture rn_text_bert = {
    FAMILY,
    .name = "bert",
    .also = "MiniLM, bge, e5",
    .layers[RN_NAMES_HUGGING_FACE] = "bert.encoder.layer",
    .outer = "bert.",
    .parts = bert_parts,
    .from_json = bert_from_json,
    .from_gguf = bert_from_gguf,
    .model_class = "BertModel",
    .json_epsilon = "layer_norm_eps",
    .to_gguf = to_gguf,
    .to_json = to_json,
};
#define ROBERTA                                                                                    \
    FAMILY, .layers[RN_NAMES_HUGGING_FACE] = "roberta.encoder.layer", .outer = "roberta.",         \
            .parts = roberta_parts, .from_json = roberta_from_json, .from_gguf = not_in_gguf,      \
            .model_class = "BertModel", .gguf_name = "bert", .to_gguf = to_gguf

extern const rn_text_architecture rn_text_roberta;
const rn_text_architecture rn_text_roberta = {ROBERTA, .name = "roberta"};
extern const rn_text_architecture rn_text_xlm_roberta;
const rn_text_architecture rn_text_xlm_roberta = {ROBERTA, .name = "xlm-roberta",
                                                  .also = "bge-m3, multilingual e5"};
extern const rn_text_architecture rn_text_mpnet;
const rn_text_architecture rn_text_mpnet = {
    FAMILY,
    .name = "mpnet",
    .layers[RN_NAMES_HUGGING_FACE] = "mpnet.encoder.layer",
    .outer = "mpnet.",
    .parts = mpnet_parts,
    .from_json = mpnet_from_json,
    .from_gguf = not_in_gguf,
};
