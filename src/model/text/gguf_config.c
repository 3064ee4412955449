// gguf_config.c — a GGUF file's metadata, as llama.cpp's converters write it: "llama.block_count".
//
// What a model has (biases, a head of its own) is not said there but shown by its tensors.
#include "model/text/decoder.h"

#include "graph/rope_frequencies.h"
#include "memory/account.h"

#include <stdio.h>

typedef struct metadata {
    const rn_fields *fields;
    const rn_checkpoint *checkpoint;
    const rn_text_architecture *architecture;
} metadata;

static const char *key_of(const metadata *m, const char *name, char out[96]) {
    snprintf(out, 96, "%s.%s", m->architecture->name, name);
    return out;
}

static rn_status count(const metadata *m, const char *name, uint32_t *out) {
    char key[96];
    return rn_fields_u32(m->fields, key_of(m, name, key), out);
}

static rn_status need_count(const metadata *m, const char *name, uint32_t *out) {
    char key[96];
    return rn_fields_need_u32(m->fields, key_of(m, name, key), out);
}

static rn_status number(const metadata *m, const char *name, float *out) {
    char key[96];
    return rn_fields_number(m->fields, key_of(m, name, key), out);
}

static bool has(const metadata *m, const char *tensor) {
    return rn_checkpoint_find(m->checkpoint, tensor) != NULL;
}

// ---- rope ---------------------------------------------------------------------------------------

// A table with a divisor for each pair.
static rn_status load_divisors(const metadata *m, const rn_tensor_info *t, const rn_llama_config *l,
                               float *out /* (pairs) */, uint64_t most) {
    uint64_t pairs = rn_rope_dims(&l->rope, l->head_dim) / 2;
    if (t->elements != pairs || pairs > most)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has %llu elements, not %llu", RN_STR_ARG(t->name),
                       (unsigned long long)t->elements, (unsigned long long)pairs);
    return rn_checkpoint_load(m->checkpoint, t, RN_DTYPE_F32, out, pairs * sizeof *out);
}

static rn_status read_divisors(const metadata *m, const rn_tensor_info *t, rn_llama_config *l) {
    enum { MOST = 4096 };
    void *divisors = NULL;
    if (l->rope.scaling != RN_ROPE_UNSCALED)
        return rn_fail(RN_UNSUPPORTED, "%s: rope_freqs.weight beside a rope scaling is not built",
                       m->fields->source);
    RN_TRY(rn_alloc(RN_HOST_OTHER, MOST * sizeof(float), &divisors));
    rn_status s = load_divisors(m, t, l, divisors, MOST);
    if (s == RN_OK) s = rn_rope_from_divisors(divisors, l->head_dim, &l->rope);
    rn_free(RN_HOST_OTHER, divisors, MOST * sizeof(float));
    return s;
}

// LongRoPE: two tables, and the factor of cos and sin.
static rn_status read_longrope(const metadata *m, const rn_tensor_info *longer, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    const rn_tensor_info *shorter = rn_checkpoint_find(m->checkpoint, "rope_factors_short.weight");
    if (!shorter || !m->architecture->long_rope)
        return rn_fail(RN_UNSUPPORTED, "%s: rope_factors_long.weight %s is not built",
                       m->fields->source, shorter ? "of this architecture" : "alone");
    RN_TRY(need_count(m, "rope.scaling.original_context_length", &c->long_from));
    if (c->long_from == 0) return rn_fail(RN_CORRUPT, "%s: no original context", m->fields->source);
    RN_TRY(load_divisors(m, longer, l, c->long_divisors, RN_ROPE_DIVISORS));
    RN_TRY(load_divisors(m, shorter, l, c->short_divisors, RN_ROPE_DIVISORS));
    return number(m, "rope.scaling.attn_factor", &l->rope.attention_factor);
}

static rn_status read_yarn(const metadata *m, rn_text_config *c) {
    rn_rope_attrs *rope = &c->llama.rope;
    float share = 1;
    rope->scaling = RN_ROPE_YARN;
    rope->original_context = c->context;
    RN_TRY(count(m, "rope.scaling.original_context_length", &rope->original_context));
    RN_TRY(number(m, "rope.scaling.yarn_beta_fast", &rope->beta_fast));
    RN_TRY(number(m, "rope.scaling.yarn_beta_slow", &rope->beta_slow));
    RN_TRY(number(m, "rope.scaling.attn_factor", &share));
    if (share == 1) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: an attn_factor of %g is not built", m->fields->source,
                   (double)share);
}

