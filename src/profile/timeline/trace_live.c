// trace_live.c — a hash table with seeded hashes: addresses in a hostile file cannot choose to
// collide. The next of a list of blocks without address is kept in `parent`, which finish sets.
#include "profile/timeline/trace_live.h"
#include "base/checked.h"
#include "base/map.h"
#include "profile/timeline/timeline_build.h"

#include <string.h>

// Of a list, how many blocks are looked at for one that has just the bytes that are released.
#define LOOKS 32

typedef struct rn_trace_live_slot {
    uint64_t address;
    uint32_t block; // RN_NO_INDEX: empty
    uint8_t device, purpose, inner;
    uint8_t unused;
} rn_trace_live_slot;

void rn_trace_live_init(rn_trace_live *live, rn_timeline *t) {
    rn_map seed;
    rn_map_init(&seed, t->allocator);
    *live = (rn_trace_live){.timeline = t, .seed = seed.seed};
    memset(live->unplaced, 0xff, sizeof live->unplaced);
    memset(live->before, 0xff, sizeof live->before);
}

void rn_trace_live_free(rn_trace_live *live) {
    rn_free(live->timeline->allocator, live->slots, live->capacity * sizeof *live->slots);
    live->slots = NULL;
}

// ---- the table ----------------------------------------------------------------------------------

static rn_trace_live_slot key_of(uint8_t device, uint8_t purpose, bool inner, uint64_t address) {
    return (rn_trace_live_slot){address, RN_NO_INDEX, device, purpose, inner, 0};
}

static size_t home_of(const rn_trace_live *live, const rn_trace_live_slot *key) {
    uint64_t words[2] = {key->address,
                         (uint64_t)key->device << 16 | key->purpose << 8 | key->inner};
    return rn_hash(words, sizeof words, live->seed) & (live->capacity - 1);
}

static bool is_same(const rn_trace_live_slot *a, const rn_trace_live_slot *b) {
    return a->address == b->address && a->device == b->device && a->purpose == b->purpose &&
           a->inner == b->inner;
}

// The key's slot, or the empty one where it belongs.
static rn_trace_live_slot *locate(const rn_trace_live *live, const rn_trace_live_slot *key) {
    for (size_t i = home_of(live, key);; i = (i + 1) & (live->capacity - 1)) {
        rn_trace_live_slot *slot = &live->slots[i];
        if (slot->block == RN_NO_INDEX || is_same(slot, key)) return slot;
    }
}

static rn_trace_live_slot *find(const rn_trace_live *live, const rn_trace_live_slot *key) {
    rn_trace_live_slot *slot = live->count ? locate(live, key) : NULL;
    return slot && slot->block != RN_NO_INDEX ? slot : NULL;
}

static rn_status make_room(rn_trace_live *live) {
    if (live->count < live->capacity / 2) return RN_OK;
    rn_trace_live old = *live;
    size_t capacity = old.capacity ? old.capacity * 2 : 1024;
    void *block = NULL;
    RN_TRY(rn_alloc(live->timeline->allocator, capacity * sizeof *live->slots, &block));
    live->slots = block;
    live->capacity = capacity;
    for (size_t i = 0; i < capacity; i++)
        live->slots[i].block = RN_NO_INDEX;
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].block != RN_NO_INDEX) *locate(live, &old.slots[i]) = old.slots[i];
    rn_trace_live_free(&old);
    return RN_OK;
}

// Later slots of the run move up, so that none is cut off from its home.
static void erase(rn_trace_live *live, rn_trace_live_slot *slot) {
    size_t mask = live->capacity - 1, hole = (size_t)(slot - live->slots);
    for (size_t i = (hole + 1) & mask; live->slots[i].block != RN_NO_INDEX; i = (i + 1) & mask) {
        size_t home = home_of(live, &live->slots[i]);
        if (((i - home) & mask) < ((i - hole) & mask)) continue;
        live->slots[hole] = live->slots[i];
        hole = i;
    }
    live->slots[hole].block = RN_NO_INDEX;
    live->count--;
}

// ---- lists --------------------------------------------------------------------------------------

static void end_block(rn_timeline_alloc *block, uint64_t time_ns, uint32_t lane) {
    block->end_ns = rn_max_u64(time_ns, block->begin_ns);
    block->free_lane = lane + 1;
}

// A list's link to a block that may lose bytes here: just as many, or at least as many, or some.
static uint32_t *find_unplaced(rn_trace_live *live, uint32_t *list, uint64_t bytes) {
    rn_timeline_alloc *allocs = live->timeline->allocs;
    uint32_t *best = NULL;
    for (int i = 0; i < LOOKS && *list != RN_NO_INDEX; i++, list = &allocs[*list].parent) {
        const rn_timeline_alloc *block = &allocs[*list];
        if (block->bytes == bytes) return list;
        if (!best || (allocs[*best].bytes < bytes && block->bytes > bytes)) best = list;
    }
    return best;
}

