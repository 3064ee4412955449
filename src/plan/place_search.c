// place_search.c — looks for a placement within a given height, depth first.
//
// Only canonical placements are tried: sorted by (offset, rank), each item rests on the floor or on
// an earlier one. Every placement can be let down into such a one. Give each item a weight, its
// bytes times something that falls with its rank: the placement with the least weighted sum of
// offsets survives all the rules below; so if none is found, there is none.
//
//   - An item's resting place is the top of what is placed beneath it: later items lie higher, so
//     they go on top, never in between.
//   - Offsets never fall. What could have been placed below the last offset and was not ("waiting")
//     must be lifted by a later one.
//   - Where the next offset would leave room under it for a whole item that is not yet placed, that
//     item could drop into it: such an offset is dominated.
//   - At every moment, floor + bytes still to be placed <= height, where the floor is the lowest
//     offset that any item of that moment can still get.
//   - Of two items of one life lying directly upon each other, the one of lower rank is below.
//   - When no item left bridges a moment, the items before and after it are problems of their own,
//     on a floor that is the resting places so far: they are ranked anew (place_rank.c) and each is
//     searched from the start. Items are kept by lower time, so these are runs of the array, and a
//     failure of one is a failure of all.
//
// Times are cut to sections: the moments at which a maximal set of items is alive. The others add
// no conflict.
//
// Undo: `placed` is the path; `trail` holds the resting places that each step has changed.
#include "plan/place_search.h"

#include "base/checked.h"

#include <string.h>

// ---- steps and their undoing --------------------------------------------------------------------

// Puts down items[at] of the run that begins at `begin`, moving it to the run's front.
static void put(rn_place_search *s, uint32_t begin, uint32_t at) {
    uint32_t id = s->items[at];
    const rn_place_node *n = &s->nodes[id];
    rn_place_step *path = &s->placed[s->placed_count++];
    *path = (rn_place_step){.begin = begin, .at = at, .trail = s->trail_count};
    memmove(&s->items[begin + 1], &s->items[begin], (at - begin) * sizeof *s->items);
    s->items[begin] = id;
    s->is_placed[id] = true;
    uint64_t top = s->rest[id] + n->bytes;
    rn_place_search_work(s, s->link_begin[id + 1] - s->link_begin[id] + n->end - n->first);
    for (uint32_t i = n->first; i < n->end; i++)
        s->total[i] -= n->bytes;
    for (uint32_t k = s->link_begin[id]; k < s->link_begin[id + 1]; k++) {
        uint32_t other = s->links[k];
        if (s->is_placed[other] || s->rest[other] >= top) continue;
        s->trail[s->trail_count++] = (rn_place_change){other, s->rest[other]};
        s->rest[other] = rn_round_up(top, s->nodes[other].align);
    }
}

static void take_back(rn_place_search *s, size_t placed_count) {
    while (s->placed_count > placed_count) {
        const rn_place_step *path = &s->placed[--s->placed_count];
        uint32_t id = s->items[path->begin];
        const rn_place_node *n = &s->nodes[id];
        while (s->trail_count > path->trail) {
            const rn_place_change *c = &s->trail[--s->trail_count];
            s->rest[c->id] = c->rest;
        }
        for (uint32_t i = n->first; i < n->end; i++)
            s->total[i] += n->bytes;
        s->is_placed[id] = false;
        memmove(&s->items[path->begin], &s->items[path->begin + 1],
                (path->at - path->begin) * sizeof *s->items);
        s->items[path->at] = id;
    }
}

// ---- rules --------------------------------------------------------------------------------------

static bool is_waiting(const rn_place_search *s, uint32_t id, rn_place_mark last) {
    return s->rest[id] < last.offset || (s->rest[id] == last.offset && s->rank[id] < last.rank);
}

// Whether every section of the run can still hold what it must.
static bool has_room(rn_place_search *s, uint32_t begin, uint32_t end, rn_place_mark last) {
    uint64_t lift = UINT64_MAX;
    uint32_t first = s->nodes[s->items[begin]].first, stop = first;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t id = s->items[i];
        const rn_place_node *n = &s->nodes[id];
        if (n->end > stop) stop = n->end;
        if (!is_waiting(s, id, last)) lift = rn_min_u64(lift, s->rest[id] + n->bytes);
    }
    for (uint32_t i = first; i < stop; i++)
        s->floor[i] = UINT64_MAX;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t id = s->items[i];
        const rn_place_node *n = &s->nodes[id];
        uint64_t lowest = is_waiting(s, id, last) ? lift : s->rest[id];
        // Four more rounds over the run: above, and in descend.
        rn_place_search_work(s, n->end - n->first + 4);
        for (uint32_t k = n->first; k < n->end; k++)
            s->floor[k] = rn_min_u64(s->floor[k], lowest);
    }
    for (uint32_t i = first; i < stop; i++)
        if (s->total[i] && (s->floor[i] > s->height || s->total[i] > s->height - s->floor[i]))
            return false;
    return true;
}

