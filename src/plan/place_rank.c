// place_rank.c — the orders in which the search tries items of equal offset.
//
// Which order finds a placement depends on the buffers, and one that does not find it within some
// thousand nodes mostly never will. So there are several, each is tried for a short while, then
// again for longer; and each also slightly disturbed, which moves a search out of a corner that its
// order has led it into.
//
// `total` is what is left to place at an item's busiest moment. It changes as items are placed, so
// a run of items that comes apart from the others is ranked anew: in its own order a run is as good
// as a problem of its own. Lives count in the caller's time and in sections: a long life over few
// changes is not the same as one over many.
#include "plan/place_search.h"

#include "base/checked.h"

#include <stdlib.h>

typedef enum criterion { NOTHING, LIFE, SPAN, AREA, SPAN_AREA } criterion;

// Criteria before `total` and after it; all descend.
typedef struct ranking {
    criterion lead[2], tail[2];
} ranking;

static const ranking orders[RN_PLACE_ORDERS] = {
    {.tail = {LIFE, AREA}}, {.tail = {SPAN, SPAN_AREA}},
    {.tail = {AREA, LIFE}}, {.tail = {SPAN_AREA, SPAN}},
    {.lead = {LIFE, AREA}}, {.lead = {SPAN, SPAN_AREA}},
    {.lead = {AREA}},       {.lead = {SPAN_AREA}},
};

// The most that an order is disturbed: of all places, and of an item's total.
enum { PLACE_SHARE = 8, TOTAL_SHARE = 8 };

static long double measure(const rn_place_search *s, uint32_t id, criterion by) {
    const rn_place_item *item = &s->source[id];
    long double life = (long double)item->life;
    long double span = (long double)(s->nodes[id].end - s->nodes[id].first);
    switch (by) {
    case LIFE:
        return life;
    case SPAN:
        return span;
    case AREA:
        return life * (long double)item->bytes;
    case SPAN_AREA:
        return span * (long double)item->bytes;
    default:
        return 0;
    }
}

static int compare_measures(const rn_place_standing *a, const rn_place_standing *b) {
    for (int i = 0; i < 2; i++)
        if (a->by[i] != b->by[i]) return a->by[i] > b->by[i] ? -1 : 1;
    return 0;
}
static int by_measures(const void *left, const void *right) {
    const rn_place_standing *a = left, *b = right;
    int order = compare_measures(a, b);
    return order ? order : (a->id < b->id ? -1 : 1);
}
static int by_place(const void *left, const void *right) {
    const rn_place_standing *a = left, *b = right;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static uint32_t draw(uint64_t *random) {
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*random >> 33);
}

// Sorts all items by the criteria. With a seed each moves back by up to a part of all places.
static void sort_standings(rn_place_search *s, const criterion by[2], uint64_t random) {
    for (uint32_t i = 0; i < s->count; i++)
        s->standings[i] =
            (rn_place_standing){.by = {measure(s, i, by[0]), measure(s, i, by[1])}, .id = i};
    qsort(s->standings, s->count, sizeof *s->standings, by_measures);
    if (!random) return;
    uint64_t most = (uint64_t)s->count * (65536 / PLACE_SHARE);
    for (uint32_t i = 0; i < s->count; i++)
        s->standings[i].at = (uint64_t)i * 65536 + draw(&random) % (most + 1);
    qsort(s->standings, s->count, sizeof *s->standings, by_place);
}

void rn_place_rank_by(rn_place_search *s, uint32_t order, uint64_t seed) {
    const ranking *o = &orders[order];
    uint64_t random = seed;
    for (uint32_t i = 0; i < s->count; i++) {
        s->lead[i] = 0;
        s->noise[i] = seed ? (uint16_t)(draw(&random) % (65536 / TOTAL_SHARE)) : 0;
    }
    if (o->lead[0] != NOTHING) {
        sort_standings(s, o->lead, seed);
        for (uint32_t i = 0, lead = 0; i < s->count; i++) {
            const rn_place_standing *at = &s->standings[i];
            if (i > 0 && (seed || compare_measures(at - 1, at))) lead++;
            s->lead[at->id] = lead;
        }
    }
    sort_standings(s, o->tail, seed);
    for (uint32_t i = 0; i < s->count; i++)
        s->standing[s->standings[i].id] = i;
    s->old_rank_count = s->next_rank = 0;
}

// ---- runs ---------------------------------------------------------------------------------------

static int by_key(const void *left, const void *right) {
    const rn_place_key *a = left, *b = right;
    if (a->lead != b->lead) return a->lead < b->lead ? -1 : 1;
    if (a->total != b->total) return a->total > b->total ? -1 : 1;
    return a->standing < b->standing ? -1 : 1;
}

bool rn_place_rank_run(rn_place_search *s, uint32_t begin, uint32_t end) {
    uint32_t count = end - begin;
    rn_place_search_work(s, count * UINT64_C(12)); // sorting
    if (count > s->old_rank_room - s->old_rank_count) return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = s->items[begin + i];
        const rn_place_node *n = &s->nodes[id];
        uint64_t total = 0;
        for (uint32_t k = n->first; k < n->end; k++)
            total = rn_max_u64(total, s->total[k]);
        rn_place_search_work(s, n->end - n->first);
        total -= (total >> 16) * s->noise[id];
        s->keys[i] = (rn_place_key){total, s->lead[id], s->standing[id], id};
        s->old_ranks[s->old_rank_count++] = (rn_place_old_rank){id, s->rank[id]};
    }
    qsort(s->keys, count, sizeof *s->keys, by_key);
    for (uint32_t i = 0; i < count; i++)
        s->rank[s->keys[i].id] = s->next_rank++;
    return true;
}

void rn_place_rank_undo(rn_place_search *s, size_t old_rank_count, uint32_t next_rank) {
    while (s->old_rank_count > old_rank_count) {
        const rn_place_old_rank *old = &s->old_ranks[--s->old_rank_count];
        s->rank[old->id] = old->rank;
    }
    s->next_rank = next_rank;
}
