// offsets_check.c — statistics, and the walker that trusts nothing.
//
// The walker goes through the same facts twice: along the neighbours of every range, and along
// every list. Free nodes counted one way must equal those counted the other way, so a node that is
// in the wrong list, in none or in two shows up as a difference.
#include "memory/offsets_internal.h"
#include "base/checked.h"

static uint64_t largest_free(const rn_offsets *o) {
    if (o->powers == 0) return 0;
    unsigned power = 63u - (unsigned)__builtin_clzll(o->powers);
    unsigned step = 31u - (unsigned)__builtin_clz(o->steps[power]);
    uint64_t largest = 0;
    for (uint32_t i = o->lists[power << RN_STEP_BITS | step]; i != RN_NO_NODE; i = o->nodes[i].next)
        largest = rn_max_u64(largest, o->nodes[i].bytes);
    return largest;
}

void rn_offsets_get_stats(const rn_offsets *o, rn_offsets_stats *out_stats) {
    uint64_t free_bytes = o->capacity_bytes - o->active_bytes, largest = largest_free(o);
    *out_stats = (rn_offsets_stats){
        .capacity_bytes = o->capacity_bytes,
        .allocated_bytes = o->allocated_bytes,
        .active_bytes = o->active_bytes,
        .peak_bytes = o->peak_bytes,
        .free_bytes = free_bytes,
        .largest_free_bytes = largest,
        .block_count = o->block_count,
        .fragmentation = free_bytes ? 1.0 - (double)largest / (double)free_bytes : 0.0,
    };
}

typedef struct tally {
    uint64_t free_count, free_bytes, live_count, live_bytes, asked_bytes, edge_count;
} tally;

static bool add_node(const rn_offsets *o, const rn_node *node, tally *sum) {
    uint64_t mask = (1ull << o->granule_shift) - 1;
    if (node->bytes == 0 || (node->bytes & mask) != 0) return false;
    if (node->state == RN_NODE_FREE) {
        sum->free_count++;
        sum->free_bytes += node->bytes;
        return o->nodes[node->right].state != RN_NODE_FREE;
    }
    sum->live_count++;
    sum->live_bytes += node->bytes;
    sum->asked_bytes += node->bytes - node->prev_or_slack;
    return node->state == RN_NODE_LIVE && node->prev_or_slack <= mask;
}

static bool is_edge(const rn_offsets *o, uint32_t index, uint64_t offset) {
    const rn_node *node = &o->nodes[index];
    return index < o->node_count && node->state == RN_NODE_EDGE && node->bytes == 0 &&
           node->offset == offset;
}

// Blocks tile the range from its first edge to its last.
static bool walk_range(const rn_offsets *o, const rn_range *range, tally *sum) {
    if (range->bytes == 0 || !is_edge(o, range->first, range->start)) return false;
    uint64_t offset = range->start;
    uint32_t left = range->first, index = o->nodes[left].right;
    for (uint64_t steps = 0; index != range->last; steps++) {
        if (index >= o->node_count || steps > o->node_count) return false;
        const rn_node *node = &o->nodes[index];
        if (node->left != left || node->offset != offset || !add_node(o, node, sum)) return false;
        offset += node->bytes;
        left = index;
        index = node->right;
    }
    sum->edge_count += 2;
    return is_edge(o, index, offset) && o->nodes[index].left == left &&
           offset == range->start + range->bytes;
}

// Every node of the list is free and of that class; the list is linked both ways.
static bool walk_list(const rn_offsets *o, unsigned class, tally *sum) {
    uint32_t prev = RN_NO_NODE;
    for (uint32_t i = o->lists[class]; i != RN_NO_NODE; prev = i, i = o->nodes[i].next) {
        if (i >= o->node_count || sum->free_count > o->node_count) return false;
        const rn_node *node = &o->nodes[i];
        if (node->state != RN_NODE_FREE || node->prev_or_slack != prev) return false;
        if (rn_offsets_class(o, node->bytes) != class) return false;
        sum->free_count++;
        sum->free_bytes += node->bytes;
    }
    return true;
}

static bool walk_lists(const rn_offsets *o, tally *sum) {
    for (unsigned power = 0; power < RN_POWER_COUNT; power++) {
        if ((o->steps[power] != 0) != ((o->powers >> power & 1) != 0)) return false;
        for (unsigned step = 0; step < RN_STEP_COUNT; step++) {
            unsigned class = power << RN_STEP_BITS | step;
            bool listed = o->lists[class] != RN_NO_NODE;
            if (listed != ((o->steps[power] >> step & 1) != 0)) return false;
            if (!walk_list(o, class, sum)) return false;
        }
    }
    return o->powers >> RN_POWER_COUNT == 0;
}

static bool spares_match(const rn_offsets *o) {
    uint32_t count = 0;
    for (uint32_t i = o->spare; i != RN_NO_NODE; i = o->nodes[i].next, count++)
        if (i >= o->node_count || count > o->spare_count || o->nodes[i].state != RN_NODE_SPARE)
            return false;
    return count == o->spare_count;
}

bool rn_offsets_is_valid(const rn_offsets *o) {
    tally blocks = {0}, lists = {0};
    uint64_t end = 0, capacity = 0;
    for (uint32_t r = 0; r < o->range_count; r++) {
        const rn_range *range = &o->ranges[r];
        if (range->start < end || !walk_range(o, range, &blocks)) return false;
        end = range->start + range->bytes;
        capacity += range->bytes;
    }
    if (!walk_lists(o, &lists) || !spares_match(o)) return false;
    uint64_t known = blocks.free_count + blocks.live_count + blocks.edge_count + o->spare_count;
    return known == o->node_count && blocks.free_count == lists.free_count &&
           blocks.free_bytes == lists.free_bytes && capacity == o->capacity_bytes &&
           blocks.live_count == o->block_count && blocks.live_bytes == o->active_bytes &&
           blocks.asked_bytes == o->allocated_bytes && o->allocated_bytes <= o->peak_bytes &&
           capacity == blocks.live_bytes + blocks.free_bytes;
}
