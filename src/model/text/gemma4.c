// gemma4.c — Gemma 4, the models without embeddings of each layer (31B; 26B-A4B): a Gemma 3 whose
// layers of two kinds have heads of two widths. Those that see all have wider ones, fewer of k and
// v, a rope that turns a part of each head's pairs, and values that are keys before their norm.
// One layer:
//
//     x ─ norm ─ attention ─ norm ─ + ─ norm ─ gate, up ─ down ─ norm ─ + ─ times a number ─▶
//
// Scores are not scaled; values are normed, too, without a weight. Norms multiply by w. The rope of
// the full layers keeps the frequencies of whole heads, and pairs behind a quarter stand still:
// GGUF has a table of divisors for that ("rope_freqs"), with 1e30 for these.
//
// With experts the feed-forward has two branches, each between norms of its own, that are added
// before the last norm. The router reads the branches' input, normed by its own scale.
//
//     x ─┬─ norm ─ gate, up ─ down ─ norm ─┐
//        ├─ norm ─ experts ─ norm ──────── + ─ norm ─▶
//        └─ router ─ ids, weights ┘
#include "model/text/decoder.h"

#include "memory/account.h"

#include <math.h>
#include <stdio.h>

enum { PERIOD = 6, FULL_HEAD_DIM = 512 };
static const float STANDING = 1e30f; // the divisor of a pair that is not turned

#define PARTS(outer)                                                                               \
    {                                                                                              \
        [RN_TEXT_EMBEDDING] = {outer "embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},    \
        [RN_TEXT_NORM] = {outer "norm", "output_norm", RN_SIZE_DIM},                               \
        [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},                        \
        [RN_TEXT_ATTENTION_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},                  \
        [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},                   \
        [RN_TEXT_K] = {"self_attn.k_proj", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},                 \
        [RN_TEXT_V] = {"self_attn.v_proj", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},                 \
        [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},              \
        [RN_TEXT_Q_NORM] = {"self_attn.q_norm", "attn_q_norm", RN_SIZE_HEAD_DIM},                  \
        [RN_TEXT_K_NORM] = {"self_attn.k_norm", "attn_k_norm", RN_SIZE_HEAD_DIM},                  \
        [RN_TEXT_POST_ATTENTION_NORM] = {"post_attention_layernorm", "post_attention_norm",        \
                                         RN_SIZE_DIM},                                             \
        [RN_TEXT_FFN_NORM] = {"pre_feedforward_layernorm", "ffn_norm", RN_SIZE_DIM},               \
        [RN_TEXT_GATE] = {"mlp.gate_proj", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},                  \
        [RN_TEXT_UP] = {"mlp.up_proj", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},                        \
        [RN_TEXT_DOWN] = {"mlp.down_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},                  \
        [RN_TEXT_POST_FFN_NORM] = {"post_feedforward_layernorm", "post_ffw_norm", RN_SIZE_DIM},    \
        [RN_TEXT_LAYER_SCALE] = {"layer_scalar", "layer_output_scale.weight", .alone = true},      \
        [RN_TEXT_DENSE_POST_NORM] = {"post_feedforward_layernorm_1", "post_ffw_norm_1",            \
                                     RN_SIZE_DIM},                                                 \
        [RN_TEXT_EXPERTS_NORM] = {"pre_feedforward_layernorm_2", "pre_ffw_norm_2", RN_SIZE_DIM},   \
        [RN_TEXT_EXPERTS_POST_NORM] = {"post_feedforward_layernorm_2", "post_ffw_norm_2",          \
                                       RN_SIZE_DIM},                                               \
        [RN_TEXT_ROUTER] = {"router.proj", "ffn_gate_inp", RN_SIZE_EXPERTS, RN_SIZE_DIM},          \
        [RN_TEXT_ROUTER_SCALE] = {"router.scale", "ffn_gate_inp.scale", RN_SIZE_DIM,               \
                                  .alone = true},                                                  \
        [RN_TEXT_EXPERT_SCALE] = {"router.per_expert_scale", "ffn_down_exps.scale",                \
                                  RN_SIZE_EXPERTS, .alone = true},                                 \
        [RN_TEXT_EXPERT_GATE] = {"experts.*.gate_proj", "ffn_gate_exps", RN_SIZE_EXPERT_FFN,       \
                                 RN_SIZE_DIM},                                                     \
        [RN_TEXT_EXPERT_UP] = {"experts.*.up_proj", "ffn_up_exps", RN_SIZE_EXPERT_FFN,             \
                               RN_SIZE_DIM},                                                       \
        [RN_TEXT_EXPERT_DOWN] = {"experts.*.down_proj", "ffn_down_exps", RN_SIZE_DIM,              \
                                 RN_SIZE_EXPERT_FFN},                                              \
        [RN_TEXT_EXPERTS_GATE_UP] = {"experts.gate_up_proj", "ffn_gate_up_exps",                   \
                                     RN_SIZE_TWO_EXPERT_FFN, RN_SIZE_DIM, .alone = true},          \
        [RN_TEXT_EXPERTS_DOWN] = {"experts.down_proj", "ffn_down_exps", RN_SIZE_DIM,               \
                                  RN_SIZE_EXPERT_FFN, .alone = true},                              \
    }

