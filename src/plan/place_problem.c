// place_problem.c — the caller's buffers made plain: times become ranks, buffers without bytes or
// without a life drop out, and one sweep over time gives the load.
//
//     load    ▁▃▃▆▆█▆▃▁     its top is the lower bound: those bytes are alive at once, wherever
//     time    0 1 2 3 4 5   they lie
#include "plan/place.h"

#include "base/checked.h"
#include "base/merge_sort.h"

#include <stdlib.h>

static int by_value(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static int by_life(const void *left, const void *right) {
    const rn_place_item *a = left, *b = right;
    if (a->lower != b->lower) return a->lower < b->lower ? -1 : 1;
    if (a->upper != b->upper) return a->upper > b->upper ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->source < b->source ? -1 : 1;
}

static bool is_alive(const rn_place_buffer *buffer) {
    return buffer->size_bytes > 0 && buffer->lower < buffer->upper;
}

static rn_status check_buffers(const rn_place_buffer *buffers, size_t count) {
    uint64_t sum = 0, padded;
    if (count > UINT32_MAX / 4)
        return rn_fail(RN_INVALID, "%zu buffers are more than can be placed", count);
    for (size_t i = 0; i < count; i++) {
        const rn_place_buffer *b = &buffers[i];
        uint64_t align = b->align ? b->align : 1;
        (void)rn_stop_round(i); // checked they are in any case
        if (b->lower > b->upper)
            return rn_fail(RN_INVALID, "buffer %zu ends at %llu, before it begins at %llu", i,
                           (unsigned long long)b->upper, (unsigned long long)b->lower);
        if (align & (align - 1))
            return rn_fail(RN_INVALID, "buffer %zu: alignment %llu is no power of two", i,
                           (unsigned long long)align);
        if (!rn_add_u64(b->size_bytes, align - 1, &padded) || !rn_add_u64(sum, padded, &sum) ||
            sum > INT64_MAX)
            return rn_fail(RN_INVALID, "the buffers add up to 2^63 bytes or more");
    }
    return RN_OK;
}

// The distinct times, sorted. False where it was ended.
static bool collect_times(const rn_place_buffer *buffers, size_t count, uint64_t *out,
                          uint64_t *scratch, size_t *out_count) {
    size_t filled = 0, kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_alive(&buffers[i])) continue;
        out[filled++] = buffers[i].lower;
        out[filled++] = buffers[i].upper;
    }
    if (!rn_sort_within(out, scratch, filled, sizeof *out, by_value)) return false;
    for (size_t i = 0; i < filled; i++)
        if (kept == 0 || out[i] != out[kept - 1]) out[kept++] = out[i];
    *out_count = kept;
    return true;
}

static uint32_t rank_of(const uint64_t *times, size_t count, uint64_t time) {
    const uint64_t *found = bsearch(&time, times, count, sizeof *times, by_value);
    return (uint32_t)(found - times);
}

