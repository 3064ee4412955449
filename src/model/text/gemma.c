// gemma.c — the text decoders of Gemma 2 and 3: a Llama whose branches are normed again before they
// are added, with embeddings times sqrt(dim), gelu in its gate and a tied head. Gemma 2 has windows
// in every other layer and caps of scores and logits; Gemma 3 has windows in all layers but every
// sixth, each kind with a rope of its own, and norms of q and k. One layer:
//
//     x ─ norm ─ attention ─ norm ─ + ─ norm ─ gate, up ─ down ─ norm ─ + ─▶
//
// Norms multiply by 1 + w; GGUF files hold 1 + w, Hugging Face's hold w. The embeddings' scale is
// in f32, as in llama.cpp; transformers rounds it to the type that it computes in.
#include "model/text/decoder.h"

#include <math.h>
#include <stdio.h>

static const rn_text_part parts[RN_TEXT_PARTS] = {
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
    [RN_TEXT_POST_ATTENTION_NORM] = {"post_attention_layernorm", "post_attention_norm",
                                     RN_SIZE_DIM},
    [RN_TEXT_FFN_NORM] = {"pre_feedforward_layernorm", "ffn_norm", RN_SIZE_DIM},
    [RN_TEXT_GATE] = {"mlp.gate_proj", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.up_proj", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.down_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
    [RN_TEXT_POST_FFN_NORM] = {"post_feedforward_layernorm", "post_ffw_norm", RN_SIZE_DIM},
    [RN_TEXT_DENSE_IN] = {"2_Dense.linear", "dense_2", RN_SIZE_DENSE, RN_SIZE_DIM},
    [RN_TEXT_DENSE_OUT] = {"3_Dense.linear", "dense_3", RN_SIZE_DIM, RN_SIZE_DENSE},
};

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_attend(d, rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM));
    x = rn_op_add(d->g, x, rn_build_norm(d, y, RN_TEXT_POST_ATTENTION_NORM));
    y = rn_build_gated(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_op_add(d->g, x, rn_build_norm(d, y, RN_TEXT_POST_FFN_NORM));
}

// ---- settings -----------------------------------------------------------------------------------

// What all files leave unsaid.
static void fill(rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    l->activation = RN_ACTIVATION_GELU_TANH;
    l->embedding_scale = sqrtf((float)l->dim);
}

// With the ropes still to be read.
static rn_status read_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    float scalar = 0;
    RN_TRY(
        rn_text_json_activation(f, "hidden_activation", "gelu_pytorch_tanh", "gelu_pytorch_tanh"));
    l->tied = true;
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    fill(c);
    RN_TRY(rn_fields_number(f, "attn_logit_softcapping", &l->score_cap));
    RN_TRY(rn_fields_number(f, "final_logit_softcapping", &l->logit_cap));
    RN_TRY(rn_fields_number(f, "query_pre_attn_scalar", &scalar));
    if (scalar < 0) return rn_fail(RN_CORRUPT, "%s: query_pre_attn_scalar is below 0", f->source);
    if (scalar > 0) l->attention_scale = 1 / sqrtf(scalar);
    l->norm_offset = 1;
    return rn_fields_need_u32(f, "sliding_window", &l->window);
}

// Files do not say the scale of the 27B; llama.cpp knows it by its layers, too.
static rn_status read_gguf(const rn_fields *f, uint32_t layers_of_27b, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    char key[64];
    fill(c);
    if (l->layers == layers_of_27b) l->attention_scale = 1 / sqrtf((float)l->dim / (float)l->heads);
    snprintf(key, sizeof key, "%s.attn_logit_softcapping", c->architecture);
    RN_TRY(rn_fields_number(f, key, &l->score_cap));
    snprintf(key, sizeof key, "%s.final_logit_softcapping", c->architecture);
    RN_TRY(rn_fields_number(f, key, &l->logit_cap));
    return rn_text_gguf_period(f, c);
}

// GGUF files do not say the scale of scores, which follows from sizes.
static rn_status check_scale(const rn_llama_config *l, uint32_t layers_of_27b) {
    float wide = l->layers == layers_of_27b ? (float)l->dim / (float)l->heads : (float)l->head_dim;
    float known = 1 / sqrtf(wide);
    if (l->attention_scale == 0 || fabsf(l->attention_scale - known) <= 1e-6f * known) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "GGUF cannot say this query_pre_attn_scalar");
}

