// write_settings.c — see translate.h: a model's settings as GGUF's keys and as a config.json.
#include "model/text/translate.h"

#include "graph/rope_frequencies.h"
#include "memory/account.h"
#include "model/text/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_BYTES = 96 };

static bool is_near(float a, float b) {
    return fabsf(a - b) <= 1e-5f * fabsf(a);
}

// ---- GGUF's keys --------------------------------------------------------------------------------

typedef struct keys {
    const char *architecture;
    rn_pairs *out;
} keys;

static rn_status put_u32(const keys *k, const char *name, uint32_t value) {
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "%s.%s", k->architecture, name);
    return rn_pairs_u32(k->out, key, value);
}

static rn_status put_f32(const keys *k, const char *name, float value) {
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "%s.%s", k->architecture, name);
    return rn_pairs_f32(k->out, key, value);
}

static rn_status put_text(const keys *k, const char *name, const char *value) {
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "%s.%s", k->architecture, name);
    return rn_pairs_text(k->out, key, rn_str_from(value));
}

// One a layer: none where it has a state.
static rn_status put_kv_heads(const keys *k, const rn_llama_config *l) {
    char key[NAME_BYTES];
    rn_buffer raw;
    snprintf(key, sizeof key, "%s.attention.head_count_kv", k->architecture);
    rn_buffer_init(&raw, RN_HOST_IO, (size_t)RN_RECURRENT_LAYERS * sizeof(int32_t));
    rn_status s = RN_OK;
    for (uint32_t i = 0; s == RN_OK && i < l->layers; i++) {
        bool full = l->full_head_dim && (i + 1) % l->window_period == 0;
        int32_t heads = (int32_t)(full ? l->full_kv_heads : l->kv_heads);
        if (rn_text_is_recurrent(l, i)) heads = 0;
        s = rn_buffer_append(&raw, &heads, sizeof heads);
    }
    if (s == RN_OK) s = rn_pairs_array(k->out, key, RN_GGUF_I32, l->layers, &raw);
    rn_buffer_free(&raw);
    return s;
}

static rn_status put_sizes(const keys *k, const rn_text_config *c) {
    const rn_llama_config *l = &c->llama;
    RN_TRY(put_u32(k, "block_count", l->layers));
    RN_TRY(put_u32(k, "context_length", c->context));
    RN_TRY(put_u32(k, "embedding_length", l->dim));
    RN_TRY(put_u32(k, "feed_forward_length", l->ffn));
    RN_TRY(put_u32(k, "attention.head_count", l->heads));
    RN_TRY(l->architecture->kv_heads_by_layer ? put_kv_heads(k, l)
                                              : put_u32(k, "attention.head_count_kv", l->kv_heads));
    RN_TRY(put_u32(k, "vocab_size", l->vocab));
    return put_f32(k,
                   l->architecture->layernorm ? "attention.layer_norm_epsilon"
                                              : "attention.layer_norm_rms_epsilon",
                   l->norm_eps);
}

