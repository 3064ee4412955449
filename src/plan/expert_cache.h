// expert_cache.h — which experts of a layer are resident: a fixed number of slots, and one rule.
//
// A mixture of experts chooses k of a layer's E experts for each row. A run tells the rule what its
// rows chose and learns which experts are there (hits), which must be read (misses), and the slot
// that each of those is read into, or that it gets none: then it passes through transit memory, is
// used and forgotten.
//
//     counts     an expert's count is halved every 12 runs; a run adds 1 to the expert that most of
//                its rows chose, and to others in proportion (a single row: 1 to each of its k)
//     victim     the lowest count among experts that the run does not need (those it needs stay);
//                the lowest id on a tie
//     admission  where slots are fewer than what the run needs, a miss takes the victim's slot only
//                if its own count is not lower
//
// Pure bookkeeping, without memory of its own or a clock. The same choices in the same order give
// the same hits, whatever the machine: the bytes that a text reads are reproducible.
//
// Why this rule: on five traces of real models it is the best of the simple ones at every size
// (docs/mixture-of-experts.md; bench/expert_bench.c replays them). Half-lives of 4 to 16 differ by
// a point.
#ifndef RN_PLAN_EXPERT_CACHE_H
#define RN_PLAN_EXPERT_CACHE_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

#define RN_NO_EXPERT UINT32_MAX
#define RN_NO_SLOT   UINT32_MAX

enum { RN_EXPERTS_MOST = 4096 }; // of a layer

// One layer's. Arrays are the arena's.
typedef struct rn_expert_cache {
    uint32_t experts, slots;
    uint32_t *expert_in; // (slots): or RN_NO_EXPERT
    uint32_t *slot_of;   // (experts): or RN_NO_SLOT
    uint32_t *needed;    // (experts): by how many rows of the run that is looked at
    uint32_t *order;     // (experts): scratch
    double *counts;      // (experts), in units of `unit`
    double unit;         // doubled every 12 runs instead of halving all counts
    bool by_recency;     // for comparison: counts are when they were last needed
} rn_expert_cache;

typedef struct rn_expert_miss {
    uint32_t expert;
    uint32_t slot; // RN_NO_SLOT: transit
} rn_expert_miss;

// An empty cache; `slots` may be 0. RN_INVALID: no experts, too many, or more slots than experts.
RN_MUST_USE rn_status rn_expert_cache_init(rn_arena *memory, uint32_t experts, uint32_t slots,
                                           rn_expert_cache *out);
// Everything is forgotten.
void rn_expert_cache_clear(rn_expert_cache *cache);
// What is in the slot is forgotten, because a read into it failed; its count stays.
void rn_expert_cache_drop(rn_expert_cache *cache, uint32_t slot);

// What a run chose, `count` ids of any rows in any order: sets needed[], admits misses to slots
// (slot_of says so from now on) and lists them by rising id. `out` has room for all experts.
// RN_INVALID names an id that is no expert; nothing is changed then.
RN_MUST_USE rn_status rn_expert_cache_step(rn_expert_cache *cache, const int32_t *ids,
                                           uint64_t count, rn_expert_miss *out,
                                           uint32_t *out_count);
// Experts that the run needs.
uint32_t rn_expert_cache_needed(const rn_expert_cache *cache);
// Whether slots and experts agree: for tests and debug builds.
bool rn_expert_cache_is_valid(const rn_expert_cache *cache);

#endif
