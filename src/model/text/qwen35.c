// qwen35.c — Qwen3.5 and 3.6, dense and with experts (moe.c): three layers of linear attention (a
// gated delta net), then one of full attention with a gate, and so on. The place of attention in a
// layer:
//
//     x ─ qkv ─ conv ─ silu ─ delta rule ─ norm a head ─ times silu(z) ─ out ─▶
//     x ─ [q | gate], k, v ─ norms, rope of a quarter ─ attention ─ times sigmoid(gate) ─ o ─▶
//
// A layer of the first kind keeps the last three rows of qkv and a matrix a head, and no keys.
// Hugging Face's files hold norms as w of 1 + w, rates as log(-rate), and value heads in the order
// of their key heads; GGUF's hold 1 + w, the rate, and value heads dealt out to key heads in turn.
// Qwen3-Next (from Hugging Face's files alone) is the same with fewer, larger products.
// Models that also see ("qwen3_5") have their decoder's settings and weights one name further in.
#include "memory/account.h"
#include "model/text/decoder.h"

#include <stdio.h>

#define PARTS(outer)                                                                               \
    {                                                                                              \
        [RN_TEXT_EMBEDDING] = {outer "embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},    \
        [RN_TEXT_NORM] = {outer "norm", "output_norm", RN_SIZE_DIM},                               \
        [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},                        \
        [RN_TEXT_ATTENTION_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},                  \
        [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_TWO_WIDE, RN_SIZE_DIM},               \
        [RN_TEXT_K] = {"self_attn.k_proj", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},                 \
        [RN_TEXT_V] = {"self_attn.v_proj", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},                 \
        [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},              \
        [RN_TEXT_Q_NORM] = {"self_attn.q_norm", "attn_q_norm", RN_SIZE_HEAD_DIM},                  \
        [RN_TEXT_K_NORM] = {"self_attn.k_norm", "attn_k_norm", RN_SIZE_HEAD_DIM},                  \
        [RN_TEXT_MIX_IN] = {"linear_attn.in_proj_qkv", "attn_qkv", RN_SIZE_MIXED, RN_SIZE_DIM},    \
        [RN_TEXT_CONV] = {"linear_attn.conv1d", "ssm_conv1d"},                                     \
        [RN_TEXT_MIX_OUT] = {"linear_attn.out_proj", "ssm_out", RN_SIZE_DIM, RN_SIZE_VALUES},      \
        [RN_TEXT_Z] = {"linear_attn.in_proj_z", "attn_gate", RN_SIZE_VALUES, RN_SIZE_DIM},         \
        [RN_TEXT_A] = {"linear_attn.in_proj_a", "ssm_alpha", RN_SIZE_VALUE_HEADS, RN_SIZE_DIM},    \
        [RN_TEXT_A_BIAS] = {"linear_attn.dt_bias", "ssm_dt.bias", RN_SIZE_VALUE_HEADS,             \
                            .alone = true},                                                        \
        [RN_TEXT_A_RATE] = {"linear_attn.A_log", "ssm_a", RN_SIZE_VALUE_HEADS, .alone = true},     \
        [RN_TEXT_B] = {"linear_attn.in_proj_b", "ssm_beta", RN_SIZE_VALUE_HEADS, RN_SIZE_DIM},     \
        [RN_TEXT_STATE_NORM] = {"linear_attn.norm", "ssm_norm", RN_SIZE_VALUE_DIM},                \
        [RN_TEXT_MIX_IN_Z] = {"linear_attn.in_proj_qkvz", "", RN_SIZE_MIXED_GATED, RN_SIZE_DIM},   \
        [RN_TEXT_BA] = {"linear_attn.in_proj_ba", "", RN_SIZE_TWO_VALUE_HEADS, RN_SIZE_DIM},       \
        [RN_TEXT_FFN_NORM] = {"post_attention_layernorm", "post_attention_norm", RN_SIZE_DIM},     \
        [RN_TEXT_GATE] = {"mlp.gate_proj", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},                  \
        [RN_TEXT_UP] = {"mlp.up_proj", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},                        \
        [RN_TEXT_DOWN] = {"mlp.down_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},                  \
        RN_TEXT_EXPERT_PARTS, RN_TEXT_SHARED_PARTS("mlp.shared_expert"),                           \
        [RN_TEXT_SHARED_ROUTER] = {"mlp.shared_expert_gate", "ffn_gate_inp_shexp", RN_SIZE_ONE,    \
                                   RN_SIZE_DIM},                                                   \
    }

