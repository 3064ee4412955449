// hf_config.c — config.json, as Hugging Face's transformers writes it.
#include "model/text/decoder.h"
#include "model/text/hf_quantization.h"

#include "graph/rope_frequencies.h"

#include <math.h>
#include <stdio.h>

// ---- rope ---------------------------------------------------------------------------------------

// Its parameters stand in "rope_scaling" (with rope_theta beside it) or, newer, all together in
// "rope_parameters"; some names have an older spelling.
typedef struct rope_reader {
    const rn_fields *fields;
    const char *object;
} rope_reader;

static const char *field_of(const rope_reader *r, const char *name, char out[64]) {
    snprintf(out, 64, "%s.%s", r->object, name);
    return out;
}

static rn_status number(const rope_reader *r, const char *name, float *out) {
    char field[64];
    return rn_fields_number(r->fields, field_of(r, name, field), out);
}

static rn_status need_number(const rope_reader *r, const char *name, float *out) {
    char field[64];
    return rn_fields_need_number(r->fields, field_of(r, name, field), out);
}

static rn_status count(const rope_reader *r, const char *name, uint32_t *out) {
    char field[64];
    return rn_fields_u32(r->fields, field_of(r, name, field), out);
}

static rn_status read_llama3(const rope_reader *r, rn_text_config *c) {
    rn_rope_attrs *rope = &c->llama.rope;
    rope->scaling = RN_ROPE_LLAMA3;
    RN_TRY(need_number(r, "factor", &rope->factor));
    RN_TRY(need_number(r, "low_freq_factor", &rope->low_frequency));
    RN_TRY(need_number(r, "high_freq_factor", &rope->high_frequency));
    rope->original_context = c->context;
    return count(r, "original_max_position_embeddings", &rope->original_context);
}

static double magnitude(double factor, double share) {
    return factor > 1 ? 0.1 * share * log(factor) + 1 : 1;
}

static rn_status read_yarn(const rope_reader *r, rn_text_config *c) {
    rn_rope_attrs *rope = &c->llama.rope;
    float mscale = 0, mscale_all = 0;
    bool truncate = true;
    char field[64];
    rope->scaling = RN_ROPE_YARN;
    rope->original_context = c->context;
    RN_TRY(count(r, "original_max_position_embeddings", &rope->original_context));
    rope->factor = rope->original_context ? (float)c->context / (float)rope->original_context : 0;
    RN_TRY(number(r, "factor", &rope->factor));
    RN_TRY(number(r, "beta_fast", &rope->beta_fast));
    RN_TRY(number(r, "beta_slow", &rope->beta_slow));
    RN_TRY(number(r, "attention_factor", &rope->attention_factor));
    RN_TRY(number(r, "mscale", &mscale));
    RN_TRY(number(r, "mscale_all_dim", &mscale_all));
    RN_TRY(rn_fields_bool(r->fields, field_of(r, "truncate", field), &truncate));
    rope->untruncated = !truncate;
    if (rope->attention_factor == 0 && mscale > 0 && mscale_all > 0)
        rope->attention_factor = (float)(magnitude((double)rope->factor, (double)mscale) /
                                         magnitude((double)rope->factor, (double)mscale_all));
    return RN_OK;
}

// "short_factor": [1.05, ...], one a pair.
static rn_status read_divisors(const rope_reader *r, const char *name, uint32_t pairs,
                               float *out /* (pairs) */) {
    for (uint32_t i = 0; i < pairs; i++) {
        char element[32];
        snprintf(element, sizeof element, "%s.%u", name, i);
        RN_TRY(need_number(r, element, &out[i]));
        if (!(out[i] > 0))
            return rn_fail(RN_CORRUPT, "%s: %s.%s is not above 0", r->fields->source, r->object,
                           element);
    }
    return RN_OK;
}

