// deepseek.c — DeepSeek V2, V3, R1 and GLM-4.7-Flash: latent attention and mixtures of experts with
// shared ones, behind some dense layers. One layer:
//
//     x ─ norm ─┬─ [q_a ─ norm ─] q_b ─ each head: what is not turned | what is ─┐
//               └─ kv_a ─ the latent: norm | a key for all heads: rope ──────────┴ attention ─ o ─
//               +
//
// Of a token only the latent c and the turned key are kept, one after the other, for all heads.
// What a head's own key would be, K c, never is made: q (K c) = (Kᵀ q) c, so queries go through Kᵀ.
// Values are V c, so what is attended is the latent itself, and goes through V (op/head_product.c):
//
//     query = [Kᵀ q | rope(q')]   key = [c | rope(k)]   y = V (attention to c)
//
// GGUF has Kᵀ and V of all heads apart (attn_k_b, attn_v_b), Hugging Face both in kv_b_proj, as
// older GGUF files do: for each head rows of K, then of V.
#include "model/text/decoder.h"

#include <math.h>
#include <stdio.h>

// Norms of latents have this epsilon whatever the settings say (transformers).
static const float LATENT_EPS = 1e-6f;

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"model.embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"model.norm", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},
    [RN_TEXT_Q_A] = {"self_attn.q_a_proj", "attn_q_a", RN_SIZE_Q_RANK, RN_SIZE_DIM},
    [RN_TEXT_Q_NORM] = {"self_attn.q_a_layernorm", "attn_q_a_norm", RN_SIZE_Q_RANK},
    [RN_TEXT_Q_B] = {"self_attn.q_b_proj", "attn_q_b", RN_SIZE_WIDE, RN_SIZE_Q_RANK},
    [RN_TEXT_KV_A] = {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", RN_SIZE_LATENT, RN_SIZE_DIM},
    [RN_TEXT_K_NORM] = {"self_attn.kv_a_layernorm", "attn_kv_a_norm", RN_SIZE_KV_RANK},
    [RN_TEXT_KV_B] = {"self_attn.kv_b_proj", "attn_kv_b", RN_SIZE_HEAD_KEYS_VALUES,
                      RN_SIZE_KV_RANK},
    [RN_TEXT_K_B] = {NULL, "attn_k_b", RN_SIZE_HEAD_LATENTS, RN_SIZE_STILL},
    [RN_TEXT_V_B] = {NULL, "attn_v_b", RN_SIZE_HEAD_VALUES, RN_SIZE_KV_RANK},
    [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_HEAD_VALUES},
    [RN_TEXT_FFN_NORM] = {"post_attention_layernorm", "ffn_norm", RN_SIZE_DIM},
    [RN_TEXT_GATE] = {"mlp.gate_proj", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.up_proj", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.down_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
    RN_TEXT_EXPERT_PARTS,
    [RN_TEXT_ROUTER_BIAS] = {"mlp.gate.e_score_correction_bias", "exp_probs_b", RN_SIZE_EXPERTS,
                             .alone = true},
    RN_TEXT_SHARED_PARTS("mlp.shared_experts"),
};

// ---- a layer ------------------------------------------------------------------------------------

static rn_value latent_norm(rn_text_builder *d, rn_value x, rn_text_part_id p) {
    return rn_op_rmsnorm(d->g, x, rn_build_vector(d, p, "weight"), LATENT_EPS);
}

// What leads from queries to latents and back.
typedef struct heads {
    rn_value k, v; // of all heads: Kᵀ and V, or one weight with both
    bool split;
} heads;

static heads find_heads(rn_text_builder *d) {
    heads h = {.split = rn_build_has(d, RN_TEXT_K_B, "weight")};
    h.k = rn_build_matrix(d, h.split ? RN_TEXT_K_B : RN_TEXT_KV_B);
    h.v = h.split ? rn_build_matrix(d, RN_TEXT_V_B) : h.k;
    return h;
}

static rn_value to_latents(rn_text_builder *d, const heads *h, rn_value q) {
    rn_head_product_attrs attrs = {.transposed = !h->split,
                                   .count = h->split ? 0 : d->c->latent.still,
                                   .unquantised_activations = d->c->unquantised_activations};
    return rn_op_head_product(d->g, q, h->k, attrs);
}

static rn_value from_latents(rn_text_builder *d, const heads *h, rn_value y) {
    rn_head_product_attrs attrs = {.first = h->split ? 0 : d->c->latent.still,
                                   .unquantised_activations = d->c->unquantised_activations};
    return rn_op_head_product(d->g, y, h->v, attrs);
}

static rn_value queries(rn_text_builder *d, rn_value x, const heads *h) {
    const rn_llama_config *c = d->c;
    const rn_latent_config *l = &c->latent;
    rn_value q;
    if (l->q_rank) {
        q = latent_norm(d, rn_build_project(d, x, RN_TEXT_Q_A, c->qkv_bias), RN_TEXT_Q_NORM);
        q = rn_build_project(d, q, RN_TEXT_Q_B, false);
    } else {
        q = rn_build_project(d, x, RN_TEXT_Q, false);
    }
    q = rn_build_split(d, q, c->heads);
    rn_value still = rn_op_slice(d->g, q, 2, 0, l->still);
    rn_value turned = rn_build_turn(d, rn_op_slice(d->g, q, 2, l->still, l->turned));
    return rn_op_concat(d->g, (rn_value[]){to_latents(d, h, still), turned}, 2, 2);
}

static rn_value keys(rn_text_builder *d, rn_value x) {
    const rn_latent_config *l = &d->c->latent;
    rn_value kv = rn_build_project(d, x, RN_TEXT_KV_A, d->c->qkv_bias);
    rn_value c = latent_norm(d, rn_op_slice(d->g, kv, 1, 0, l->kv_rank), RN_TEXT_K_NORM);
    rn_value k = rn_op_slice(d->g, kv, 1, l->kv_rank, l->turned);
    c = rn_op_reshape(d->g, c, RN_SHAPE(d->rows, 1, l->kv_rank));
    k = rn_build_turn(d, rn_op_reshape(d->g, k, RN_SHAPE(d->rows, 1, l->turned)));
    return rn_op_concat(d->g, (rn_value[]){c, k}, 2, 2);
}

static rn_value attend(rn_text_builder *d, rn_value x) {
    heads h = find_heads(d);
    rn_value y = from_latents(d, &h, rn_build_latent_attention(d, queries(d, x, &h), keys(d, x)));
    y = rn_op_reshape(d->g, y, RN_SHAPE(d->rows, rn_build_size(d, RN_SIZE_HEAD_VALUES)));
    return rn_build_project(d, y, RN_TEXT_O, d->c->output_bias);
}

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = attend(d, rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM));
    x = rn_op_add(d->g, x, y);
    y = rn_build_moe(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_op_add(d->g, x, y);
}

