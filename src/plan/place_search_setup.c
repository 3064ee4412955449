// place_search_setup.c — the search's arrays: sections of time, ranks, who meets whom.
#include "plan/place_search.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

// Larger parts are left to the quick orders: a search would get nowhere, and its depth is the
// number of items.
enum { MAX_ITEMS = 4096, MAX_LINKS = 4 << 20 };

// ---- sections -----------------------------------------------------------------------------------

// Marks where lives begin and end, then closes a section at the last moment before an end that
// follows a beginning: there, and only there, a maximal set of items is alive.
static void cut_sections(rn_place_search *s) {
    enum { BEGINS = 1, ENDS = 2 };
    uint32_t *at = s->sections;
    for (uint32_t i = 0; i < s->count; i++) {
        at[s->source[i].lower - s->origin] |= BEGINS;
        at[s->source[i].upper - s->origin] |= ENDS;
    }
    bool grown = false;
    uint32_t closed = 0;
    for (uint32_t t = 0; t <= s->slots; t++) {
        if ((at[t] & ENDS) && grown) {
            closed++;
            grown = false;
        }
        if (at[t] & BEGINS) grown = true;
        at[t] = closed;
    }
    s->section_count = closed;
}

// ---- ranks --------------------------------------------------------------------------------------

typedef struct key {
    uint64_t contention, life;
    long double area;
    const rn_place_item *item;
} key;

static int compare(uint64_t a, uint64_t b) {
    return a > b ? -1 : a < b;
}
static int compare_area(const key *a, const key *b) {
    return a->area > b->area ? -1 : a->area < b->area;
}
static int finish(int order, const key *a, const key *b) {
    if (order) return order;
    return a->item < b->item ? -1 : 1;
}

static int by_contention_life(const void *left, const void *right) {
    const key *a = left, *b = right;
    int order = compare(a->contention, b->contention);
    if (!order) order = compare(a->life, b->life);
    if (!order) order = compare_area(a, b);
    return finish(order, a, b);
}
static int by_contention_area(const void *left, const void *right) {
    const key *a = left, *b = right;
    int order = compare(a->contention, b->contention);
    if (!order) order = compare_area(a, b);
    if (!order) order = compare(a->life, b->life);
    return finish(order, a, b);
}
static int by_life_area(const void *left, const void *right) {
    const key *a = left, *b = right;
    int order = compare(a->life, b->life);
    if (!order) order = compare_area(a, b);
    return finish(order, a, b);
}
static int by_area_contention(const void *left, const void *right) {
    const key *a = left, *b = right;
    int order = compare_area(a, b);
    if (!order) order = compare(a->contention, b->contention);
    return finish(order, a, b);
}

static int (*const orders[RN_PLACE_ORDERS])(const void *, const void *) = {
    by_contention_life, by_contention_area, by_life_area, by_area_contention};

static void fill_nodes(rn_place_search *s, int order, key *keys) {
    for (uint32_t i = 0; i < s->count; i++) {
        const rn_place_item *item = &s->source[i];
        uint64_t life = item->upper - item->lower;
        keys[i] = (key){item->contention, life, (long double)item->bytes * (long double)life, item};
    }
    qsort(keys, s->count, sizeof *keys, orders[order]);
    for (uint32_t rank = 0; rank < s->count; rank++) {
        const rn_place_item *item = keys[rank].item;
        uint32_t index = (uint32_t)(item - s->source);
        s->nodes[rank] = (rn_place_node){
            .bytes = item->bytes,
            .align = item->align,
            .first = s->sections[item->lower - s->origin],
            .end = s->sections[item->upper - s->origin],
            .index = index,
        };
        s->items[index] = rank; // the part is sorted by time
    }
}

static bool meet(const rn_place_node *a, const rn_place_node *b) {
    return a->first < b->end && b->first < a->end;
}
static bool are_twins(const rn_place_node *a, const rn_place_node *b) {
    return a->first == b->first && a->end == b->end && a->align == 1 && b->align == 1;
}

static void fill_links(rn_place_search *s) {
    uint32_t filled = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        s->link_begin[i] = filled;
        for (uint32_t j = 0; j < s->count; j++)
            if (j != i && are_twins(&s->nodes[i], &s->nodes[j])) s->links[filled++] = j;
        s->twin_end[i] = filled;
        for (uint32_t j = 0; j < s->count; j++)
            if (meet(&s->nodes[i], &s->nodes[j]) && j != i &&
                !are_twins(&s->nodes[i], &s->nodes[j]))
                s->links[filled++] = j;
    }
    s->link_begin[s->count] = filled;
}

rn_status rn_place_search_set(rn_place_search *s, int order) {
    key *keys;
    RN_TRY(rn_alloc(s->from, s->count * sizeof *keys, (void **)&keys));
    fill_nodes(s, order, keys);
    rn_free(s->from, keys, s->count * sizeof *keys);
    fill_links(s);
    memset(s->total, 0, s->section_count * sizeof *s->total);
    memset(s->rest, 0, s->count * sizeof *s->rest);
    memset(s->is_placed, 0, s->count * sizeof *s->is_placed);
    s->placed_count = s->trail_count = 0;
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = s->nodes[i].first; k < s->nodes[i].end; k++)
            s->total[k] += s->nodes[i].bytes;
    return RN_OK;
}