static rn_status read_longrope(const rope_reader *r, rn_text_config *c) {
    rn_rope_attrs *rope = &c->llama.rope;
    uint64_t pairs = rn_rope_dims(rope, c->llama.head_dim) / 2;
    float factor = 0;
    if (pairs > RN_ROPE_DIVISORS)
        return rn_fail(RN_UNSUPPORTED, "%s: LongRoPE of %llu pairs is not built", r->fields->source,
                       (unsigned long long)pairs);
    RN_TRY(rn_fields_u32(r->fields, "original_max_position_embeddings", &c->long_from));
    RN_TRY(count(r, "original_max_position_embeddings", &c->long_from));
    if (c->long_from < 2)
        return rn_fail(RN_CORRUPT, "%s lacks 'original_max_position_embeddings'",
                       r->fields->source);
    RN_TRY(read_divisors(r, "short_factor", (uint32_t)pairs, c->short_divisors));
    RN_TRY(read_divisors(r, "long_factor", (uint32_t)pairs, c->long_divisors));
    factor = (float)c->context / (float)c->long_from;
    RN_TRY(number(r, "factor", &factor));
    if (factor > 1)
        rope->attention_factor = (float)sqrt(1 + log((double)factor) / log((double)c->long_from));
    return number(r, "attention_factor", &rope->attention_factor);
}

static rn_status read_scaling(const rope_reader *r, rn_text_config *c) {
    rn_rope_attrs *rope = &c->llama.rope;
    rn_str type = RN_STR("default");
    char field[64];
    RN_TRY(rn_fields_text(r->fields, field_of(r, "type", field), &type));
    RN_TRY(rn_fields_text(r->fields, field_of(r, "rope_type", field), &type));
    if (rn_str_equal(type, RN_STR("default"))) return RN_OK;
    if (rn_str_equal(type, RN_STR("llama3"))) return read_llama3(r, c);
    if (rn_str_equal(type, RN_STR("yarn"))) return read_yarn(r, c);
    bool is_long = rn_str_equal(type, RN_STR("longrope")) || rn_str_equal(type, RN_STR("su"));
    if (is_long && c->llama.architecture->long_rope) return read_longrope(r, c);
    if (rn_str_equal(type, RN_STR("dynamic"))) return need_number(r, "factor", &c->stretch);
    if (rn_str_equal(type, RN_STR("linear")))
        rope->scaling = RN_ROPE_LINEAR;
    else if (rn_str_equal(type, RN_STR("ntk")))
        rope->scaling = RN_ROPE_NTK;
    else
        return rn_fail(RN_UNSUPPORTED, "%s: rope scaling '%.*s' is not built", r->fields->source,
                       RN_STR_ARG(type));
    return need_number(r, "factor", &rope->factor);
}

rn_status rn_text_json_rope(const rn_fields *f, const char *object, rn_text_config *c) {
    rope_reader r = {f, object};
    rn_llama_config *l = &c->llama;
    float share = 1;
    c->llama.rope = (rn_rope_attrs){.pairing = RN_ROPE_HALVES, .base = 10000};
    char one[64], other[64];
    if (rn_fields_find(f, field_of(&r, "full_attention", one)) ||
        rn_fields_find(f, field_of(&r, "sliding_attention", other)))
        return rn_fail(RN_UNSUPPORTED, "%s: rope that differs from layer to layer is not built",
                       f->source);
    RN_TRY(rn_fields_number(f, "rope_theta", &c->llama.rope.base));
    RN_TRY(number(&r, "rope_theta", &c->llama.rope.base));
    RN_TRY(rn_fields_number(f, "partial_rotary_factor", &share));
    RN_TRY(number(&r, "partial_rotary_factor", &share));
    if (!(share > 0 && share <= 1) || (share < 1 && !l->architecture->partial_rope))
        return rn_fail(RN_UNSUPPORTED, "%s: a partial_rotary_factor of %g is not built", f->source,
                       (double)share);
    if (share < 1) l->rope.dims = (uint32_t)((float)l->head_dim * share);
    return read_scaling(&r, c);
}

