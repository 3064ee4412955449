// offsets_internal.h — the nodes and lists of rn_offsets, shared by its three files: offsets.c
// (taking and releasing), offsets_ranges.c (capacity), offsets_check.c (statistics and the
// walker).
#ifndef RN_MEMORY_OFFSETS_INTERNAL_H
#define RN_MEMORY_OFFSETS_INTERNAL_H

#include "memory/offsets.h"

#define RN_STEP_BITS   5 // 32 classes to a power of two: a class is at most 1/32 wide
#define RN_STEP_COUNT  (1u << RN_STEP_BITS)
#define RN_POWER_COUNT 52 // granule counts below 2^56
#define RN_NO_NODE     UINT32_MAX

typedef enum rn_node_state {
    RN_NODE_SPARE, // unused; `next` is the next spare one
    RN_NODE_FREE,  // in the list of its class
    RN_NODE_LIVE,  // given out
    RN_NODE_EDGE,  // zero bytes at either end of a range: never free, so nothing merges past it
} rn_node_state;

typedef struct rn_node { // 32 bytes: two to a cache line
    uint64_t offset;
    uint64_t bytes : 56; // a multiple of the granule
    uint64_t state : 8;
    uint32_t left, right;   // neighbours in the range
    uint32_t next;          // in the list of the class, or of spare nodes
    uint32_t prev_or_slack; // free: previous in the list. Live: bytes minus what was asked
} rn_node;

typedef struct rn_range {
    uint64_t start, bytes;
    uint32_t first, last; // its two edges
} rn_range;

struct rn_offsets {
    const rn_allocator *from;
    unsigned granule_shift;
    rn_node *nodes;      // (node_capacity)
    uint32_t node_count; // ever used; those after it are untouched
    uint32_t node_capacity;
    uint32_t spare; // first of the spare list
    uint32_t spare_count;
    rn_range *ranges; // (range_capacity), by start
    uint32_t range_count, range_capacity;
    uint64_t capacity_bytes, allocated_bytes, active_bytes, peak_bytes, block_count;
    uint64_t powers;                                // bit p: steps[p] != 0
    uint32_t steps[RN_POWER_COUNT];                 // bit s of steps[p]: lists[p][s] is not empty
    uint32_t lists[RN_POWER_COUNT * RN_STEP_COUNT]; // first free node of each class
};

// Class of a size: below 32 granules exact, above it power * 32 + step.
static inline unsigned rn_offsets_class(const rn_offsets *o, uint64_t bytes) {
    uint64_t granules = bytes >> o->granule_shift;
    if (granules < RN_STEP_COUNT) return (unsigned)granules;
    unsigned log = 63u - (unsigned)__builtin_clzll(granules);
    unsigned step = (unsigned)(granules >> (log - RN_STEP_BITS)) & (RN_STEP_COUNT - 1);
    return (log - RN_STEP_BITS + 1) << RN_STEP_BITS | step;
}

// The first class at or after `from` that has a free block; RN_NO_NODE where there is none.
unsigned rn_offsets_next_class(const rn_offsets *offsets, unsigned from);
// Makes sure that `count` nodes can be taken; rn_offsets_take then cannot fail.
rn_status rn_offsets_reserve(rn_offsets *offsets, uint32_t count);
// A node of `bytes` at `offset` that follows `left` and precedes `right` (either may be
// RN_NO_NODE).
uint32_t rn_offsets_take(rn_offsets *offsets, uint64_t offset, uint64_t bytes, uint32_t left,
                         uint32_t right);
// Back to the spare nodes; its neighbours are the caller's business.
void rn_offsets_drop(rn_offsets *offsets, uint32_t node);
void rn_offsets_list(rn_offsets *offsets, uint32_t node);   // into the list of its size; state FREE
void rn_offsets_unlist(rn_offsets *offsets, uint32_t node); // out of it
// Cuts the first `bytes` off an unlisted node; the rest becomes a listed free node to its right.
void rn_offsets_split(rn_offsets *offsets, uint32_t node, uint64_t bytes);

#endif
