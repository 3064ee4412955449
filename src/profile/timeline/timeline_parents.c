// timeline_parents.c — which block a part lies in; and what is known of parts whose block is not.
#include "base/checked.h"
#include "profile/timeline/address_set.h"
#include "profile/timeline/timeline_build.h"

// Readers may have used `parent` for lists of their own.
static bool begin_parents(rn_timeline *t) {
    bool has_parts = false;
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        t->allocs[i].parent = RN_NO_INDEX;
        has_parts |= t->allocs[i].inner;
    }
    return has_parts;
}

// A block without an address holds nothing.
static bool can_hold(const rn_timeline_alloc *alloc) {
    return !alloc->inner && alloc->address;
}

static void sweep_parts(rn_timeline *t, rn_address_set *set) {
    uint32_t end = 0;
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        rn_timeline_alloc *alloc = &t->allocs[i];
        for (; t->allocs[t->build->by_end[end]].end_ns <= alloc->begin_ns; end++) {
            uint32_t gone = t->build->by_end[end];
            if (gone >= i) break; // lives no time, and comes later in this moment
            if (can_hold(&t->allocs[gone])) rn_address_set_remove(set, gone);
        }
        if (alloc->inner)
            alloc->parent = rn_address_set_hold(set, i);
        else if (can_hold(alloc))
            rn_address_set_add(set, i);
    }
}

rn_status rn_timeline_find_parents(rn_timeline *t) {
    if (!begin_parents(t)) return RN_OK;
    rn_address_set set;
    rn_status s = rn_address_set_init(&set, t);
    if (s == RN_OK) sweep_parts(t, &set);
    rn_address_set_free(&set);
    return s;
}

// ---- parts of blocks that were allocated before -------------------------------------------------

// By device and purpose: bytes of parts without a block, now and at most, and when the last began.
typedef struct orphans {
    uint64_t now[RN_DEVICE_MAX][RN_PURPOSE_COUNT], most[RN_DEVICE_MAX][RN_PURPOSE_COUNT];
    uint64_t last_ns[RN_DEVICE_MAX][RN_PURPOSE_COUNT];
    bool any;
} orphans;

static bool is_orphan(const rn_timeline_alloc *alloc) {
    return alloc->inner && alloc->parent == RN_NO_INDEX;
}

static void sum_orphans(const rn_timeline *t, orphans *sums) {
    uint32_t end = 0;
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[i];
        if (!is_orphan(alloc)) continue;
        for (; t->allocs[t->build->by_end[end]].end_ns <= alloc->begin_ns; end++) {
            uint32_t gone = t->build->by_end[end];
            const rn_timeline_alloc *left = &t->allocs[gone];
            if (gone >= i) break; // as above
            if (is_orphan(left)) sums->now[left->device][left->purpose] -= left->bytes;
        }
        uint64_t *now = &sums->now[alloc->device][alloc->purpose];
        uint64_t *most = &sums->most[alloc->device][alloc->purpose];
        *now += alloc->bytes;
        *most = rn_max_u64(*most, *now);
        sums->last_ns[alloc->device][alloc->purpose] = alloc->begin_ns;
        sums->any = true;
    }
}

// Takes what the orphans fill out of a block from before: that share of it is an arena.
static rn_status cover(rn_timeline *t, uint32_t i, uint64_t *most) {
    rn_timeline_alloc share = t->allocs[i];
    share.bytes = rn_min_u64(*most, share.bytes);
    share.is_arena = true;
    *most -= share.bytes;
    if (share.bytes == t->allocs[i].bytes) {
        t->allocs[i].is_arena = true;
        return RN_OK;
    }
    return rn_timeline_split(t, i, &share);
}

rn_status rn_timeline_cover_orphans(rn_timeline *t) {
    orphans sums = {.any = false};
    sum_orphans(t, &sums);
    uint32_t count = sums.any ? t->alloc_count : 0;
    for (uint32_t i = 0; i < count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[i];
        uint64_t *most = &sums.most[alloc->device][alloc->purpose];
        bool from_before = alloc->before && !alloc->inner && !alloc->address && !alloc->is_arena;
        bool outlives = alloc->end_ns > sums.last_ns[alloc->device][alloc->purpose];
        if (from_before && outlives && *most) RN_TRY(cover(t, i, most));
    }
    return RN_OK;
}