// ---- settings -----------------------------------------------------------------------------------

// Widths that no head has; what follows from them. scale: of scores, beside the width's.
static rn_status settle(const rn_fields *f, rn_llama_config *l, double scale) {
    const rn_latent_config *a = &l->latent;
    const uint32_t widths[] = {a->kv_rank, a->still, a->turned, a->value};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (widths[i] == 0 || widths[i] > 1 << 16)
            return rn_fail(RN_CORRUPT, "%s: heads of %u and %u with values of %u from %u cannot be",
                           f->source, a->still, a->turned, a->value, a->kv_rank);
    if (a->turned % 2 || a->q_rank > 1 << 24)
        return rn_fail(RN_CORRUPT, "%s: %u turned of queries from %u cannot be", f->source,
                       a->turned, a->q_rank);
    l->kv_heads = 1;
    l->head_dim = a->still + a->turned;
    l->attention_scale = (float)(scale / sqrt((double)l->head_dim));
    return RN_OK;
}

// YARN's scale of scores: what its `mscale_all_dim` multiplies queries and keys by.
static double yarn_scale(const rn_rope_attrs *rope, double all_dim) {
    if (rope->scaling != RN_ROPE_YARN || !(rope->factor > 1)) return 1;
    double mscale = 0.1 * all_dim * log((double)rope->factor) + 1;
    return mscale * mscale;
}

