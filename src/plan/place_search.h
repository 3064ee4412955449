// place_search.h — what the search walks over, and its state. Filled by place_search_setup.c,
// walked by place_search.c.
#ifndef RN_PLAN_PLACE_SEARCH_H
#define RN_PLAN_PLACE_SEARCH_H

#include "plan/place.h"

// An item by its rank in the order that is being tried, alive in sections [first, end).
typedef struct rn_place_node {
    uint64_t bytes, align;
    uint32_t first, end;
    uint32_t index; // in the part
} rn_place_node;

typedef struct rn_place_change {
    uint32_t id;
    uint64_t rest; // before
} rn_place_change;

typedef struct rn_place_step {
    uint32_t begin, at; // items[at] was moved to items[begin]
    size_t trail;       // changes before it
} rn_place_step;

struct rn_place_search {
    const rn_allocator *from;
    const rn_place_item *source; // (count): the part's items
    uint32_t count, section_count;
    size_t link_count;

    // of the order
    rn_place_node *nodes; // (count)
    uint32_t *link_begin; // (count + 1)
    uint32_t *links;      // (link_count): the items alive together with item i, i's twins first
    uint32_t *twin_end;   // (count): where the twins, items of the same life, end among the links
    uint32_t *sections;   // (slots + 1): how many sections lie before a moment
    uint32_t slots, origin;

    // of the walk
    uint64_t height; // base not included
    uint32_t *items; // (count): runs of unplaced items by `first`, placed ones before their run
    uint64_t *rest;  // (count): the lowest offset on top of what is placed; final where placed
    bool *is_placed; // (count)
    uint64_t *total; // (section_count): bytes not yet placed
    uint64_t *floor; // (section_count): scratch of has_room
    rn_place_step *placed;  // (count)
    rn_place_change *trail; // (link_count / 2): of two linked items, one lifts the other at most
    size_t placed_count, trail_count;
    uint64_t nodes_left;
    rn_place_leash *leash;
};

enum { RN_PLACE_ORDERS = 4 };
// Ranks the items by one of the orders and resets the walk.
RN_MUST_USE rn_status rn_place_search_set(rn_place_search *search, int order);
// Walks until a placement is found, there is none, or `nodes` are spent.
rn_place_verdict rn_place_search_walk(rn_place_search *search, uint64_t nodes);

#endif
