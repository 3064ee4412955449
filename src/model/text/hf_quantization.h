// hf_quantization.h — "quantization_config" of config.json.
#ifndef RN_MODEL_HF_QUANTIZATION_H
#define RN_MODEL_HF_QUANTIZATION_H

#include "io/weight_forms.h"
#include "model/text/fields.h"

// {0} where there is none. RN_UNSUPPORTED names the method or setting that cannot be read.
RN_MUST_USE rn_status rn_text_json_quantization(const rn_fields *fields, rn_forms_config *out);

#endif
