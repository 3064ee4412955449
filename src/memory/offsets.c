// offsets.c — taking and releasing blocks: the two-level lists, cutting, merging.
//
// The hot path of an allocation is: class of the size, a look at the head of that class, two bit
// scans, unlink, cut, link the rest. Of a free: look at both neighbours, unlink those that are
// free, link the sum. A block's left part keeps the node index when it is cut or merged, so edges
// of ranges never change theirs.
#include "memory/offsets_internal.h"
#include "base/checked.h"

#include <assert.h>
#include <string.h>

#define FIRST_NODE_COUNT 64u
#define OWN_CLASS_PROBES 8 // blocks of the request's own class looked at before the next class

unsigned rn_offsets_next_class(const rn_offsets *o, unsigned from) {
    unsigned power = from >> RN_STEP_BITS;
    if (power >= RN_POWER_COUNT) return RN_NO_NODE;
    uint32_t steps = o->steps[power] & (UINT32_MAX << (from & (RN_STEP_COUNT - 1)));
    if (steps == 0) {
        uint64_t powers = o->powers & (UINT64_MAX << power << 1);
        if (powers == 0) return RN_NO_NODE;
        power = (unsigned)__builtin_ctzll(powers);
        steps = o->steps[power];
    }
    return power << RN_STEP_BITS | (unsigned)__builtin_ctz(steps);
}

// ---- nodes ------------------------------------------------------------------------------------

static rn_status grow_nodes(rn_offsets *o, uint32_t least) {
    uint64_t capacity = rn_max_u64(o->node_capacity * 2ull, FIRST_NODE_COUNT);
    capacity = rn_min_u64(rn_max_u64(capacity, least), RN_NO_NODE);
    void *nodes;
    RN_TRY(rn_alloc(o->from, capacity * sizeof(rn_node), &nodes));
    if (o->node_count > 0) memcpy(nodes, o->nodes, o->node_count * sizeof(rn_node));
    rn_free(o->from, o->nodes, o->node_capacity * sizeof(rn_node));
    o->nodes = nodes;
    o->node_capacity = (uint32_t)capacity;
    return RN_OK;
}

rn_status rn_offsets_reserve(rn_offsets *o, uint32_t count) {
    uint32_t ready = o->spare_count + (o->node_capacity - o->node_count);
    if (ready >= count) return RN_OK;
    uint64_t least = (uint64_t)o->node_capacity + (count - ready);
    if (least >= RN_NO_NODE) return rn_fail(RN_NO_MEMORY, "more than 2^32 blocks in one pool");
    return grow_nodes(o, (uint32_t)least);
}

uint32_t rn_offsets_take(rn_offsets *o, uint64_t offset, uint64_t bytes, uint32_t left,
                         uint32_t right) {
    uint32_t index = o->spare;
    if (index != RN_NO_NODE) {
        o->spare = o->nodes[index].next;
        o->spare_count--;
    } else {
        assert(o->node_count < o->node_capacity);
        index = o->node_count++;
    }
    rn_node *node = &o->nodes[index];
    *node = (rn_node){.offset = offset, .bytes = bytes, .left = left, .right = right};
    if (left != RN_NO_NODE) o->nodes[left].right = index;
    if (right != RN_NO_NODE) o->nodes[right].left = index;
    return index;
}

void rn_offsets_drop(rn_offsets *o, uint32_t index) {
    o->nodes[index].state = RN_NODE_SPARE;
    o->nodes[index].next = o->spare;
    o->spare = index;
    o->spare_count++;
}

// ---- lists ------------------------------------------------------------------------------------

void rn_offsets_list(rn_offsets *o, uint32_t index) {
    rn_node *node = &o->nodes[index];
    unsigned class = rn_offsets_class(o, node->bytes);
    uint32_t head = o->lists[class];
    node->state = RN_NODE_FREE;
    node->next = head;
    node->prev_or_slack = RN_NO_NODE;
    if (head != RN_NO_NODE) o->nodes[head].prev_or_slack = index;
    o->lists[class] = index;
    o->steps[class >> RN_STEP_BITS] |= 1u << (class & (RN_STEP_COUNT - 1));
    o->powers |= 1ull << (class >> RN_STEP_BITS);
}

