// merges.h — which pairs of tokens join, in which order, and what they become.
#ifndef RN_TEXT_MERGES_H
#define RN_TEXT_MERGES_H

#include "base/alloc.h"

#define RN_NO_MERGE   UINT32_MAX
#define RN_MERGE_GONE (UINT32_MAX - 1) // as `left`: a slot whose merge was taken away

typedef struct rn_merge {
    uint32_t left, right; // token ids; left RN_NO_MERGE: an empty slot
    uint32_t rank, into;  // lower ranks join first
} rn_merge;

typedef struct rn_merges {
    const rn_allocator *from;
    rn_merge *slots; // (slot_count)
    size_t slot_count, count;
    uint64_t seed;
} rn_merges;

// Room for `count` pairs, which is all it will ever hold.
RN_MUST_USE rn_status rn_merges_init(rn_merges *merges, const rn_allocator *from, size_t count,
                                     uint64_t seed);
void rn_merges_free(rn_merges *merges);
// A pair that is there already keeps its first rank.
void rn_merges_add(rn_merges *merges, rn_merge merge);

static inline size_t rn_merges_home(const rn_merges *merges, uint32_t left, uint32_t right) {
    uint64_t key = ((uint64_t)left << 32 | right) ^ merges->seed;
    key *= 0x9e3779b97f4a7c15u;
    key ^= key >> 29;
    key *= 0xbf58476d1ce4e5b9u;
    return (size_t)((key >> 32) * merges->slot_count >> 32);
}

// NULL where the two do not join.
static inline const rn_merge *rn_merges_find(const rn_merges *merges, uint32_t left,
                                             uint32_t right) {
    for (size_t at = rn_merges_home(merges, left, right);;) {
        const rn_merge *slot = &merges->slots[at];
        if (slot->left == left && slot->right == right) return slot;
        if (slot->left == RN_NO_MERGE) return NULL;
        at = at + 1 == merges->slot_count ? 0 : at + 1;
    }
}

#endif
