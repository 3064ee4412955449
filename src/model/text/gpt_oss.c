// gpt_oss.c — gpt-oss: every feed-forward a mixture of experts, windows in every other layer, and
// in each head's softmax a learned score without a value, the sink. One layer:
//
//     x ─ norm ─ q, k, v ─ rope ─ attention with sinks ─ o ─ + ─ norm ─ experts ─ + ─▶
//
// An expert clamps what goes into its gate and adds 1 to the other factor:
//
//     g = min(gate, limit)   u = clamp(up, -limit, limit)   h = g sigmoid(slope g) (u + 1)
//
// Products have biases, those of experts and the router, too. The router's weights are the softmax
// of the chosen scores alone. Hugging Face's files have gate and up of all experts in one tensor,
// row by row in turn, as blocks of mxfp4; GGUF has them apart.
#include "model/text/decoder.h"

#include <math.h>

static const rn_text_part parts[RN_TEXT_PARTS] = {
    [RN_TEXT_EMBEDDING] = {"model.embed_tokens", "token_embd", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_NORM] = {"model.norm", "output_norm", RN_SIZE_DIM},
    [RN_TEXT_HEAD] = {"lm_head", "output", RN_SIZE_VOCAB, RN_SIZE_DIM},
    [RN_TEXT_ATTENTION_NORM] = {"input_layernorm", "attn_norm", RN_SIZE_DIM},
    [RN_TEXT_Q] = {"self_attn.q_proj", "attn_q", RN_SIZE_WIDE, RN_SIZE_DIM},
    [RN_TEXT_K] = {"self_attn.k_proj", "attn_k", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_V] = {"self_attn.v_proj", "attn_v", RN_SIZE_NARROW, RN_SIZE_DIM},
    [RN_TEXT_O] = {"self_attn.o_proj", "attn_output", RN_SIZE_DIM, RN_SIZE_WIDE},
    [RN_TEXT_SINKS] = {"self_attn.sinks", "attn_sinks.weight", RN_SIZE_HEADS, .alone = true},
    [RN_TEXT_FFN_NORM] = {"post_attention_layernorm", "post_attention_norm", RN_SIZE_DIM},
    [RN_TEXT_ROUTER] = {"mlp.router", "ffn_gate_inp", RN_SIZE_EXPERTS, RN_SIZE_DIM},
    [RN_TEXT_EXPERT_GATE] = {NULL, "ffn_gate_exps", RN_SIZE_EXPERT_FFN, RN_SIZE_DIM},
    [RN_TEXT_EXPERT_UP] = {NULL, "ffn_up_exps", RN_SIZE_EXPERT_FFN, RN_SIZE_DIM},
    [RN_TEXT_EXPERT_DOWN] = {NULL, "ffn_down_exps", RN_SIZE_DIM, RN_SIZE_EXPERT_FFN},
    [RN_TEXT_EXPERTS_GATE_UP] = {"mlp.experts.gate_up_proj", NULL, RN_SIZE_TWO_EXPERT_FFN,
                                 RN_SIZE_DIM, .alone = true},
    [RN_TEXT_EXPERTS_GATE_UP_BIAS] = {"mlp.experts.gate_up_proj_bias", NULL, RN_SIZE_TWO_EXPERT_FFN,
                                      .alone = true},
    [RN_TEXT_EXPERTS_DOWN] = {"mlp.experts.down_proj", NULL, RN_SIZE_DIM, RN_SIZE_EXPERT_FFN,
                              .alone = true},
    [RN_TEXT_EXPERTS_DOWN_BIAS] = {"mlp.experts.down_proj_bias", NULL, RN_SIZE_DIM, .alone = true},
};

// ---- a layer ------------------------------------------------------------------------------------

// Rows by the matrices `p` of their experts, with the biases `of` them.
static rn_value product(rn_text_builder *d, rn_value x, rn_value ids, rn_text_part_id p,
                        rn_text_part_id of) {
    const rn_llama_config *c = d->c;
    uint64_t rows = rn_build_size(d, parts[p].out);
    const char *what = c->naming == RN_NAMES_GGUF ? "bias" : "";
    rn_value bias = rn_build_f32(d, of, what, RN_SHAPE(c->moe.experts, rows));
    rn_expert_product_attrs attrs = {.experts = c->moe.experts,
                                     .unquantised_activations = c->unquantised_activations};
    return rn_op_expert_product(d->g, x, ids, rn_build_stack(d, p), bias, attrs);
}

// Every other number of y (ROWS, k, 2 ffn), from `first` on.
static rn_value every_other(rn_text_builder *d, rn_value y, uint64_t first) {
    const rn_moe_config *m = &d->c->moe;
    return rn_op_strided_slice(
        d->g, y,
        (rn_strided_slice_attrs){.start = {0, 0, first},
                                 .step = {1, 1, 2},
                                 .count = {RN_ROWS, m->route.chosen, m->ffn}});
}

// g sigmoid(slope g) = silu(slope g) / slope.
static rn_value clamped_gate(rn_text_builder *d, rn_value gate, rn_value up) {
    float slope = d->c->glu_slope, limit = d->c->glu_limit;
    gate = rn_op_scale(d->g, rn_op_clamp(d->g, gate, -INFINITY, limit), slope, 0);
    up = rn_op_scale(d->g, rn_op_clamp(d->g, up, -limit, limit), 1 / slope, 1 / slope);
    return rn_op_gated(d->g, gate, up, RN_ACTIVATION_SILU);
}

