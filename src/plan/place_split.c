// place_split.c — cuts a placement problem into parts that have no moment in common.
//
// A buffer that is alive all through its part may as well lie at the bottom: whatever lay below it
// moves up by its size, and nothing else notices. With it gone the part may fall apart further.
//
//     |  a  | |    b    |            a | b        two parts, each with its own floor
//     |  a  |c| b1 | b2 |     =>     a | b1 | b2   ...
//     |========d========|            base = d
#include "plan/place.h"

#include "base/checked.h"

// Where the first group of items that hang together in time ends.
static size_t find_gap(const rn_place_item *items, size_t count, uint32_t *out_upper) {
    uint32_t upper = items[0].upper;
    size_t i = 1;
    while (i < count && items[i].lower < upper) {
        if (items[i].upper > upper) upper = items[i].upper;
        (void)rn_stop_round(i++); // the caller looks
    }
    *out_upper = upper;
    return i;
}

// Moves the items that live as long as their group to its front and puts them down, one upon the
// other. They must not disturb anybody's alignment.
static size_t peel(rn_place_item *items, size_t count, uint32_t upper, uint64_t largest_align,
                   uint64_t *base) {
    uint32_t lower = items[0].lower;
    size_t peeled = 0;
    for (size_t i = 0; i < count && items[i].lower == lower && items[i].upper == upper; i++) {
        if (items[i].bytes % largest_align) continue;
        rn_place_item item = items[i];
        item.offset = *base;
        *base += item.bytes;
        items[i] = items[peeled];
        items[peeled++] = item;
    }
    return peeled;
}

static uint64_t measure_bound(const rn_place_problem *p, const rn_place_part *part) {
    uint64_t bound = 0;
    for (size_t i = 0; i < part->count; i++)
        bound = rn_max_u64(bound, part->items[i].contention);
    return rn_min_u64(bound, p->bound);
}

rn_status rn_place_split(rn_place_problem *p, rn_place_part *out_parts, size_t *out_count) {
    *out_count = 0;
    if (p->count == 0) return RN_OK;
    // Pending groups stand at the end of the room for parts: a group has at least one item, so they
    // never meet those that are done.
    rn_place_part *todo = out_parts + p->count;
    size_t done = 0;
    *--todo = (rn_place_part){.items = p->items, .count = p->count};
    while (todo != out_parts + p->count) {
        rn_place_part group = *todo++;
        uint32_t upper;
        if (rn_stop_spend(0) != RN_STOP_GO_ON) return RN_CANCELLED;
        size_t size = find_gap(group.items, group.count, &upper);
        if (size < group.count)
            *--todo = (rn_place_part){
                .items = group.items + size, .count = group.count - size, .base = group.base};
        group.count = size;
        size_t peeled = peel(group.items, size, upper, p->largest_align, &group.base);
        group.items += peeled;
        group.count -= peeled;
        if (peeled && group.count) {
            *--todo = group;
        } else if (group.count) {
            group.bound = measure_bound(p, &group);
            out_parts[done++] = group;
        }
    }
    *out_count = done;
    return RN_OK;
}
