// trainer.h — a trainer's parts, for its own files.
#ifndef RN_TRAIN_TRAINER_H
#define RN_TRAIN_TRAINER_H

#include <ration/train.h>

#include "base/arena.h"

// A weight of the model, or one of its optimiser's states.
typedef struct rn_trained {
    const char *name;
    rn_shape shape;
    uint64_t count; // elements
    float *first;   // (count) a weight's first values, which the session borrows; NULL for states
} rn_trained;

struct rn_trainer {
    rn_trainer_options options;
    const struct rn_optimizer *optimizer;
    rn_arena memory;
    rn_plan *plan;
    rn_session *session;
    rn_trained *tensors; // (tensor_count): weights, then their states
    uint32_t tensor_count, weight_count;
    uint64_t most; // elements of the largest tensor
    uint64_t steps;
};

#endif
