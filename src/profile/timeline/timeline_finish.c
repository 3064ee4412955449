// timeline_finish.c — puts a timeline in order: sorts, and goes once through everything in the
// order of time to nest operations and to count what each allocated.
#include "base/checked.h"
#include "profile/timeline/radix.h"
#include "profile/timeline/timeline_build.h"

#include <stdio.h>
#include <string.h>

// ---- ends that were not seen --------------------------------------------------------------------

static uint32_t lane_of_end(const rn_timeline_alloc *alloc) {
    return alloc->free_lane ? alloc->free_lane - 1 : alloc->lane;
}

static void see(uint64_t *last, uint64_t time_ns) {
    if (time_ns != RN_STILL_LIVE && time_ns > *last) *last = time_ns;
}

// The last time seen on each lane; and of all, in t->end_ns.
static void find_lasts(rn_timeline *t, uint64_t *lasts) {
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[i];
        see(&lasts[alloc->lane], alloc->begin_ns);
        see(&lasts[lane_of_end(alloc)], alloc->end_ns);
    }
    for (uint32_t i = 0; i < t->op_count; i++) {
        see(&lasts[t->ops[i].lane], t->ops[i].begin_ns);
        see(&lasts[t->ops[i].lane], t->ops[i].end_ns);
    }
    for (uint32_t i = 0; i < t->mark_count; i++)
        see(&lasts[t->marks[i].lane], t->marks[i].time_ns);
    for (uint32_t i = 0; i < t->move_count; i++)
        see(&lasts[t->moves[i].lane], t->moves[i].time_ns);
    for (uint32_t i = 0; i < t->counter_count; i++)
        see(&t->end_ns, t->counters[i].time_ns);
    for (uint32_t i = 0; i < t->lane_count; i++)
        see(&t->end_ns, lasts[i]);
}

static void cut_unfinished(rn_timeline *t, const uint64_t *lasts) {
    for (uint32_t i = 0; i < t->op_count; i++) {
        if (t->ops[i].end_ns != RN_STILL_LIVE) continue;
        t->ops[i].end_ns = lasts[t->ops[i].lane];
        t->ops[i].unfinished = true;
    }
}

static rn_status close_ops(rn_timeline *t) {
    void *lasts = NULL;
    RN_TRY(rn_alloc_zeroed(t->allocator, t->lane_count, sizeof(uint64_t), &lasts));
    find_lasts(t, lasts);
    cut_unfinished(t, lasts);
    rn_free(t->allocator, lasts, t->lane_count * sizeof(uint64_t));
    return RN_OK;
}

// ---- order --------------------------------------------------------------------------------------

// An array of anything, and how to sort it: by its first field, a time, as all of them have it.
typedef struct sequence {
    void *items;
    uint32_t count;
    size_t item_bytes;
} sequence;

static uint64_t time_of(const sequence *s, uint32_t i) {
    uint64_t time_ns;
    memcpy(&time_ns, (const char *)s->items + i * s->item_bytes, sizeof time_ns);
    return time_ns;
}

static bool is_in_order(const sequence *s) {
    for (uint32_t i = 1; i < s->count; i++)
        if (time_of(s, i) < time_of(s, i - 1)) return false;
    return true;
}

static rn_status make_order(const rn_allocator *from, uint32_t count, rn_sort_item **out) {
    void *block = NULL;
    RN_TRY(rn_alloc(from, count * sizeof **out, &block));
    *out = block;
    for (uint32_t i = 0; i < count; i++)
        (*out)[i].index = i;
    return RN_OK;
}

static rn_status permute(const rn_allocator *from, sequence *s, const rn_sort_item *order) {
    void *copy = NULL;
    size_t bytes = s->count * s->item_bytes;
    RN_TRY(rn_alloc(from, bytes, &copy));
    memcpy(copy, s->items, bytes);
    for (uint32_t i = 0; i < s->count; i++)
        memcpy((char *)s->items + i * s->item_bytes, (char *)copy + order[i].index * s->item_bytes,
               s->item_bytes);
    rn_free(from, copy, bytes);
    return RN_OK;
}

