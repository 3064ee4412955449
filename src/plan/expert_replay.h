// expert_replay.h — what the cache rule would have read for a text whose choices are known.
//
// The text is cut in two: the first part warms the caches, the second is counted. One run a token.
#ifndef RN_PLAN_EXPERT_REPLAY_H
#define RN_PLAN_EXPERT_REPLAY_H

#include "plan/expert_cache.h"

typedef struct rn_expert_choices {
    const int32_t *ids; // (tokens, layers, k); below zero: none
    uint32_t tokens, layers, k, experts;
} rn_expert_choices;

typedef struct rn_expert_replay {
    uint64_t needed, misses; // of the counted tokens, all layers together
    uint32_t counted;        // tokens
} rn_expert_replay;

// `slots` (layers); tokens from `warm` on are counted. RN_INVALID: an id that is no expert.
RN_MUST_USE rn_status rn_expert_replay_run(const rn_allocator *allocator,
                                           const rn_expert_choices *choices, const uint32_t *slots,
                                           uint32_t warm, rn_expert_replay *out);

#endif
