// merge_align.c — one clock for several recordings. For each rank the ends of the collectives that
// it shares with rank 0 give as many differences of the two clocks; their median is the shift. One
// late end (a thread that was not scheduled) moves a mean, not a median.
#include "base/checked.h"
#include "profile/timeline/merge.h"
#include "profile/timeline/radix.h"

#include <string.h>

// Wall clocks that differ by more than this (about 49 days) are not believed.
#define MOST_APART_NS ((int64_t)1 << 52)

bool rn_merge_is_collective(const rn_timeline *t, const rn_timeline_op *op) {
    const rn_timeline_name *name = &t->names[op->name];
    return strcmp(name->group, RN_COLLECTIVE_GROUP) == 0 && strncmp(name->name, "send", 4) != 0 &&
           strncmp(name->name, "recv", 4) != 0 && strncmp(name->name, "receive", 7) != 0;
}

uint32_t rn_merge_next_collective(const rn_timeline *t, uint32_t at) {
    while (at < t->op_count && !rn_merge_is_collective(t, &t->ops[at]))
        at++;
    return at;
}

// A broadcast's root may leave first: its end is no common moment.
static bool ends_together(const rn_timeline *t, const rn_timeline_op *op) {
    return !op->unfinished && strncmp(t->names[op->name].name, "broadcast", 9) != 0;
}

static bool same_name(const rn_timeline *a, uint32_t i, const rn_timeline *b, uint32_t j) {
    return strcmp(a->names[a->ops[i].name].name, b->names[b->ops[j].name].name) == 0;
}

// Differences of ends, one clock minus the other, while both ranks do the same. `items` may be
// NULL: count only. A key is the difference with its sign bit turned, so that keys sort as numbers.
static uint32_t list_differences(const rn_timeline *zero, const rn_timeline *t,
                                 rn_sort_item *items) {
    uint32_t i = rn_merge_next_collective(zero, 0), j = rn_merge_next_collective(t, 0), count = 0;
    for (; i < zero->op_count && j < t->op_count && same_name(zero, i, t, j);
         i = rn_merge_next_collective(zero, i + 1), j = rn_merge_next_collective(t, j + 1)) {
        if (!ends_together(zero, &zero->ops[i]) || !ends_together(t, &t->ops[j])) continue;
        int64_t apart = (int64_t)zero->ops[i].end_ns - (int64_t)t->ops[j].end_ns;
        if (items)
            items[count] =
                (rn_sort_item){.key = (uint64_t)apart ^ (uint64_t)1 << 63, .index = count};
        count++;
    }
    return count;
}

static int64_t difference_of(const rn_sort_item *item) {
    return (int64_t)(item->key ^ (uint64_t)1 << 63);
}

static int64_t wall_shift(const rn_timeline *zero, const rn_timeline *t) {
    if (!zero->start_unix_ns || !t->start_unix_ns) return 0;
    int64_t apart = (int64_t)(t->start_unix_ns - zero->start_unix_ns);
    return apart > MOST_APART_NS || apart < -MOST_APART_NS ? 0 : apart;
}

static rn_status align_one(const rn_timeline *zero, const rn_timeline *t, rn_merge_clock *out) {
    int64_t wall = wall_shift(zero, t);
    *out = (rn_merge_clock){.shift_ns = wall, .count = list_differences(zero, t, NULL)};
    if (!out->count) return RN_OK;
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(t->allocator, out->count, sizeof(rn_sort_item), &block));
    rn_sort_item *items = block;
    list_differences(zero, t, items);
    rn_status s = rn_radix_sort(t->allocator, items, out->count);
    if (s == RN_OK) {
        out->shift_ns = difference_of(&items[out->count / 2]);
        out->by_collectives_ns = out->shift_ns - wall;
        int64_t least = difference_of(&items[0]), most = difference_of(&items[out->count - 1]);
        out->scatter_ns = most - out->shift_ns > out->shift_ns - least ? most - out->shift_ns
                                                                       : out->shift_ns - least;
    }
    rn_free(t->allocator, block, out->count * sizeof(rn_sort_item));
    return s;
}

rn_status rn_merge_align(rn_timeline *const *parts, uint32_t count, rn_merge_clock *out) {
    memset(out, 0, count * sizeof *out);
    for (uint32_t rank = 1; rank < count; rank++)
        RN_TRY(align_one(parts[0], parts[rank], &out[rank]));
    return RN_OK;
}