static rn_status sort_by_time(const rn_allocator *from, void *items, uint32_t count,
                              size_t item_bytes) {
    sequence s = {items, count, item_bytes};
    if (is_in_order(&s)) return RN_OK;
    rn_sort_item *order = NULL;
    RN_TRY(make_order(from, count, &order));
    for (uint32_t i = 0; i < count; i++)
        order[i].key = time_of(&s, i);
    rn_status status = rn_radix_sort(from, order, count);
    if (status == RN_OK) status = permute(from, &s, order);
    rn_free(from, order, count * sizeof *order);
    return status;
}

static bool are_ops_in_order(const rn_timeline *t) {
    for (uint32_t i = 1; i < t->op_count; i++) {
        const rn_timeline_op *a = &t->ops[i - 1], *b = &t->ops[i];
        if (a->begin_ns > b->begin_ns || (a->begin_ns == b->begin_ns && a->end_ns < b->end_ns))
            return false;
    }
    return true;
}

// First by end, the latest first, then by begin: the sort is stable.
static rn_status order_ops(rn_timeline *t, rn_sort_item *order) {
    for (uint32_t i = 0; i < t->op_count; i++)
        order[i].key = ~t->ops[i].end_ns;
    RN_TRY(rn_radix_sort(t->allocator, order, t->op_count));
    for (uint32_t i = 0; i < t->op_count; i++)
        order[i].key = t->ops[order[i].index].begin_ns;
    RN_TRY(rn_radix_sort(t->allocator, order, t->op_count));
    return permute(t->allocator, &(sequence){t->ops, t->op_count, sizeof *t->ops}, order);
}

static rn_status sort_ops(rn_timeline *t) {
    if (are_ops_in_order(t)) return RN_OK;
    rn_sort_item *order = NULL;
    RN_TRY(make_order(t->allocator, t->op_count, &order));
    rn_status s = order_ops(t, order);
    rn_free(t->allocator, order, t->op_count * sizeof *order);
    return s;
}

static rn_status sort_ends(rn_timeline *t) {
    void *block = NULL;
    rn_free(t->allocator, t->build->by_end, t->build->by_end_count * sizeof(uint32_t));
    t->build->by_end = NULL;
    t->build->by_end_count = 0;
    RN_TRY(rn_alloc(t->allocator, t->alloc_count * sizeof(uint32_t), &block));
    t->build->by_end = block;
    t->build->by_end_count = t->alloc_count;
    rn_sort_item *order = NULL;
    RN_TRY(make_order(t->allocator, t->alloc_count, &order));
    for (uint32_t i = 0; i < t->alloc_count; i++) // fewer digits than RN_STILL_LIVE has
        order[i].key = rn_min_u64(t->allocs[i].end_ns, t->end_ns + 1);
    rn_status s = rn_radix_sort(t->allocator, order, t->alloc_count);
    for (uint32_t i = 0; i < t->alloc_count; i++)
        t->build->by_end[i] = order[i].index;
    rn_free(t->allocator, order, t->alloc_count * sizeof *order);
    return s;
}

static rn_status sort_all(rn_timeline *t) {
    const rn_allocator *from = t->allocator;
    RN_TRY(sort_by_time(from, t->allocs, t->alloc_count, sizeof *t->allocs));
    RN_TRY(sort_by_time(from, t->marks, t->mark_count, sizeof *t->marks));
    RN_TRY(sort_by_time(from, t->counters, t->counter_count, sizeof *t->counters));
    RN_TRY(sort_by_time(from, t->moves, t->move_count, sizeof *t->moves));
    RN_TRY(sort_ops(t));
    return sort_ends(t);
}

// ---- operations ---------------------------------------------------------------------------------

typedef struct lane_state {
    uint32_t op;   // innermost under way
    int64_t level; // bytes in use, since the beginning, by this lane
} lane_state;

typedef struct op_sweep {
    rn_timeline *t;
    lane_state *lanes; // (lane_count)
    int64_t *begins;   // (op_count): the lane's level at its begin
    int64_t *tops;     // (op_count): the highest since
} op_sweep;

