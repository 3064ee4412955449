// place_search_setup.c — the search's arrays: sections of time, who meets whom; and its attempts.
#include "plan/place_search.h"

#include "base/checked.h"

#include <string.h>

// Larger parts are left to the quick orders: a search would get nowhere, and its depth is the
// number of items.
enum { MAX_ITEMS = 4096, MAX_LINKS = 4 << 20 };
// Runs within runs that are ranked anew hold the ranks of all items at most so many times.
enum { RANKINGS = 32 };
// For each order, so many disturbed ones, which share as many nodes.
enum { DISTURBED = 4 };

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

// ---- nodes and links ----------------------------------------------------------------------------

static void fill_nodes(rn_place_search *s) {
    for (uint32_t i = 0; i < s->count; i++) {
        const rn_place_item *item = &s->source[i];
        s->nodes[i] = (rn_place_node){
            .bytes = item->bytes,
            .align = item->align,
            .first = s->sections[item->lower - s->origin],
            .end = s->sections[item->upper - s->origin],
        };
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
        (void)rn_stop_spend(2 * s->count); // the first node will hear of it
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

// Nothing is placed.
static void reset(rn_place_search *s) {
    memset(s->total, 0, s->section_count * sizeof *s->total);
    memset(s->rest, 0, s->count * sizeof *s->rest);
    memset(s->is_placed, 0, s->count * sizeof *s->is_placed);
    s->placed_count = s->trail_count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        s->items[i] = i; // the part is sorted by time
        s->rank[i] = 0;
        for (uint32_t k = s->nodes[i].first; k < s->nodes[i].end; k++)
            s->total[k] += s->nodes[i].bytes;
        (void)rn_stop_spend(1 + s->nodes[i].end - s->nodes[i].first);
    }
}

// ---- life ---------------------------------------------------------------------------------------

// Pairs of items alive together, both ways; stops counting when there are too many.
static size_t count_links(const rn_place_part *part) {
    size_t links = 0;
    for (size_t i = 0; i < part->count && links <= MAX_LINKS; i++) {
        size_t before = links;
        for (size_t j = i + 1; j < part->count && part->items[j].lower < part->items[i].upper; j++)
            links += 2;
        (void)rn_stop_spend(1 + links - before);
    }
    return links;
}

static rn_status reserve(rn_place_search *s) {
    const rn_allocator *from = s->from;
    size_t n = s->count, sections = s->section_count;
    RN_TRY(rn_alloc(from, n * sizeof *s->nodes, (void **)&s->nodes));
    RN_TRY(rn_alloc(from, (n + 1) * sizeof *s->link_begin, (void **)&s->link_begin));
    RN_TRY(rn_alloc(from, s->link_count * sizeof *s->links, (void **)&s->links));
    RN_TRY(rn_alloc(from, n * sizeof *s->twin_end, (void **)&s->twin_end));
    RN_TRY(rn_alloc(from, n * sizeof *s->lead, (void **)&s->lead));
    RN_TRY(rn_alloc(from, n * sizeof *s->standing, (void **)&s->standing));
    RN_TRY(rn_alloc(from, n * sizeof *s->noise, (void **)&s->noise));
    RN_TRY(rn_alloc(from, n * sizeof *s->keys, (void **)&s->keys));
    RN_TRY(rn_alloc(from, n * sizeof *s->standings, (void **)&s->standings));
    RN_TRY(rn_alloc(from, n * sizeof *s->rank, (void **)&s->rank));
    s->old_rank_room = n * RANKINGS;
    RN_TRY(rn_alloc(from, s->old_rank_room * sizeof *s->old_ranks, (void **)&s->old_ranks));
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
    RN_TRY(reserve(s));
    fill_nodes(s);
    fill_links(s);
    return RN_OK;
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
    rn_free(from, s->lead, n * sizeof *s->lead);
    rn_free(from, s->standing, n * sizeof *s->standing);
    rn_free(from, s->noise, n * sizeof *s->noise);
    rn_free(from, s->keys, n * sizeof *s->keys);
    rn_free(from, s->standings, n * sizeof *s->standings);
    rn_free(from, s->rank, n * sizeof *s->rank);
    rn_free(from, s->old_ranks, s->old_rank_room * sizeof *s->old_ranks);
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
        rn_place_item *item = &part->items[i];
        item->offset = part->base + s->rest[i];
        part->height = rn_max_u64(part->height, item->offset + item->bytes);
    }
}

static rn_place_verdict walk_by(rn_place_search *s, uint32_t order, uint64_t seed, uint64_t nodes) {
    if (!rn_place_go_on(s->leash)) return RN_PLACE_UNDECIDED;
    reset(s);
    rn_place_rank_by(s, order, seed);
    return rn_place_search_walk(s, nodes);
}

rn_status rn_place_search_run(rn_place_search *s, rn_place_leash *leash, uint64_t height,
                              uint64_t nodes, rn_place_part *part, rn_place_verdict *out) {
    s->leash = leash;
    s->height = height - part->base;
    *out = RN_PLACE_UNDECIDED;
    for (uint32_t order = 0; order < RN_PLACE_ORDERS && *out == RN_PLACE_UNDECIDED; order++)
        *out = walk_by(s, order, 0, nodes);
    for (uint32_t i = 0; i < RN_PLACE_ORDERS * DISTURBED && *out == RN_PLACE_UNDECIDED; i++)
        *out = walk_by(s, i % RN_PLACE_ORDERS, nodes + i, nodes / DISTURBED);
    if (*out == RN_PLACE_FOUND) keep(s, part);
    return RN_OK;
}
