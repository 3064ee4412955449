// full.h — fine-tuning of a model's own weights: which of them are trained, and in which numbers.
//
// Trained weights are f32 whatever the files have: f16 and bf16 are widened as they are read, so
// that no update is too small to count. What is frozen stays as the files have it, of any type. A
// tied head is the embedding's own weight, and is trained once.
#ifndef RN_TRAIN_FULL_H
#define RN_TRAIN_FULL_H

#include "base/arena.h"
#include "model/bundle.h"
#include "model/model.h"

#include <ration/train.h>

typedef struct rn_full {
    const rn_network *network;
    rn_llama_config config; // of the training; its files are `files`
    rn_llama_files files, base;
    const char *trained, *frozen; // lists of patterns; they outlive it
    rn_dtype weights;             // of trained matrices whose files have it: BF16; else NONE
} rn_full;

// `full` must lie where it is while recipes of its configuration live. It holds nothing to free.
// RN_UNSUPPORTED names a weight of a type that cannot be trained.
RN_MUST_USE rn_status rn_full_init(rn_full *full, const rn_model *model,
                                   const rn_trainer_options *options);
bool rn_full_is_trained(const rn_full *full, const char *name);

#endif