static void write_cap(rn_json *json, const char *key, float cap) {
    if (cap != 0)
        rn_text_json_float(json, key, cap);
    else
        rn_json_null(json, key);
}

static void write_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    float scale = l->attention_scale;
    rn_text_settings_to_json(c, json);
    rn_json_u64(json, "query_pre_attn_scalar",
                scale > 0 ? (uint64_t)lroundf(1 / (scale * scale)) : l->head_dim);
    write_cap(json, "attn_logit_softcapping", l->score_cap);
    write_cap(json, "final_logit_softcapping", l->logit_cap);
    rn_json_u64(json, "sliding_window",
                l->both_ways && l->window ? 2 * (l->window - 1) : l->window);
    rn_json_u64(json, "sliding_window_pattern", l->window_period);
    rn_text_json_layer_types(l, NULL, json);
}

// ---- Gemma 2 ------------------------------------------------------------------------------------

enum { PERIOD_2 = 2, LAYERS_OF_27B_2 = 46 };

static rn_status from_json_2(const rn_fields *f, rn_text_config *c) {
    bool newer = rn_fields_find(f, "rope_parameters") != NULL;
    RN_TRY(read_json(f, c));
    RN_TRY(rn_text_json_rope(f, newer ? "rope_parameters" : "rope_scaling", c));
    return rn_text_json_windows(f, PERIOD_2, c);
}

// What older converters left unsaid is as in all of Gemma 2.
static rn_status from_gguf_2(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    l->window_period = PERIOD_2;
    if (l->window == 0) l->window = 4096;
    l->score_cap = 50;
    l->logit_cap = 30;
    return read_gguf(f, LAYERS_OF_27B_2, c);
}

static rn_status to_gguf_2(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    RN_TRY(check_scale(l, LAYERS_OF_27B_2));
    if (l->score_cap == 0 || l->logit_cap == 0)
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say that Gemma 2 has no caps");
    RN_TRY(rn_pairs_f32(out, "gemma2.attn_logit_softcapping", l->score_cap));
    RN_TRY(rn_pairs_f32(out, "gemma2.final_logit_softcapping", l->logit_cap));
    return rn_pairs_u32(out, "gemma2.attention.sliding_window_pattern", l->window_period);
}

extern const rn_text_architecture rn_text_gemma2;
const rn_text_architecture rn_text_gemma2 = {
    .name = "gemma2",
    .layers = {"model.layers", "blk", "model.layers"},
    .parts = parts,
    .layer = layer,
    .from_json = from_json_2,
    .from_gguf = from_gguf_2,
    .model_class = "Gemma2ForCausalLM",
    .json_activation = "hidden_activation",
    .to_gguf = to_gguf_2,
    .to_json = write_json,
};

// ---- Gemma 3 ------------------------------------------------------------------------------------

enum { PERIOD_3 = 6, LAYERS_OF_27B_3 = 62 };

static rn_status read_ropes(const rn_fields *f, rn_text_config *c) {
    RN_TRY(rn_text_json_ropes(f, c));
    bool said = rn_fields_find(f, "rope_parameters.sliding_attention.rope_theta") != NULL;
    if (!said) c->llama.local_rope.base = 10000;
    return said ? RN_OK : rn_fields_number(f, "rope_local_base_freq", &c->llama.local_rope.base);
}

extern const rn_text_architecture rn_text_gemma_embedding;

// Of EmbeddingGemma files say a window's tokens to both sides.
static void see_both_ways(rn_llama_config *l) {
    l->both_ways = true;
    if (l->window) l->window = l->window / 2 + 1;
}

static rn_status from_json_3(const rn_fields *f, rn_text_config *c) {
    bool both_ways = false;
    RN_TRY(rn_fields_bool(f, "use_bidirectional_attention", &both_ways));
    if (both_ways) c->llama.architecture = &rn_text_gemma_embedding;
    c->architecture = c->llama.architecture->name;
    RN_TRY(read_json(f, c));
    RN_TRY(read_ropes(f, c));
    RN_TRY(rn_text_json_windows(f, PERIOD_3, c));
    if (both_ways) see_both_ways(&c->llama);
    return RN_OK;
}

static rn_status from_gguf_3(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    l->window_period = PERIOD_3;
    l->local_rope = (rn_rope_attrs){.pairing = l->rope.pairing, .base = 10000};
    char key[64];
    snprintf(key, sizeof key, "%s.rope.freq_base_swa", c->architecture);
    RN_TRY(rn_fields_number(f, key, &l->local_rope.base));
    return read_gguf(f, LAYERS_OF_27B_3, c);
}