static rn_status read_json(const rn_fields *f, rn_text_config *c) {
    const char *rope = rn_fields_find(f, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    rn_llama_config *l = &c->llama;
    rn_latent_config *a = &l->latent;
    float all_dim = 0;
    bool neighbours = true;
    char field[64];
    RN_TRY(rn_text_json_activation(f, "hidden_act", "silu", "swish"));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_fields_u32(f, "q_lora_rank", &a->q_rank));
    RN_TRY(rn_fields_need_u32(f, "kv_lora_rank", &a->kv_rank));
    RN_TRY(rn_fields_need_u32(f, "qk_nope_head_dim", &a->still));
    RN_TRY(rn_fields_need_u32(f, "qk_rope_head_dim", &a->turned));
    RN_TRY(rn_fields_need_u32(f, "v_head_dim", &a->value));
    l->head_dim = a->turned; // of which rope's settings speak
    RN_TRY(rn_text_json_rope(f, rope, c));
    RN_TRY(rn_fields_bool(f, "rope_interleave", &neighbours));
    l->rope.pairing = neighbours ? RN_ROPE_NEIGHBOURS : RN_ROPE_HALVES;
    snprintf(field, sizeof field, "%s.mscale_all_dim", rope);
    RN_TRY(rn_fields_number(f, field, &all_dim));
    RN_TRY(settle(f, l, yarn_scale(&l->rope, (double)all_dim)));
    RN_TRY(rn_text_leave_drafts(f, "num_nextn_predict_layers", c));
    RN_TRY(rn_text_leave_drafts(f, "num_mtp_layers", c));
    RN_TRY(rn_text_json_moe(f, c));
    uint32_t step = 1;
    RN_TRY(rn_fields_u32(f, "moe_layer_freq", &step));
    if (step == 1) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "%s: a moe_layer_freq of %u is not built", f->source, step);
}

// Softmax; groups count by their best expert, where there are any.
static rn_status v2_from_json(const rn_fields *f, rn_text_config *c) {
    rn_route_attrs *route = &c->llama.moe.route;
    rn_str method = RN_STR("greedy");
    RN_TRY(read_json(f, c));
    RN_TRY(rn_fields_text(f, "topk_method", &method));
    route->group_by_max = true;
    if (rn_str_equal(method, RN_STR("group_limited_greedy"))) return RN_OK;
    if (!rn_str_equal(method, RN_STR("greedy")))
        return rn_fail(RN_UNSUPPORTED, "%s: the topk_method '%.*s' is not built", f->source,
                       RN_STR_ARG(method));
    route->groups = route->groups_chosen = 0;
    return RN_OK;
}

static rn_status v3_from_json(const rn_fields *f, rn_text_config *c) {
    c->llama.moe.route.gating = RN_GATING_SIGMOID;
    c->llama.moe.choice_bias = true;
    return read_json(f, c);
}

extern const rn_text_architecture rn_text_deepseek_v2, rn_text_deepseek_v3, rn_text_glm4_moe_lite;

// Older files have neither a gating nor what splits kv_b, and say the widths of whole heads.
static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    enum { GLM_VOCAB = 154880 };
    rn_llama_config *l = &c->llama;
    rn_latent_config *a = &l->latent;
    rn_moe_config *m = &l->moe;
    float log_mul = 0;
    uint32_t key = 0;
    bool is_glm = l->vocab == GLM_VOCAB;
    a->turned = l->head_dim; // rope's
    RN_TRY(rn_fields_u32(f, "deepseek2.attention.q_lora_rank", &a->q_rank));
    RN_TRY(rn_fields_need_u32(f, "deepseek2.attention.kv_lora_rank", &a->kv_rank));
    RN_TRY(rn_fields_u32(f, "deepseek2.attention.key_length", &key));
    RN_TRY(rn_fields_u32(f, "deepseek2.attention.key_length_mla", &key));
    RN_TRY(rn_fields_u32(f, "deepseek2.attention.value_length", &a->value));
    RN_TRY(rn_fields_u32(f, "deepseek2.attention.value_length_mla", &a->value));
    if (key <= a->turned)
        return rn_fail(RN_CORRUPT, "%s: heads of %u with %u turned cannot be", f->source, key,
                       a->turned);
    a->still = key - a->turned;
    RN_TRY(rn_fields_number(f, "deepseek2.rope.scaling.yarn_log_multiplier", &log_mul));
    if (log_mul != 0) l->rope.attention_factor = 1; // of queries and keys alike, by the scale
    RN_TRY(settle(f, l, yarn_scale(&l->rope, 10 * (double)log_mul)));
    RN_TRY(rn_text_leave_drafts(f, "deepseek2.nextn_predict_layers", c));
    m->route.gating = is_glm ? RN_GATING_SIGMOID : RN_GATING_SOFTMAX;
    RN_TRY(rn_text_gguf_moe(f, c));
    m->choice_bias = m->route.gating == RN_GATING_SIGMOID;
    m->route.group_by_max = m->route.gating == RN_GATING_SOFTMAX;
    // Which of those with this name in GGUF files it is.
    l->architecture = is_glm           ? &rn_text_glm4_moe_lite
                      : m->choice_bias ? &rn_text_deepseek_v3
                                       : &rn_text_deepseek_v2;
    return RN_OK;
}