static rn_value experts(rn_text_builder *d, rn_value x) {
    rn_value logits = rn_build_project(d, x, RN_TEXT_ROUTER, true), y;
    rn_value ids = rn_op_route(d->g, logits, RN_NO_VALUE, RN_NO_VALUE, d->c->moe.route);
    if (d->c->naming == RN_NAMES_GGUF) {
        rn_value gate = product(d, x, ids, RN_TEXT_EXPERT_GATE, RN_TEXT_EXPERT_GATE);
        rn_value up = product(d, x, ids, RN_TEXT_EXPERT_UP, RN_TEXT_EXPERT_UP);
        y = product(d, clamped_gate(d, gate, up), ids, RN_TEXT_EXPERT_DOWN, RN_TEXT_EXPERT_DOWN);
    } else {
        y = product(d, x, ids, RN_TEXT_EXPERTS_GATE_UP, RN_TEXT_EXPERTS_GATE_UP_BIAS);
        y = clamped_gate(d, every_other(d, y, 0), every_other(d, y, 1));
        y = product(d, y, ids, RN_TEXT_EXPERTS_DOWN, RN_TEXT_EXPERTS_DOWN_BIAS);
    }
    return rn_op_expert_sum(d->g, y, rn_graph_output_of(d->g, ids, 1));
}

static rn_value layer(rn_text_builder *d, rn_value x) {
    rn_value y = rn_build_attend(d, rn_build_norm(d, x, RN_TEXT_ATTENTION_NORM));
    x = rn_op_add(d->g, x, y);
    y = experts(d, rn_build_norm(d, x, RN_TEXT_FFN_NORM));
    return rn_op_add(d->g, x, y);
}

// ---- settings -----------------------------------------------------------------------------------

// What files may leave unsaid.
static void fill(rn_llama_config *l) {
    l->sinks = true;
    l->window_period = 2;
    l->glu_slope = 1.702f;
    l->glu_limit = 7;
    l->moe.route.gating = RN_GATING_SOFTMAX_CHOSEN;
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    bool newer = rn_fields_find(f, "rope_parameters") != NULL;
    fill(l);
    RN_TRY(rn_text_json_activation(f, "hidden_act", "silu", "swish"));
    RN_TRY(rn_text_json_sizes(f, c));
    RN_TRY(rn_text_json_flags(f, c));
    RN_TRY(rn_text_json_rope(f, newer ? "rope_parameters" : "rope_scaling", c));
    RN_TRY(rn_text_json_windows(f, 2, c));
    RN_TRY(rn_fields_number(f, "swiglu_alpha", &l->glu_slope));
    RN_TRY(rn_fields_number(f, "swiglu_limit", &l->glu_limit));
    if (!(l->glu_slope > 0) || !(l->glu_limit > 0))
        return rn_fail(RN_CORRUPT, "%s: a SwiGLU of slope %g and limit %g cannot be", f->source,
                       (double)l->glu_slope, (double)l->glu_limit);
    return rn_text_json_moe(f, c);
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    fill(&c->llama);
    RN_TRY(rn_text_gguf_period(f, c));
    return rn_text_gguf_moe(f, c);
}

// ---- written down -------------------------------------------------------------------------------

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    if (l->glu_slope != 1.702f || l->glu_limit != 7)
        return rn_fail(RN_UNSUPPORTED, "GGUF cannot say a SwiGLU of slope %g and limit %g",
                       (double)l->glu_slope, (double)l->glu_limit);
    return rn_text_moe_to_gguf(c, out);
}

// Its experts are of mxfp4, and nothing else is.
static void to_json(const rn_text_config *c, rn_json *json) {
    static const char *const kept[] = {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"};
    rn_text_moe_settings_to_json(c, json);
    rn_text_json_float(json, "swiglu_limit", c->llama.glu_limit);
    rn_text_json_layer_types(&c->llama, NULL, json);
    rn_json_object(json, "quantization_config");
    rn_json_string(json, "quant_method", "mxfp4");
    rn_json_array(json, "modules_to_not_convert");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        rn_json_string(json, NULL, kept[i]);
    rn_json_end(json);
    rn_json_end(json);
}

// ---- the row ------------------------------------------------------------------------------------

extern const rn_text_architecture rn_text_gpt_oss;
const rn_text_architecture rn_text_gpt_oss = {.layers = {"model.layers", "blk", "layers"},
                                              .outer = "model.",
                                              .parts = parts,
                                              .layer = layer,
                                              .from_json = from_json,
                                              .from_gguf = from_gguf,
                                              .experts = true,
                                              .window = true,
                                              .qkv_bias = true,
                                              .name = "gpt-oss",
                                              .model_type = "gpt_oss",
                                              .model_class = "GptOssForCausalLM",
                                              .json_experts = "num_local_experts",
                                              .json_one_ffn = true,
                                              .json_rope = true,
                                              .experts_in_turn = true,
                                              .gguf_cuts_yarn = true,
                                              .to_gguf = to_gguf,
                                              .to_json = to_json};
