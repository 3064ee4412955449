// export_largest.h — the largest few of many allocations, without sorting them all.
#ifndef RN_PROFILE_EXPORT_LARGEST_H
#define RN_PROFILE_EXPORT_LARGEST_H

#include "profile/timeline.h"

// `items` is the caller's; the fields are a heap with the smallest kept in front.
typedef struct rn_largest {
    const rn_timeline *timeline;
    uint32_t *items; // (capacity): indices of allocs
    size_t count, capacity;
} rn_largest;

// Whether `a` stands before `b` in a list of the largest: more bytes, or earlier.
static inline bool rn_is_larger(const rn_timeline *t, uint32_t a, uint32_t b) {
    uint64_t x = t->allocs[a].bytes, y = t->allocs[b].bytes;
    return x != y ? x > y : a < b;
}
void rn_largest_offer(rn_largest *largest, uint32_t alloc);
// Puts items[0 .. count) in order, largest first. After it nothing can be offered.
void rn_largest_sort(rn_largest *largest);

#endif
