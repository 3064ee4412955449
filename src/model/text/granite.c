// granite.c — Granite 3: a Llama with four scales: of embeddings, of scores, of what each branch
// adds, and of logits (which are divided).
#include "model/text/decoder.h"

#include <math.h>

static rn_status divide_logits(const rn_fields *f, const char *name, rn_llama_config *l) {
    float scale = 1;
    RN_TRY(rn_fields_number(f, name, &scale));
    if (scale == 0) return rn_fail(RN_CORRUPT, "%s: %s is 0", f->source, name);
    if (scale != 1) l->logit_scale = 1 / scale;
    return RN_OK;
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    RN_TRY(rn_text_llama_json(f, c));
    l->attention_scale = 1;
    RN_TRY(rn_fields_number(f, "embedding_multiplier", &l->embedding_scale));
    RN_TRY(rn_fields_number(f, "attention_multiplier", &l->attention_scale));
    RN_TRY(rn_fields_number(f, "residual_multiplier", &l->residual_scale));
    return divide_logits(f, "logits_scaling", l);
}

static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    rn_llama_config *l = &c->llama;
    bool has_rope = true;
    RN_TRY(rn_fields_number(f, "granite.embedding_scale", &l->embedding_scale));
    RN_TRY(rn_fields_number(f, "granite.attention.scale", &l->attention_scale));
    RN_TRY(rn_fields_number(f, "granite.residual_scale", &l->residual_scale));
    RN_TRY(rn_fields_bool(f, "granite.rope.scaling.finetuned", &has_rope));
    if (!has_rope)
        return rn_fail(RN_UNSUPPORTED, "%s: Granite without rope is not built", f->source);
    return divide_logits(f, "granite.logit_scale", l);
}

// llama.cpp demands a scale of logits.
static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    const rn_llama_config *l = &c->llama;
    float logits = l->logit_scale != 0 ? 1 / l->logit_scale : 1;
    RN_TRY(rn_pairs_f32(out, "granite.logit_scale", logits));
    if (l->embedding_scale != 0)
        RN_TRY(rn_pairs_f32(out, "granite.embedding_scale", l->embedding_scale));
    if (l->residual_scale != 0)
        RN_TRY(rn_pairs_f32(out, "granite.residual_scale", l->residual_scale));
    if (l->attention_scale == 0) return RN_OK;
    return rn_pairs_f32(out, "granite.attention.scale", l->attention_scale);
}

static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    float scores = l->attention_scale;
    rn_text_settings_to_json(c, json);
    if (l->embedding_scale != 0)
        rn_text_json_float(json, "embedding_multiplier", l->embedding_scale);
    if (l->residual_scale != 0) rn_text_json_float(json, "residual_multiplier", l->residual_scale);
    rn_text_json_float(json, "attention_multiplier",
                       scores != 0 ? scores : 1 / sqrtf((float)l->head_dim));
    rn_text_json_float(json, "logits_scaling", l->logit_scale != 0 ? 1 / l->logit_scale : 1);
}

extern const rn_text_architecture rn_text_granite;
const rn_text_architecture rn_text_granite = {
    .name = "granite",
    .also = "Granite 3",
    .layers = {"model.layers", "blk", "model.layers"},
    .parts = rn_text_llama_parts,
    .layer = rn_text_llama_layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .gguf_rope = RN_ROPE_NEIGHBOURS,
    .model_class = "GraniteForCausalLM",
    .to_gguf = to_gguf,
    .to_json = to_json,
};