static const rn_text_part parts[RN_TEXT_PARTS] = PARTS("model.");
static const rn_text_part inner_parts[RN_TEXT_PARTS] = PARTS("model.language_model.");

static rn_value attend(rn_text_builder *d, rn_value x) {
    const rn_llama_config *c = d->c;
    bool keys_are_values = c->full_k_is_v && !rn_build_is_local(d);
    rn_value q = rn_build_split(d, rn_build_project(d, x, RN_TEXT_Q, false), c->heads);
    rn_value k = rn_build_split(d, rn_build_project(d, x, RN_TEXT_K, false), d->kv_heads);
    rn_value v = k;
    if (!keys_are_values)
        v = rn_build_split(d, rn_build_project(d, x, RN_TEXT_V, false), d->kv_heads);
    q = rn_build_turn(d, rn_build_norm(d, q, RN_TEXT_Q_NORM));
    k = rn_build_turn(d, rn_build_norm(d, k, RN_TEXT_K_NORM));
    v = rn_op_rmsnorm(d->g, v, RN_NO_VALUE, c->norm_eps);
    return rn_build_project(d, rn_build_attention(d, q, k, v), RN_TEXT_O, false);
}

static rn_value experts(rn_text_builder *d, rn_value x) {
    float root = sqrtf((float)d->c->dim);
    rn_value scale = rn_op_scale(d->g, rn_build_vector(d, RN_TEXT_ROUTER_SCALE, ""), 1 / root, 0);
    rn_value routed = rn_op_rmsnorm(d->g, x, scale, d->c->norm_eps);
    rn_value y = rn_build_experts(d, rn_build_norm(d, x, RN_TEXT_EXPERTS_NORM), routed);
    return rn_build_norm(d, y, RN_TEXT_EXPERTS_POST_NORM);
}

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = attend(d, rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM));
    x = rn_op_add(d->g, x, rn_build_norm(d, y, RN_TEXT_POST_ATTENTION_NORM));
    y = rn_build_gated(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    if (d->c->moe.experts)
        y = rn_op_add(d->g, rn_build_norm(d, y, RN_TEXT_DENSE_POST_NORM), experts(d, x));
    x = rn_op_add(d->g, x, rn_build_norm(d, y, RN_TEXT_POST_FFN_NORM));
    return rn_op_mul(d->g, x, rn_build_vector(d, RN_TEXT_LAYER_SCALE, ""));
}

// ---- settings -----------------------------------------------------------------------------------

static void fill(rn_llama_config *l) {
    l->activation = RN_ACTIVATION_GELU_TANH;
    l->embedding_scale = sqrtf((float)l->dim);
    l->attention_scale = 1;
}

