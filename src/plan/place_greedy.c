// place_greedy.c — the best of several orders. In each, item after item goes into the lowest gap
// (or the tightest) between those already there. Which order wins depends on the model; all of them
// together take milliseconds.
#include "plan/place_shelf.h"

#include "base/checked.h"
#include "base/merge_sort.h"

typedef struct ticket {
    const rn_place_item *item;
    uint32_t index; // in the part
} ticket;

static int last_resort(const rn_place_item *a, const rn_place_item *b) {
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    if (a->lower != b->lower) return a->lower < b->lower ? -1 : 1;
    return a->source < b->source ? -1 : a->source > b->source;
}

static int descending(uint64_t a, uint64_t b, const rn_place_item *left,
                      const rn_place_item *right) {
    return a != b ? (a > b ? -1 : 1) : last_resort(left, right);
}

static uint64_t life_of(const rn_place_item *item) {
    return item->upper - item->lower;
}

static int by_size(const void *left, const void *right) {
    const rn_place_item *a = ((const ticket *)left)->item, *b = ((const ticket *)right)->item;
    return last_resort(a, b);
}

static int by_area(const void *left, const void *right) {
    const rn_place_item *a = ((const ticket *)left)->item, *b = ((const ticket *)right)->item;
    long double x = (long double)a->bytes * (long double)life_of(a);
    long double y = (long double)b->bytes * (long double)life_of(b);
    return x != y ? (x > y ? -1 : 1) : last_resort(a, b);
}

static int by_life(const void *left, const void *right) {
    const rn_place_item *a = ((const ticket *)left)->item, *b = ((const ticket *)right)->item;
    return descending(life_of(a), life_of(b), a, b);
}

static int by_start(const void *left, const void *right) {
    const rn_place_item *a = ((const ticket *)left)->item, *b = ((const ticket *)right)->item;
    return descending(b->lower, a->lower, a, b);
}

static int by_contention(const void *left, const void *right) {
    const rn_place_item *a = ((const ticket *)left)->item, *b = ((const ticket *)right)->item;
    return descending(a->contention, b->contention, a, b);
}

typedef struct rule {
    int (*order)(const void *, const void *);
    bool tight;
} rule;
static const rule rules[] = {{by_size, false}, {by_size, true},  {by_area, false},
                             {by_life, false}, {by_start, true}, {by_contention, false}};
enum { RULE_COUNT = sizeof rules / sizeof *rules };

typedef struct bench {
    ticket *tickets;   // (count)
    ticket *scratch;   // (count)
    uint64_t *offsets; // (count)
    rn_place_shelf *shelf;
} bench;

static rn_status set_up(const rn_allocator *from, const rn_place_part *part, bench *b) {
    RN_TRY(rn_alloc(from, part->count * sizeof *b->tickets, (void **)&b->tickets));
    RN_TRY(rn_alloc(from, part->count * sizeof *b->scratch, (void **)&b->scratch));
    RN_TRY(rn_alloc(from, part->count * sizeof *b->offsets, (void **)&b->offsets));
    return rn_place_shelf_create(from, part->items, part->count, &b->shelf);
}

static void tear_down(const rn_allocator *from, const rn_place_part *part, bench *b) {
    rn_free(from, b->tickets, part->count * sizeof *b->tickets);
    rn_free(from, b->scratch, part->count * sizeof *b->scratch);
    rn_free(from, b->offsets, part->count * sizeof *b->offsets);
    rn_place_shelf_destroy(b->shelf);
}

typedef enum outcome { LOWER, NOT_LOWER, ENDED } outcome;

// A placement by one rule, in `offsets`, as long as it does not outgrow the best one.
static outcome follow(const rule *by, bench *b, const rn_place_part *part, uint64_t *out_height) {
    uint64_t height = 0;
    for (size_t i = 0; i < part->count; i++)
        b->tickets[i] = (ticket){&part->items[i], (uint32_t)i};
    if (!rn_sort_within(b->tickets, b->scratch, part->count, sizeof *b->tickets, by->order))
        return ENDED;
    rn_place_shelf_clear(b->shelf);
    for (size_t i = 0; i < part->count; i++) {
        const rn_place_item *item = b->tickets[i].item;
        uint64_t *offset = &b->offsets[b->tickets[i].index];
        if (!rn_place_shelf_put(b->shelf, item, by->tight, offset)) return ENDED;
        height = rn_max_u64(height, *offset + item->bytes);
        if (part->base + height >= part->height) return NOT_LOWER;
    }
    *out_height = part->base + height;
    return LOWER;
}

rn_status rn_place_greedy(const rn_allocator *from, rn_place_part *part) {
    bench b = {.tickets = NULL};
    outcome how = NOT_LOWER;
    part->height = UINT64_MAX;
    rn_status s = set_up(from, part, &b);
    for (size_t r = 0; s == RN_OK && how != ENDED && r < RULE_COUNT && part->height > part->bound;
         r++) {
        uint64_t height;
        how = follow(&rules[r], &b, part, &height);
        if (how != LOWER) continue;
        part->height = height;
        for (size_t i = 0; i < part->count; i++)
            part->items[i].offset = part->base + b.offsets[i];
    }
    tear_down(from, part, &b);
    // A first one is a placement, if not the best.
    if (s == RN_OK && part->height == UINT64_MAX) s = RN_CANCELLED;
    return s;
}