rn_status rn_text_json_ropes(const rn_fields *f, rn_text_config *c) {
    bool newer = rn_fields_find(f, "rope_parameters") != NULL;
    const char *object = newer ? "rope_parameters" : "rope_scaling";
    if (rn_fields_find(f, "rope_parameters.full_attention"))
        object = "rope_parameters.full_attention";
    RN_TRY(rn_text_json_rope(f, object, c));
    c->llama.local_rope =
        (rn_rope_attrs){.pairing = c->llama.rope.pairing, .base = c->llama.rope.base};
    return rn_fields_number(f, "rope_parameters.sliding_attention.rope_theta",
                            &c->llama.local_rope.base);
}

// ---- windows ------------------------------------------------------------------------------------

// Whether layer `i` is one that slides, by "layer_types".
static rn_status read_layer_type(const rn_fields *f, uint32_t i, bool *out) {
    rn_str type = {0};
    char field[32];
    snprintf(field, sizeof field, "layer_types.%u", i);
    RN_TRY(rn_fields_need_text(f, field, &type));
    *out = rn_str_equal(type, RN_STR("sliding_attention"));
    if (*out || rn_str_equal(type, RN_STR("full_attention"))) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: layers of '%.*s' are not built", f->source,
                   RN_STR_ARG(type));
}

// The first layer that sees all is the period; the others must be where that puts them.
static rn_status read_layer_types(const rn_fields *f, rn_llama_config *l) {
    l->window_period = 0;
    for (uint32_t i = 0; i < l->layers; i++) {
        bool slides = false;
        RN_TRY(read_layer_type(f, i, &slides));
        if (!slides && l->window_period == 0) l->window_period = i + 1;
        bool expected = l->window_period == 0 || (i + 1) % l->window_period != 0;
        if (slides != expected)
            return rn_fail(RN_UNSUPPORTED, "%s: layer %u %s where one in %u sees all", f->source, i,
                           slides ? "slides" : "sees all", l->window_period);
    }
    return RN_OK;
}

rn_status rn_text_json_windows(const rn_fields *f, uint32_t period, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    l->window_period = period;
    RN_TRY(rn_fields_u32(f, "sliding_window", &l->window));
    RN_TRY(rn_fields_u32(f, "sliding_window_pattern", &l->window_period));
    return rn_fields_find(f, "layer_types") ? read_layer_types(f, l) : RN_OK;
}

// ---- the rest -----------------------------------------------------------------------------------

rn_status rn_text_json_activation(const rn_fields *f, const char *name, const char *wanted,
                                  const char *or_wanted) {
    rn_str act = rn_str_from(wanted);
    RN_TRY(rn_fields_text(f, name, &act));
    if (rn_str_equal(act, rn_str_from(wanted)) || rn_str_equal(act, rn_str_from(or_wanted)))
        return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: %s '%.*s' is not built, only %s is", f->source, name,
                   RN_STR_ARG(act), wanted);
}

rn_status rn_text_json_act(const rn_fields *f, const char *name, rn_text_config *c) {
    static const struct {
        const char *name;
        rn_activation activation;
    } known[] = {
        {"silu", RN_ACTIVATION_SILU},           {"swish", RN_ACTIVATION_SILU},
        {"gelu", RN_ACTIVATION_GELU},           {"gelu_new", RN_ACTIVATION_GELU_TANH},
        {"gelu_fast", RN_ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", RN_ACTIVATION_GELU_TANH}};
    rn_str act = {0};
    RN_TRY(rn_fields_text(f, name, &act));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (rn_str_equal(act, rn_str_from(known[i].name))) {
            c->llama.activation = known[i].activation;
            return RN_OK;
        }
    if (act.bytes == 0) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: %s '%.*s' is not built", f->source, name, RN_STR_ARG(act));
}

rn_status rn_text_refuse_flag(const rn_fields *f, const char *name, bool built) {
    bool on = built;
    RN_TRY(rn_fields_bool(f, name, &on));
    if (on == built) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: %s as %s is not built", f->source, name,
                   on ? "true" : "false");
}

static rn_status refuse_unbuilt(const rn_fields *f) {
    static const char *const experts[] = {"num_local_experts", "num_experts", "n_routed_experts"};
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        const rn_field *field = rn_fields_find(f, experts[i]);
        if (field && (field->kind != RN_FIELD_NUMBER || field->number != 0))
            return rn_fail(RN_UNSUPPORTED, "%s: mixtures of experts (%s) are not built", f->source,
                           experts[i]);
    }
    return RN_OK;
}