// The forms with embeddings of each layer (E2B, E4B).
static rn_status refuse_others(const rn_fields *f) {
    uint32_t inputs = 256, shared = 0;
    rn_str both_ways = {0};
    RN_TRY(rn_text_refuse_flag(f, "use_double_wide_mlp", false));
    RN_TRY(rn_fields_u32(f, "hidden_size_per_layer_input", &inputs));
    RN_TRY(rn_fields_u32(f, "num_kv_shared_layers", &shared));
    RN_TRY(rn_fields_text(f, "use_bidirectional_attention", &both_ways));
    if (inputs || shared || rn_str_equal(both_ways, RN_STR("all")))
        return rn_fail(RN_UNSUPPORTED, "%s: Gemma 4 with %s is not built", f->source,
                       inputs   ? "embeddings of each layer"
                       : shared ? "layers that share keys"
                                : "attention to what comes later");
    return RN_OK;
}

// transformers writes what differs layer by layer; older files say it once.
static rn_status read_full_layers(const rn_fields *f, rn_llama_config *l) {
    char key[64];
    l->full_head_dim = FULL_HEAD_DIM;
    l->full_kv_heads = l->kv_heads;
    RN_TRY(rn_fields_u32(f, "global_head_dim", &l->full_head_dim));
    snprintf(key, sizeof key, "per_layer_config.%u.head_dim", l->window_period - 1);
    RN_TRY(rn_fields_u32(f, key, &l->full_head_dim));
    RN_TRY(rn_fields_bool(f, "attention_k_eq_v", &l->full_k_is_v));
    if (!l->full_k_is_v) return RN_OK;
    RN_TRY(rn_fields_u32(f, "num_global_key_value_heads", &l->full_kv_heads));
    snprintf(key, sizeof key, "per_layer_config.%u.num_key_value_heads", l->window_period - 1);
    return rn_fields_u32(f, key, &l->full_kv_heads);
}

// All pairs have divisors: 1, or what lets them stand.
static rn_status read_ropes(const rn_fields *f, rn_llama_config *l) {
    rn_str type = RN_STR("proportional");
    float share = 0.25f, factor = 1;
    l->rope = (rn_rope_attrs){.pairing = RN_ROPE_HALVES, .base = 1e6f};
    l->local_rope = (rn_rope_attrs){.pairing = RN_ROPE_HALVES, .base = 10000};
    RN_TRY(rn_fields_text(f, "rope_parameters.full_attention.rope_type", &type));
    RN_TRY(rn_fields_number(f, "rope_parameters.full_attention.rope_theta", &l->rope.base));
    RN_TRY(rn_fields_number(f, "rope_parameters.full_attention.partial_rotary_factor", &share));
    RN_TRY(rn_fields_number(f, "rope_parameters.full_attention.factor", &factor));
    RN_TRY(
        rn_fields_number(f, "rope_parameters.sliding_attention.rope_theta", &l->local_rope.base));
    if (!rn_str_equal(type, RN_STR("proportional")) || !(share > 0 && share <= 1) || factor != 1)
        return rn_fail(RN_UNSUPPORTED, "%s: rope '%.*s' of %g of a head by %g is not built",
                       f->source, RN_STR_ARG(type), (double)share, (double)factor);
    uint32_t pairs = l->full_head_dim / 2, turned = (uint32_t)(share * (float)pairs);
    if (pairs > RN_ROPE_DIVISORS)
        return rn_fail(RN_UNSUPPORTED, "%s: heads of %u are not built", f->source,
                       l->full_head_dim);
    l->rope_divided = true;
    for (uint32_t i = 0; i < pairs; i++)
        l->rope_divisors[i] = i < turned ? 1 : STANDING;
    return RN_OK;
}

static rn_status check_kinds(const rn_fields *f, const rn_llama_config *l) {
    if (l->window_period == 0 || l->window == 0)
        return rn_fail(RN_UNSUPPORTED, "%s: Gemma 4 without layers of both kinds is not built",
                       f->source);
    return RN_OK;
}

