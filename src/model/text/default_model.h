// default_model.h — the files of the model that is part of the library (models/default).
#ifndef RN_MODEL_DEFAULT_MODEL_H
#define RN_MODEL_DEFAULT_MODEL_H

#include <ration/text.h>

typedef struct rn_default_model {
    rn_str weights;   // a safetensors file, on a 64-byte boundary
    rn_str config;    // config.json
    rn_str tokenizer; // tokenizer.json
} rn_default_model;

// RN_NOT_FOUND: this library was built without one.
RN_MUST_USE rn_status rn_default_model_get(rn_default_model *out);

#endif