static const rn_text_part parts[RN_TEXT_PARTS] = PARTS("model.");
static const rn_text_part inner_parts[RN_TEXT_PARTS] = PARTS("model.language_model.");

// ---- layers -------------------------------------------------------------------------------------

// e^(rate ...) is how much of a state stays: rates are below 0.
static rn_value find_rate(rn_text_builder *d) {
    rn_value rate = rn_build_vector(d, RN_TEXT_A_RATE, "");
    return d->c->naming == RN_NAMES_GGUF ? rate : rn_op_neg(d->g, rn_op_exp(d->g, rate));
}

// What a layer makes of x: qkv (rows, MIXED), z (rows, VALUES), a and b (rows, VALUE_HEADS).
typedef struct mixture {
    rn_value qkv, z, a, b;
} mixture;

static mixture mix(rn_text_builder *d, rn_value x) {
    return (mixture){.qkv = rn_build_project(d, x, RN_TEXT_MIX_IN, false),
                     .z = rn_build_project(d, x, RN_TEXT_Z, false),
                     .a = rn_build_project(d, x, RN_TEXT_A, false),
                     .b = rn_build_project(d, x, RN_TEXT_B, false)};
}

// Columns [at, at + count) of each key head of x (rows, key heads, ...), as (rows, ...).
static rn_value part(rn_text_builder *d, rn_value x, uint64_t at, uint64_t count) {
    uint64_t wide = d->c->recurrent.key_heads * count;
    return rn_op_reshape(d->g, rn_op_slice(d->g, x, 2, at, count), RN_SHAPE(d->rows, wide));
}

// Qwen3-Next's files have both kinds in one product each, key head by key head.
static mixture mix_by_key_head(rn_text_builder *d, rn_value x) {
    const rn_recurrent_config *r = &d->c->recurrent;
    uint64_t heads = r->value_heads / r->key_heads, keys = r->key_dim,
             values = heads * r->value_dim;
    rn_value all = rn_build_project(d, x, RN_TEXT_MIX_IN_Z, false);
    rn_value ba = rn_build_project(d, x, RN_TEXT_BA, false);
    all = rn_op_reshape(d->g, all, RN_SHAPE(d->rows, r->key_heads, 2 * (keys + values)));
    ba = rn_op_reshape(d->g, ba, RN_SHAPE(d->rows, r->key_heads, 2 * heads));
    rn_value qkv[] = {part(d, all, 0, keys), part(d, all, keys, keys),
                      part(d, all, 2 * keys, values)};
    return (mixture){.qkv = rn_op_concat(d->g, qkv, 3, 1),
                     .z = part(d, all, 2 * keys + values, values),
                     .a = part(d, ba, heads, heads),
                     .b = part(d, ba, 0, heads)};
}

static rn_value remember(rn_text_builder *d, rn_value x) {
    rn_graph *g = d->g;
    const rn_recurrent_config *r = &d->c->recurrent;
    uint64_t values = rn_build_size(d, RN_SIZE_VALUES);
    mixture m = d->architecture->fused_mix ? mix_by_key_head(d, x) : mix(d, x);
    rn_value bias = rn_build_vector(d, RN_TEXT_A_BIAS, "");
    rn_value qkv = rn_op_silu(g, rn_build_conv(d, m.qkv, rn_build_size(d, RN_SIZE_MIXED)));
    rn_value y = rn_build_delta(d, qkv, m.a, m.b, find_rate(d), bias);
    y = rn_op_reshape(g, y, RN_SHAPE(d->rows, r->value_heads, r->value_dim));
    y = rn_op_rmsnorm(g, y, rn_build_vector(d, RN_TEXT_STATE_NORM, "weight"), d->c->norm_eps);
    y = rn_op_gated(g, m.z, rn_op_reshape(g, y, RN_SHAPE(d->rows, values)), RN_ACTIVATION_SILU);
    return rn_build_project(d, y, RN_TEXT_MIX_OUT, false);
}

