// moe.c — mixtures of experts: Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, GLM-4.5 to 4.7. The
// feed-forward of a layer:
//
//     x ─┬─ router ─ route ─ ids, weights
//        ├─ gate, up of the chosen experts ─ down ─ sum by weights ─┐
//        └─ gate, up ─ down of what is shared [* its own gate] ───── + ─▶
//
// Files keep experts in one of four ways; a graph's weight is a stack of all of them either way:
//
//     GGUF           ffn_gate_exps, ffn_up_exps, ffn_down_exps, or ffn_gate_up_exps
//     GGUF, packed   ffn_gate.I, ffn_up.I, ffn_down.I: a tensor an expert, its own side by side
//     Hugging Face   mlp.experts.I.gate_proj.weight ...: a tensor an expert
//     Hugging Face   mlp.experts.gate_up_proj (experts, 2 ffn, dim), mlp.experts.down_proj
#include "model/text/decoder.h"

#include <stdio.h>

// ---- a layer ------------------------------------------------------------------------------------

static rn_value product(rn_text_builder *d, rn_value x, rn_value ids, rn_value w, uint64_t first,
                        uint64_t count) {
    rn_expert_product_attrs attrs = {.experts = d->c->moe.experts,
                                     .first = first,
                                     .count = count,
                                     .unquantised_activations = d->c->unquantised_activations};
    return rn_op_expert_product(d->g, x, ids, w, RN_NO_VALUE, attrs);
}

rn_value rn_build_experts(rn_text_builder *d, rn_value x, rn_value routed) {
    const rn_moe_config *m = &d->c->moe;
    bool gguf = d->c->naming == RN_NAMES_GGUF;
    rn_value bias = RN_NO_VALUE, scale = RN_NO_VALUE;
    if (m->choice_bias) bias = rn_build_vector(d, RN_TEXT_ROUTER_BIAS, gguf ? "bias" : "");
    if (m->expert_scale) scale = rn_build_vector(d, RN_TEXT_EXPERT_SCALE, "");
    rn_value logits = rn_build_project(d, routed, RN_TEXT_ROUTER, false);
    rn_value ids = rn_op_route(d->g, logits, bias, scale, m->route);
    rn_value weights = rn_graph_output_of(d->g, ids, 1), gate, up;
    bool fused = rn_build_has(d, RN_TEXT_EXPERTS_GATE_UP, gguf ? "weight" : "");
    if (fused) {
        rn_value both = rn_build_stack(d, RN_TEXT_EXPERTS_GATE_UP);
        gate = product(d, x, ids, both, 0, m->ffn);
        up = product(d, x, ids, both, m->ffn, m->ffn);
    } else {
        gate = product(d, x, ids, rn_build_stack(d, RN_TEXT_EXPERT_GATE), 0, 0);
        up = product(d, x, ids, rn_build_stack(d, RN_TEXT_EXPERT_UP), 0, 0);
    }
    rn_value h = rn_op_gated(d->g, gate, up, d->c->activation);
    rn_value down = rn_build_stack(d, fused && !gguf ? RN_TEXT_EXPERTS_DOWN : RN_TEXT_EXPERT_DOWN);
    return rn_op_expert_sum(d->g, product(d, h, ids, down, 0, 0), weights);
}

// (rows, 1). GGUF has a vector.
static rn_value shared_gate(rn_text_builder *d, rn_value x) {
    if (d->c->naming != RN_NAMES_GGUF) return rn_build_project(d, x, RN_TEXT_SHARED_ROUTER, false);
    rn_value w = rn_build_f32(d, RN_TEXT_SHARED_ROUTER, "weight", RN_SHAPE(d->c->dim));
    return rn_op_matmul(d->g, x, rn_op_reshape(d->g, w, RN_SHAPE(1, d->c->dim)), RN_NO_VALUE);
}

static rn_value shared(rn_text_builder *d, rn_value x) {
    rn_value gate = rn_build_project(d, x, RN_TEXT_SHARED_GATE, false);
    rn_value up = rn_build_project(d, x, RN_TEXT_SHARED_UP, false);
    rn_value y = rn_build_project(d, rn_op_gated(d->g, gate, up, d->c->activation),
                                  RN_TEXT_SHARED_DOWN, false);
    if (!d->c->moe.shared_gate) return y;
    return rn_op_mul(d->g, y, rn_op_sigmoid(d->g, shared_gate(d, x)));
}

