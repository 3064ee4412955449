// optimizer.h — the table of optimisers: each is one row, and its update one op.
//
// To add one: src/graph/op/<name>.c with the update (weight and states in place), a row in
// optimizer.c. Trainers, checkpoints, plans and `:train=NAME` then know it by its name.
#ifndef RN_TRAIN_OPTIMIZER_H
#define RN_TRAIN_OPTIMIZER_H

#include <ration/train.h>

#define RN_OPTIMIZER_STATES 2 // at most, of one weight

// A tensor that lives from step to step beside each weight: "<weight>.<suffix>", zero at first.
typedef struct rn_optimizer_state {
    const char *suffix;
    rn_dtype dtype;
    rn_shape (*shape)(rn_shape weight); // NULL: the weight's own
} rn_optimizer_state;

// What an update is made of. Numbers that the caller left at 0 are the row's defaults.
typedef struct rn_update {
    rn_graph *graph;
    rn_value weight, gradient;
    rn_value states[RN_OPTIMIZER_STATES]; // in the row's order
    double beta1, beta2, eps, momentum, weight_decay;
    uint32_t rate, step; // runtime scalars; step: RN_NO_SCALAR where the row does not need it
} rn_update;

typedef struct rn_optimizer {
    const char *name;
    rn_optimizer_state states[RN_OPTIMIZER_STATES];
    uint32_t state_count;
    bool needs_step;                       // the number of the step, from 1, as a runtime scalar
    double beta1, beta2, eps, momentum;    // defaults
    void (*update)(const rn_update *with); // adds the nodes
} rn_optimizer;

// NULL: the first row. RN_INVALID lists the names.
RN_MUST_USE rn_status rn_optimizer_find(const char *name, const rn_optimizer **out);
// "<weight>.<suffix>" into `out`; RN_INVALID where that is too long.
RN_MUST_USE rn_status rn_optimizer_state_name(const char *weight, const char *suffix, char *out,
                                              size_t bytes);

#endif