// ---- written down -------------------------------------------------------------------------------

// YARN's 0.1 * mscale_all_dim, from the scale of scores.
static float log_multiplier(const rn_llama_config *l) {
    double scale = (double)l->attention_scale * sqrt((double)l->head_dim);
    bool yarn = l->rope.scaling == RN_ROPE_YARN && l->rope.factor > 1;
    return yarn ? (float)((sqrt(scale) - 1) / log((double)l->rope.factor)) : 0;
}

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    const rn_latent_config *a = &l->latent;
    float log_mul = log_multiplier(l), share = l->rope.attention_factor;
    if (log_mul > 1e-6f && fabsf(share - 1) > 1e-5f)
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say YARN with two scales (mscale)");
    if (a->q_rank) RN_TRY(rn_pairs_u32(out, "deepseek2.attention.q_lora_rank", a->q_rank));
    RN_TRY(rn_pairs_u32(out, "deepseek2.attention.kv_lora_rank", a->kv_rank));
    RN_TRY(rn_pairs_u32(out, "deepseek2.attention.key_length_mla", a->still + a->turned));
    RN_TRY(rn_pairs_u32(out, "deepseek2.attention.value_length_mla", a->value));
    if (log_mul > 1e-6f)
        RN_TRY(rn_pairs_f32(out, "deepseek2.rope.scaling.yarn_log_multiplier", log_mul));
    return rn_text_moe_to_gguf(c, out);
}

static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    const rn_latent_config *a = &l->latent;
    float log_mul = log_multiplier(l);
    bool is_v2 = l->architecture == &rn_text_deepseek_v2;
    rn_text_moe_settings_to_json(c, json);
    if (a->q_rank)
        rn_json_u64(json, "q_lora_rank", a->q_rank);
    else
        rn_json_null(json, "q_lora_rank");
    rn_json_u64(json, "kv_lora_rank", a->kv_rank);
    rn_json_u64(json, "qk_nope_head_dim", a->still);
    rn_json_u64(json, "qk_rope_head_dim", a->turned);
    rn_json_u64(json, "v_head_dim", a->value);
    if (is_v2)
        rn_json_string(json, "topk_method",
                       l->moe.route.groups > 1 ? "group_limited_greedy" : "greedy");
    rn_json_bool(json, "rope_interleave", l->rope.pairing == RN_ROPE_NEIGHBOURS);
    rn_text_json_rope_object(&l->rope, "rope_parameters", json);
    if (log_mul > 1e-6f) {
        rn_text_json_float(json, "mscale", 10 * log_mul);
        rn_text_json_float(json, "mscale_all_dim", 10 * log_mul);
    }
    rn_json_end(json);
}

// ---- the rows -----------------------------------------------------------------------------------

#define FAMILY                                                                                     \
    .layers = {"model.layers", "blk", "layers"}, .outer = "model.", .parts = parts,                \
    .layer = layer, .from_gguf = from_gguf, .experts = true, .latent = true, .name = "deepseek2",  \
    .gguf_rope = RN_ROPE_NEIGHBOURS, .json_experts = "n_routed_experts", .yarn_share = true,       \
    .to_gguf = to_gguf, .to_json = to_json

const rn_text_architecture rn_text_deepseek_v2 = {FAMILY, .model_type = "deepseek_v2",
                                                  .model_class = "DeepseekV2ForCausalLM",
                                                  .from_json = v2_from_json};
const rn_text_architecture rn_text_deepseek_v3 = {FAMILY,
                                                  .model_type = "deepseek_v3",
                                                  .also = "DeepSeek R1",
                                                  .norm_experts = true,
                                                  .model_class = "DeepseekV3ForCausalLM",
                                                  .from_json = v3_from_json};
const rn_text_architecture rn_text_glm4_moe_lite = {FAMILY,
                                                    .model_type = "glm4_moe_lite",
                                                    .also = "GLM-4.7-Flash",
                                                    .model_class = "Glm4MoeLiteForCausalLM",
                                                    .norm_experts = true,
                                                    .partial_rope = true,
                                                    .from_json = v3_from_json};