static rn_value attend(rn_text_builder *d, rn_value x) {
    rn_graph *g = d->g;
    const rn_llama_config *c = d->c;
    uint64_t wide = rn_build_size(d, RN_SIZE_WIDE), dims = d->head_dim;
    rn_value both = rn_build_project(d, x, RN_TEXT_Q, c->qkv_bias);
    both = rn_op_reshape(g, both, RN_SHAPE(d->rows, c->heads, 2 * dims));
    rn_value q = rn_build_norm(d, rn_op_slice(g, both, 2, 0, dims), RN_TEXT_Q_NORM);
    rn_value gate = rn_op_reshape(g, rn_op_slice(g, both, 2, dims, dims), RN_SHAPE(d->rows, wide));
    rn_value k = rn_build_project(d, x, RN_TEXT_K, c->qkv_bias);
    k = rn_build_norm(d, rn_build_split(d, k, c->kv_heads), RN_TEXT_K_NORM);
    rn_value v = rn_build_split(d, rn_build_project(d, x, RN_TEXT_V, c->qkv_bias), c->kv_heads);
    q = rn_op_rope(g, q, d->positions, c->rope);
    k = rn_op_rope(g, k, d->positions, c->rope);
    rn_value y = rn_op_gated(g, gate, rn_build_attention(d, q, k, v), RN_ACTIVATION_SIGMOID);
    return rn_build_project(d, y, RN_TEXT_O, c->output_bias);
}

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM);
    y = rn_build_is_recurrent(d) ? remember(d, y) : attend(d, y);
    x = rn_op_add(d->g, x, y);
    y = rn_build_moe(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_op_add(d->g, x, y);
}

// ---- settings -----------------------------------------------------------------------------------

enum { MOST_HEADS = 1 << 12, MOST_DIMS = 1 << 12, INTERVAL = 4 };

static rn_status check_sizes(const rn_fields *f, const rn_recurrent_config *r) {
    bool heads = r->key_heads >= 1 && r->value_heads <= MOST_HEADS &&
                 r->value_heads >= r->key_heads && r->value_heads % r->key_heads == 0;
    bool dims = r->key_dim >= 1 && r->key_dim <= MOST_DIMS && r->value_dim >= 1 &&
                r->value_dim <= MOST_DIMS;
    if (!heads || !dims || r->taps < 2 || r->taps > 64)
        return rn_fail(RN_CORRUPT,
                       "%s: linear attention of %u key heads of %u and %u value heads of %u, "
                       "convolutions of %u rows",
                       f->source, r->key_heads, r->key_dim, r->value_heads, r->value_dim, r->taps);
    return RN_OK;
}

// One in so many attends.
static rn_status add_by_interval(const rn_fields *f, uint32_t interval, rn_llama_config *l) {
    if (interval == 0)
        return rn_fail(RN_CORRUPT, "%s: full_attention_interval cannot be 0", f->source);
    for (uint32_t i = 0; i < l->layers && i <= RN_RECURRENT_LAYERS; i++)
        if ((i + 1) % interval) RN_TRY(rn_text_add_recurrent(&l->recurrent, i));
    return RN_OK;
}

// Qwen3-Next's settings have numbers of experts in either form, 0 in the dense one.
static rn_status read_experts(const rn_fields *f, rn_text_config *c) {
    uint32_t experts = 0;
    RN_TRY(rn_fields_u32(f, "num_experts", &experts));
    if (experts == 0) return RN_OK;
    RN_TRY(rn_text_json_moe(f, c));
    c->llama.moe.shared_gate = c->llama.moe.shared_ffn != 0;
    return RN_OK;
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    rn_recurrent_config *r = &l->recurrent;
    uint32_t interval = INTERVAL;
    if (l->architecture->experts) RN_TRY(rn_fields_u32(f, "moe_intermediate_size", &l->ffn));
    *r = (rn_recurrent_config){
        .taps = 4, .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128};
    RN_TRY(rn_text_json_activation(f, "hidden_act", "silu", "swish"));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_text_json_rope(f, "rope_parameters", c));
    if (l->rope.dims == 0 && !rn_fields_find(f, "rope_parameters.partial_rotary_factor"))
        l->rope.dims = l->head_dim / 4;
    RN_TRY(rn_fields_u32(f, "linear_conv_kernel_dim", &r->taps));
    RN_TRY(rn_fields_u32(f, "linear_num_key_heads", &r->key_heads));
    RN_TRY(rn_fields_u32(f, "linear_num_value_heads", &r->value_heads));
    RN_TRY(rn_fields_u32(f, "linear_key_head_dim", &r->key_dim));
    RN_TRY(rn_fields_u32(f, "linear_value_head_dim", &r->value_dim));
    RN_TRY(rn_fields_u32(f, "full_attention_interval", &interval));
    RN_TRY(check_sizes(f, r));
    if (l->architecture->experts) RN_TRY(read_experts(f, c));
    l->norm_offset = 1;
    return rn_fields_find(f, "layer_types") ? rn_text_json_recurrent(f, "linear_attention", c)
                                            : add_by_interval(f, interval, l);
}