// A factor without a type is linear, as in llama.cpp.
static rn_status read_scaling(const metadata *m, rn_text_config *c) {
    rn_rope_attrs *rope = &c->llama.rope;
    char key[96];
    rn_str type = RN_STR("linear");
    RN_TRY(number(m, "rope.scale_linear", &rope->factor));
    RN_TRY(number(m, "rope.scaling.factor", &rope->factor));
    RN_TRY(rn_fields_text(m->fields, key_of(m, "rope.scaling.type", key), &type));
    if (rn_str_equal(type, RN_STR("yarn"))) return read_yarn(m, c);
    bool linear = rn_str_equal(type, RN_STR("linear"));
    if (!linear && !rn_str_equal(type, RN_STR("none")))
        return rn_fail(RN_UNSUPPORTED, "%s: rope scaling '%.*s' is not built", m->fields->source,
                       RN_STR_ARG(type));
    if (linear && rope->factor != 0 && rope->factor != 1) rope->scaling = RN_ROPE_LINEAR;
    return RN_OK;
}

static rn_status read_rope(const metadata *m, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    uint32_t dims = l->head_dim;
    l->rope = (rn_rope_attrs){.pairing = m->architecture->gguf_rope, .base = 10000};
    RN_TRY(number(m, "rope.freq_base", &l->rope.base));
    RN_TRY(count(m, "rope.dimension_count", &dims));
    if (dims == 0 || dims > l->head_dim || (dims < l->head_dim && !m->architecture->partial_rope))
        return rn_fail(RN_UNSUPPORTED, "%s: rope that turns %u of a head's %u is not built",
                       m->fields->source, dims, l->head_dim);
    if (dims < l->head_dim) l->rope.dims = dims;
    RN_TRY(read_scaling(m, c));
    const rn_tensor_info *divisors = rn_checkpoint_find(m->checkpoint, "rope_freqs.weight");
    if (divisors && m->architecture->two_heads) {
        l->rope_divided = true;
        return load_divisors(m, divisors, l, l->rope_divisors, RN_ROPE_DIVISORS);
    }
    if (divisors) return read_divisors(m, divisors, l);
    const rn_tensor_info *longer = rn_checkpoint_find(m->checkpoint, "rope_factors_long.weight");
    return longer ? read_longrope(m, longer, c) : RN_OK;
}

// ---- windows ------------------------------------------------------------------------------------

// Flags, one a layer: the first layer that sees all is the period.
static rn_status read_pattern(const rn_fields *f, const char *key, rn_llama_config *l) {
    l->window_period = 0;
    for (uint32_t i = 0; i < l->layers; i++) {
        char field[128];
        snprintf(field, sizeof field, "%s.%u", key, i);
        const rn_field *slides = rn_fields_find(f, field);
        if (!slides || slides->kind != RN_FIELD_BOOL)
            return rn_fail(RN_CORRUPT, "%s: '%s' has no flag for layer %u", f->source, key, i);
        if (!slides->boolean && l->window_period == 0) l->window_period = i + 1;
        bool expected = l->window_period == 0 || (i + 1) % l->window_period != 0;
        if (slides->boolean != expected)
            return rn_fail(RN_UNSUPPORTED, "%s: layer %u %s where one in %u sees all", f->source, i,
                           slides->boolean ? "slides" : "sees all", l->window_period);
    }
    return RN_OK;
}

rn_status rn_text_gguf_period(const rn_fields *f, rn_text_config *c) {
    char key[96];
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", c->architecture);
    const rn_field *pattern = rn_fields_find(f, key);
    bool is_list = pattern && pattern->kind == RN_FIELD_LIST;
    return is_list ? read_pattern(f, key, &c->llama)
                   : rn_fields_u32(f, key, &c->llama.window_period);
}

// ---- sizes --------------------------------------------------------------------------------------

static rn_status read_head_dim(const metadata *m, rn_llama_config *l) {
    if (l->heads == 0) return rn_fail(RN_CORRUPT, "%s: there are no heads", m->fields->source);
    if (m->architecture->latent) return need_count(m, "rope.dimension_count", &l->head_dim);
    l->head_dim = l->dim / l->heads;
    RN_TRY(count(m, "attention.key_length", &l->head_dim));
    uint32_t value = l->head_dim;
    RN_TRY(count(m, "attention.value_length", &value));
    if (value == l->head_dim) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: keys of %u and values of %u are not built",
                   m->fields->source, l->head_dim, value);
}

// A number, or one for each layer: 0 where the layer has none.
static rn_status read_kv_heads(const metadata *m, rn_llama_config *l) {
    char key[96], each[128];
    const rn_field *field = rn_fields_find(m->fields, key_of(m, "attention.head_count_kv", key));
    l->kv_heads = l->heads;
    if (!field || field->kind != RN_FIELD_LIST) return rn_fields_u32(m->fields, key, &l->kv_heads);
    uint32_t most = 0;
    for (uint32_t i = 0; i < l->layers && i < field->count; i++) {
        uint32_t heads = 0;
        snprintf(each, sizeof each, "%s.%u", key, i);
        RN_TRY(rn_fields_need_u32(m->fields, each, &heads));
        if (heads && most && heads != most && !m->architecture->two_heads)
            return rn_fail(RN_UNSUPPORTED, "%s: layers of %u and of %u kv heads are not built",
                           m->fields->source, most, heads);
        if (heads) most = heads;
    }
    l->kv_heads = most;
    return RN_OK;
}

