// smollm3.c — SmolLM3: a Llama that leaves out the rope of every fourth layer.
#include "model/text/decoder.h"

#include <stdio.h>

enum { PERIOD = 4 };

// "no_rope_layers": 1 where a layer is turned, 0 where it is not. The first that is not is the
// period.
static rn_status read_unturned(const rn_fields *f, rn_llama_config *l) {
    l->unturned_period = PERIOD;
    RN_TRY(rn_fields_u32(f, "no_rope_layer_interval", &l->unturned_period));
    if (!rn_fields_find(f, "no_rope_layers")) return RN_OK;
    l->unturned_period = 0;
    for (uint32_t i = 0; i < l->layers; i++) {
        uint32_t turned = 1;
        char field[32];
        snprintf(field, sizeof field, "no_rope_layers.%u", i);
        RN_TRY(rn_fields_need_u32(f, field, &turned));
        if (!turned && l->unturned_period == 0) l->unturned_period = i + 1;
        bool expected = l->unturned_period == 0 || (i + 1) % l->unturned_period != 0;
        if ((turned != 0) != expected)
            return rn_fail(RN_UNSUPPORTED, "%s: layer %u %s where one in %u has no rope", f->source,
                           i, turned ? "has a rope" : "has none", l->unturned_period);
    }
    return RN_OK;
}

static rn_status from_json(const rn_fields *f, rn_text_config *c) {
    c->llama.tied = true;
    RN_TRY(rn_text_llama_json(f, c));
    return read_unturned(f, &c->llama);
}

// The file does not say it.
static rn_status from_gguf(const rn_fields *f, rn_text_config *c) {
    (void)f;
    c->llama.unturned_period = PERIOD;
    return RN_OK;
}

static rn_status to_gguf(const rn_text_config *c, rn_pairs *out) {
    uint32_t period = c->llama.unturned_period;
    (void)out;
    if (period == PERIOD || (period == 0 && c->llama.layers < PERIOD)) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "GGUF cannot say that not every fourth layer has no rope");
}

static void to_json(const rn_text_config *c, rn_json *json) {
    const rn_llama_config *l = &c->llama;
    rn_text_settings_to_json(c, json);
    rn_json_u64(json, "no_rope_layer_interval", l->unturned_period);
    rn_json_array(json, "no_rope_layers");
    for (uint32_t i = 0; i < l->layers; i++)
        rn_json_u64(json, NULL, l->unturned_period == 0 || (i + 1) % l->unturned_period != 0);
    rn_json_end(json);
}

extern const rn_text_architecture rn_text_smollm3;
const rn_text_architecture rn_text_smollm3 = {
    .name = "smollm3",
    .layers = {"model.layers", "blk", "model.layers"},
    .parts = rn_text_llama_parts,
    .layer = rn_text_llama_layer,
    .from_json = from_json,
    .from_gguf = from_gguf,
    .window = true,
    .window_switch = true,
    .gguf_rope = RN_ROPE_NEIGHBOURS,
    .model_class = "SmolLM3ForCausalLM",
    .to_gguf = to_gguf,
    .to_json = to_json,
};
