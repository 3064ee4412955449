// translate_experts.h — weights of a layer that lie otherwise in the other container than tensor by
// tensor: experts, and the keys and values of latent attention.
#ifndef RN_MODEL_TEXT_TRANSLATE_EXPERTS_H
#define RN_MODEL_TEXT_TRANSLATE_EXPERTS_H

#include "io/translation.h"
#include "model/text/decoder.h"

// Whether the part is among them: rn_text_translate_names leaves it alone.
bool rn_text_is_assembled(const rn_llama_config *from, const rn_llama_config *to,
                          rn_text_part_id part);

// packed: for a GGUF file with an expert a record. Those of all layers, (*out_count) in the arena,
// and the quantised weights among `tensors`, which lose their names there. `model` is the same
// files opened as a model. RN_UNSUPPORTED: the other container has no place for them.
RN_MUST_USE rn_status rn_text_assemble(const rn_checkpoint *source, const rn_checkpoint *model,
                                       const rn_llama_config *from, const rn_llama_config *to,
                                       bool packed, rn_arena *arena, rn_converted_tensor *tensors,
                                       const rn_assembled_tensor **out, size_t *out_count);

#endif