// ---- life ---------------------------------------------------------------------------------------

// Pairs of items alive together, both ways; stops counting when there are too many.
static size_t count_links(const rn_place_part *part) {
    size_t links = 0;
    for (size_t i = 0; i < part->count && links <= MAX_LINKS; i++)
        for (size_t j = i + 1; j < part->count && part->items[j].lower < part->items[i].upper; j++)
            links += 2;
    return links;
}

static rn_status reserve(rn_place_search *s) {
    const rn_allocator *from = s->from;
    size_t n = s->count, sections = s->section_count;
    RN_TRY(rn_alloc(from, n * sizeof *s->nodes, (void **)&s->nodes));
    RN_TRY(rn_alloc(from, (n + 1) * sizeof *s->link_begin, (void **)&s->link_begin));
    RN_TRY(rn_alloc(from, s->link_count * sizeof *s->links, (void **)&s->links));
    RN_TRY(rn_alloc(from, n * sizeof *s->twin_end, (void **)&s->twin_end));
    RN_TRY(rn_alloc(from, n * sizeof *s->items, (void **)&s->items));
    RN_TRY(rn_alloc(from, n * sizeof *s->rest, (void **)&s->rest));
    RN_TRY(rn_alloc(from, n * sizeof *s->is_placed, (void **)&s->is_placed));
    RN_TRY(rn_alloc(from, sections * sizeof *s->total, (void **)&s->total));
    RN_TRY(rn_alloc(from, sections * sizeof *s->floor, (void **)&s->floor));
    RN_TRY(rn_alloc(from, n * sizeof *s->placed, (void **)&s->placed));
    return rn_alloc(from, s->link_count / 2 * sizeof *s->trail, (void **)&s->trail);
}

static rn_status set_up(rn_place_search *s, const rn_place_part *part) {
    uint32_t upper = 0;
    for (size_t i = 0; i < part->count; i++)
        if (part->items[i].upper > upper) upper = part->items[i].upper;
    s->origin = part->items[0].lower;
    s->slots = upper - s->origin;
    RN_TRY(
        rn_alloc_zeroed(s->from, (size_t)s->slots + 1, sizeof *s->sections, (void **)&s->sections));
    cut_sections(s);
    return reserve(s);
}

rn_status rn_place_search_create(const rn_allocator *from, const rn_place_part *part,
                                 rn_place_search **out) {
    rn_place_search *search;
    *out = NULL;
    if (part->count > MAX_ITEMS) return RN_OK;
    size_t links = count_links(part);
    if (links > MAX_LINKS) return RN_OK;
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof *search, (void **)&search));
    search->from = from;
    search->source = part->items;
    search->count = (uint32_t)part->count;
    search->link_count = links;
    rn_status s = set_up(search, part);
    if (s == RN_OK)
        *out = search;
    else
        rn_place_search_destroy(search);
    return s;
}

void rn_place_search_destroy(rn_place_search *s) {
    if (!s) return;
    const rn_allocator *from = s->from;
    size_t n = s->count, sections = s->section_count;
    rn_free(from, s->nodes, n * sizeof *s->nodes);
    rn_free(from, s->link_begin, (n + 1) * sizeof *s->link_begin);
    rn_free(from, s->links, s->link_count * sizeof *s->links);
    rn_free(from, s->twin_end, n * sizeof *s->twin_end);
    rn_free(from, s->sections, ((size_t)s->slots + 1) * sizeof *s->sections);
    rn_free(from, s->items, n * sizeof *s->items);
    rn_free(from, s->rest, n * sizeof *s->rest);
    rn_free(from, s->is_placed, n * sizeof *s->is_placed);
    rn_free(from, s->total, sections * sizeof *s->total);
    rn_free(from, s->floor, sections * sizeof *s->floor);
    rn_free(from, s->placed, n * sizeof *s->placed);
    rn_free(from, s->trail, s->link_count / 2 * sizeof *s->trail);
    rn_free(from, s, sizeof *s);
}

// ---- attempts -----------------------------------------------------------------------------------

static void keep(const rn_place_search *s, rn_place_part *part) {
    part->height = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        rn_place_item *item = &part->items[s->nodes[i].index];
        item->offset = part->base + s->rest[i];
        part->height = rn_max_u64(part->height, item->offset + item->bytes);
    }
}

rn_status rn_place_search_run(rn_place_search *s, rn_place_leash *leash, uint64_t height,
                              uint64_t nodes, rn_place_part *part, rn_place_verdict *out) {
    s->leash = leash;
    s->height = height - part->base;
    *out = RN_PLACE_UNDECIDED;
    for (int order = 0; order < RN_PLACE_ORDERS && *out == RN_PLACE_UNDECIDED; order++) {
        if (!rn_place_go_on(leash)) break;
        RN_TRY(rn_place_search_set(s, order));
        *out = rn_place_search_walk(s, nodes);
    }
    if (*out == RN_PLACE_FOUND) keep(s, part);
    return RN_OK;
}