rn_value rn_build_moe(rn_text_builder *d, rn_value x) {
    const rn_moe_config *m = &d->c->moe;
    if (m->experts == 0 || d->layer < m->dense_layers) return rn_build_gated(d, x);
    rn_value y = rn_build_experts(d, x, x);
    return m->shared_ffn ? rn_op_add(d->g, y, shared(d, x)) : y;
}

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_attend(d, rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM));
    x = rn_build_add(d, x, y);
    y = rn_build_moe(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_build_add(d, x, y);
}

// ---- settings -----------------------------------------------------------------------------------

// Numbers that no router has; the rest is the graph's to check.
static rn_status check_moe(const rn_fields *f, const rn_llama_config *l) {
    const rn_moe_config *m = &l->moe;
    if (m->experts == 0 || m->experts > 4096 || m->ffn == 0 || m->ffn > 1 << 24 ||
        m->shared_ffn > 1 << 24 || m->route.chosen == 0 || m->route.chosen > m->experts)
        return rn_fail(RN_CORRUPT, "%s: %u of %u experts of %u cannot be", f->source,
                       m->route.chosen, m->experts, m->ffn);
    return RN_OK;
}

// "dense" ..., then "sparse" ...
static rn_status read_layer_types(const rn_fields *f, rn_llama_config *l) {
    uint32_t dense = 0;
    if (!rn_fields_find(f, "mlp_layer_types")) return RN_OK;
    for (uint32_t i = 0; i < l->layers; i++) {
        char field[32];
        rn_str type = {0};
        snprintf(field, sizeof field, "mlp_layer_types.%u", i);
        RN_TRY(rn_fields_need_text(f, field, &type));
        bool is_dense = rn_str_equal(type, RN_STR("dense"));
        if ((!is_dense && !rn_str_equal(type, RN_STR("sparse"))) || (is_dense && dense < i))
            return rn_fail(RN_UNSUPPORTED, "%s: layer %u of '%.*s' there is not built", f->source,
                           i, RN_STR_ARG(type));
        dense += is_dense;
    }
    l->moe.dense_layers = dense;
    return RN_OK;
}

rn_status rn_text_json_moe(const rn_fields *f, rn_text_config *c) {
    static const char *const counts[] = {"num_experts", "num_local_experts", "n_routed_experts"};
    rn_moe_config *m = &c->llama.moe;
    uint32_t step = 1, shared = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        RN_TRY(rn_fields_u32(f, counts[i], &m->experts));
    RN_TRY(rn_fields_u32(f, "top_k_experts", &m->route.chosen));
    if (!m->route.chosen) RN_TRY(rn_fields_need_u32(f, "num_experts_per_tok", &m->route.chosen));
    m->ffn = c->llama.ffn;
    RN_TRY(rn_fields_u32(f, "moe_intermediate_size", &m->ffn));
    RN_TRY(rn_fields_u32(f, "n_shared_experts", &shared));
    if (shared > 1024) return rn_fail(RN_CORRUPT, "%s: %u shared experts", f->source, shared);
    m->shared_ffn = shared * (m->ffn < 1 << 24 ? m->ffn : 0);
    RN_TRY(rn_fields_u32(f, "shared_expert_intermediate_size", &m->shared_ffn));
    m->route.norm = c->llama.architecture->norm_experts;
    RN_TRY(rn_fields_bool(f, "norm_topk_prob", &m->route.norm));
    RN_TRY(rn_fields_number(f, "routed_scaling_factor", &m->route.scale));
    RN_TRY(rn_fields_u32(f, "n_group", &m->route.groups));
    RN_TRY(rn_fields_u32(f, "topk_group", &m->route.groups_chosen));
    RN_TRY(rn_fields_u32(f, "first_k_dense_replace", &m->dense_layers));
    RN_TRY(read_layer_types(f, &c->llama));
    RN_TRY(rn_fields_u32(f, "decoder_sparse_step", &step));
    if (step != 1 || rn_fields_find(f, "mlp_only_layers.0"))
        return rn_fail(RN_UNSUPPORTED, "%s: dense layers between those of experts are not built",
                       f->source);
    return check_moe(f, &c->llama);
}

