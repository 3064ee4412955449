// prompt_cache.h — encoded prompts on disk, by the hash of all that they depend on: the encoder's
// files and sizes, its adapters, the kind of device, whose bits they are, the tokens. A drawing
// whose prompts are all there needs no text encoder, neither in its plan nor in memory.
//
//     FOLDER/0123...ef.prompt    magic, counts, hidden rows, pooled row, SHA-256 of the numbers
//
// What is damaged counts as not there, and is written anew.
#ifndef RN_DIFFUSE_PROMPT_CACHE_H
#define RN_DIFFUSE_PROMPT_CACHE_H

#include "base/sha256.h"
#include "model/image/image_adapters.h"

typedef struct rn_prompt_key {
    char text[2 * RN_SHA256_BYTES + 1];
} rn_prompt_key;

// One encoded prompt.
typedef struct rn_prompt {
    float *hidden, *pooled;
    uint64_t hidden_count, pooled_count;
} rn_prompt;

// target: of the device that encodes, "cuda:0"; NULL: the CPU.
rn_prompt_key rn_prompt_key_of(const rn_image_component *encoder, const char *target,
                               const int32_t *tokens, uint32_t count);
// False: it is not there (or not whole, or cannot be read).
bool rn_prompt_load(const char *folder, const rn_prompt_key *key, const rn_prompt *out);
// The folder is made where it is missing (its parent must be there).
RN_MUST_USE rn_status rn_prompt_store(const char *folder, const rn_prompt_key *key,
                                      const rn_prompt *prompt);

#endif