// The part of a block that is released ends; the rest stays as it is.
static rn_status split(rn_trace_live *live, uint32_t index, uint64_t bytes, uint64_t time_ns,
                       uint32_t lane) {
    rn_timeline_alloc part = live->timeline->allocs[index];
    part.bytes = bytes;
    end_block(&part, time_ns, lane);
    return rn_timeline_split(live->timeline, index, &part);
}

// Takes *bytes off a list; what it does not have stays in *bytes.
static rn_status end_unplaced(rn_trace_live *live, uint32_t *list, uint64_t *bytes,
                              uint64_t time_ns, uint32_t lane) {
    uint32_t *link;
    while (*bytes && (link = find_unplaced(live, list, *bytes))) {
        uint32_t index = *link;
        rn_timeline_alloc *block = &live->timeline->allocs[index];
        if (block->bytes > *bytes) {
            uint64_t part = *bytes;
            *bytes = 0;
            return split(live, index, part, time_ns, lane);
        }
        *bytes -= block->bytes;
        *link = block->parent;
        end_block(block, time_ns, lane);
    }
    return RN_OK;
}

// ---- events -------------------------------------------------------------------------------------

static rn_status begin_placed(rn_trace_live *live, const rn_timeline_alloc *alloc) {
    RN_TRY(make_room(live));
    rn_trace_live_slot key = key_of(alloc->device, alloc->purpose, alloc->inner, alloc->address);
    rn_trace_live_slot *slot = locate(live, &key);
    if (slot->block != RN_NO_INDEX)
        end_block(&live->timeline->allocs[slot->block], alloc->begin_ns, alloc->lane);
    else
        live->count++;
    *slot = key;
    slot->block = live->timeline->alloc_count - 1;
    return RN_OK;
}

rn_status rn_trace_live_begin(rn_trace_live *live, const rn_timeline_alloc *alloc) {
    rn_timeline *t = live->timeline;
    RN_TRY(rn_timeline_add_alloc(t, alloc));
    if (alloc->address) return begin_placed(live, alloc);
    if (alloc->bytes == 0 || alloc->inner) return RN_OK;
    uint32_t *list = alloc->before ? &live->before[alloc->device][alloc->purpose]
                                   : &live->unplaced[alloc->device][alloc->purpose];
    t->allocs[t->alloc_count - 1].parent = *list;
    *list = t->alloc_count - 1;
    return RN_OK;
}

rn_status rn_trace_live_end(rn_trace_live *live, const rn_trace_event *event, uint64_t time_ns,
                            uint32_t lane) {
    bool inner = event->flags & RN_PROFILE_INNER;
    rn_trace_live_slot key = key_of(event->device, event->purpose, inner, event->address);
    rn_trace_live_slot *slot = event->address ? find(live, &key) : NULL;
    if (slot) {
        end_block(&live->timeline->allocs[slot->block], time_ns, lane);
        erase(live, slot);
        return RN_OK;
    }
    uint64_t left = event->bytes;
    uint32_t *unplaced = &live->unplaced[event->device][event->purpose];
    uint32_t *before = &live->before[event->device][event->purpose];
    if (!inner && !event->address) RN_TRY(end_unplaced(live, unplaced, &left, time_ns, lane));
    if (!inner) RN_TRY(end_unplaced(live, before, &left, time_ns, lane));
    live->unknown_count += left != 0;
    return RN_OK;
}

// The live block at an event's address, whatever it serves; NULL: there is none.
static rn_timeline_alloc *find_live(const rn_trace_live *live, const rn_trace_event *event) {
    bool inner = event->flags & RN_PROFILE_INNER;
    for (uint8_t p = 0; p < RN_PURPOSE_COUNT; p++) {
        rn_trace_live_slot key = key_of(event->device, p, inner, event->address);
        const rn_trace_live_slot *slot = find(live, &key);
        if (slot) return &live->timeline->allocs[slot->block];
    }
    return NULL;
}

// The block keeps the place in the table that it was allocated for: its FREE has that purpose.
void rn_trace_live_relabel(rn_trace_live *live, const rn_trace_event *event, uint32_t name,
                           uint8_t purpose) {
    rn_timeline_alloc *block = find_live(live, event);
    if (!block) return;
    block->name = name;
    block->purpose = purpose;
}

void rn_trace_live_site(rn_trace_live *live, const rn_trace_event *event, uint32_t name) {
    rn_timeline_alloc *block = find_live(live, event);
    if (block) block->site = name;
}
