// place_greedy.c — the best of several orders. In each, item after item goes into the lowest gap
// (or the tightest) between those already there. Which order wins depends on the model; all of them
// together take milliseconds.
#include "plan/place_shelf.h"

#include "base/checked.h"

#include <stdlib.h>

enum { CHECK_EVERY = 4096 };

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
    uint64_t *offsets; // (count)
    rn_place_shelf *shelf;
} bench;

static rn_status set_up(const rn_allocator *from, const rn_place_part *part, bench *b) {
    RN_TRY(rn_alloc(from, part->count * sizeof *b->tickets, (void **)&b->tickets));
    RN_TRY(rn_alloc(from, part->count * sizeof *b->offsets, (void **)&b->offsets));
    return rn_place_shelf_create(from, part->items, part->count, &b->shelf);
}

static void tear_down(const rn_allocator *from, const rn_place_part *part, bench *b) {
    rn_free(from, b->tickets, part->count * sizeof *b->tickets);
    rn_free(from, b->offsets, part->count * sizeof *b->offsets);
    rn_place_shelf_destroy(b->shelf);
}

// A placement by one rule, in `offsets`. False where it was cancelled, or is not the first and was
// stopped or has outgrown the best one.
static bool follow(const rule *by, bench *b, rn_place_leash *leash, const rn_place_part *part,
                   uint64_t *out_height) {
    uint64_t height = 0;
    bool first = part->height == UINT64_MAX;
    for (size_t i = 0; i < part->count; i++)
        b->tickets[i] = (ticket){&part->items[i], (uint32_t)i};
    qsort(b->tickets, part->count, sizeof *b->tickets, by->order);
    rn_place_shelf_clear(b->shelf);
    for (size_t i = 0; i < part->count; i++) {
        const rn_place_item *item = b->tickets[i].item;
        uint64_t offset = rn_place_shelf_put(b->shelf, item, by->tight);
        b->offsets[b->tickets[i].index] = offset;
        height = rn_max_u64(height, offset + item->bytes);
        if (!first && part->base + height >= part->height) return false;
        if (i % CHECK_EVERY == CHECK_EVERY - 1 && !rn_place_go_on(leash) &&
            (!first || leash->answer == RN_PLACE_CANCEL))
            return false;
    }
    *out_height = part->base + height;
    return true;
}

rn_status rn_place_greedy(const rn_allocator *from, rn_place_leash *leash, rn_place_part *part) {
    bench b = {.tickets = NULL};
    part->height = UINT64_MAX;
    rn_status s = set_up(from, part, &b);
    for (size_t r = 0; s == RN_OK && r < RULE_COUNT && part->height > part->bound; r++) {
        uint64_t height;
        if (follow(&rules[r], &b, leash, part, &height)) {
            part->height = height;
            for (size_t i = 0; i < part->count; i++)
                part->items[i].offset = part->base + b.offsets[i];
        }
        if (leash->answer == RN_PLACE_CANCEL) s = rn_fail(RN_CANCELLED, "placing was cancelled");
        if (leash->answer != RN_PLACE_CONTINUE) break;
    }
    tear_down(from, part, &b);
    return s;
}