// "qwen35.<name>", "qwen35moe.<name>".
static const char *key_of(const rn_text_config *c, const char *name, char out[96]) {
    snprintf(out, 96, "%s.%s", c->architecture, name);
    return out;
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    rn_recurrent_config *r = &l->recurrent;
    uint32_t interval = INTERVAL, inner = 0;
    char key[96];
    *r = (rn_recurrent_config){.keys_in_turn = true};
    RN_TRY(rn_text_leave_drafts(f, key_of(c, "nextn_predict_layers", key), c));
    RN_TRY(rn_fields_need_u32(f, key_of(c, "ssm.conv_kernel", key), &r->taps));
    RN_TRY(rn_fields_need_u32(f, key_of(c, "ssm.group_count", key), &r->key_heads));
    RN_TRY(rn_fields_need_u32(f, key_of(c, "ssm.time_step_rank", key), &r->value_heads));
    RN_TRY(rn_fields_need_u32(f, key_of(c, "ssm.state_size", key), &r->key_dim));
    RN_TRY(rn_fields_need_u32(f, key_of(c, "ssm.inner_size", key), &inner));
    RN_TRY(rn_fields_u32(f, key_of(c, "full_attention_interval", key), &interval));
    if (r->value_heads == 0 || inner % r->value_heads)
        return rn_fail(RN_CORRUPT, "%s: %u cannot be %u value heads", f->source, inner,
                       r->value_heads);
    r->value_dim = inner / r->value_heads;
    RN_TRY(check_sizes(f, r));
    if (l->architecture->experts) RN_TRY(rn_text_gguf_moe(f, c));
    l->moe.shared_gate = l->moe.shared_ffn != 0;
    if (rn_fields_find(f, key_of(c, "attention.recurrent_layers", key)))
        return rn_text_gguf_recurrent(f, key, c);
    return add_by_interval(f, interval, l);
}

// Every so many layers one attends; 0: they lie otherwise.
static uint32_t find_interval(const rn_llama_config *l) {
    uint32_t interval = 0;
    for (uint32_t i = 0; i < l->layers; i++) {
        bool attends = !rn_text_is_recurrent(l, i);
        if (attends && interval == 0) interval = i + 1;
        if (attends != (interval && (i + 1) % interval == 0)) return 0;
    }
    return interval ? interval : l->layers + 1;
}

// Numbers as GGUF lists them.
static rn_status put_list(rn_pairs *out, const char *key, uint32_t gguf_type, const void *values,
                          uint64_t count, size_t bytes) {
    rn_buffer raw;
    rn_buffer_init(&raw, RN_HOST_IO, bytes);
    rn_status s = rn_buffer_append(&raw, values, bytes);
    if (s == RN_OK) s = rn_pairs_array(out, key, gguf_type, count, &raw);
    rn_buffer_free(&raw);
    return s;
}

// Of text all positions of rope's sections are equal, but llama.cpp asks for their sizes.
static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    const rn_recurrent_config *r = &l->recurrent;
    uint32_t pairs = (l->rope.dims ? l->rope.dims : l->head_dim) / 2, interval = find_interval(l);
    int32_t first = (int32_t)(pairs + 2) / 3, second = ((int32_t)pairs - first + 1) / 2;
    int32_t sections[] = {first, second, (int32_t)pairs - first - second, 0};
    char key[96];
    RN_TRY(rn_text_moe_to_gguf(c, out));
    RN_TRY(put_list(out, key_of(c, "rope.dimension_sections", key), RN_GGUF_I32, sections, 4,
                    sizeof sections));
    RN_TRY(rn_pairs_u32(out, key_of(c, "ssm.conv_kernel", key), r->taps));
    RN_TRY(rn_pairs_u32(out, key_of(c, "ssm.group_count", key), r->key_heads));
    RN_TRY(rn_pairs_u32(out, key_of(c, "ssm.time_step_rank", key), r->value_heads));
    RN_TRY(rn_pairs_u32(out, key_of(c, "ssm.state_size", key), r->key_dim));
    RN_TRY(rn_pairs_u32(out, key_of(c, "ssm.inner_size", key), r->value_heads * r->value_dim));
    key_of(c, "full_attention_interval", key);
    if (interval) return rn_pairs_u32(out, key, interval);
    bool flags[RN_RECURRENT_LAYERS] = {0};
    if (l->layers > RN_RECURRENT_LAYERS)
        return rn_fail(RN_UNSUPPORTED, "there are too many layers");
    for (uint32_t i = 0; i < l->layers; i++)
        flags[i] = rn_text_is_recurrent(l, i);
    return put_list(out, key_of(c, "attention.recurrent_layers", key), RN_GGUF_BOOL, flags,
                    l->layers, l->layers * sizeof *flags);
}

