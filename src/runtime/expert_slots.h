// expert_slots.h — experts on demand: which are in memory, and bringing those that a run chose.
//
//     router ──ids──▶ rn_experts_begin        the cache rule (plan/expert_cache.h) says what is
//                       │                     missing and where it goes; all of it is asked for
//                       ▼
//     gate of experts that are there ── gate of each that lands ── up ... ── down ...
//            ▲ slots                         ▲ slots and transit, by direct reads
//
// Every product of experts of a layer is a *reader*: gate, up, down. An expert that gets a slot is
// read into it whole, matrix after matrix; of one that gets none each reader's rows pass through a
// place of transit, in turn. So a run reads exactly what the cache rule misses, each byte once.
//
// A product waits for an expert only when all that are there have been multiplied with; what it
// computes does not depend on which those are: the bits are those of resident weights.
//
// One thread at a time, the one that computes. Counts can be read by any.
#ifndef RN_RUNTIME_EXPERT_SLOTS_H
#define RN_RUNTIME_EXPERT_SLOTS_H

#include "plan/expert_cache.h"
#include "runtime/weights.h"

typedef struct rn_experts rn_experts;

// For comparison: what others do. The bits are the same.
typedef enum rn_expert_rule {
    RN_EXPERT_RULE_OWN,
    RN_EXPERT_RULE_LRU // least recently used, and one matrix read after the other before computing
} rn_expert_rule;

// Told what a router chose before anything is done with it; may change it (to ids of experts).
// `ids` (count), rows one behind the other.
typedef void (*rn_experts_routed)(void *self, uint32_t layer, int32_t *ids, uint64_t count);

typedef struct rn_experts_counts {
    uint64_t needed, misses; // experts of a layer and run
    uint64_t read_bytes;
} rn_experts_counts;

// `base`: of the plan's arena. NULL where the plan has no experts on demand. Flags as of
// rn_weights_open.
RN_MUST_USE rn_status rn_experts_create(const rn_plan *plan, rn_weights *weights, uint8_t *base,
                                        const _Atomic bool *cancel, const _Atomic bool *stop,
                                        rn_experts **out);
void rn_experts_destroy(rn_experts *experts); // NULL-safe

// What calls of readers take as `slots`; filled by rn_experts_begin.
const rn_expert_slots *rn_experts_slots_of(const rn_experts *experts);
// Whether the step is a reader.
bool rn_experts_is_reader(const rn_experts *experts, uint32_t step);
// Before a reader's call: `ids` (count) are what its router chose. The first reader of a layer asks
// the cache rule and begins all reads. RN_INVALID: an id that is no expert; RN_IO, RN_CANCELLED.
RN_MUST_USE rn_status rn_experts_begin(rn_experts *experts, uint32_t step, int32_t *ids,
                                       uint64_t count);
// Ends all reads; what had not arrived is forgotten.
void rn_experts_rewind(rn_experts *experts);

rn_experts_counts rn_experts_get_counts(const rn_experts *experts);
// Of the layers' waits since the last call, in nanoseconds.
uint64_t rn_experts_take_wait(rn_experts *experts);

// ---- for tests and measurements ----

void rn_experts_listen(rn_experts *experts, rn_experts_routed routed, void *self);
// Forgets what is in memory.
void rn_experts_use_rule(rn_experts *experts, rn_expert_rule rule);

#endif
