// model_rewrite.h — a model's files written anew: the same tensors under the same names, in the
// same order, some of them with other values.
//
//     MODEL/config.json, tokenizer.json, ...    copied
//     MODEL/*.safetensors                    ─▶ OUT/model.safetensors
//     MODEL.gguf                             ─▶ OUT.gguf, with all keys
//
// Tensor by tensor: nothing is held but pieces of one.
#ifndef RN_MODEL_REWRITE_H
#define RN_MODEL_REWRITE_H

#include <ration/checkpoint.h>
#include <ration/writer.h>

#include "base/alloc.h"

typedef enum rn_rewrite_what {
    RN_REWRITE_COPY,
    RN_REWRITE_LEAVE_OUT,
    RN_REWRITE_WRITE
} rn_rewrite_what;

typedef struct rn_rewrite {
    const rn_checkpoint *from;
    void *self;
    // What becomes of a tensor; *dtype is its own, and may be set where it is written.
    rn_rewrite_what (*look)(void *self, const rn_tensor_info *info, rn_dtype *dtype);
    // Appends all of it.
    rn_status (*write)(void *self, const rn_tensor_info *info, rn_dtype dtype, rn_writer *writer);
    const rn_allocator *writer_from; // of the writer's buffers
    size_t buffer_bytes;
    void *piece; // (piece_bytes) for copying
    size_t piece_bytes;
} rn_rewrite;

// `path` ends in .gguf where the model is a GGUF file, and is a folder, which is made, where it is
// safetensors. RN_UNSUPPORTED: the other way round; RN_INVALID: it is the model's own folder.
RN_MUST_USE rn_status rn_rewrite_model(const rn_rewrite *rewrite, const char *path);

#endif
