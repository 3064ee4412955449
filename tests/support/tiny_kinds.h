// tiny_kinds.h — small models with every kind of quantised weights, for tests of devices.
#ifndef RN_TEST_TINY_KINDS_H
#define RN_TEST_TINY_KINDS_H

#include "tiny_text.h"

typedef struct tiny_kind {
    const char *file;
    rn_dtype weights_as;
    uint32_t dim;
} tiny_kind;

// 256 columns are whole tiles and groups of 128 (int4), 288 are neither: int4's groups are of 96,
// nf4's blocks of 64 end within rows. Heads have 64 and 72 dims.
static const tiny_kind tiny_kinds[] = {
    {"int8.safetensors", RN_DTYPE_INT8, 256}, {"int8-288.safetensors", RN_DTYPE_INT8, 288},
    {"int4.safetensors", RN_DTYPE_INT4, 256}, {"int4-288.safetensors", RN_DTYPE_INT4, 288},
    {"nf4.safetensors", RN_DTYPE_NF4, 256},   {"nf4-288.safetensors", RN_DTYPE_NF4, 288},
    {"q8_0.gguf", RN_DTYPE_Q8_0, 256},        {"q4_0.gguf", RN_DTYPE_Q4_0, 288},
    {"q4_k.gguf", RN_DTYPE_Q4_K, 256}, // with q6_k
};
enum { TINY_KINDS = sizeof tiny_kinds / sizeof *tiny_kinds };

// 168 tokens: the head's rows end within a tile.
static inline void tiny_kind_open(const tiny_kind *kind, const char *path, tiny_text *out) {
    *out = (tiny_text){.layers = 2,
                       .dim = kind->dim,
                       .vocab = 168,
                       .kv_dtype = RN_DTYPE_F16,
                       .weights_as = kind->weights_as};
    tiny_text_open(out, path);
}

// A session of such a model: chunks of `rows`, activations that nobody rounds to 8 bits.
static inline rn_text_options tiny_kind_options(uint32_t rows) {
    return (rn_text_options){.context = 64,
                             .page_tokens = 16,
                             .pages = 4,
                             .sequences = 1,
                             .rows = rows,
                             .unquantised_activations = true};
}

#endif
