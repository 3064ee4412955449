// translate.h — a text model in the other container's words: its tensors' names and places, its
// settings, its vocabulary.
//
// Everything comes from the architecture's one description (decoder.h): `parts` names each weight
// in both containers, the readers of settings fill an rn_text_config, and the functions here write
// that down again. A new architecture is converted once its row has a model_class, and functions
// for settings that others have not.
#ifndef RN_MODEL_TEXT_TRANSLATE_H
#define RN_MODEL_TEXT_TRANSLATE_H

#include "base/buffer.h"
#include "io/pairs.h"
#include "io/translation.h"
#include "model/text/text_config.h"

// RN_UNSUPPORTED: models of this architecture are not converted.
RN_MUST_USE rn_status rn_text_translatable(const rn_text_config *config);

// Where the source's tensors go, which are called as `from` says; `to` is the same model in the
// other container; `model` is the source opened as a model, which knows its quantised weights.
// `packed` is for GGUF files. Fills tensors and assembled of *out, in the arena. What is computed
// (rope's tables) or double (a tied head) is left out, and so are products behind pooling, which
// Hugging Face's folders have in files of their own. RN_UNSUPPORTED: a weight is there in parts,
// quantised.
RN_MUST_USE rn_status rn_text_translate_names(const rn_checkpoint *source,
                                              const rn_checkpoint *model,
                                              const rn_llama_config *from,
                                              const rn_llama_config *to, bool packed,
                                              rn_arena *arena, rn_translation *out);
// A GGUF file's tensors as they are but for its experts, which become records, or stacks again.
RN_MUST_USE rn_status rn_text_repack(const rn_checkpoint *source, const rn_llama_config *config,
                                     bool packed, rn_arena *arena, rn_translation *out);

// The settings as GGUF's keys. RN_UNSUPPORTED names what GGUF cannot say.
RN_MUST_USE rn_status rn_text_settings_to_gguf(const rn_text_config *config, const char *name,
                                               rn_pairs *out);

// What a config.json says that is no setting of the graph.
typedef struct rn_text_extras {
    const char *dtype;        // "float16"
    uint32_t begin, end, pad; // tokens, or UINT32_MAX
} rn_text_extras;

// A whole config.json; *out_config is what reading it gives. RN_UNSUPPORTED: that is another model,
// for the file cannot say what this one is.
RN_MUST_USE rn_status rn_text_config_to_json(const rn_text_config *config,
                                             const rn_text_extras *extras, rn_buffer *out,
                                             rn_text_config *out_config);

#endif