static rn_status from_gguf_embedding(const rn_fields *f, rn_text_config *c) {
    RN_TRY(from_gguf_3(f, c));
    RN_TRY(rn_fields_u32(f, "gemma-embedding.dense_2_feat_out", &c->llama.dense));
    see_both_ways(&c->llama);
    return RN_OK;
}

static rn_status to_gguf_3(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    char key[64];
    RN_TRY(check_scale(l, LAYERS_OF_27B_3));
    snprintf(key, sizeof key, "%s.final_logit_softcapping", c->architecture);
    if (l->logit_cap != 0) RN_TRY(rn_pairs_f32(out, key, l->logit_cap));
    snprintf(key, sizeof key, "%s.rope.freq_base_swa", c->architecture);
    RN_TRY(rn_pairs_f32(out, key, l->local_rope.base));
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", c->architecture);
    RN_TRY(rn_pairs_u32(out, key, l->window_period));
    if (l->dense == 0) return RN_OK;
    RN_TRY(rn_pairs_u32(out, "gemma-embedding.dense_2_feat_in", l->dim));
    RN_TRY(rn_pairs_u32(out, "gemma-embedding.dense_2_feat_out", l->dense));
    RN_TRY(rn_pairs_u32(out, "gemma-embedding.dense_3_feat_in", l->dense));
    return rn_pairs_u32(out, "gemma-embedding.dense_3_feat_out", l->dim);
}

static void to_json_3(const rn_text_config *c, rn_json *json) {
    write_json(c, json);
    rn_text_json_float(json, "rope_local_base_freq", c->llama.local_rope.base);
    if (c->llama.both_ways) rn_json_bool(json, "use_bidirectional_attention", true);
}

extern const rn_text_architecture rn_text_gemma3;
const rn_text_architecture rn_text_gemma3 = {
    .name = "gemma3",
    .model_type = "gemma3_text",
    .layers = {"model.layers", "blk", "model.layers"},
    .parts = parts,
    .layer = layer,
    .from_json = from_json_3,
    .from_gguf = from_gguf_3,
    .qk_norm = true,
    .model_class = "Gemma3ForCausalLM",
    .json_activation = "hidden_activation",
    .to_gguf = to_gguf_3,
    .to_json = to_json_3,
};

// EmbeddingGemma: a Gemma 3 whose rows see both ways, without a head, and two products behind
// pooling. config.json calls it Gemma 3.
const rn_text_architecture rn_text_gemma_embedding = {
    .name = "gemma-embedding",
    .model_type = "gemma3_text",
    .also = "EmbeddingGemma",
    .layers = {"model.layers", "blk", "layers"},
    .outer = "model.",
    .parts = parts,
    .layer = layer,
    .from_json = from_json_3,
    .from_gguf = from_gguf_embedding,
    .qk_norm = true,
    .model_class = "Gemma3TextModel",
    .json_activation = "hidden_activation",
    .to_gguf = to_gguf_3,
    .to_json = to_json_3,
};

// Of images and text: its text. What transformers has as defaults is not in all files.
static rn_status from_json_seeing(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    l->vocab = 262208;
    l->heads = 8;
    l->kv_heads = 4;
    l->head_dim = 256;
    c->context = 131072;
    RN_TRY(from_json_3(f, c));
    bool says_base = rn_fields_find(f, "rope_theta") || rn_fields_find(f, "rope_parameters");
    if (!says_base) l->rope.base = 1000000;
    return RN_OK;
}

static const char *const of_images[] = {"vision_tower.*", "multi_modal_projector.*", NULL};

extern const rn_text_architecture rn_text_gemma3_seeing;
const rn_text_architecture rn_text_gemma3_seeing = {
    .name = "gemma3",
    .model_type = "gemma3",
    .also = "its text",
    .prefix = "language_model.",
    .settings = "text_config",
    .unused = of_images,
    .layers = {"model.layers", "blk", "model.layers"},
    .parts = parts,
    .layer = layer,
    .from_json = from_json_seeing,
    .from_gguf = from_gguf_3,
    .qk_norm = true,
    .model_class = "Gemma3ForConditionalGeneration",
    .to_gguf = to_gguf_3,
};
