// place_reorder.c — lower placements of parts that are too large to be searched: the quick way
// again and again, in an order that learns.
//
// A pass puts item after item into the tightest gap, as the quick orders do, and ends at the first
// one that would end no lower than the best placement so far. That one came too late: it moves to
// half its place in the order, and the next pass begins. What is hard to place thus moves to the
// front, bit by bit, and the order of the rest stays. Where that does not help for a while, the
// next order is tried.
#include "plan/place_shelf.h"

#include "base/checked.h"
#include "base/merge_sort.h"

enum { PATIENCE = 64 }; // passes of an order without a lower placement

typedef struct turn {
    long double by[3]; // descending
    uint32_t index;    // in the part
} turn;

typedef struct reorder {
    turn *turns, *scratch; // (count)
    uint32_t *order;       // (count): indices, in the order of the next pass
    uint64_t *offsets;     // (count)
    rn_place_shelf *shelf;
} reorder;

static int by_turn(const void *left, const void *right) {
    const turn *a = left, *b = right;
    for (int i = 0; i < 3; i++)
        if (a->by[i] != b->by[i]) return a->by[i] > b->by[i] ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

enum { ORDERS = 4 };
static turn find_turn(const rn_place_part *part, uint32_t index, int order) {
    const rn_place_item *item = &part->items[index];
    long double bytes = (long double)item->bytes, life = item->upper - item->lower;
    long double contention = (long double)item->contention;
    switch (order) {
    case 0:
        return (turn){{contention, life, bytes}, index};
    case 1:
        return (turn){{bytes, life, 0}, index};
    case 2:
        return (turn){{contention, bytes * life, 0}, index};
    default:
        return (turn){{life, bytes, 0}, index};
    }
}

static bool begin_order(reorder *r, const rn_place_part *part, int order) {
    for (size_t i = 0; i < part->count; i++)
        r->turns[i] = find_turn(part, (uint32_t)i, order);
    if (!rn_sort_within(r->turns, r->scratch, part->count, sizeof *r->turns, by_turn)) return false;
    for (size_t i = 0; i < part->count; i++)
        r->order[i] = r->turns[i].index;
    return true;
}

typedef enum outcome { LOWER, NOT_LOWER, ENDED } outcome;

// One pass; *out_late is the place of the item at which it ended.
static outcome pass(reorder *r, rn_place_leash *leash, const rn_place_part *part,
                    uint64_t *out_height, size_t *out_late) {
    uint64_t height = part->base;
    rn_place_shelf_clear(r->shelf);
    for (size_t i = 0; i < part->count; i++) {
        const rn_place_item *item = &part->items[r->order[i]];
        uint64_t *offset = &r->offsets[r->order[i]];
        if (leash->nodes_left == 0) return ENDED;
        leash->nodes_left--;
        leash->node_count++;
        if (!rn_place_shelf_put(r->shelf, item, true, offset)) return ENDED;
        *offset += part->base;
        height = rn_max_u64(height, *offset + item->bytes);
        *out_late = i;
        if (height >= part->height) return NOT_LOWER;
    }
    *out_height = height;
    return LOWER;
}

static void move_forward(uint32_t *order, size_t at) {
    uint32_t index = order[at];
    size_t to = at / 2;
    for (; at > to; at--)
        order[at] = order[at - 1];
    order[to] = index;
}

// Passes of one order until none of them has been lower for a while.
static outcome learn(reorder *r, rn_place_leash *leash, uint64_t goal, rn_place_part *part) {
    for (int passes = 0; passes < PATIENCE && part->height > goal; passes++) {
        uint64_t height;
        size_t late;
        outcome how = pass(r, leash, part, &height, &late);
        if (how == ENDED) return how;
        if (how == NOT_LOWER) {
            move_forward(r->order, late);
            continue;
        }
        passes = 0;
        part->height = height;
        for (size_t i = 0; i < part->count; i++)
            part->items[i].offset = r->offsets[i];
    }
    return NOT_LOWER;
}

static rn_status set_up(const rn_allocator *from, const rn_place_part *part, reorder *r) {
    RN_TRY(rn_alloc(from, part->count * sizeof *r->turns, (void **)&r->turns));
    RN_TRY(rn_alloc(from, part->count * sizeof *r->scratch, (void **)&r->scratch));
    RN_TRY(rn_alloc(from, part->count * sizeof *r->order, (void **)&r->order));
    RN_TRY(rn_alloc(from, part->count * sizeof *r->offsets, (void **)&r->offsets));
    return rn_place_shelf_create(from, part->items, part->count, &r->shelf);
}

rn_status rn_place_reorder(const rn_allocator *from, rn_place_leash *leash, uint64_t goal,
                           rn_place_part *part) {
    reorder r = {.turns = NULL};
    if (leash->nodes_left < part->count) return RN_OK; // not one pass
    rn_status s = set_up(from, part, &r);
    outcome how = s == RN_OK ? NOT_LOWER : ENDED;
    for (int order = 0; order < ORDERS && how != ENDED && part->height > goal; order++)
        how = begin_order(&r, part, order) ? learn(&r, leash, goal, part) : ENDED;
    rn_free(from, r.turns, part->count * sizeof *r.turns);
    rn_free(from, r.scratch, part->count * sizeof *r.scratch);
    rn_free(from, r.order, part->count * sizeof *r.order);
    rn_free(from, r.offsets, part->count * sizeof *r.offsets);
    rn_place_shelf_destroy(r.shelf);
    return s;
}