// The next offset must be below this: else it leaves room for an item under it, or too little above
// it.
static uint64_t find_ceiling(const rn_place_search *s, uint32_t begin, uint32_t end) {
    uint64_t ceiling = UINT64_MAX;
    uint32_t first = s->nodes[s->items[begin]].first, stop = first;
    for (uint32_t i = begin; i < end; i++) {
        const rn_place_node *n = &s->nodes[s->items[i]];
        if (n->end > stop) stop = n->end;
        ceiling = rn_min_u64(ceiling, s->rest[s->items[i]] + n->bytes);
    }
    for (uint32_t i = first; i < stop; i++)
        if (s->total[i]) ceiling = rn_min_u64(ceiling, s->height - s->total[i] + 1);
    return ceiling;
}

// Whether the item would lie directly on one of the same life and higher rank: the two, exchanged,
// are tried elsewhere. Those placed before its run came apart have lower ranks: they stay where
// they are.
static bool is_exchanged(const rn_place_search *s, uint32_t id) {
    for (uint32_t k = s->link_begin[id]; k < s->twin_end[id]; k++) {
        uint32_t other = s->links[k];
        if (s->is_placed[other] && s->rank[other] > s->rank[id] &&
            s->rest[other] + s->nodes[other].bytes == s->rest[id])
            return true;
    }
    return false;
}

// The item of the run with the least (offset, rank) after `after`.
static bool find_next(const rn_place_search *s, uint32_t begin, uint32_t end, rn_place_mark after,
                      uint64_t ceiling, uint32_t *out_at) {
    rn_place_mark best = {ceiling, 0};
    for (uint32_t i = begin; i < end; i++) {
        uint32_t id = s->items[i];
        uint64_t rest = s->rest[id];
        uint32_t rank = s->rank[id];
        if (rest > best.offset || (rest == best.offset && rank >= best.rank)) continue;
        if (rest < after.offset || (rest == after.offset && rank < after.rank)) continue;
        if (is_exchanged(s, id)) continue;
        best = (rn_place_mark){rest, rank};
        *out_at = i;
    }
    return best.offset < ceiling;
}

// ---- descending ---------------------------------------------------------------------------------

static bool is_spent(rn_place_search *s) {
    s->leash->node_count++;
    if (s->nodes_left == 0 || s->leash->nodes_left == 0) return true;
    s->nodes_left--;
    s->leash->nodes_left--;
    uint64_t work = s->work;
    s->work = 0;
    return rn_stop_spend(work) != RN_STOP_GO_ON;
}

static rn_place_verdict descend(rn_place_search *s, uint32_t begin, uint32_t end,
                                rn_place_mark last);

// The runs that hang together, one after the other. All must succeed. One that is all there is goes
// on as it began; the others begin anew.
static rn_place_verdict descend_each(rn_place_search *s, uint32_t begin, uint32_t end,
                                     rn_place_mark last) {
    rn_place_verdict verdict = RN_PLACE_FOUND;
    for (uint32_t run = begin; run < end && verdict == RN_PLACE_FOUND;) {
        uint32_t stop = run + 1, upper = s->nodes[s->items[run]].end;
        while (stop < end && s->nodes[s->items[stop]].first < upper) {
            uint32_t next = s->nodes[s->items[stop++]].end;
            if (next > upper) upper = next;
        }
        bool apart = stop - run < end - begin && stop - run > 1;
        bool anew = apart && rn_place_rank_run(s, run, stop);
        verdict = descend(s, run, stop, anew ? (rn_place_mark){0, 0} : last);
        run = stop;
    }
    return verdict;
}

static rn_place_verdict descend(rn_place_search *s, uint32_t begin, uint32_t end,
                                rn_place_mark last) {
    uint64_t ceiling = find_ceiling(s, begin, end);
    uint32_t at = begin;
    // A lone item disturbs nobody, even if it could have come earlier. It fits: has_room saw it.
    if (end - begin == 1) {
        put(s, begin, begin);
        return RN_PLACE_FOUND;
    }
    while (find_next(s, begin, end, last, ceiling, &at)) {
        size_t before = s->placed_count, old_ranks = s->old_rank_count;
        uint32_t next_rank = s->next_rank;
        rn_place_verdict verdict = RN_PLACE_NONE;
        last = (rn_place_mark){s->rest[s->items[at]], s->rank[s->items[at]] + 1};
        if (is_spent(s)) return RN_PLACE_UNDECIDED;
        put(s, begin, at);
        if (has_room(s, begin + 1, end, last)) verdict = descend_each(s, begin + 1, end, last);
        if (verdict == RN_PLACE_FOUND) return verdict;
        take_back(s, before);
        rn_place_rank_undo(s, old_ranks, next_rank);
        if (verdict == RN_PLACE_UNDECIDED) return verdict;
    }
    return RN_PLACE_NONE;
}

rn_place_verdict rn_place_search_walk(rn_place_search *s, uint64_t nodes) {
    rn_place_mark last = {0, 0};
    s->nodes_left = nodes;
    if (!has_room(s, 0, s->count, last)) return RN_PLACE_NONE;
    if (!rn_place_rank_run(s, 0, s->count)) return RN_PLACE_UNDECIDED;
    rn_place_verdict verdict = descend_each(s, 0, s->count, last);
    if (verdict != RN_PLACE_FOUND) take_back(s, 0);
    return verdict;
}
