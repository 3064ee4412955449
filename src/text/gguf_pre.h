// gguf_pre.h — the pre-tokenizers that GGUF files name in tokenizer.ggml.pre.
#ifndef RN_TEXT_GGUF_PRE_H
#define RN_TEXT_GGUF_PRE_H

#include "base/str.h"

typedef struct rn_gguf_pre {
    const char *names;          // with blanks around each
    const char *expressions[6]; // each cuts what the one before it gives; NULL ends them
    bool ignore_merges, add_begin;
} rn_gguf_pre;

// NULL: not known.
const rn_gguf_pre *rn_gguf_pre_find(rn_str name);
// By number, for those who look for one by what it does; NULL at the end.
const rn_gguf_pre *rn_gguf_pre_at(size_t index);

#endif
