// live_blocks.c — a sorted list in leaves: [ 1 5 7 | 9 12 | 40 41 ].
#include "profile/foreign/live_blocks.h"

#include "profile/foreign/foreign.h"

enum { LEAF_BLOCKS = 64 };

struct rn_live_leaf {
    uint32_t count; // at least 1
    rn_timeline_alloc blocks[LEAF_BLOCKS];
};

void rn_live_init(rn_live_blocks *live, const rn_allocator *from) {
    *live = (rn_live_blocks){.from = from};
}

void rn_live_free(rn_live_blocks *live) {
    for (size_t i = 0; i < live->count; i++)
        rn_free(live->from, live->leaves[i], sizeof(rn_live_leaf));
    rn_free(live->from, live->leaves, live->capacity * sizeof *live->leaves);
    rn_live_init(live, live->from);
}

// How many leaves begin at or below `address`.
static size_t count_leaves(const rn_live_blocks *live, uint64_t address) {
    size_t low = 0, high = live->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (live->leaves[middle]->blocks[0].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// How many blocks of the leaf lie at or below `address`.
static uint32_t count_blocks(const rn_live_leaf *leaf, uint64_t address) {
    uint32_t low = 0, high = leaf->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (leaf->blocks[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

rn_timeline_alloc *rn_live_below(const rn_live_blocks *live, uint64_t address) {
    size_t leaves = count_leaves(live, address);
    if (!leaves) return NULL;
    rn_live_leaf *leaf = live->leaves[leaves - 1];
    return &leaf->blocks[count_blocks(leaf, address) - 1];
}

rn_timeline_alloc *rn_live_above(const rn_live_blocks *live, uint64_t address) {
    size_t leaves = count_leaves(live, address);
    if (leaves) {
        rn_live_leaf *leaf = live->leaves[leaves - 1];
        uint32_t blocks = count_blocks(leaf, address);
        if (blocks < leaf->count) return &leaf->blocks[blocks];
    }
    return leaves < live->count ? &live->leaves[leaves]->blocks[0] : NULL;
}

rn_timeline_alloc *rn_live_find(const rn_live_blocks *live, uint64_t address) {
    rn_timeline_alloc *block = rn_live_below(live, address);
    return block && block->address == address ? block : NULL;
}

rn_timeline_alloc *rn_live_last(const rn_live_blocks *live) {
    rn_live_leaf *leaf = live->count ? live->leaves[live->count - 1] : NULL;
    return leaf ? &leaf->blocks[leaf->count - 1] : NULL;
}

// A new, empty leaf at `at`.
static rn_status insert_leaf(rn_live_blocks *live, size_t at, rn_live_leaf **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_foreign_grow(live->from, &live->leaves, live->count, &live->capacity,
                           sizeof *live->leaves));
    RN_TRY(rn_alloc(live->from, sizeof(rn_live_leaf), &block));
    *out = block;
    (*out)->count = 0;
    memmove(live->leaves + at + 1, live->leaves + at, (live->count - at) * sizeof *live->leaves);
    live->leaves[at] = *out;
    live->count++;
    return RN_OK;
}

// A full leaf gives its upper half to a new one behind it.
static rn_status split(rn_live_blocks *live, size_t at) {
    rn_live_leaf *leaf = live->leaves[at], *upper;
    uint32_t kept = LEAF_BLOCKS / 2;
    RN_TRY(insert_leaf(live, at + 1, &upper));
    upper->count = leaf->count - kept;
    memcpy(upper->blocks, leaf->blocks + kept, upper->count * sizeof *leaf->blocks);
    leaf->count = kept;
    return RN_OK;
}

rn_status rn_live_add(rn_live_blocks *live, const rn_timeline_alloc *block) {
    rn_live_leaf *leaf;
    if (!live->count) {
        RN_TRY(insert_leaf(live, 0, &leaf));
        leaf->blocks[leaf->count++] = *block;
        return RN_OK;
    }
    size_t leaves = count_leaves(live, block->address), at = leaves ? leaves - 1 : 0;
    if (live->leaves[at]->count == LEAF_BLOCKS) {
        RN_TRY(split(live, at));
        if (live->leaves[at + 1]->blocks[0].address <= block->address) at++;
    }
    leaf = live->leaves[at];
    uint32_t place = count_blocks(leaf, block->address);
    memmove(leaf->blocks + place + 1, leaf->blocks + place,
            (leaf->count - place) * sizeof *leaf->blocks);
    leaf->blocks[place] = *block;
    leaf->count++;
    return RN_OK;
}

static void remove_leaf(rn_live_blocks *live, size_t at) {
    rn_free(live->from, live->leaves[at], sizeof(rn_live_leaf));
    live->count--;
    memmove(live->leaves + at, live->leaves + at + 1, (live->count - at) * sizeof *live->leaves);
}

void rn_live_remove(rn_live_blocks *live, uint64_t address) {
    if (!rn_live_find(live, address)) return;
    size_t at = count_leaves(live, address) - 1;
    rn_live_leaf *leaf = live->leaves[at];
    uint32_t place = count_blocks(leaf, address) - 1;
    leaf->count--;
    memmove(leaf->blocks + place, leaf->blocks + place + 1,
            (leaf->count - place) * sizeof *leaf->blocks);
    if (!leaf->count) remove_leaf(live, at);
}