static rn_status read_sizes(const metadata *m, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    const rn_tensor_info *words = rn_checkpoint_find(m->checkpoint, "token_embd.weight");
    RN_TRY(need_count(m, "block_count", &l->layers));
    RN_TRY(need_count(m, "embedding_length", &l->dim));
    if (m->architecture->experts) RN_TRY(count(m, "expert_feed_forward_length", &l->ffn));
    RN_TRY((l->ffn ? count : need_count)(m, "feed_forward_length", &l->ffn));
    RN_TRY(need_count(m, "attention.head_count", &l->heads));
    RN_TRY(read_kv_heads(m, l));
    RN_TRY(read_head_dim(m, l));
    l->norm_eps = 1e-5f;
    RN_TRY(number(m, "attention.layer_norm_epsilon", &l->norm_eps));
    RN_TRY(number(m, "attention.layer_norm_rms_epsilon", &l->norm_eps));
    c->context = 2048;
    RN_TRY(count(m, "context_length", &c->context));
    if (!words || words->rank != 2 || words->dims[0] > UINT32_MAX)
        return rn_fail(RN_CORRUPT, "%s: tensor 'token_embd.weight' is missing or no matrix",
                       m->fields->source);
    l->vocab = (uint32_t)words->dims[0];
    return count(m, "attention.sliding_window", &l->window);
}

static void read_flags(const metadata *m, rn_llama_config *l) {
    l->qk_norm = m->architecture->qk_norm ||
                 (m->architecture->qk_norm_if_there && has(m, "blk.0.attn_q_norm.weight"));
    l->qkv_bias =
        m->architecture->qkv_bias || has(m, "blk.0.attn_q.bias") || has(m, "blk.0.attn_qkv.bias");
    l->output_bias = has(m, "blk.0.attn_output.bias");
    l->ffn_bias = has(m, "blk.0.ffn_up.bias");
    l->two_norms = has(m, "blk.0.attn_norm_2.weight");
    l->tied = !has(m, "output.weight");
}

// A decoder that was trained further to see a text both ways.
static rn_status read_causal(const metadata *m, rn_llama_config *l) {
    char key[96];
    bool causal = !l->both_ways;
    RN_TRY(rn_fields_bool(m->fields, key_of(m, "attention.causal", key), &causal));
    if (causal && l->both_ways)
        return rn_fail(RN_UNSUPPORTED, "%s: %s that sees a text from its beginning is not built",
                       m->fields->source, m->architecture->name);
    l->both_ways = !causal;
    return RN_OK;
}

static rn_status refuse_unbuilt(metadata *m) {
    uint32_t experts = 0, files = 1;
    RN_TRY(count(m, "expert_count", &experts));
    if (experts && !rn_text_architecture_with_experts(&m->architecture))
        return rn_fail(RN_UNSUPPORTED, "%s: mixtures of experts (%u) are not built",
                       m->fields->source, experts);
    RN_TRY(rn_fields_u32(m->fields, "split.count", &files));
    if (files <= 1) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s is one of %u parts", m->fields->source, files),
                   "join them with llama-gguf-split --merge");
}

rn_status rn_text_config_from_gguf(const rn_fields *fields, const rn_checkpoint *checkpoint,
                                   rn_text_config *out) {
    rn_str name = {0};
    *out = (rn_text_config){.llama.naming = RN_NAMES_GGUF, .embedding.normalizes = true};
    RN_TRY(rn_fields_need_text(fields, "general.architecture", &name));
    RN_TRY(rn_text_architecture_find(name, RN_NAMES_GGUF, &out->llama.architecture));
    metadata m = {fields, checkpoint, out->llama.architecture};
    out->architecture = m.architecture->name;
    RN_TRY(refuse_unbuilt(&m));
    out->llama.architecture = m.architecture;
    RN_TRY(read_sizes(&m, out));
    read_flags(&m, &out->llama);
    RN_TRY(read_rope(&m, out));
    RN_TRY(m.architecture->from_gguf ? m.architecture->from_gguf(fields, out) : RN_OK);
    if (out->llama.full_head_dim) {
        char full[48];
        snprintf(full, sizeof full, "blk.%u.attn_v.weight", out->llama.window_period - 1);
        out->llama.full_k_is_v = !has(&m, full);
    }
    return read_causal(&m, &out->llama);
}
