// place.h — the parts of placement, for the planner and for each other.
//
//     rn_place_in            place.c         checks, splits, and spends the effort asked for
//      ├─ rn_place_problem    place_problem.c  times as ranks; the lower bound
//      ├─ rn_place_sweep      place_sweep.c    a first placement, in linear time
//      ├─ rn_place_split      place_split.c    independent parts, and what may lie under each
//      ├─ rn_place_greedy     place_greedy.c   the best of several orders (over place_shelf.c)
//      ├─ rn_place_reorder    place_reorder.c  ... in orders that learn, where it is large
//      └─ rn_place_search     place_search.c   canonical placements, depth first (by place_rank.c)
//
// Invariant: all sizes with their alignment add up to less than 2^63, so that no sum of offsets and
// sizes below overflows.
//
// Everything that grows with the number of buffers says how much it has done (base/stop.h) and can
// be ended. It then returns RN_CANCELLED without an error: rn_place_in knows whether there is a
// placement to fall back on.
#ifndef RN_PLAN_PLACE_H
#define RN_PLAN_PLACE_H

#include <ration/place.h>

#include "base/alloc.h"
#include "base/stop.h"

// The memory that it works in comes from `from`; otherwise as rn_place.
RN_MUST_USE rn_status rn_place_in(const rn_allocator *from, const rn_place_buffer *buffers,
                                  size_t count, const rn_place_options *options,
                                  uint64_t *out_offsets, rn_placement *out);

// ---- the problem --------------------------------------------------------------------------------

// A buffer of at least one byte and one moment. Times are ranks among all times that occur.
typedef struct rn_place_item {
    uint32_t lower, upper; // lower < upper
    uint32_t source;       // index among the caller's buffers
    uint64_t bytes, align;
    uint64_t life;       // in the caller's time
    uint64_t contention; // the most bytes alive at once while it is alive
    uint64_t offset;     // the best placement so far
} rn_place_item;

typedef struct rn_place_problem {
    rn_place_item *items; // (count), by lower; longer lives first where it is equal
    uint64_t *load;       // (slots): bytes alive between two neighbouring times
    size_t count, capacity;
    uint32_t slots;
    uint64_t bound, largest_align;
    uint64_t grain; // every offset of a canonical placement is a multiple of this
} rn_place_problem;

RN_MUST_USE rn_status rn_place_problem_make(const rn_allocator *from,
                                            const rn_place_buffer *buffers, size_t count,
                                            rn_place_problem *out);
void rn_place_problem_free(const rn_allocator *from, rn_place_problem *problem);

// ---- the first placement ------------------------------------------------------------------------

// Gives offsets to all items as an allocator would that hears of them one after the other. Linear
// in time, so there is something to fall back on where nothing else comes to an end.
RN_MUST_USE rn_status rn_place_sweep(const rn_allocator *from, const rn_place_problem *problem,
                                     uint64_t *out_offsets);

// ---- parts --------------------------------------------------------------------------------------

// Items that share no moment with those of other parts, lying above `base`.
typedef struct rn_place_part {
    rn_place_item *items; // (count), by lower
    size_t count;
    uint64_t base;   // a multiple of every alignment; below it lie buffers alive all the while
    uint64_t height; // of the best placement so far, base included
    uint64_t bound;  // no placement of the part is lower, base included
} rn_place_part;

// Gives offsets to the items at the bottom, and cuts the rest into parts. Reorders the items.
// out_parts has room for as many parts as there are items.
RN_MUST_USE rn_status rn_place_split(rn_place_problem *problem, rn_place_part *out_parts,
                                     size_t *out_count);

// ---- the two ways -------------------------------------------------------------------------------

// Nodes of all searches together.
typedef struct rn_place_leash {
    uint64_t nodes_left, node_count;
} rn_place_leash;

// Looks whether to end; true while there is reason to go on.
bool rn_place_go_on(const rn_place_leash *leash);

// Sets the items' offsets and the part's height.
RN_MUST_USE rn_status rn_place_greedy(const rn_allocator *from, rn_place_part *part);

// The same again in orders that learn, for a part that is too large to be searched, until its
// height is at most `goal` (base included) or that does not help any more. A node is an item put
// down.
RN_MUST_USE rn_status rn_place_reorder(const rn_allocator *from, rn_place_leash *leash,
                                       uint64_t goal, rn_place_part *part);

typedef enum rn_place_verdict {
    RN_PLACE_FOUND,     // the part's offsets and height are new
    RN_PLACE_NONE,      // there is no placement that low
    RN_PLACE_UNDECIDED, // out of nodes, or stopped
} rn_place_verdict;

typedef struct rn_place_search rn_place_search;

// Prepares to search one part. *out is NULL where it is too large to be searched.
RN_MUST_USE rn_status rn_place_search_create(const rn_allocator *from, const rn_place_part *part,
                                             rn_place_search **out);
void rn_place_search_destroy(rn_place_search *search);
// Looks for a placement of at most `height` (base included) with `nodes` nodes for each
// order, and as many for the same order disturbed.
RN_MUST_USE rn_status rn_place_search_run(rn_place_search *search, rn_place_leash *leash,
                                          uint64_t height, uint64_t nodes, rn_place_part *part,
                                          rn_place_verdict *out);

#endif
