// ministral3.c — Ministral 3: a Llama with YARN, whose queries grow with every original context
// that a row is further in the text (Llama 4's scaling). GGUF files call it mistral3.
#include "model/text/decoder.h"

#include <math.h>

// Both kinds of files: beyond the original context.
static rn_status check_growth(const rn_fields *f, rn_llama_config *l) {
    l->query_step = l->rope.original_context;
    if (l->query_growth >= 0 && (l->query_growth == 0 || l->query_step)) return RN_OK;
    return rn_fail(RN_CORRUPT, "%s: queries cannot grow by %g every %u positions", f->source,
                   (double)l->query_growth, l->query_step);
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    RN_TRY(rn_text_llama_json(f, c));
    RN_TRY(rn_fields_number(f, "rope_parameters.llama_4_scaling_beta", &c->llama.query_growth));
    return check_growth(f, &c->llama);
}

// YARN's factor of cos and sin is there as its two parts: 1, and this one.
static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    rn_rope_attrs *rope = &c->llama.rope;
    float share = 0;
    RN_TRY(rn_fields_number(f, "mistral3.rope.scaling.yarn_log_multiplier", &share));
    if (share != 0 && rope->scaling == RN_ROPE_YARN && rope->factor > 1) {
        float grown = 0.1f * logf(rope->factor);
        rope->attention_factor = (grown + 1) / (share * grown + 1);
    }
    RN_TRY(rn_fields_number(f, "mistral3.attention.temperature_scale", &c->llama.query_growth));
    return check_growth(f, &c->llama);
}

// The share of YARN's growth of cos and sin that is taken back: the reverse of from_gguf.
static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    const rn_rope_attrs *rope = &l->rope;
    float grown = rope->scaling == RN_ROPE_YARN && rope->factor > 1 ? 0.1f * logf(rope->factor) : 0;
    if (rope->attention_factor > 0 && grown > 0)
        RN_TRY(rn_pairs_f32(out, "mistral3.rope.scaling.yarn_log_multiplier",
                            ((grown + 1) / rope->attention_factor - 1) / grown));
    return l->query_growth != 0
               ? rn_pairs_f32(out, "mistral3.attention.temperature_scale", l->query_growth)
               : RN_OK;
}

#define FAMILY                                                                                     \
    .name = "mistral3", .layers = {"model.layers", "blk", "model.layers"},                         \
    .parts = rn_text_llama_parts, .layer = rn_text_llama_layer, .from_json = from_json,            \
    .from_gguf = from_gguf, .window = true, .gguf_rope = RN_ROPE_NEIGHBOURS, .yarn_share = true,   \
    .json_rope = true, .to_gguf = to_gguf

extern const rn_text_architecture rn_text_ministral3;
const rn_text_architecture rn_text_ministral3 = {FAMILY, .model_type = "ministral3",
                                                 .model_class = "Ministral3ForCausalLM"};

// Of images and text: its text.
static const char *const of_images[] = {"vision_tower.*", "multi_modal_projector.*", NULL};

extern const rn_text_architecture rn_text_mistral3;
const rn_text_architecture rn_text_mistral3 = {
    FAMILY,
    .model_type = "mistral3",
    .also = "Ministral 3, Mistral Small 3, their text",
    .prefix = "language_model.",
    .settings = "text_config",
    .unused = of_images,
    .model_class = "Mistral3ForConditionalGeneration",
};
