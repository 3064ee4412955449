// file_type.h — llama.cpp's file types: mixtures of kinds that go by one name ("q4_k_m"), and which
// tensor of a model gets which kind.
//
// Some tensors cost more quality than others: the head, the values and down projections of some
// layers get more bits. The rules are llama.cpp's, so that a file of that name is what people know
// by it. They look at GGUF's names and keys.
#ifndef RN_IO_FILE_TYPE_H
#define RN_IO_FILE_TYPE_H

#include <ration/checkpoint.h>

#include "base/arena.h"

typedef struct rn_file_type rn_file_type;

// NULL: there is none of that name.
const rn_file_type *rn_file_type_find(rn_str name);
// "f16", "q4_k_m": for general.file_type; of a file whose matrices are all of one dtype.
uint32_t rn_file_type_number(const rn_file_type *type);
uint32_t rn_file_type_number_of(rn_dtype dtype);

// What the rules ask of a tensor, under its name in the output.
typedef struct rn_mixed_tensor {
    rn_str name;
    uint32_t rank;
    const uint64_t *dims; // (rank), outermost first
    bool is_expert;       // one matrix of a stack
} rn_mixed_tensor;

// What the rules ask of the model.
typedef struct rn_mixer {
    const rn_file_type *type;
    const rn_mixed_tensor *tensors; // (count)
    size_t count;
    bool has_importances;
    // filled by rn_mixer_init
    uint64_t layers, experts, heads_a_kv_head, value_count;
    uint32_t *values_before, *downs_before; // (named_layers + 1): tensors in layers before that one
    size_t named_layers;
    bool tied, falcon, is_70b;
} rn_mixer;

// From the output's metadata; the rest is the caller's. Tables lie in the arena.
RN_MUST_USE rn_status rn_mixer_init(rn_mixer *mixer, const rn_metadata *metadata,
                                    size_t metadata_count, rn_arena *arena);
// The kind of tensor `index`; RN_DTYPE_NONE: it stays as it is.
rn_dtype rn_mixer_choose(const rn_mixer *mixer, size_t index);

#endif