static rn_status check_full_heads(const rn_fields *f, const rn_llama_config *l) {
    if (l->full_head_dim && l->full_kv_heads) return RN_OK;
    return rn_fail(RN_CORRUPT, "%s: %u kv heads of %u in layers that see all", f->source,
                   l->full_kv_heads, l->full_head_dim);
}

// Files without experts may have their settings all the same.
static rn_status read_experts(const rn_fields *f, rn_text_config *c) {
    bool has_experts = false;
    RN_TRY(rn_fields_bool(f, "enable_moe_block", &has_experts));
    if (!has_experts) return RN_OK;
    c->llama.moe.expert_scale = true;
    return rn_text_json_moe(f, c);
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    RN_TRY(refuse_others(f));
    RN_TRY(
        rn_text_json_activation(f, "hidden_activation", "gelu_pytorch_tanh", "gelu_pytorch_tanh"));
    l->tied = true;
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    fill(l);
    RN_TRY(rn_fields_number(f, "final_logit_softcapping", &l->logit_cap));
    RN_TRY(rn_fields_need_u32(f, "sliding_window", &l->window));
    RN_TRY(rn_text_json_windows(f, PERIOD, c));
    RN_TRY(check_kinds(f, l));
    RN_TRY(read_full_layers(f, l));
    RN_TRY(check_full_heads(f, l));
    RN_TRY(read_experts(f, c));
    return read_ropes(f, l);
}

// kv heads of the first layer, which has a window, and of the first that sees all.
static rn_status read_kv_heads(const rn_fields *f, rn_llama_config *l) {
    static const char key[] = "gemma4.attention.head_count_kv";
    char each[64];
    l->full_kv_heads = l->kv_heads;
    const rn_field *field = rn_fields_find(f, key);
    if (!field || field->kind != RN_FIELD_LIST) return RN_OK;
    snprintf(each, sizeof each, "%s.0", key);
    RN_TRY(rn_fields_need_u32(f, each, &l->kv_heads));
    snprintf(each, sizeof each, "%s.%u", key, l->window_period - 1);
    return rn_fields_need_u32(f, each, &l->full_kv_heads);
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    uint32_t inputs = 0, shared = 0;
    fill(l);
    RN_TRY(rn_fields_u32(f, "gemma4.embedding_length_per_layer_input", &inputs));
    RN_TRY(rn_fields_u32(f, "gemma4.attention.shared_kv_layers", &shared));
    if (inputs || shared)
        return rn_fail(RN_UNSUPPORTED, "%s: Gemma 4 with %s is not built", f->source,
                       inputs ? "embeddings of each layer" : "layers that share keys");
    RN_TRY(rn_text_gguf_period(f, c));
    RN_TRY(check_kinds(f, l));
    l->full_head_dim = l->head_dim;
    RN_TRY(rn_fields_need_u32(f, "gemma4.attention.key_length_swa", &l->head_dim));
    RN_TRY(read_kv_heads(f, l));
    RN_TRY(check_full_heads(f, l));
    l->local_rope = (rn_rope_attrs){.pairing = l->rope.pairing, .base = 10000};
    RN_TRY(rn_fields_number(f, "gemma4.rope.freq_base_swa", &l->local_rope.base));
    RN_TRY(rn_fields_number(f, "gemma4.final_logit_softcapping", &l->logit_cap));
    l->moe.expert_scale = true;
    return rn_fields_find(f, "gemma4.expert_count") ? rn_text_gguf_moe(f, c) : RN_OK;
}

// ---- written down -------------------------------------------------------------------------------

