// timeline_query.c — what was held when: sweeps over the blocks in the order of their begins and,
// beside it, of their ends.
#include "profile/timeline/timeline_build.h"

#include "base/checked.h"

// ---- one block more or less ---------------------------------------------------------------------

static bool is_on(const rn_timeline_alloc *alloc, uint8_t device) {
    return device == RN_DEVICE_ANY || alloc->device == device;
}

static bool is_in_use(const rn_timeline_alloc *alloc) {
    return alloc->inner || !alloc->is_arena;
}

static void count_in(rn_timeline_level *level, const rn_timeline_alloc *alloc) {
    if (!alloc->inner) level->reserved_bytes += alloc->bytes;
    if (!is_in_use(alloc)) return;
    level->active_bytes += alloc->bytes;
    level->purpose_bytes[alloc->purpose] += alloc->bytes;
    level->count++;
}

static void count_out(rn_timeline_level *level, const rn_timeline_alloc *alloc) {
    if (!alloc->inner) level->reserved_bytes -= alloc->bytes;
    if (!is_in_use(alloc)) return;
    level->active_bytes -= alloc->bytes;
    level->purpose_bytes[alloc->purpose] -= alloc->bytes;
    level->count--;
}

// ---- walking ------------------------------------------------------------------------------------

const uint32_t *rn_timeline_by_end(const rn_timeline *t) {
    return t->build->by_end;
}

void rn_timeline_walk_begin(rn_timeline_walk *walk, const rn_timeline *t, uint8_t device) {
    *walk = (rn_timeline_walk){.timeline = t, .device = device};
}

// The next block of the device that begins, or ends; NULL where there is none.
static const rn_timeline_alloc *peek_begin(rn_timeline_walk *walk) {
    const rn_timeline *t = walk->timeline;
    while (walk->next_begin < t->alloc_count && !is_on(&t->allocs[walk->next_begin], walk->device))
        walk->next_begin++;
    return walk->next_begin < t->alloc_count ? &t->allocs[walk->next_begin] : NULL;
}

static const rn_timeline_alloc *peek_end(rn_timeline_walk *walk) {
    const rn_timeline *t = walk->timeline;
    const uint32_t *by_end = t->build->by_end;
    while (walk->next_end < t->alloc_count &&
           !is_on(&t->allocs[by_end[walk->next_end]], walk->device))
        walk->next_end++;
    if (walk->next_end == t->alloc_count) return NULL;
    const rn_timeline_alloc *alloc = &t->allocs[by_end[walk->next_end]];
    return alloc->end_ns == RN_STILL_LIVE ? NULL : alloc;
}

// Among equal ends, blocks that began earlier come first: those that live no time stay for a step
// of their own.
static bool take_ends(rn_timeline_walk *walk, uint64_t begun_before_ns) {
    bool any = false;
    const rn_timeline_alloc *end;
    while ((end = peek_end(walk)) && end->end_ns == walk->level.time_ns &&
           end->begin_ns < begun_before_ns) {
        count_out(&walk->level, end);
        walk->next_end++;
        any = true;
    }
    return any;
}

bool rn_timeline_walk_next(rn_timeline_walk *walk) {
    if ((walk->next_begin || walk->next_end) && take_ends(walk, UINT64_MAX)) return true;
    const rn_timeline_alloc *begin = peek_begin(walk), *end = peek_end(walk);
    if (!begin && !end) return false;
    walk->level.time_ns =
        rn_min_u64(begin ? begin->begin_ns : UINT64_MAX, end ? end->end_ns : UINT64_MAX);
    take_ends(walk, walk->level.time_ns);
    while ((begin = peek_begin(walk)) && begin->begin_ns == walk->level.time_ns) {
        count_in(&walk->level, begin);
        walk->next_begin++;
    }
    return true;
}

bool rn_timeline_is_more(const rn_timeline_level *level, const rn_timeline_level *peak) {
    return level->reserved_bytes > peak->reserved_bytes ||
           (level->reserved_bytes == peak->reserved_bytes &&
            level->active_bytes > peak->active_bytes);
}

rn_timeline_level rn_timeline_peak(const rn_timeline *t, uint8_t device) {
    rn_timeline_level most = {0};
    rn_timeline_walk walk;
    rn_timeline_walk_begin(&walk, t, device);
    while (rn_timeline_walk_next(&walk))
        if (rn_timeline_is_more(&walk.level, &most)) most = walk.level;
    return most;
}

// ---- one moment ---------------------------------------------------------------------------------

static bool is_live_at(const rn_timeline_alloc *alloc, uint64_t time_ns) {
    return alloc->begin_ns <= time_ns && (alloc->end_ns > time_ns || alloc->begin_ns == time_ns);
}

rn_timeline_level rn_timeline_level_at(const rn_timeline *t, uint8_t device, uint64_t time_ns) {
    rn_timeline_level level = {.time_ns = time_ns};
    for (uint32_t i = 0; i < t->alloc_count && t->allocs[i].begin_ns <= time_ns; i++)
        if (is_on(&t->allocs[i], device) && is_live_at(&t->allocs[i], time_ns))
            count_in(&level, &t->allocs[i]);
    return level;
}

// Whether block `a` stands behind block `b` in a list of the largest.
static bool is_behind(const rn_timeline *t, uint32_t a, uint32_t b) {
    uint64_t x = t->allocs[a].bytes, y = t->allocs[b].bytes;
    return x != y ? x < y : a > b;
}

// heap[0] is the block that stands behind all others.
static void sink_down(const rn_timeline *t, uint32_t *heap, size_t count, size_t at) {
    for (;;) {
        size_t last = at, left = 2 * at + 1, right = left + 1;
        if (left < count && is_behind(t, heap[left], heap[last])) last = left;
        if (right < count && is_behind(t, heap[right], heap[last])) last = right;
        if (last == at) return;
        uint32_t other = heap[at];
        heap[at] = heap[last];
        heap[last] = other;
        at = last;
    }
}

static void lift_up(const rn_timeline *t, uint32_t *heap, size_t at) {
    while (at && is_behind(t, heap[at], heap[(at - 1) / 2])) {
        uint32_t other = heap[at];
        heap[at] = heap[(at - 1) / 2];
        heap[(at - 1) / 2] = other;
        at = (at - 1) / 2;
    }
}

static void keep_if_large(const rn_timeline *t, uint32_t *heap, size_t *count, size_t capacity,
                          uint32_t block) {
    if (*count < capacity) {
        heap[*count] = block;
        lift_up(t, heap, (*count)++);
    } else if (capacity && is_behind(t, heap[0], block)) {
        heap[0] = block;
        sink_down(t, heap, capacity, 0);
    }
}

// A heap whose smallest is taken off first, to the back, leaves the largest in front.
static void order_heap(const rn_timeline *t, uint32_t *heap, size_t count) {
    while (count > 1) {
        uint32_t smallest = heap[0];
        heap[0] = heap[--count];
        heap[count] = smallest;
        sink_down(t, heap, count, 0);
    }
}

size_t rn_timeline_live_at(const rn_timeline *t, uint8_t device, uint64_t time_ns, uint32_t *out,
                           size_t capacity) {
    size_t all = 0, kept = 0;
    for (uint32_t i = 0; i < t->alloc_count && t->allocs[i].begin_ns <= time_ns; i++) {
        const rn_timeline_alloc *alloc = &t->allocs[i];
        if (!is_on(alloc, device) || !is_in_use(alloc) || !is_live_at(alloc, time_ns)) continue;
        keep_if_large(t, out, &kept, capacity, i);
        all++;
    }
    order_heap(t, out, kept);
    return all;
}