static int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// What happened in an operation happened in the one around it.
static void leave(op_sweep *sweep, lane_state *lane) {
    uint32_t i = lane->op;
    rn_timeline_op *op = &sweep->t->ops[i];
    op->peak_bytes = (uint64_t)(sweep->tops[i] - sweep->begins[i]);
    lane->op = op->parent;
    if (op->parent == RN_NO_INDEX) return;
    rn_timeline_op *outer = &sweep->t->ops[op->parent];
    if (!outer->told) {
        outer->alloc_count += op->alloc_count;
        outer->free_count += op->free_count;
        outer->delta_bytes += op->delta_bytes;
    }
    outer->inner_delta_bytes += op->inner_delta_bytes;
    outer->allocated_bytes += op->allocated_bytes;
    sweep->tops[op->parent] = max_i64(sweep->tops[op->parent], sweep->tops[i]);
}

// An operation that was cut, or lives no time, has what happens at its end.
static bool is_within(const rn_timeline_op *op, uint64_t time_ns) {
    return time_ns < op->end_ns ||
           (time_ns == op->end_ns && (op->unfinished || op->begin_ns == time_ns));
}

static uint32_t innermost(op_sweep *sweep, uint32_t lane, uint64_t time_ns) {
    lane_state *state = &sweep->lanes[lane];
    while (state->op != RN_NO_INDEX && !is_within(&sweep->t->ops[state->op], time_ns))
        leave(sweep, state);
    return state->op;
}

static bool nests(const rn_timeline_op *outer, const rn_timeline_op *op) {
    return op->begin_ns < outer->end_ns ||
           (op->begin_ns == outer->end_ns && outer->unfinished && op->unfinished);
}

// One that goes on after the end of the one around it is cut there.
static void enter(op_sweep *sweep, uint32_t i) {
    rn_timeline_op *ops = sweep->t->ops, *op = &ops[i];
    lane_state *lane = &sweep->lanes[op->lane];
    while (lane->op != RN_NO_INDEX && !nests(&ops[lane->op], op))
        leave(sweep, lane);
    op->parent = lane->op;
    if (lane->op != RN_NO_INDEX) {
        op->depth = ops[lane->op].depth + 1;
        op->end_ns = rn_min_u64(op->end_ns, ops[lane->op].end_ns);
    }
    sweep->begins[i] = sweep->tops[i] = lane->level;
    lane->op = i;
}

static bool is_in_use(const rn_timeline_alloc *alloc) {
    return alloc->inner || !alloc->is_arena;
}

static void count_delta(rn_timeline_op *op, const rn_timeline_alloc *alloc, int64_t bytes) {
    if (alloc->inner)
        op->inner_delta_bytes += bytes;
    else if (!op->told)
        op->delta_bytes += bytes;
}

// What the profiler takes for itself, and what was only measured, is no operation's doing.
static bool is_of_program(const rn_timeline_alloc *alloc) {
    return alloc->purpose != RN_PURPOSE_PROFILER && alloc->purpose != RN_PURPOSE_UNACCOUNTED;
}

static void count_alloc(op_sweep *sweep, rn_timeline_alloc *alloc) {
    if (alloc->before || !is_of_program(alloc)) return;
    lane_state *lane = &sweep->lanes[alloc->lane];
    alloc->op = innermost(sweep, alloc->lane, alloc->begin_ns);
    if (is_in_use(alloc)) lane->level += (int64_t)alloc->bytes;
    if (alloc->op == RN_NO_INDEX) return;
    rn_timeline_op *op = &sweep->t->ops[alloc->op];
    op->alloc_count += !op->told;
    count_delta(op, alloc, (int64_t)alloc->bytes);
    if (is_in_use(alloc)) op->allocated_bytes += alloc->bytes;
    sweep->tops[alloc->op] = max_i64(sweep->tops[alloc->op], lane->level);
}

static void count_free(op_sweep *sweep, const rn_timeline_alloc *alloc) {
    if (!is_of_program(alloc)) return;
    lane_state *lane = &sweep->lanes[lane_of_end(alloc)];
    uint32_t op = innermost(sweep, lane_of_end(alloc), alloc->end_ns);
    if (is_in_use(alloc)) lane->level -= (int64_t)alloc->bytes;
    if (op == RN_NO_INDEX) return;
    sweep->t->ops[op].free_count += !sweep->t->ops[op].told;
    count_delta(&sweep->t->ops[op], alloc, -(int64_t)alloc->bytes);
}

