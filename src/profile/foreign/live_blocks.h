// live_blocks.h — the blocks that are live at one moment of a replay, by address.
//
// A sorted list in leaves of a few dozen: finding one is two binary searches, adding one moves a
// leaf's rest. Addresses are distinct.
#ifndef RN_PROFILE_LIVE_BLOCKS_H
#define RN_PROFILE_LIVE_BLOCKS_H

#include "profile/timeline.h"

typedef struct rn_live_leaf rn_live_leaf;

typedef struct rn_live_blocks {
    const rn_allocator *from;
    rn_live_leaf **leaves; // (count), by address; none is empty
    size_t count, capacity;
} rn_live_blocks;

void rn_live_init(rn_live_blocks *live, const rn_allocator *from);
void rn_live_free(rn_live_blocks *live);
// The block with the largest address that is not above `address`, or NULL. Pointers hold until the
// next change.
rn_timeline_alloc *rn_live_below(const rn_live_blocks *live, uint64_t address);
// The block with the smallest address above `address`, or NULL.
rn_timeline_alloc *rn_live_above(const rn_live_blocks *live, uint64_t address);
// The block of exactly this address, or NULL.
rn_timeline_alloc *rn_live_find(const rn_live_blocks *live, uint64_t address);
// There is none at its address.
RN_MUST_USE rn_status rn_live_add(rn_live_blocks *live, const rn_timeline_alloc *block);
// The block of exactly this address, if there is one.
void rn_live_remove(rn_live_blocks *live, uint64_t address);
// The block with the largest address, or NULL: the one that is removed with the least effort.
rn_timeline_alloc *rn_live_last(const rn_live_blocks *live);

#endif
