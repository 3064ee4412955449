// optimizer.h — the table of optimisers: each is one row, and its update one op.
//
// To add one: src/graph/op/<name>.c with the update (weight and states in place), a row in
// optimizer.c. Trainers, checkpoints, plans and `:train=NAME` then know it by its name.
#ifndef RN_TRAIN_OPTIMIZER_H
#define RN_TRAIN_OPTIMIZER_H

#include <ration/train.h>

#include "graph/op/rank_sum.h"

#define RN_OPTIMIZER_STATES 4 // at most, of one weight

// A tensor that lives from step to step beside a weight: "<weight>.<suffix>", zero at first.
typedef struct rn_optimizer_state {
    const char *suffix;
    rn_dtype dtype;
    rn_shape shape;
} rn_optimizer_state;

// What an update is made of. Numbers that the caller left at 0 are the row's defaults.
typedef struct rn_update {
    rn_graph *graph;
    rn_value weight, gradient;
    rn_value states[RN_OPTIMIZER_STATES]; // in the row's order; behind them RN_NO_VALUE
    uint32_t state_count;
    rn_value guard; // where this number is not finite, nothing changes; or RN_NO_VALUE
    double beta1, beta2, eps, momentum, weight_decay;
    uint32_t rate, step; // runtime scalars; step: RN_NO_SCALAR where nothing needs it
    uint32_t seed;       // a runtime scalar, where something is bf16
    uint32_t stream;     // of this weight
} rn_update;

typedef struct rn_optimizer {
    const char *name;
    // The states of a weight: they may depend on its size and its name. Returns their number.
    uint32_t (*states)(const rn_value_info *weight, rn_optimizer_state out[RN_OPTIMIZER_STATES]);
    bool needs_step;                    // the number of the step, from 1, as a runtime scalar
    bool rounds;                        // states of bf16: needs the runtime scalar "seed"
    double beta1, beta2, eps, momentum; // defaults
    // Elements are updated by themselves, or in blocks of RN_STATE_BLOCK with a scale: ranks may
    // have some each.
    bool by_element;
    rn_value (*update)(const rn_update *with); // adds the nodes; the weight
} rn_optimizer;

// Which elements of a weight this rank updates; false: all, as every rank does.
bool rn_optimizer_divides(const rn_optimizer *row, const rn_value_info *weight,
                          const rn_train_share *share, rn_rank_range *out);
// The states of a weight that this rank has.
uint32_t rn_optimizer_states(const rn_optimizer *row, const rn_value_info *weight,
                             const rn_train_share *share,
                             rn_optimizer_state out[RN_OPTIMIZER_STATES]);
// NULL: the first row. RN_INVALID lists the names.
RN_MUST_USE rn_status rn_optimizer_find(const char *name, const rn_optimizer **out);
// "<weight>.<suffix>" into `out`; RN_INVALID where that is too long.
RN_MUST_USE rn_status rn_optimizer_state_name(const char *weight, const char *suffix, char *out,
                                              size_t bytes);

#endif
