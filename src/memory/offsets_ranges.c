// offsets_ranges.c — capacity: ranges that are added, joined, cut and removed.
//
// Each range is a chain of nodes between two edges of zero bytes. Joining two ranges that touch
// drops the edges at the seam; removing the middle of a range puts two new ones there. Ranges lie
// in a small sorted array, searched only here: a pool of 64 GiB has about a thousand.
#include "memory/offsets_internal.h"
#include "base/checked.h"

#include <string.h>

// How many ranges start at or before `offset`.
static uint32_t ranges_before(const rn_offsets *o, uint64_t offset) {
    uint32_t low = 0, high = o->range_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (o->ranges[middle].start <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static rn_status reserve_range(rn_offsets *o) {
    if (o->range_count < o->range_capacity) return RN_OK;
    uint32_t capacity = o->range_capacity ? o->range_capacity * 2 : 4;
    void *ranges;
    RN_TRY(rn_alloc(o->from, capacity * sizeof(rn_range), &ranges));
    if (o->range_count > 0) memcpy(ranges, o->ranges, o->range_count * sizeof(rn_range));
    rn_free(o->from, o->ranges, o->range_capacity * sizeof(rn_range));
    o->ranges = ranges;
    o->range_capacity = capacity;
    return RN_OK;
}

static void insert_range(rn_offsets *o, uint32_t at, rn_range range) {
    memmove(&o->ranges[at + 1], &o->ranges[at], (o->range_count - at) * sizeof(rn_range));
    o->ranges[at] = range;
    o->range_count++;
}

static void erase_range(rn_offsets *o, uint32_t at) {
    o->range_count--;
    memmove(&o->ranges[at], &o->ranges[at + 1], (o->range_count - at) * sizeof(rn_range));
}

static uint32_t make_edge(rn_offsets *o, uint64_t offset, uint32_t left, uint32_t right) {
    uint32_t edge = rn_offsets_take(o, offset, 0, left, right);
    o->nodes[edge].state = RN_NODE_EDGE;
    return edge;
}

static void link_nodes(rn_offsets *o, uint32_t left, uint32_t right) {
    o->nodes[left].right = right;
    o->nodes[right].left = left;
}

// Range `at` and the next one touch: one range from now on.
static void join_next(rn_offsets *o, uint32_t at) {
    rn_range *range = &o->ranges[at], *next = range + 1;
    uint32_t left = o->nodes[range->last].left, right = o->nodes[next->first].right;
    rn_offsets_drop(o, range->last);
    rn_offsets_drop(o, next->first);
    link_nodes(o, left, right);
    range->bytes += next->bytes;
    range->last = next->last;
    erase_range(o, at + 1);
    if (o->nodes[left].state != RN_NODE_FREE || o->nodes[right].state != RN_NODE_FREE) return;
    rn_offsets_unlist(o, left);
    rn_offsets_unlist(o, right);
    o->nodes[left].bytes += o->nodes[right].bytes;
    link_nodes(o, left, o->nodes[right].right);
    rn_offsets_drop(o, right);
    rn_offsets_list(o, left);
}

static rn_status check_range(const rn_offsets *o, uint32_t at, uint64_t start, uint64_t bytes) {
    uint64_t end, mask = (1ull << o->granule_shift) - 1;
    if (bytes == 0 || bytes > RN_OFFSETS_MAX_BYTES - o->capacity_bytes ||
        !rn_add_u64(start, bytes, &end) || (start & mask) != 0 || (bytes & mask) != 0)
        return rn_fail(RN_INVALID, "%llu bytes at %#llx is not a range of whole granules",
                       (unsigned long long)bytes, (unsigned long long)start);
    const rn_range *before = at > 0 ? &o->ranges[at - 1] : NULL;
    if ((before && before->start + before->bytes > start) ||
        (at < o->range_count && o->ranges[at].start < end))
        return rn_fail(RN_INVALID, "%llu bytes at %#llx overlap a range that is already there",
                       (unsigned long long)bytes, (unsigned long long)start);
    return RN_OK;
}

rn_status rn_offsets_add(rn_offsets *o, uint64_t start, uint64_t bytes, bool joins) {
    uint32_t at = ranges_before(o, start);
    RN_TRY(check_range(o, at, start, bytes));
    RN_TRY(reserve_range(o));
    RN_TRY(rn_offsets_reserve(o, 3));
    uint32_t first = make_edge(o, start, RN_NO_NODE, RN_NO_NODE);
    uint32_t last = make_edge(o, start + bytes, RN_NO_NODE, RN_NO_NODE);
    rn_offsets_list(o, rn_offsets_take(o, start, bytes, first, last));
    insert_range(o, at, (rn_range){start, bytes, first, last});
    o->capacity_bytes += bytes;
    if (!joins) return RN_OK;
    if (at + 1 < o->range_count && o->ranges[at + 1].start == start + bytes) join_next(o, at);
    if (at > 0 && o->ranges[at - 1].start + o->ranges[at - 1].bytes == start) join_next(o, at - 1);
    return RN_OK;
}

static uint64_t end_of_last(const rn_offsets *o) {
    if (o->range_count == 0) return 0;
    const rn_range *last = &o->ranges[o->range_count - 1];
    return last->start + last->bytes;
}

rn_status rn_offsets_grow(rn_offsets *o, uint64_t bytes) {
    bytes = rn_round_down(bytes, 1ull << o->granule_shift);
    return bytes > 0 ? rn_offsets_add(o, end_of_last(o), bytes, true) : RN_OK;
}

// An empty range [edge, edge] disappears.
static void erase_if_empty(rn_offsets *o, uint32_t at) {
    rn_range range = o->ranges[at];
    if (range.bytes > 0) return;
    rn_offsets_drop(o, range.first);
    rn_offsets_drop(o, range.last);
    erase_range(o, at);
}

uint64_t rn_offsets_trim(rn_offsets *o, uint64_t keep_bytes) {
    if (o->range_count == 0 || o->capacity_bytes <= keep_bytes) return 0;
    rn_range *range = &o->ranges[o->range_count - 1];
    uint32_t index = o->nodes[range->last].left;
    if (o->nodes[index].state != RN_NODE_FREE) return 0;
    uint64_t cut = rn_min_u64(o->nodes[index].bytes, o->capacity_bytes - keep_bytes);
    cut = rn_round_down(cut, 1ull << o->granule_shift);
    rn_offsets_unlist(o, index);
    o->nodes[index].bytes -= cut;
    if (o->nodes[index].bytes > 0) {
        rn_offsets_list(o, index);
    } else {
        link_nodes(o, o->nodes[index].left, range->last);
        rn_offsets_drop(o, index);
    }
    o->nodes[range->last].offset -= cut;
    range->bytes -= cut;
    o->capacity_bytes -= cut;
    erase_if_empty(o, o->range_count - 1);
    return cut;
}

// The free block that covers [start, start + bytes). At most capacity / bytes blocks are that
// large.
static uint32_t find_cover(const rn_offsets *o, uint64_t start, uint64_t bytes) {
    unsigned class = rn_offsets_next_class(o, rn_offsets_class(o, bytes));
    for (; class != RN_NO_NODE; class = rn_offsets_next_class(o, class + 1)) {
        for (uint32_t i = o->lists[class]; i != RN_NO_NODE; i = o->nodes[i].next) {
            const rn_node *node = &o->nodes[i];
            if (node->offset <= start && start - node->offset <= node->bytes &&
                node->bytes - (start - node->offset) >= bytes)
                return i;
        }
    }
    return RN_NO_NODE;
}

// Closes range `at` before the unlisted node `gone` and opens the next one behind it.
static void cut_out(rn_offsets *o, uint32_t at, uint32_t gone) {
    rn_node hole = o->nodes[gone];
    rn_range *range = &o->ranges[at];
    uint64_t end = hole.offset + hole.bytes;
    rn_range behind = {end, range->start + range->bytes - end, RN_NO_NODE, range->last};
    rn_offsets_drop(o, gone);
    range->bytes = hole.offset - range->start;
    range->last = make_edge(o, hole.offset, hole.left, RN_NO_NODE);
    behind.first = make_edge(o, end, RN_NO_NODE, hole.right);
    insert_range(o, at + 1, behind);
    erase_if_empty(o, at + 1);
    erase_if_empty(o, at);
}

// Takes [start, start + bytes) out of a listed free node; nodes and a range are reserved.
static void remove_from(rn_offsets *o, uint32_t index, uint64_t start, uint64_t bytes) {
    uint64_t front = start - o->nodes[index].offset;
    rn_offsets_unlist(o, index);
    if (front > 0) { // the front stays where it is; what is behind it goes on
        rn_offsets_split(o, index, front);
        rn_offsets_list(o, index);
        index = o->nodes[index].right;
        rn_offsets_unlist(o, index);
    }
    rn_offsets_split(o, index, bytes);
    cut_out(o, ranges_before(o, start) - 1, index);
    o->capacity_bytes -= bytes;
}

static bool reserve_removal(rn_offsets *o) {
    return rn_offsets_reserve(o, 4) == RN_OK && reserve_range(o) == RN_OK;
}

rn_offsets_result rn_offsets_remove(rn_offsets *o, uint64_t start, uint64_t bytes) {
    uint32_t index = find_cover(o, start, bytes);
    if (index == RN_NO_NODE) return RN_OFFSETS_NO_ROOM;
    if (!reserve_removal(o)) return RN_OFFSETS_NO_NODE;
    remove_from(o, index, start, bytes);
    return RN_OFFSETS_DONE;
}

// The whole units inside a free block, on the grid of its range.
static rn_offset_range units_inside(const rn_offsets *o, const rn_node *node, uint64_t unit) {
    uint64_t base = o->ranges[ranges_before(o, node->offset) - 1].start;
    uint64_t start = rn_round_up(node->offset - base, unit);
    uint64_t end = rn_round_down(node->offset - base + node->bytes, unit);
    return (rn_offset_range){base + start, end > start ? end - start : 0, false};
}

// From the largest class down: the first class in which any block holds a unit has the best one, or
// nearly.
static uint32_t find_units(const rn_offsets *o, uint64_t unit, rn_offset_range *out_best) {
    uint32_t best = RN_NO_NODE;
    out_best->bytes = 0;
    for (unsigned power = RN_POWER_COUNT; power-- > 0 && best == RN_NO_NODE;) {
        for (uint32_t steps = o->steps[power]; steps != 0 && best == RN_NO_NODE;) {
            unsigned step = 31u - (unsigned)__builtin_clz(steps);
            steps &= ~(1u << step);
            uint32_t i = o->lists[power << RN_STEP_BITS | step];
            for (; i != RN_NO_NODE; i = o->nodes[i].next) {
                rn_offset_range units = units_inside(o, &o->nodes[i], unit);
                if (units.bytes <= out_best->bytes) continue;
                *out_best = units;
                best = i;
            }
        }
    }
    return best;
}

rn_offsets_result rn_offsets_remove_units(rn_offsets *o, uint64_t unit_bytes, uint64_t most_bytes,
                                          rn_offset_range *out_range) {
    rn_offset_range found;
    uint32_t index = find_units(o, unit_bytes, &found);
    if (index == RN_NO_NODE) return RN_OFFSETS_NO_ROOM;
    if (!reserve_removal(o)) return RN_OFFSETS_NO_NODE;
    if (found.bytes > most_bytes) found.bytes = rn_round_up(most_bytes, unit_bytes);
    remove_from(o, index, found.start, found.bytes);
    *out_range = found;
    return RN_OFFSETS_DONE;
}

uint32_t rn_offsets_range_count(const rn_offsets *o) {
    return o->range_count;
}

rn_offset_range rn_offsets_range_at(const rn_offsets *o, uint32_t index) {
    const rn_range *range = &o->ranges[index];
    const rn_node *first = &o->nodes[o->nodes[range->first].right];
    bool is_free = first->state == RN_NODE_FREE && first->bytes == range->bytes;
    return (rn_offset_range){range->start, range->bytes, is_free};
}