static const char *key_of(const rn_text_config *c, const char *name, char out[96]) {
    snprintf(out, 96, "%s.%s", c->architecture, name);
    return out;
}

rn_status rn_text_gguf_moe(const rn_fields *f, rn_text_config *c) {
    rn_moe_config *m = &c->llama.moe;
    uint32_t shared = 0, gating = 0;
    char key[96];
    RN_TRY(rn_fields_need_u32(f, key_of(c, "expert_count", key), &m->experts));
    RN_TRY(rn_fields_need_u32(f, key_of(c, "expert_used_count", key), &m->route.chosen));
    m->ffn = c->llama.ffn;
    RN_TRY(rn_fields_u32(f, key_of(c, "expert_feed_forward_length", key), &m->ffn));
    RN_TRY(rn_fields_u32(f, key_of(c, "expert_shared_count", key), &shared));
    if (shared > 1024) return rn_fail(RN_CORRUPT, "%s: %u shared experts", f->source, shared);
    m->shared_ffn = shared * (m->ffn < 1 << 24 ? m->ffn : 0);
    key_of(c, "expert_shared_feed_forward_length", key);
    RN_TRY(rn_fields_u32(f, key, &m->shared_ffn));
    m->route.norm = c->llama.architecture->norm_experts;
    RN_TRY(rn_fields_bool(f, key_of(c, "expert_weights_norm", key), &m->route.norm));
    RN_TRY(rn_fields_number(f, key_of(c, "expert_weights_scale", key), &m->route.scale));
    RN_TRY(rn_fields_u32(f, key_of(c, "expert_group_count", key), &m->route.groups));
    RN_TRY(rn_fields_u32(f, key_of(c, "expert_group_used_count", key), &m->route.groups_chosen));
    RN_TRY(rn_fields_u32(f, key_of(c, "leading_dense_block_count", key), &m->dense_layers));
    RN_TRY(rn_fields_u32(f, key_of(c, "expert_gating_func", key), &gating));
    if (gating > 4)
        return rn_fail(RN_UNSUPPORTED, "%s: expert_gating_func %u is not built", f->source, gating);
    static const rn_gating gatings[] = {RN_GATING_SOFTMAX, RN_GATING_SOFTMAX, RN_GATING_SIGMOID,
                                        RN_GATING_SOFTMAX_CHOSEN, RN_GATING_SQRT_SOFTPLUS};
    if (gating) m->route.gating = gatings[gating];
    return check_moe(f, &c->llama);
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    float clip = 0;
    RN_TRY(rn_text_llama_json(f, c));
    RN_TRY(rn_fields_number(f, "clip_qkv", &clip));
    if (clip != 0)
        return rn_fail(RN_UNSUPPORTED, "%s: a clip_qkv of %g is not built", f->source,
                       (double)clip);
    RN_TRY(rn_text_json_moe(f, c));
    c->llama.moe.shared_gate = c->llama.moe.shared_ffn != 0;
    return RN_OK;
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    RN_TRY(rn_text_gguf_moe(f, c));
    c->llama.moe.shared_gate = c->llama.moe.shared_ffn != 0;
    return RN_OK;
}

rn_status rn_text_leave_drafts(const rn_fields *f, const char *field, rn_text_config *c) {
    RN_TRY(rn_fields_u32(f, field, &c->draft_layers));
    if (c->draft_layers > 64)
        return rn_fail(RN_CORRUPT, "%s: %u layers are for drafts", f->source, c->draft_layers);
    if (c->llama.naming != RN_NAMES_GGUF) return RN_OK;
    if (c->draft_layers >= c->llama.layers)
        return rn_fail(RN_CORRUPT, "%s: %u of %u layers are for drafts", f->source, c->draft_layers,
                       c->llama.layers);
    c->llama.layers -= c->draft_layers;
    return RN_OK;
}

