// place_search.h — what the search walks over, and its state. Filled by place_search_setup.c,
// ranked by place_rank.c, walked by place_search.c.
#ifndef RN_PLAN_PLACE_SEARCH_H
#define RN_PLAN_PLACE_SEARCH_H

#include "plan/place.h"

// Where one search stands in the canonical order: the next item has a higher offset, or the same
// and at least this rank.
typedef struct rn_place_mark {
    uint64_t offset;
    uint32_t rank;
} rn_place_mark;

// Item i of the part, alive in sections [first, end).
typedef struct rn_place_node {
    uint64_t bytes, align;
    uint32_t first, end;
} rn_place_node;

typedef struct rn_place_change {
    uint32_t id;
    uint64_t rest; // before
} rn_place_change;

typedef struct rn_place_old_rank {
    uint32_t id, rank;
} rn_place_old_rank;

typedef struct rn_place_step {
    uint32_t begin, at; // items[at] was moved to items[begin]
    size_t trail;       // changes before it
} rn_place_step;

// What an item is ranked by: ascending `lead`, descending `total`, ascending `standing`.
typedef struct rn_place_key {
    uint64_t total; // the most bytes that are still to be placed at any moment of its life
    uint32_t lead, standing, id;
} rn_place_key;

// An item's place in an order before anything is placed.
typedef struct rn_place_standing {
    long double by[2]; // descending
    uint64_t at;       // ascending, where the order is disturbed
    uint32_t id;
} rn_place_standing;

struct rn_place_search {
    const rn_allocator *from;
    const rn_place_item *source; // (count): the part's items
    uint32_t count, section_count;
    size_t link_count;

    // of the part
    rn_place_node *nodes; // (count)
    uint32_t *link_begin; // (count + 1)
    uint32_t *links;      // (link_count): the items alive together with item i, i's twins first
    uint32_t *twin_end;   // (count): where the twins, items of the same life, end among the links
    uint32_t *sections;   // (slots + 1): how many sections lie before a moment
    uint32_t slots, origin;

    // of the order
    uint32_t *lead, *standing; // (count): see rn_place_key; items of equal lead are told by total
    uint16_t *noise;           // (count): by how many 2^-16 of it an item's total is lowered
    rn_place_key *keys;        // (count): scratch
    rn_place_standing *standings; // (count): scratch
    uint32_t *rank;               // (count): in its search; those of a search within one are higher
    rn_place_old_rank *old_ranks; // (old_rank_room): of the searches that others are within
    size_t old_rank_count, old_rank_room;
    uint32_t next_rank;

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
    uint64_t work; // units (base/stop.h) that are not told yet
    rn_place_leash *leash;
};

// Counts work. It only says so: the next node asks whether to end, and until then there is at most
// one node's work.
static inline void rn_place_search_work(rn_place_search *s, uint64_t units) {
    s->work += units;
    if (s->work < RN_STOP_UNITS / 2) return;
    (void)rn_stop_spend(s->work);
    s->work = 0;
}

// ---- ranks --------------------------------------------------------------------------------------

enum { RN_PLACE_ORDERS = 8 };

// Sets the order by which runs are ranked. A seed other than 0 disturbs it a little, each seed in
// its own way.
void rn_place_rank_by(rn_place_search *search, uint32_t order, uint64_t seed);
// Ranks the run items[begin, end) anew, above all ranks so far. False where there is no room to
// keep the old ones.
bool rn_place_rank_run(rn_place_search *search, uint32_t begin, uint32_t end);
// Takes rankings back until so many old ranks and the next rank are left.
void rn_place_rank_undo(rn_place_search *search, size_t old_rank_count, uint32_t next_rank);

// ---- the walk -----------------------------------------------------------------------------------

// Walks until a placement is found, there is none, or `nodes` are spent.
rn_place_verdict rn_place_search_walk(rn_place_search *search, uint64_t nodes);

#endif