// All operations that begin until `time_ns`.
static uint32_t enter_until(op_sweep *sweep, uint32_t next, uint64_t time_ns) {
    while (next < sweep->t->op_count && sweep->t->ops[next].begin_ns <= time_ns)
        enter(sweep, next++);
    return next;
}

// At one moment: operations begin, older blocks end, then blocks begin, those that live no time
// with their end.
static void sweep_ops(op_sweep *sweep) {
    rn_timeline *t = sweep->t;
    uint32_t op = 0, begin = 0, end = 0;
    while (begin < t->alloc_count || end < t->alloc_count) {
        uint32_t ending = end < t->alloc_count ? t->build->by_end[end] : RN_NO_INDEX;
        uint64_t end_ns = end < t->alloc_count ? t->allocs[ending].end_ns : RN_STILL_LIVE;
        bool begins =
            begin < t->alloc_count && (t->allocs[begin].begin_ns < end_ns || begin <= ending);
        if (!begins && end_ns == RN_STILL_LIVE) break;
        op = enter_until(sweep, op, begins ? t->allocs[begin].begin_ns : end_ns);
        if (begins)
            count_alloc(sweep, &t->allocs[begin++]);
        else
            count_free(sweep, &t->allocs[t->build->by_end[end++]]);
    }
    enter_until(sweep, op, UINT64_MAX);
    for (uint32_t i = 0; i < t->lane_count; i++)
        while (sweep->lanes[i].op != RN_NO_INDEX)
            leave(sweep, &sweep->lanes[i]);
}

static rn_status make_sweep(op_sweep *sweep) {
    const rn_timeline *t = sweep->t;
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(t->allocator, t->lane_count, sizeof *sweep->lanes, &block));
    sweep->lanes = block;
    for (uint32_t i = 0; i < t->lane_count; i++)
        sweep->lanes[i].op = RN_NO_INDEX;
    RN_TRY(rn_alloc_zeroed(t->allocator, t->op_count, 2 * sizeof *sweep->begins, &block));
    sweep->begins = block;
    sweep->tops = t->op_count ? sweep->begins + t->op_count : NULL;
    return RN_OK;
}

static rn_status count_ops(rn_timeline *t) {
    op_sweep sweep = {.t = t};
    rn_status s = make_sweep(&sweep);
    if (s == RN_OK) sweep_ops(&sweep);
    rn_free(t->allocator, sweep.begins, t->op_count * 2 * sizeof *sweep.begins);
    rn_free(t->allocator, sweep.lanes, t->lane_count * sizeof *sweep.lanes);
    return s;
}

// ---- all of it ----------------------------------------------------------------------------------

static void see_device(uint32_t *count, uint8_t device) {
    if (device != RN_DEVICE_ANY && device >= *count) *count = device + 1u;
}

// Devices that are used but were not named.
static rn_status name_devices(rn_timeline *t) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->alloc_count; i++)
        see_device(&count, t->allocs[i].device);
    for (uint32_t i = 0; i < t->mark_count; i++)
        see_device(&count, t->marks[i].device);
    for (uint32_t i = 0; i < t->counter_count; i++)
        see_device(&count, t->counters[i].device);
    for (uint32_t i = 0; i < t->move_count; i++) {
        see_device(&count, t->moves[i].from);
        see_device(&count, t->moves[i].to);
    }
    while (t->device_count < count) {
        char name[32];
        uint8_t device;
        snprintf(name, sizeof name, "device %u", t->device_count);
        uint32_t known = t->device_count;
        RN_TRY(rn_timeline_add_device(t, rn_str_from(name), &device));
        if (t->device_count == known) return rn_fail(RN_CORRUPT, "a device named \"%s\"", name);
    }
    return RN_OK;
}

rn_status rn_timeline_finish(rn_timeline *t) {
    RN_TRY(name_devices(t));
    RN_TRY(close_ops(t));
    RN_TRY(sort_all(t));
    RN_TRY(rn_timeline_find_parents(t));
    uint32_t count = t->alloc_count;
    RN_TRY(rn_timeline_cover_orphans(t));
    if (t->alloc_count > count) {
        RN_TRY(sort_all(t));
        RN_TRY(rn_timeline_find_parents(t));
    }
    RN_TRY(count_ops(t));
    rn_map_free(&t->build->name_ids);
    rn_buffer_free(&t->build->key);
    return RN_OK;
}