static void route_as_glm(rn_moe_config *m) {
    m->route.gating = RN_GATING_SIGMOID;
    m->choice_bias = true;
}

// Files say the rope's share in one of two places, or not at all.
static rn_status glm_from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    RN_TRY(rn_text_llama_json(f, c));
    if (!rn_fields_find(f, "partial_rotary_factor") &&
        !rn_fields_find(f, "rope_parameters.partial_rotary_factor"))
        l->rope.dims = l->head_dim / 2;
    l->output_bias = false;
    RN_TRY(rn_fields_bool(f, "use_qk_norm", &l->qk_norm));
    RN_TRY(rn_text_leave_drafts(f, "num_nextn_predict_layers", c));
    RN_TRY(rn_text_leave_drafts(f, "num_mtp_layers", c));
    route_as_glm(&l->moe);
    return rn_text_json_moe(f, c);
}

static rn_status glm_from_gguf(const rn_fields *f, rn_text_config *c) {
    RN_TRY(rn_text_leave_drafts(f, "glm4moe.nextn_predict_layers", c));
    route_as_glm(&c->llama.moe);
    return rn_text_gguf_moe(f, c);
}

// ---- written down -------------------------------------------------------------------------------

rn_status rn_text_moe_to_gguf(const rn_text_config *c, rn_pairs *out) {
    static const uint32_t gatings[] = {[RN_GATING_SOFTMAX] = 1,
                                       [RN_GATING_SIGMOID] = 2,
                                       [RN_GATING_SOFTMAX_CHOSEN] = 3,
                                       [RN_GATING_SQRT_SOFTPLUS] = 4};
    const rn_moe_config *m = &c->llama.moe;
    char key[96];
    if (m->experts == 0) return RN_OK;
    RN_TRY(rn_pairs_u32(out, key_of(c, "expert_count", key), m->experts));
    RN_TRY(rn_pairs_u32(out, key_of(c, "expert_used_count", key), m->route.chosen));
    RN_TRY(rn_pairs_u32(out, key_of(c, "expert_feed_forward_length", key), m->ffn));
    if (m->shared_ffn && m->shared_gate)
        RN_TRY(
            rn_pairs_u32(out, key_of(c, "expert_shared_feed_forward_length", key), m->shared_ffn));
    else if (m->shared_ffn)
        RN_TRY(rn_pairs_u32(out, key_of(c, "expert_shared_count", key), m->shared_ffn / m->ffn));
    if (m->dense_layers)
        RN_TRY(rn_pairs_u32(out, key_of(c, "leading_dense_block_count", key), m->dense_layers));
    if (m->route.groups > 1) {
        RN_TRY(rn_pairs_u32(out, key_of(c, "expert_group_count", key), m->route.groups));
        RN_TRY(
            rn_pairs_u32(out, key_of(c, "expert_group_used_count", key), m->route.groups_chosen));
    }
    if (m->route.scale != 0 && m->route.scale != 1)
        RN_TRY(rn_pairs_f32(out, key_of(c, "expert_weights_scale", key), m->route.scale));
    if (m->route.gating != RN_GATING_SOFTMAX_CHOSEN)
        RN_TRY(rn_pairs_bool(out, key_of(c, "expert_weights_norm", key), m->route.norm));
    key_of(c, "expert_gating_func", key);
    return rn_pairs_u32(out, key, gatings[m->route.gating]);
}

void rn_text_moe_to_json(const rn_text_config *c, rn_json *json) {
    const rn_moe_config *m = &c->llama.moe;
    const rn_text_architecture *a = c->llama.architecture;
    bool of_deepseek = a->json_experts && strcmp(a->json_experts, "n_routed_experts") == 0;
    if (m->experts == 0) return;
    rn_json_u64(json, a->json_experts, m->experts);
    rn_json_u64(json, m->expert_scale ? "top_k_experts" : "num_experts_per_tok", m->route.chosen);
    if (!a->json_one_ffn) rn_json_u64(json, "moe_intermediate_size", m->ffn);
    if (m->shared_gate && m->shared_ffn)
        rn_json_u64(json, "shared_expert_intermediate_size", m->shared_ffn);
    if (m->route.gating != RN_GATING_SOFTMAX_CHOSEN)
        rn_json_bool(json, "norm_topk_prob", m->route.norm);
    if (!of_deepseek) return;
    rn_json_u64(json, "n_shared_experts", m->shared_ffn / m->ffn);
    rn_json_u64(json, "first_k_dense_replace", m->dense_layers);
    rn_json_u64(json, "n_group", m->route.groups ? m->route.groups : 1);
    rn_json_u64(json, "topk_group", m->route.groups ? m->route.groups_chosen : 1);
    rn_text_json_float(json, "routed_scaling_factor", m->route.scale != 0 ? m->route.scale : 1);
}