static void clear_class(rn_offsets *o, unsigned class) {
    uint32_t *steps = &o->steps[class >> RN_STEP_BITS];
    *steps &= ~(1u << (class & (RN_STEP_COUNT - 1)));
    if (*steps == 0) o->powers &= ~(1ull << (class >> RN_STEP_BITS));
}

void rn_offsets_unlist(rn_offsets *o, uint32_t index) {
    const rn_node *node = &o->nodes[index];
    uint32_t prev = node->prev_or_slack;
    if (node->next != RN_NO_NODE) o->nodes[node->next].prev_or_slack = prev;
    if (prev != RN_NO_NODE) {
        o->nodes[prev].next = node->next;
        return;
    }
    unsigned class = rn_offsets_class(o, node->bytes);
    o->lists[class] = node->next;
    if (node->next == RN_NO_NODE) clear_class(o, class);
}

void rn_offsets_split(rn_offsets *o, uint32_t index, uint64_t bytes) {
    rn_node *node = &o->nodes[index];
    uint64_t rest = node->bytes - bytes;
    if (rest == 0) return;
    node->bytes = bytes;
    rn_offsets_list(o, rn_offsets_take(o, node->offset + bytes, rest, index, node->right));
}

// ---- finding ----------------------------------------------------------------------------------

static bool fits(const rn_node *node, uint64_t bytes, uint64_t align) {
    uint64_t start;
    if (!rn_align_u64(node->offset, align, &start)) return false;
    uint64_t pad = start - node->offset;
    return pad <= node->bytes && node->bytes - pad >= bytes;
}

// The smallest that fits among the first `limit` blocks of a class.
static uint32_t probe_class(const rn_offsets *o, unsigned class, uint64_t bytes, uint64_t align,
                            uint32_t limit) {
    uint32_t best = RN_NO_NODE;
    for (uint32_t i = o->lists[class]; i != RN_NO_NODE && limit > 0;
         i = o->nodes[i].next, limit--) {
        const rn_node *node = &o->nodes[i];
        if (!fits(node, bytes, align)) continue;
        if (node->bytes == bytes) return i;
        if (best == RN_NO_NODE || node->bytes < o->nodes[best].bytes) best = i;
    }
    return best;
}

// Every class from the request's own upwards: what a refusal costs.
static uint32_t search_all(const rn_offsets *o, uint64_t bytes, uint64_t align, unsigned last) {
    unsigned class = rn_offsets_next_class(o, rn_offsets_class(o, bytes));
    while (class <= last) {
        uint32_t found = probe_class(o, class, bytes, align, UINT32_MAX);
        if (found != RN_NO_NODE) return found;
        class = rn_offsets_next_class(o, class + 1);
    }
    return RN_NO_NODE;
}

static uint32_t find(const rn_offsets *o, uint64_t bytes, uint64_t align) {
    uint64_t granule = 1ull << o->granule_shift;
    uint64_t worst =
        bytes + (align > granule ? align - granule : 0); // with all the padding there can be
    unsigned own = rn_offsets_class(o, bytes);
    uint32_t found = probe_class(o, own, bytes, align, OWN_CLASS_PROBES);
    if (found != RN_NO_NODE) return found;
    unsigned sure = rn_offsets_class(o, worst) + 1;
    unsigned class = rn_offsets_next_class(o, sure);
    if (class != RN_NO_NODE) return o->lists[class];
    return search_all(o, bytes, align, sure - 1);
}

// ---- the two verbs ----------------------------------------------------------------------------

// Cuts [start, start + bytes) out of a listed free node and makes it live.
static uint32_t carve(rn_offsets *o, uint32_t index, uint64_t start, uint64_t bytes) {
    rn_offsets_unlist(o, index);
    uint64_t pad = start - o->nodes[index].offset;
    if (pad > 0) {
        uint32_t front = index;
        rn_node *node = &o->nodes[front];
        index = rn_offsets_take(o, start, node->bytes - pad, front, node->right);
        node->bytes = pad;
        rn_offsets_list(o, front);
    }
    rn_offsets_split(o, index, bytes);
    o->nodes[index].state = RN_NODE_LIVE;
    return index;
}

