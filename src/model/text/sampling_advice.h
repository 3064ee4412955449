// sampling_advice.h — how a model's makers would have it sampled, where its files say so:
// generation_config.json, or GGUF's general.sampling.*.
#ifndef RN_MODEL_SAMPLING_ADVICE_H
#define RN_MODEL_SAMPLING_ADVICE_H

#include "model/text/fields.h"

#include <ration/model.h>

// Of a folder; no file: no advice. RN_CORRUPT: it is no JSON, or a number is of another kind.
RN_MUST_USE rn_status rn_sampling_advice_from_folder(const char *folder, rn_sampling_advice *out);
RN_MUST_USE rn_status rn_sampling_advice_from_gguf(const rn_fields *fields,
                                                   rn_sampling_advice *out);

#endif
