// translate.c — see translate.h: weights under their other names, and settings as files say them.
#include "model/text/translate.h"

#include "model/text/decoder.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME_BYTES = 96 };

rn_status rn_text_translatable(const rn_text_config *config) {
    if (config->llama.architecture->model_class) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED, "models of architecture '%s' are not converted",
                           config->architecture),
                   "llama.cpp's convert_hf_to_gguf.py makes GGUF files of many architectures");
}

// ---- names --------------------------------------------------------------------------------------

// How a weight's values lie in the other container.
static rn_converted_tensor arrange(const rn_llama_config *from, const rn_llama_config *to,
                                   rn_text_part_id p, bool is_bias) {
    const rn_text_part *part = &from->architecture->parts[p];
    rn_converted_tensor out = {0};
    bool turned = p == RN_TEXT_Q || p == RN_TEXT_K;
    bool is_norm = part->in == RN_SIZE_NONE && !is_bias;
    if (is_norm) out.add = from->norm_offset - to->norm_offset;
    if (part->transposed && !is_bias) {
        out.arrangement = RN_ARRANGE_TRANSPOSED;
    } else if (turned && from->rope.pairing != to->rope.pairing) {
        bool neighbours = to->rope.pairing == RN_ROPE_NEIGHBOURS;
        out.arrangement = neighbours ? RN_ARRANGE_AS_NEIGHBOURS : RN_ARRANGE_AS_HALVES;
        out.head_rows = from->head_dim;
    }
    return out;
}

static rn_status translate(const rn_checkpoint *source, const rn_llama_config *from,
                           const rn_llama_config *to, rn_text_part_id p, uint32_t layer,
                           bool is_bias, rn_arena *arena, rn_converted_tensor *tensors) {
    const char *what = is_bias ? "bias" : "weight";
    char name[NAME_BYTES], other[NAME_BYTES];
    void *copy;
    rn_text_weight_name(from, p, layer, what, name, sizeof name);
    rn_text_weight_name(to, p, layer, what, other, sizeof other);
    const rn_tensor_info *t = rn_checkpoint_find(source, name);
    if (!t) return RN_OK;
    rn_converted_tensor *tensor = &tensors[t - rn_checkpoint_tensor(source, 0)];
    RN_TRY(rn_arena_copy(arena, other, strlen(other), &copy));
    *tensor = arrange(from, to, p, is_bias);
    tensor->name = (rn_str){copy, strlen(other)};
    return RN_OK;
}

// The model was opened, so every weight is there: whole, or as the parts of a quantised one.
static rn_status check_whole(const rn_checkpoint *source, const rn_converted_tensor *tensors) {
    static const char *const parts[] = {"*._data",  "*.absmax",       "*.qweight",   "*_packed",
                                        "*_blocks", "*.weight_scale", "*_scale_inv", "*._scale"};
    for (size_t i = 0; i < rn_checkpoint_count(source); i++) {
        rn_str name = rn_checkpoint_tensor(source, i)->name;
        for (size_t k = 0; tensors[i].name.bytes == 0 && k < sizeof parts / sizeof *parts; k++)
            if (rn_str_matches(name, rn_str_from(parts[k])))
                return rn_hint(rn_fail(RN_UNSUPPORTED,
                                       "the input is quantised already: it has "
                                       "'%.*s'",
                                       RN_STR_ARG(name)),
                               "convert from the original weights");
    }
    return RN_OK;
}