// Llama 3's scaling is a tensor (rope_freqs.weight), not a key.
static rn_status put_rope(const keys *k, const rn_llama_config *l) {
    const rn_rope_attrs *rope = &l->rope;
    uint32_t head_dim = l->full_head_dim ? l->full_head_dim : l->head_dim;
    const rn_latent_config *a = &l->latent; // whose keys are latents and what is turned
    RN_TRY(put_u32(k, "attention.key_length", a->kv_rank ? a->kv_rank + a->turned : head_dim));
    RN_TRY(put_u32(k, "attention.value_length", a->kv_rank ? a->kv_rank : head_dim));
    uint32_t turned = a->kv_rank ? a->turned : rope->dims ? rope->dims : head_dim;
    RN_TRY(put_u32(k, "rope.dimension_count", turned));
    RN_TRY(put_f32(k, "rope.freq_base", rope->base));
    if (rope->scaling == RN_ROPE_UNSCALED || rope->scaling == RN_ROPE_LLAMA3) return RN_OK;
    bool yarn = rope->scaling == RN_ROPE_YARN;
    bool usual = rope->attention_factor == 0 || l->architecture->yarn_share ||
                 is_near(rope->attention_factor, 0.1f * logf(rope->factor) + 1);
    if ((!yarn && rope->scaling != RN_ROPE_LINEAR) || !usual)
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say this scaling of rope");
    if (rope->untruncated && !l->architecture->gguf_cuts_yarn)
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say YARN that is not cut to whole pairs");
    RN_TRY(put_text(k, "rope.scaling.type", yarn ? "yarn" : "linear"));
    RN_TRY(put_f32(k, "rope.scaling.factor", rope->factor));
    if (yarn) RN_TRY(put_u32(k, "rope.scaling.original_context_length", rope->original_context));
    if (rope->beta_fast != 0) RN_TRY(put_f32(k, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    if (rope->beta_slow != 0) RN_TRY(put_f32(k, "rope.scaling.yarn_beta_slow", rope->beta_slow));
    return RN_OK;
}

// How rows become a vector, of models that are for that.
static rn_status put_embedding(const keys *k, const rn_text_config *c) {
    static const uint32_t kinds[] = {
        [RN_POOLING_MODEL] = 0, [RN_POOLING_MEAN] = 1, [RN_POOLING_CLS] = 2, [RN_POOLING_LAST] = 3};
    char key[NAME_BYTES];
    if (!c->headless) return RN_OK;
    RN_TRY(put_u32(k, "pooling_type", c->llama.ranks ? 4 : kinds[c->embedding.pooling]));
    if (c->llama.token_types)
        RN_TRY(rn_pairs_u32(k->out, "tokenizer.ggml.token_type_count", c->llama.token_types));
    snprintf(key, sizeof key, "%s.attention.causal", k->architecture);
    return c->llama.both_ways ? rn_pairs_bool(k->out, key, false) : RN_OK;
}

rn_status rn_text_settings_to_gguf(const rn_text_config *config, const char *name, rn_pairs *out) {
    const rn_llama_config *l = &config->llama;
    const rn_text_architecture *a = l->architecture;
    keys k = {a->gguf_name ? a->gguf_name : a->name, out};
    bool windows = l->window && l->window_from < l->layers;
    if (config->stretch != 0 || (windows && l->window_from > 0))
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say %s",
                       windows ? "windows from some layer on" : "rope that is 'dynamic'");
    RN_TRY(rn_pairs_text(out, "general.architecture", rn_str_from(k.architecture)));
    RN_TRY(rn_pairs_text(out, "general.type", RN_STR("model")));
    RN_TRY(rn_pairs_text(out, "general.name", rn_str_from(name)));
    RN_TRY(put_sizes(&k, config));
    if (l->positions == 0) RN_TRY(put_rope(&k, l));
    // Of those that see both ways, files say a window's tokens to both sides.
    uint32_t window = l->both_ways ? 2 * (l->window - 1) : l->window;
    if (windows) RN_TRY(put_u32(&k, "attention.sliding_window", window));
    RN_TRY(put_embedding(&k, config));
    return a->to_gguf ? a->to_gguf(config, out) : RN_OK;
}

// ---- config.json --------------------------------------------------------------------------------

// With a point: transformers refuses whole numbers for some settings.
void rn_text_json_float(rn_json *json, const char *key, float value) {
    char text[40];
    bool whole = fabsf(value) < 1e9f && truncf(value) == value;
    for (int digits = 1; !whole && digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    if (whole) snprintf(text, sizeof text, "%.1f", (double)value);
    char *comma = strchr(text, ','); // in locales that a program around us may have set
    if (comma) *comma = '.';
    rn_sink sink = rn_json_embed(json, key);
    rn_json_check(json, sink.write(sink.self, text, strlen(text)));
}

static void write_rope_fields(const rn_rope_attrs *rope, rn_json *json) {
    static const char *const types[] = {[RN_ROPE_UNSCALED] = "default",
                                        [RN_ROPE_LINEAR] = "linear",
                                        [RN_ROPE_NTK] = "ntk",
                                        [RN_ROPE_LLAMA3] = "llama3",
                                        [RN_ROPE_YARN] = "yarn"};
    rn_json_string(json, "rope_type", types[rope->scaling]);
    if (rope->scaling == RN_ROPE_UNSCALED) return;
    rn_text_json_float(json, "factor", rope->factor);
    if (rope->scaling == RN_ROPE_LLAMA3) {
        rn_text_json_float(json, "low_freq_factor", rope->low_frequency);
        rn_text_json_float(json, "high_freq_factor", rope->high_frequency);
    }
    if (rope->scaling != RN_ROPE_LINEAR)
        rn_json_u64(json, "original_max_position_embeddings", rope->original_context);
    if (rope->attention_factor != 0)
        rn_text_json_float(json, "attention_factor", rope->attention_factor);
    if (rope->beta_fast != 0) rn_text_json_float(json, "beta_fast", rope->beta_fast);
    if (rope->beta_slow != 0) rn_text_json_float(json, "beta_slow", rope->beta_slow);
    if (rope->untruncated) rn_json_bool(json, "truncate", false);
}

void rn_text_json_rope_object(const rn_rope_attrs *rope, const char *key, rn_json *json) {
    rn_json_object(json, key);
    rn_text_json_float(json, "rope_theta", rope->base);
    write_rope_fields(rope, json);
}

void rn_text_json_ropes_object(const rn_llama_config *l, rn_json *json) {
    rn_json_object(json, "rope_parameters");
    rn_text_json_rope_object(&l->rope, "full_attention", json);
    rn_json_end(json);
    rn_text_json_rope_object(&l->local_rope, "sliding_attention", json);
    rn_json_end(json);
    rn_json_end(json);
}

static void write_divisors(const float *divisors, uint64_t pairs, const char *key, rn_json *json) {
    rn_json_array(json, key);
    for (uint64_t i = 0; i < pairs; i++)
        rn_text_json_float(json, NULL, divisors[i]);
    rn_json_end(json);
}

static float turned_share(const rn_llama_config *l) {
    return (float)rn_rope_dims(&l->rope, l->head_dim) / (float)l->head_dim;
}

// As models that came with transformers 5 have it.
static void write_newer_rope(const rn_llama_config *l, rn_json *json) {
    rn_text_json_rope_object(&l->rope, "rope_parameters", json);
    if (l->architecture->partial_rope)
        rn_text_json_float(json, "partial_rotary_factor", turned_share(l));
    if (l->query_growth != 0) rn_text_json_float(json, "llama_4_scaling_beta", l->query_growth);
    rn_json_end(json);
}

void rn_text_rope_to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    const rn_rope_attrs *rope = &l->rope;
    uint64_t pairs = rn_rope_dims(rope, l->head_dim) / 2;
    if (l->positions || l->full_head_dim || l->latent.kv_rank) return;
    if (l->architecture->json_rope) {
        write_newer_rope(l, json);
        return;
    }
    rn_text_json_float(json, "rope_theta", rope->base);
    if (rope->dims) rn_text_json_float(json, "partial_rotary_factor", turned_share(l));
    if (c->long_from) rn_json_u64(json, "original_max_position_embeddings", c->long_from);
    if (rope->scaling == RN_ROPE_UNSCALED && c->long_from == 0) return;
    rn_json_object(json, "rope_scaling");
    if (c->long_from) {
        rn_json_string(json, "type", "longrope");
        write_divisors(c->short_divisors, pairs, "short_factor", json);
        write_divisors(c->long_divisors, pairs, "long_factor", json);
        if (rope->attention_factor != 0)
            rn_text_json_float(json, "attention_factor", rope->attention_factor);
    } else
        write_rope_fields(rope, json);
    rn_json_end(json);
}

void rn_text_json_layer_types(const rn_llama_config *l, const char *of_states, rn_json *json) {
    rn_json_array(json, "layer_types");
    for (uint32_t i = 0; i < l->layers; i++) {
        bool has_state = of_states && rn_text_is_recurrent(l, i);
        bool slides = !of_states && l->window &&
                      (!l->window_period || (i + !l->window_behind) % l->window_period != 0);
        rn_json_string(json, NULL,
                       has_state ? of_states
                       : slides  ? "sliding_attention"
                                 : "full_attention");
    }
    rn_json_end(json);
}

void rn_text_settings_to_json(const rn_text_config *c, rn_json *json) {
    static const char *const activations[] = {[RN_ACTIVATION_SILU] = "silu",
                                              [RN_ACTIVATION_GELU] = "gelu",
                                              [RN_ACTIVATION_GELU_TANH] = "gelu_pytorch_tanh"};
    const rn_llama_config *l = &c->llama;
    const rn_text_architecture *a = l->architecture;
    rn_json_u64(json, "num_hidden_layers", l->layers);
    rn_json_u64(json, "hidden_size", l->dim);
    rn_json_u64(json, "intermediate_size", l->ffn);
    rn_json_u64(json, "num_attention_heads", l->heads);
    // Latent attention has heads of k and v of its own, and calls what is turned a head's width.
    bool latent = l->latent.kv_rank > 0;
    rn_json_u64(json, "num_key_value_heads", latent ? l->heads : l->kv_heads);
    rn_json_u64(json, "head_dim", latent ? l->latent.turned : l->head_dim);
    rn_json_u64(json, "vocab_size", l->vocab);
    rn_json_u64(json, "max_position_embeddings", c->context);
    rn_text_json_float(json, a->json_epsilon ? a->json_epsilon : "rms_norm_eps", l->norm_eps);
    rn_json_string(json, a->json_activation ? a->json_activation : "hidden_act",
                   activations[l->activation]);
    rn_json_bool(json, "tie_word_embeddings", l->tied);
    rn_json_bool(json, "attention_bias", l->qkv_bias && (!a->qkv_bias || l->output_bias));
    rn_json_bool(json, "mlp_bias", l->ffn_bias);
    rn_text_rope_to_json(c, json);
    if (a->window_switch) rn_json_bool(json, "use_sliding_window", l->window > 0);
    if (l->window && a->window) rn_json_u64(json, "sliding_window", l->window);
    if (l->window && a->window_switch) rn_json_u64(json, "max_window_layers", l->window_from);
}

// A reranker's only one.
static void write_label(rn_json *json) {
    rn_json_object(json, "id2label");
    rn_json_string(json, "0", "LABEL_0");
    rn_json_end(json);
    rn_json_object(json, "label2id");
    rn_json_u64(json, "LABEL_0", 0);
    rn_json_end(json);
}

static rn_status write_json(const rn_text_config *c, const rn_text_extras *extras, rn_buffer *out) {
    const rn_text_architecture *a = c->llama.architecture;
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(out), true);
    rn_json_object(&json, NULL);
    rn_json_array(&json, "architectures");
    rn_json_string(&json, NULL, c->llama.ranks ? "BertForSequenceClassification" : a->model_class);
    rn_json_end(&json);
    if (c->llama.ranks) write_label(&json);
    rn_json_string(&json, "model_type", a->model_type ? a->model_type : a->name);
    rn_json_string(&json, "torch_dtype", extras->dtype);
    if (extras->begin != UINT32_MAX) rn_json_u64(&json, "bos_token_id", extras->begin);
    if (extras->end != UINT32_MAX) rn_json_u64(&json, "eos_token_id", extras->end);
    // Without one, some models' own would be beyond the vocabulary; encoders need one.
    if (extras->pad != UINT32_MAX || c->llama.both_ways)
        rn_json_u64(&json, "pad_token_id", extras->pad != UINT32_MAX ? extras->pad : 0);
    else
        rn_json_null(&json, "pad_token_id");
    if (a->to_json)
        a->to_json(c, &json);
    else
        rn_text_settings_to_json(c, &json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static bool is_same_rope(const rn_rope_attrs *a, const rn_rope_attrs *b) {
    return a->scaling == b->scaling && a->base == b->base && a->dims == b->dims &&
           is_near(a->factor, b->factor) && is_near(a->attention_factor, b->attention_factor) &&
           is_near(a->beta_fast, b->beta_fast) && is_near(a->beta_slow, b->beta_slow) &&
           a->original_context == b->original_context && a->untruncated == b->untruncated;
}

static bool is_same_state(const rn_recurrent_config *a, const rn_recurrent_config *b) {
    return a->taps == b->taps && a->key_heads == b->key_heads && a->value_heads == b->value_heads &&
           a->key_dim == b->key_dim && a->value_dim == b->value_dim &&
           memcmp(a->layers, b->layers, sizeof a->layers) == 0;
}

static bool is_same_moe(const rn_moe_config *a, const rn_moe_config *b) {
    const rn_route_attrs *r = &a->route, *s = &b->route;
    bool grouped = r->groups > 1;
    bool route = r->chosen == s->chosen && r->gating == s->gating && r->norm == s->norm &&
                 grouped == (s->groups > 1) &&
                 (!grouped || (r->groups == s->groups && r->groups_chosen == s->groups_chosen &&
                               r->group_by_max == s->group_by_max)) &&
                 is_near(r->scale != 0 ? r->scale : 1, s->scale != 0 ? s->scale : 1);
    return a->experts == b->experts &&
           (!a->experts ||
            (route && a->ffn == b->ffn && a->shared_ffn == b->shared_ffn &&
             a->dense_layers == b->dense_layers && a->choice_bias == b->choice_bias &&
             a->expert_scale == b->expert_scale && a->shared_gate == b->shared_gate));
}

static bool is_same_latent(const rn_latent_config *a, const rn_latent_config *b) {
    return a->q_rank == b->q_rank && a->kv_rank == b->kv_rank && a->still == b->still &&
           a->turned == b->turned && a->value == b->value;
}

static bool is_same_longrope(const rn_text_config *a, const rn_text_config *b) {
    uint64_t pairs = rn_rope_dims(&a->llama.rope, a->llama.head_dim) / 2;
    bool same = a->long_from == b->long_from;
    for (uint64_t i = 0; same && a->long_from && i < pairs; i++)
        same = is_near(a->short_divisors[i], b->short_divisors[i]) &&
               is_near(a->long_divisors[i], b->long_divisors[i]);
    return same;
}

// Of scores, before their cap.
static float score_scale(const rn_llama_config *c) {
    return c->attention_scale != 0 ? c->attention_scale : 1 / sqrtf((float)c->head_dim);
}

// Two descriptions of one model, but for names, the order of rope's pairs and what norms add.
static bool is_same_model(const rn_text_config *one, const rn_text_config *other) {
    const rn_llama_config *a = &one->llama, *b = &other->llama;
    bool sizes = a->layers == b->layers && a->dim == b->dim && a->heads == b->heads &&
                 a->kv_heads == b->kv_heads && a->ffn == b->ffn && a->vocab == b->vocab &&
                 a->head_dim == b->head_dim && a->positions == b->positions &&
                 one->context == other->context;
    bool flags = a->qkv_bias == b->qkv_bias && a->output_bias == b->output_bias &&
                 a->ffn_bias == b->ffn_bias && a->qk_norm == b->qk_norm && a->tied == b->tied &&
                 a->activation == b->activation && a->parallel == b->parallel &&
                 a->two_norms == b->two_norms && a->both_ways == b->both_ways &&
                 a->token_types == b->token_types;
    bool heads = a->full_head_dim == b->full_head_dim && a->full_kv_heads == b->full_kv_heads &&
                 a->full_k_is_v == b->full_k_is_v &&
                 (!a->full_head_dim ||
                  memcmp(a->rope_divisors, b->rope_divisors, sizeof a->rope_divisors) == 0);
    bool windows = a->window == b->window && a->window_period == b->window_period &&
                   a->window_from == b->window_from && a->unturned_period == b->unturned_period &&
                   a->local_rope.base == b->local_rope.base;
    bool scales =
        is_near(a->norm_eps, b->norm_eps) && is_near(a->embedding_scale, b->embedding_scale) &&
        is_near(a->residual_scale, b->residual_scale) && is_near(a->logit_scale, b->logit_scale) &&
        is_near(a->score_cap, b->score_cap) && is_near(a->logit_cap, b->logit_cap) &&
        is_near(score_scale(a), score_scale(b)) && is_near(a->query_growth, b->query_growth);
    return sizes && flags && heads && windows && scales && one->stretch == other->stretch &&
           is_same_state(&a->recurrent, &b->recurrent) && is_same_longrope(one, other) &&
           is_same_moe(&a->moe, &b->moe) && is_same_latent(&a->latent, &b->latent) &&
           a->sinks == b->sinks && is_near(a->glu_limit, b->glu_limit) &&
           is_near(a->glu_slope, b->glu_slope) &&
           (a->positions || is_same_rope(&a->rope, &b->rope));
}

rn_status rn_text_config_to_json(const rn_text_config *config, const rn_text_extras *extras,
                                 rn_buffer *out, rn_text_config *out_config) {
    rn_fields fields;
    rn_text_config named = *config;
    named.llama.architecture = rn_text_architecture_with_window(&config->llama);
    RN_TRY(write_json(&named, extras, out));
    rn_fields_init(&fields, "the new config.json");
    rn_status s = rn_fields_read_json(&fields, (rn_str){out->data, out->bytes});
    if (s == RN_OK) s = rn_text_config_from_json(&fields, out_config);
    rn_fields_free(&fields);
    if (s != RN_OK || is_same_model(config, out_config)) return s;
    return rn_fail(RN_UNSUPPORTED, "a config.json of '%s' cannot say all that this model is",
                   config->architecture);
}