static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    const rn_recurrent_config *r = &l->recurrent;
    rn_text_moe_settings_to_json(c, json);
    rn_json_u64(json, "linear_conv_kernel_dim", r->taps);
    rn_json_u64(json, "linear_num_key_heads", r->key_heads);
    rn_json_u64(json, "linear_num_value_heads", r->value_heads);
    rn_json_u64(json, "linear_key_head_dim", r->key_dim);
    rn_json_u64(json, "linear_value_head_dim", r->value_dim);
    rn_text_json_layer_types(l, "linear_attention", json);
}

static rn_status refuse_gguf(const rn_fields *f, rn_text_config *c) {
    return rn_fail(RN_UNSUPPORTED, "%s: %s is read from Hugging Face's folders only", f->source,
                   c->architecture);
}

// ---- the rows -----------------------------------------------------------------------------------

static const char *const unused[] = {"mtp.*", "model.visual.*", NULL};

#define FAMILY                                                                                     \
    .name = "qwen35", .also = "Qwen3.5, Qwen3.6", .layer = layer, .from_json = from_json,          \
    .from_gguf = from_gguf, .qk_norm = true, .partial_rope = true, .unused = unused,               \
    .json_rope = true, .to_gguf = to_gguf, .to_json = to_json

extern const rn_text_architecture rn_text_qwen35;
const rn_text_architecture rn_text_qwen35 = {FAMILY, .model_type = "qwen3_5_text", .parts = parts,
                                             .model_class = "Qwen3_5ForCausalLM",
                                             .layers = {"model.layers", "blk", "model.layers"}};
// With eyes, which are left out.
extern const rn_text_architecture rn_text_qwen35_seeing;
const rn_text_architecture rn_text_qwen35_seeing = {
    FAMILY,
    .model_type = "qwen3_5",
    .parts = inner_parts,
    .layers = {"model.language_model.layers", "blk", "model.language_model.layers"},
    .settings = "text_config",
    .model_class = "Qwen3_5ForConditionalGeneration"};
extern const rn_text_architecture rn_text_qwen3_next;
const rn_text_architecture rn_text_qwen3_next = {.name = "qwen3next",
                                                 .model_type = "qwen3_next",
                                                 .experts = true,
                                                 .norm_experts = true,
                                                 .layer = layer,
                                                 .from_json = from_json,
                                                 .from_gguf = refuse_gguf,
                                                 .parts = parts,
                                                 .layers = {"model.layers", "blk", "model.layers"},
                                                 .unused = unused,
                                                 .qk_norm = true,
                                                 .partial_rope = true,
                                                 .fused_mix = true};
#define WITH_EXPERTS                                                                               \
    .name = "qwen35moe", .also = "Qwen3.5, Qwen3.6 with experts", .layer = layer,                  \
    .from_json = from_json, .from_gguf = from_gguf, .qk_norm = true, .partial_rope = true,         \
    .unused = unused, .experts = true, .norm_experts = true, .json_rope = true,                    \
    .to_gguf = to_gguf, .to_json = to_json, .json_experts = "num_experts", .json_gate_up = true
extern const rn_text_architecture rn_text_qwen35moe;
const rn_text_architecture rn_text_qwen35moe = {
    WITH_EXPERTS, .model_type = "qwen3_5_moe_text", .model_class = "Qwen3_5MoeForCausalLM",
    .parts = parts, .layers = {"model.layers", "blk", "model.layers"}};
extern const rn_text_architecture rn_text_qwen35moe_seeing;
const rn_text_architecture rn_text_qwen35moe_seeing = {
    WITH_EXPERTS,
    .model_type = "qwen3_5_moe",
    .parts = inner_parts,
    .model_class = "Qwen3_5MoeForConditionalGeneration",
    .layers = {"model.language_model.layers", "blk", "model.language_model.layers"},
    .settings = "text_config"};