rn_status rn_text_translate_names(const rn_checkpoint *source, const rn_llama_config *from,
                                  const rn_llama_config *to, rn_arena *arena,
                                  rn_converted_tensor **out) {
    void *block;
    RN_TRY(rn_arena_array(arena, rn_checkpoint_count(source), sizeof **out, &block));
    *out = block;
    for (rn_text_part_id p = 0; p < RN_TEXT_PARTS; p++) {
        const rn_text_part *part = &from->architecture->parts[p];
        uint32_t layers = p < RN_TEXT_IN_LAYER ? 1 : from->layers;
        if (!part->hugging_face || !part->gguf || (p == RN_TEXT_HEAD && from->tied)) continue;
        for (uint32_t layer = 0; layer < layers; layer++)
            for (int bias = 0; bias < 2; bias++)
                RN_TRY(translate(source, from, to, p, layer, bias, arena, *out));
    }
    return check_whole(source, *out);
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

static rn_status put_sizes(const keys *k, const rn_text_config *c) {
    const rn_llama_config *l = &c->llama;
    RN_TRY(put_u32(k, "block_count", l->layers));
    RN_TRY(put_u32(k, "context_length", c->context));
    RN_TRY(put_u32(k, "embedding_length", l->dim));
    RN_TRY(put_u32(k, "feed_forward_length", l->ffn));
    RN_TRY(put_u32(k, "attention.head_count", l->heads));
    RN_TRY(put_u32(k, "attention.head_count_kv", l->kv_heads));
    RN_TRY(put_u32(k, "vocab_size", l->vocab));
    return put_f32(k,
                   l->architecture->layernorm ? "attention.layer_norm_epsilon"
                                              : "attention.layer_norm_rms_epsilon",
                   l->norm_eps);
}

// Llama 3's scaling is a tensor (rope_freqs.weight), not a key.
static rn_status put_rope(const keys *k, const rn_llama_config *l) {
    const rn_rope_attrs *rope = &l->rope;
    RN_TRY(put_u32(k, "attention.key_length", l->head_dim));
    RN_TRY(put_u32(k, "attention.value_length", l->head_dim));
    RN_TRY(put_u32(k, "rope.dimension_count", rope->dims ? rope->dims : l->head_dim));
    RN_TRY(put_f32(k, "rope.freq_base", rope->base));
    if (rope->scaling == RN_ROPE_UNSCALED || rope->scaling == RN_ROPE_LLAMA3) return RN_OK;
    bool yarn = rope->scaling == RN_ROPE_YARN;
    if ((!yarn && rope->scaling != RN_ROPE_LINEAR) || rope->attention_factor != 0)
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say this scaling of rope");
    RN_TRY(put_text(k, "rope.scaling.type", yarn ? "yarn" : "linear"));
    RN_TRY(put_f32(k, "rope.scaling.factor", rope->factor));
    if (yarn) RN_TRY(put_u32(k, "rope.scaling.original_context_length", rope->original_context));
    if (rope->beta_fast != 0) RN_TRY(put_f32(k, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    if (rope->beta_slow != 0) RN_TRY(put_f32(k, "rope.scaling.yarn_beta_slow", rope->beta_slow));
    return RN_OK;
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
    if (windows) RN_TRY(put_u32(&k, "attention.sliding_window", l->window));
    return a->to_gguf ? a->to_gguf(config, out) : RN_OK;
}

// ---- config.json --------------------------------------------------------------------------------

void rn_text_json_float(rn_json *json, const char *key, float value) {
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    rn_json_f64(json, key, strtod(text, NULL));
}

static void write_rope(const rn_rope_attrs *rope, rn_json *json) {
    static const char *const types[] = {[RN_ROPE_UNSCALED] = "default",
                                        [RN_ROPE_LINEAR] = "linear",
                                        [RN_ROPE_NTK] = "ntk",
                                        [RN_ROPE_LLAMA3] = "llama3",
                                        [RN_ROPE_YARN] = "yarn"};
    rn_text_json_float(json, "rope_theta", rope->base);
    if (rope->scaling == RN_ROPE_UNSCALED) return;
    rn_json_object(json, "rope_scaling");
    rn_json_string(json, "rope_type", types[rope->scaling]);
    rn_text_json_float(json, "factor", rope->factor);
    if (rope->scaling == RN_ROPE_LLAMA3) {
        rn_text_json_float(json, "low_freq_factor", rope->low_frequency);
        rn_text_json_float(json, "high_freq_factor", rope->high_frequency);
    }
    if (rope->scaling != RN_ROPE_LINEAR)
        rn_json_u64(json, "original_max_position_embeddings", rope->original_context);
    if (rope->beta_fast != 0) rn_text_json_float(json, "beta_fast", rope->beta_fast);
    if (rope->beta_slow != 0) rn_text_json_float(json, "beta_slow", rope->beta_slow);
    rn_json_end(json);
}

void rn_text_settings_to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    const rn_text_architecture *a = l->architecture;
    bool gelu = l->activation == RN_ACTIVATION_GELU_TANH;
    rn_json_u64(json, "num_hidden_layers", l->layers);
    rn_json_u64(json, "hidden_size", l->dim);
    rn_json_u64(json, "intermediate_size", l->ffn);
    rn_json_u64(json, "num_attention_heads", l->heads);
    rn_json_u64(json, "num_key_value_heads", l->kv_heads);
    rn_json_u64(json, "head_dim", l->head_dim);
    rn_json_u64(json, "vocab_size", l->vocab);
    rn_json_u64(json, "max_position_embeddings", c->context);
    rn_text_json_float(json, "rms_norm_eps", l->norm_eps);
    rn_json_string(json, gelu ? "hidden_activation" : "hidden_act",
                   gelu ? "gelu_pytorch_tanh" : "silu");
    rn_json_bool(json, "tie_word_embeddings", l->tied);
    rn_json_bool(json, "attention_bias", l->qkv_bias && !a->qkv_bias);
    rn_json_bool(json, "mlp_bias", l->ffn_bias);
    write_rope(&l->rope, json);
    if (a->window_switch) rn_json_bool(json, "use_sliding_window", l->window > 0);
    if (l->window && a->window) rn_json_u64(json, "sliding_window", l->window);
    if (l->window && a->window_switch) rn_json_u64(json, "max_window_layers", l->window_from);
}

static rn_status write_json(const rn_text_config *c, const rn_text_extras *extras, rn_buffer *out) {
    const rn_text_architecture *a = c->llama.architecture;
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(out), true);
    rn_json_object(&json, NULL);
    rn_json_array(&json, "architectures");
    rn_json_string(&json, NULL, a->model_class);
    rn_json_end(&json);
    rn_json_string(&json, "model_type", a->model_type ? a->model_type : a->name);
    rn_json_string(&json, "torch_dtype", extras->dtype);
    if (extras->begin != UINT32_MAX) rn_json_u64(&json, "bos_token_id", extras->begin);
    if (extras->end != UINT32_MAX) rn_json_u64(&json, "eos_token_id", extras->end);
    if (a->to_json)
        a->to_json(c, &json);
    else
        rn_text_settings_to_json(c, &json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static bool is_near(float a, float b) {
    float size = a < 0 ? -a : a, diff = a - b;
    return (diff < 0 ? -diff : diff) <= 1e-5f * size;
}

static bool is_same_rope(const rn_rope_attrs *a, const rn_rope_attrs *b) {
    return a->scaling == b->scaling && a->base == b->base && a->dims == b->dims &&
           is_near(a->factor, b->factor) && is_near(a->attention_factor, b->attention_factor) &&
           is_near(a->beta_fast, b->beta_fast) && is_near(a->beta_slow, b->beta_slow) &&
           a->original_context == b->original_context;
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
                 a->activation == b->activation && a->parallel == b->parallel;
    bool windows = a->window == b->window && a->window_period == b->window_period &&
                   a->window_from == b->window_from && a->unturned_period == b->unturned_period &&
                   a->local_rope.base == b->local_rope.base;
    bool scales =
        is_near(a->norm_eps, b->norm_eps) && is_near(a->embedding_scale, b->embedding_scale) &&
        is_near(a->residual_scale, b->residual_scale) && is_near(a->logit_scale, b->logit_scale) &&
        is_near(a->score_cap, b->score_cap) && is_near(a->logit_cap, b->logit_cap);
    return sizes && flags && windows && scales && one->stretch == other->stretch &&
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
