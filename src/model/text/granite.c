// granite.c — Granite 3: a Llama with four scales: of embeddings, of scores, of what each branch
// adds, and of logits (which are divided).
#include "model/text/decoder.h"

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
};