void rn_text_moe_settings_to_json(const rn_text_config *c, rn_json *json) {
    rn_text_settings_to_json(c, json);
    rn_text_moe_to_json(c, json);
}

static void glm_to_json(const rn_text_config *c, rn_json *json) {
    rn_text_moe_settings_to_json(c, json);
    rn_json_bool(json, "use_qk_norm", c->llama.qk_norm);
}

// ---- the rows -----------------------------------------------------------------------------------

#define ATTENTION(gguf_ffn_norm)                                                                   \
    [RN_TEXT_EMBEDDING] = {"model.embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},        \
    [RN_TEXT_NORM] = {"model.norm", "output_norm", RN_SIZE_DIM},                                   \
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},                            \
    [RN_TEXT_ATTENTION_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},                      \
    [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},                       \
    [RN_TEXT_K] = {"self_attn.k_proj", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},                     \
    [RN_TEXT_V] = {"self_attn.v_proj", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},                     \
    [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},                  \
    [RN_TEXT_FFN_NORM] = {"post_attention_layernorm", gguf_ffn_norm, RN_SIZE_DIM}

static const rn_text_part mixtral_parts[RN_TEXT_PARTS] = {
    ATTENTION("ffn_norm"),
    [RN_TEXT_ROUTER] = {"block_sparse_moe.gate", "ffn_gate_inp", RN_SIZE_EXPERTS, RN_SIZE_DIM},
    [RN_TEXT_EXPERT_GATE] = {"block_sparse_moe.experts.*.w1", "ffn_gate_exps", RN_SIZE_EXPERT_FFN,
                             RN_SIZE_DIM},
    [RN_TEXT_EXPERT_UP] = {"block_sparse_moe.experts.*.w3", "ffn_up_exps", RN_SIZE_EXPERT_FFN,
                           RN_SIZE_DIM},
    [RN_TEXT_EXPERT_DOWN] = {"block_sparse_moe.experts.*.w2", "ffn_down_exps", RN_SIZE_DIM,
                             RN_SIZE_EXPERT_FFN},
};
static const rn_text_part qwen2_parts[RN_TEXT_PARTS] = {
    ATTENTION("ffn_norm"),
    RN_TEXT_EXPERT_PARTS,
    RN_TEXT_SHARED_PARTS("mlp.shared_expert"),
    [RN_TEXT_SHARED_ROUTER] = {"mlp.shared_expert_gate", "ffn_gate_inp_shexp", RN_SIZE_ONE,
                               RN_SIZE_DIM},
};
static const rn_text_part qwen3_parts[RN_TEXT_PARTS] = {
    ATTENTION("ffn_norm"),
    RN_TEXT_EXPERT_PARTS,
    [RN_TEXT_Q_NORM] = {"self_attn.q_norm", "attn_q_norm", RN_SIZE_HEAD_DIM},
    [RN_TEXT_K_NORM] = {"self_attn.k_norm", "attn_k_norm", RN_SIZE_HEAD_DIM},
};
static const rn_text_part olmoe_parts[RN_TEXT_PARTS] = {
    ATTENTION("ffn_norm"),
    RN_TEXT_EXPERT_PARTS,
    [RN_TEXT_Q_NORM] = {"self_attn.q_norm", "attn_q_norm", RN_SIZE_WIDE},
    [RN_TEXT_K_NORM] = {"self_attn.k_norm", "attn_k_norm", RN_SIZE_NARROW},
};
static const rn_text_part glm_parts[RN_TEXT_PARTS] = {
    ATTENTION("post_attention_norm"),
    [RN_TEXT_Q_NORM] = {"self_attn.q_norm", "attn_q_norm", RN_SIZE_HEAD_DIM},
    [RN_TEXT_K_NORM] = {"self_attn.k_norm", "attn_k_norm", RN_SIZE_HEAD_DIM},
    [RN_TEXT_GATE] = {"mlp.gate_proj", "ffn_gate", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_UP] = {"mlp.up_proj", "ffn_up", RN_SIZE_FFN, RN_SIZE_DIM},
    [RN_TEXT_DOWN] = {"mlp.down_proj", "ffn_down", RN_SIZE_DIM, RN_SIZE_FFN},
    RN_TEXT_EXPERT_PARTS,
    [RN_TEXT_ROUTER_BIAS] = {"mlp.gate.e_score_correction_bias", "exp_probs_b", RN_SIZE_EXPERTS,
                             .alone = true},
    RN_TEXT_SHARED_PARTS("mlp.shared_experts"),
};

#define FAMILY                                                                                     \
    .layers = {"model.layers", "blk", "layers"}, .outer = "model.", .layer = layer,                \
    .from_json = from_json, .from_gguf = from_gguf, .experts = true,                               \
    .to_gguf = rn_text_moe_to_gguf, .to_json = rn_text_moe_settings_to_json

// Its GGUF files are llama's, with experts.
extern const rn_text_architecture rn_text_mixtral;
const rn_text_architecture rn_text_mixtral = {FAMILY,
                                              .name = "llama",
                                              .model_type = "mixtral",
                                              .parts = mixtral_parts,
                                              .window = true,
                                              .norm_experts = true,
                                              .gguf_rope = RN_ROPE_NEIGHBOURS,
                                              .model_class = "MixtralForCausalLM",
                                              .json_experts = "num_local_experts",
                                              .json_one_ffn = true};
extern const rn_text_architecture rn_text_qwen2moe;
const rn_text_architecture rn_text_qwen2moe = {FAMILY,
                                               .name = "qwen2moe",
                                               .model_type = "qwen2_moe",
                                               .also = "Qwen1.5-MoE",
                                               .parts = qwen2_parts,
                                               .qkv_bias = true,
                                               .window = true,
                                               .window_switch = true,
                                               .model_class = "Qwen2MoeForCausalLM",
                                               .json_experts = "num_experts"};
extern const rn_text_architecture rn_text_qwen3moe;
const rn_text_architecture rn_text_qwen3moe = {FAMILY,
                                               .name = "qwen3moe",
                                               .model_type = "qwen3_moe",
                                               .parts = qwen3_parts,
                                               .qk_norm = true,
                                               .norm_experts = true,
                                               .window = true,
                                               .window_switch = true,
                                               .model_class = "Qwen3MoeForCausalLM",
                                               .json_experts = "num_experts"};
extern const rn_text_architecture rn_text_olmoe;
const rn_text_architecture rn_text_olmoe = {FAMILY,
                                            .name = "olmoe",
                                            .parts = olmoe_parts,
                                            .qk_norm = true,
                                            .model_class = "OlmoeForCausalLM",
                                            .json_experts = "num_experts",
                                            .json_one_ffn = true};
extern const rn_text_architecture rn_text_glm4moe;
const rn_text_architecture rn_text_glm4moe = {.layers = {"model.layers", "blk", "layers"},
                                              .outer = "model.",
                                              .layer = layer,
                                              .from_json = glm_from_json,
                                              .from_gguf = glm_from_gguf,
                                              .experts = true,
                                              .name = "glm4moe",
                                              .model_type = "glm4_moe",
                                              .also = "GLM-4.5, 4.6, 4.7",
                                              .parts = glm_parts,
                                              .qk_norm_if_there = true,
                                              .norm_experts = true,
                                              .partial_rope = true,
                                              .model_class = "Glm4MoeForCausalLM",
                                              .json_rope = true,
                                              .json_experts = "n_routed_experts",
                                              .to_gguf = rn_text_moe_to_gguf,
                                              .to_json = glm_to_json};
