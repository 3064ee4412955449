// conversion.h — a conversion for those who know more of models than files: rn_convert with a
// translator.
#ifndef RN_IO_CONVERSION_H
#define RN_IO_CONVERSION_H

#include <ration/convert.h>

#include "io/translation.h"

// Asked inside of the conversion's budget.
typedef struct rn_translator {
    void *self;
    // Once the source is open. *out is zero where nothing is called otherwise; what it points to
    // lives until `end`.
    rn_status (*translate)(void *self, const rn_checkpoint *source, rn_translation *out);
    // Once all tensors are written, before the output gets its name; may be NULL.
    rn_status (*finish)(void *self);
    // However it ended.
    void (*end)(void *self);
} rn_translator;

// `translator` may be NULL. `out_path` ends in .gguf or .safetensors.
RN_MUST_USE rn_status rn_convert_with(const char *in_path, const char *out_path,
                                      const rn_convert_options *options,
                                      const rn_translator *translator,
                                      rn_convert_result *out_result);

#endif