static rn_status need_size(const rn_fields *f, const char *name, uint32_t *size) {
    return *size ? rn_fields_u32(f, name, size) : rn_fields_need_u32(f, name, size);
}

rn_status rn_text_json_sizes(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    RN_TRY(rn_fields_need_u32(f, "num_hidden_layers", &l->layers));
    RN_TRY(rn_fields_need_u32(f, "hidden_size", &l->dim));
    RN_TRY(need_size(f, "intermediate_size", &l->ffn));
    RN_TRY(need_size(f, "vocab_size", &l->vocab));
    RN_TRY(need_size(f, "num_attention_heads", &l->heads));
    if (l->kv_heads == 0) l->kv_heads = l->heads;
    RN_TRY(rn_fields_u32(f, "num_key_value_heads", &l->kv_heads));
    if (l->heads == 0) return rn_fail(RN_CORRUPT, "%s: there are no heads", f->source);
    if (l->head_dim == 0) l->head_dim = l->dim / l->heads;
    RN_TRY(rn_fields_u32(f, "head_dim", &l->head_dim));
    l->norm_eps = 1e-6f;
    RN_TRY(rn_fields_number(f, "rms_norm_eps", &l->norm_eps));
    if (c->context == 0) c->context = 2048;
    return rn_fields_u32(f, "max_position_embeddings", &c->context);
}

rn_status rn_text_json_flags(const rn_fields *f, rn_text_config *c) {
    const rn_text_architecture *a = c->llama.architecture;
    rn_llama_config *l = &c->llama;
    bool bias = false;
    l->qk_norm = a->qk_norm;
    RN_TRY(rn_fields_bool(f, "tie_word_embeddings", &l->tied));
    RN_TRY(rn_fields_bool(f, "mlp_bias", &l->ffn_bias));
    RN_TRY(rn_fields_bool(f, "attention_bias", &bias));
    l->qkv_bias = bias || a->qkv_bias;
    l->output_bias = bias;
    return RN_OK;
}

rn_status rn_text_config_from_json(const rn_fields *fields, rn_text_config *out) {
    rn_str type = {0};
    *out = (rn_text_config){.llama.naming = RN_NAMES_HUGGING_FACE, .embedding.normalizes = true};
    RN_TRY(rn_fields_need_text(fields, "model_type", &type));
    RN_TRY(rn_text_architecture_find(type, RN_NAMES_HUGGING_FACE, &out->llama.architecture));
    out->architecture = out->llama.architecture->name;
    if (!out->llama.architecture->experts) RN_TRY(refuse_unbuilt(fields));
    RN_TRY(rn_text_json_quantization(fields, &out->quantization));
    rn_fields settings = *fields;
    settings.within = out->llama.architecture->settings;
    if (settings.within && !out->llama.architecture->experts) RN_TRY(refuse_unbuilt(&settings));
    RN_TRY(out->llama.architecture->from_json(&settings, out));
    // Of a model that sees, the head's flag is that of the whole, where it has one.
    return settings.within ? rn_fields_bool(fields, "tie_word_embeddings", &out->llama.tied)
                           : RN_OK;
}
