// text_config.h — what a model's files say it is: an architecture and its sizes.
#ifndef RN_MODEL_TEXT_CONFIG_H
#define RN_MODEL_TEXT_CONFIG_H

#include <ration/model.h>

#include "io/weight_forms.h"
#include "model/text/fields.h"
#include "model/model.h"

typedef struct rn_text_config {
    const char *architecture;     // static
    rn_llama_config llama;        // but for what options say and `files`
    uint32_t context;             // what it was trained for
    uint32_t draft_layers;        // blocks behind those of the model: not used
    rn_forms_config quantization; // how the checkpoint's weights are kept, where that is said
    rn_embedding_info embedding;
    rn_sampling_advice sampling;
    bool headless; // for embeddings only: an encoder, or a decoder whose files have no head
    float
        stretch; // rope whose base grows once the context is longer than that ("dynamic"); 0: none
    // LongRoPE: divisors up to a context of long_from, and beyond it; 0: none.
    uint32_t long_from;
    float short_divisors[RN_ROPE_DIVISORS], long_divisors[RN_ROPE_DIVISORS];
} rn_text_config;

// The architecture of that name in config.json or in GGUF files; RN_UNSUPPORTED names those that
// are known.
RN_MUST_USE rn_status rn_text_architecture_find(rn_str name, rn_naming naming,
                                                const rn_text_architecture **out);

// The architecture of the same name in GGUF files that has experts; false: none has.
bool rn_text_architecture_with_experts(const rn_text_architecture **architecture);

// From config.json; from a GGUF file's metadata (and its rope_freqs.weight). RN_UNSUPPORTED names
// the setting that is not built.
RN_MUST_USE rn_status rn_text_config_from_json(const rn_fields *fields, rn_text_config *out);
RN_MUST_USE rn_status rn_text_config_from_gguf(const rn_fields *fields,
                                               const rn_checkpoint *checkpoint,
                                               rn_text_config *out);
// Whether the numbers can be a model of so many tensors: before a graph is made of them.
// RN_CORRUPT.
RN_MUST_USE rn_status rn_text_config_check(const rn_text_config *config, size_t tensor_count);

// GGUF stores what Llama 3's scaling of rope makes of each pair, as a divisor of its frequency,
// not the scaling's parameters: finds those. RN_UNSUPPORTED: no parameters give these divisors.
RN_MUST_USE rn_status rn_rope_from_divisors(const float *divisors /* (dims / 2) */, uint32_t dims,
                                            rn_rope_attrs *rope);
// The other way.
void rn_rope_to_divisors(const rn_rope_attrs *rope, uint32_t dims,
                         float *divisors /* (dims / 2) */);

#endif