rn_offsets_result rn_offsets_alloc(rn_offsets *o, uint64_t bytes, uint64_t align,
                                   rn_offset_block *out_block) {
    assert(bytes > 0 && align > 0 && (align & (align - 1)) == 0);
    if (bytes > RN_OFFSETS_MAX_BYTES || align > RN_OFFSETS_MAX_BYTES) return RN_OFFSETS_NO_ROOM;
    uint64_t whole = rn_round_up(bytes, 1ull << o->granule_shift);
    uint32_t index = find(o, whole, align);
    if (index == RN_NO_NODE) return RN_OFFSETS_NO_ROOM;
    if (rn_offsets_reserve(o, 2) != RN_OK) return RN_OFFSETS_NO_NODE;
    index = carve(o, index, rn_round_up(o->nodes[index].offset, align), whole);
    o->nodes[index].prev_or_slack = (uint32_t)(whole - bytes);
    o->active_bytes += whole;
    o->allocated_bytes += bytes;
    o->peak_bytes = rn_max_u64(o->peak_bytes, o->allocated_bytes);
    o->block_count++;
    *out_block = (rn_offset_block){o->nodes[index].offset, index};
    return RN_OFFSETS_DONE;
}

// Node `index` swallows its right neighbour.
static void merge_right(rn_offsets *o, uint32_t index) {
    rn_node *node = &o->nodes[index];
    uint32_t gone = node->right;
    node->bytes += o->nodes[gone].bytes;
    node->right = o->nodes[gone].right;
    o->nodes[node->right].left = index;
    rn_offsets_drop(o, gone);
}

void rn_offsets_free(rn_offsets *o, rn_offset_block block) {
    uint32_t index = block.node;
    assert(index < o->node_count && o->nodes[index].state == RN_NODE_LIVE);
    assert(o->nodes[index].offset == block.offset);
    rn_node *node = &o->nodes[index];
    o->active_bytes -= node->bytes;
    o->allocated_bytes -= node->bytes - node->prev_or_slack;
    o->block_count--;
    if (o->nodes[node->right].state == RN_NODE_FREE) {
        rn_offsets_unlist(o, node->right);
        merge_right(o, index);
    }
    uint32_t left = node->left;
    if (o->nodes[left].state == RN_NODE_FREE) {
        rn_offsets_unlist(o, left);
        merge_right(o, left);
        index = left;
    }
    rn_offsets_list(o, index);
}

// ---- lifetime ---------------------------------------------------------------------------------

rn_status rn_offsets_create(const rn_allocator *from, uint64_t capacity_bytes,
                            uint64_t granule_bytes, rn_offsets **out_offsets) {
    *out_offsets = NULL;
    if (granule_bytes == 0 || granule_bytes > RN_OFFSETS_MAX_GRANULE ||
        (granule_bytes & (granule_bytes - 1)) != 0)
        return rn_fail(RN_INVALID, "a granule of %llu bytes is not a power of two up to 1 GiB",
                       (unsigned long long)granule_bytes);
    void *memory;
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof(rn_offsets), &memory));
    rn_offsets *o = memory;
    o->from = from;
    o->granule_shift = (unsigned)__builtin_ctzll(granule_bytes);
    o->spare = RN_NO_NODE;
    memset(o->lists, 0xff, sizeof o->lists); // RN_NO_NODE everywhere
    rn_status status = rn_offsets_grow(o, capacity_bytes);
    if (status == RN_OK)
        *out_offsets = o;
    else
        rn_offsets_destroy(o);
    return status;
}

void rn_offsets_destroy(rn_offsets *o) {
    if (!o) return;
    rn_free(o->from, o->nodes, o->node_capacity * sizeof(rn_node));
    rn_free(o->from, o->ranges, o->range_capacity * sizeof(rn_range));
    rn_free(o->from, o, sizeof *o);
}