static uint64_t divide_common(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool fill_items(const rn_place_buffer *buffers, size_t count, const uint64_t *times,
                       size_t time_count, rn_place_problem *p) {
    p->largest_align = 1;
    for (size_t i = 0; i < count; i++) {
        const rn_place_buffer *b = &buffers[i];
        if (rn_stop_round(i)) return false;
        if (!is_alive(b)) continue;
        rn_place_item *item = &p->items[p->count++];
        item->lower = rank_of(times, time_count, b->lower);
        item->upper = rank_of(times, time_count, b->upper);
        item->source = (uint32_t)i;
        item->life = b->upper - b->lower;
        item->bytes = b->size_bytes;
        item->align = b->align ? b->align : 1;
        p->largest_align = rn_max_u64(p->largest_align, item->align);
        p->grain = divide_common(item->bytes, p->grain);
        if (item->align > 1) p->grain = divide_common(item->align, p->grain);
    }
    if (p->grain == 0) p->grain = 1;
    return true;
}

// Differences first, then their running sum; unsigned arithmetic wraps back.
static void sum_load(rn_place_problem *p) {
    for (size_t i = 0; i < p->count; i++) {
        p->load[p->items[i].lower] += p->items[i].bytes;
        p->load[p->items[i].upper] -= p->items[i].bytes;
        (void)rn_stop_round(i); // find_contention will hear of it
    }
    for (uint32_t t = 1; t < p->slots; t++)
        p->load[t] += p->load[t - 1];
    for (uint32_t t = 0; t < p->slots; t++)
        p->bound = rn_max_u64(p->bound, p->load[t]);
}

// The load's maximum over each item's life, from a table of maxima over powers of two. Long lives
// of many items would cost too much slot by slot.
static bool find_contention(rn_place_problem *p, uint64_t *row) {
    for (uint32_t t = 0; t < p->slots; t++)
        row[t] = p->load[t];
    for (uint32_t width = 1; width && width <= p->slots; width *= 2) {
        for (size_t i = 0; i < p->count; i++) {
            rn_place_item *item = &p->items[i];
            uint32_t life = item->upper - item->lower;
            if (rn_stop_round(i)) return false;
            if (life >= width && life / 2 < width)
                item->contention = rn_max_u64(row[item->lower], row[item->upper - width]);
        }
        for (uint32_t t = 0; t + width < p->slots; t++) {
            row[t] = rn_max_u64(row[t], row[t + width]);
            if (rn_stop_round(t)) return false;
        }
    }
    return true;
}

// Times and items; `scratch` has room for the sorting of both.
static rn_status fill(const rn_allocator *from, const rn_place_buffer *buffers, size_t count,
                      void *scratch, rn_place_problem *p) {
    uint64_t *times;
    size_t time_bytes = 2 * count * sizeof *times, time_count;
    RN_TRY(rn_alloc(from, time_bytes, (void **)&times));
    bool done = collect_times(buffers, count, times, scratch, &time_count);
    if (done) {
        p->slots = (uint32_t)time_count;
        done = fill_items(buffers, count, times, time_count, p);
    }
    rn_free(from, times, time_bytes);
    if (done) done = rn_sort_within(p->items, scratch, p->count, sizeof *p->items, by_life);
    return done ? RN_OK : RN_CANCELLED;
}

static rn_status weigh(const rn_allocator *from, rn_place_problem *p) {
    uint64_t *row;
    if (p->slots == 0) return RN_OK;
    RN_TRY(rn_alloc_zeroed(from, p->slots, sizeof *p->load, (void **)&p->load));
    sum_load(p);
    RN_TRY(rn_alloc(from, p->slots * sizeof *row, (void **)&row));
    bool done = find_contention(p, row);
    rn_free(from, row, p->slots * sizeof *row);
    return done ? RN_OK : RN_CANCELLED;
}

rn_status rn_place_problem_make(const rn_allocator *from, const rn_place_buffer *buffers,
                                size_t count, rn_place_problem *out) {
    void *scratch = NULL;
    *out = (rn_place_problem){.capacity = count};
    RN_TRY(check_buffers(buffers, count));
    rn_status s = rn_alloc_zeroed(from, count, sizeof *out->items, (void **)&out->items);
    if (s == RN_OK) s = rn_alloc(from, count * sizeof *out->items, &scratch);
    if (s == RN_OK) s = fill(from, buffers, count, scratch, out);
    rn_free(from, scratch, count * sizeof *out->items);
    if (s == RN_OK) s = weigh(from, out);
    if (s != RN_OK) rn_place_problem_free(from, out);
    return s;
}

void rn_place_problem_free(const rn_allocator *from, rn_place_problem *problem) {
    if (problem->load) rn_free(from, problem->load, problem->slots * sizeof *problem->load);
    if (problem->items) rn_free(from, problem->items, problem->capacity * sizeof *problem->items);
    *problem = (rn_place_problem){.count = 0};
}