// llama.cpp asks for a flag of each layer.
static rn_status put_pattern(const rn_llama_config *l, rn_pairs *out) {
    rn_buffer raw;
    rn_status s = RN_OK;
    rn_buffer_init(&raw, RN_HOST_IO, l->layers);
    for (uint32_t i = 0; s == RN_OK && i < l->layers; i++) {
        uint8_t slides = (i + 1) % l->window_period != 0;
        s = rn_buffer_append(&raw, &slides, 1);
    }
    if (s == RN_OK)
        s = rn_pairs_array(out, "gemma4.attention.sliding_window_pattern", RN_GGUF_BOOL, l->layers,
                           &raw);
    rn_buffer_free(&raw);
    return s;
}

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    if (l->logit_cap != 0)
        RN_TRY(rn_pairs_f32(out, "gemma4.final_logit_softcapping", l->logit_cap));
    RN_TRY(rn_pairs_u32(out, "gemma4.attention.key_length_swa", l->head_dim));
    RN_TRY(rn_pairs_u32(out, "gemma4.attention.value_length_swa", l->head_dim));
    RN_TRY(rn_pairs_u32(out, "gemma4.rope.dimension_count_swa", l->head_dim));
    RN_TRY(rn_pairs_f32(out, "gemma4.rope.freq_base_swa", l->local_rope.base));
    RN_TRY(rn_pairs_u32(out, "gemma4.attention.shared_kv_layers", 0));
    RN_TRY(rn_pairs_u32(out, "gemma4.embedding_length_per_layer_input", 0));
    RN_TRY(rn_text_moe_to_gguf(c, out));
    return put_pattern(l, out);
}

static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    uint32_t pairs = l->full_head_dim / 2, turned = 0;
    while (turned < pairs && (!l->rope_divided || l->rope_divisors[turned] == 1))
        turned++;
    rn_text_moe_settings_to_json(c, json);
    rn_json_u64(json, "global_head_dim", l->full_head_dim);
    rn_json_u64(json, "num_global_key_value_heads", l->full_kv_heads);
    rn_json_bool(json, "attention_k_eq_v", l->full_k_is_v);
    rn_json_u64(json, "hidden_size_per_layer_input", 0);
    rn_json_u64(json, "num_kv_shared_layers", 0);
    rn_json_bool(json, "enable_moe_block", l->moe.experts > 0);
    rn_json_u64(json, "sliding_window", l->window);
    if (l->logit_cap != 0) rn_text_json_float(json, "final_logit_softcapping", l->logit_cap);
    rn_text_json_layer_types(l, NULL, json);
    rn_json_object(json, "rope_parameters");
    rn_json_object(json, "full_attention");
    rn_json_string(json, "rope_type", "proportional");
    rn_text_json_float(json, "rope_theta", l->rope.base);
    rn_text_json_float(json, "partial_rotary_factor", (float)turned / (float)pairs);
    rn_json_end(json);
    rn_json_object(json, "sliding_attention");
    rn_json_string(json, "rope_type", "default");
    rn_text_json_float(json, "rope_theta", l->local_rope.base);
    rn_json_end(json);
    rn_json_end(json);
}

// ---- the rows -----------------------------------------------------------------------------------

#define FAMILY                                                                                     \
    .name = "gemma4", .layer = layer, .from_json = from_json, .from_gguf = from_gguf,              \
    .qk_norm = true, .two_heads = true, .kv_heads_by_layer = true, .experts = true,                \
    .norm_experts = true, .json_activation = "hidden_activation", .to_gguf = to_gguf,              \
    .to_json = to_json, .json_experts = "num_experts", .json_gate_up = true, .gguf_gate_up = true

extern const rn_text_architecture rn_text_gemma4;
const rn_text_architecture rn_text_gemma4 = {FAMILY,
                                             .model_type = "gemma4_text",
                                             .also = "31B",
                                             .parts = parts,
                                             .layers = {"model.layers", "blk", "model.layers"},
                                             .model_class = "Gemma4ForCausalLM"};

// Of images and text: its text.
static const char *const of_images[] = {"model.vision_tower.*", "model.embed_vision.*",
                                        "model.audio_tower.*", "model.embed_audio.*", NULL};

extern const rn_text_architecture rn_text_gemma4_seeing;
const rn_text_architecture rn_text_gemma4_seeing = {
    FAMILY,
    .model_type = "gemma4",
    .also = "its text",
    .parts = inner_parts,
    .layers = {"model.language_model.layers", "blk", "model.language_model.layers"},
    .settings = "text_config",
    .unused = of_images,
    .model_class = "Gemma4ForConditionalGeneration",
};
