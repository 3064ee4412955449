// radix.h — a stable sort of many 64-bit keys.
#ifndef RN_PROFILE_RADIX_H
#define RN_PROFILE_RADIX_H

#include "base/alloc.h"

typedef struct rn_sort_item {
    uint64_t key;
    uint32_t index; // what it is the key of
} rn_sort_item;

// By key; equal keys keep their order. Needs a second array of that size from `from`.
RN_MUST_USE rn_status rn_radix_sort(const rn_allocator *from, rn_sort_item *items, size_t count);

#endif
