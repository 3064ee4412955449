// guard.c — canaries: before a step, every byte of the arena that is free at that step, within
// reach of a buffer, is painted; after it, the paint must be whole.
//
//     | 4 KiB | buffer |~~ free ~~| buffer |~~~~~ free ...  | 4 KiB |
//       paint           64 ... 64          64                 paint
//
// The reader fills slots meanwhile, so all that ever is a slot counts as taken.
#include "runtime/session.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { PAINT = 0xC7, REACH = 64 };

struct rn_guard {
    const rn_session *session;
    uint32_t *by_offset; // (buffers)
};

// A free range: from the end of what is taken to the beginning of the next.
typedef bool (*visit_gap)(const rn_guard *guard, uint64_t begin, uint64_t end);

static bool is_taken(const rn_plan_buffer *buffer, uint32_t step) {
    return buffer->always || buffer->kind == RN_BUFFER_GROUP ||
           (buffer->first_step <= step && step <= buffer->last_step);
}

// The ends of each gap at `step`, REACH bytes each; false as soon as `visit` says so.
static bool each_gap(const rn_guard *guard, uint32_t step, visit_gap visit) {
    const rn_plan *plan = guard->session->plan;
    uint64_t at = 0;
    for (uint32_t i = 0; i <= plan->buffer_count; i++) {
        const rn_plan_buffer *buffer =
            i < plan->buffer_count ? &plan->buffers[guard->by_offset[i]] : NULL;
        if (buffer && !is_taken(buffer, step)) continue;
        uint64_t end = buffer ? buffer->offset : plan->summary.arena_bytes;
        if (end > at) {
            uint64_t head = rn_min_u64(at + REACH, end), tail = end - rn_min_u64(REACH, end - head);
            if (!visit(guard, at, head) || !visit(guard, tail, end)) return false;
        }
        if (buffer) at = rn_max_u64(at, buffer->offset + buffer->bytes);
    }
    return true;
}

static bool paint(const rn_guard *guard, uint64_t begin, uint64_t end) {
    memset(guard->session->base + begin, PAINT, end - begin);
    return true;
}

static bool is_whole(const uint8_t *bytes, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] != PAINT) return false;
    return true;
}

static bool check(const rn_guard *guard, uint64_t begin, uint64_t end) {
    return is_whole(guard->session->base + begin, end - begin);
}

void rn_guard_paint(rn_guard *guard, uint32_t step) {
    (void)each_gap(guard, step, paint);
}

rn_status rn_guard_check(const rn_guard *guard, uint32_t step) {
    const rn_session *session = guard->session;
    const rn_device_memory *arena = &session->arena;
    if (each_gap(guard, step, check) && is_whole(arena->base, RN_GUARD_BYTES) &&
        is_whole(arena->base + arena->bytes - RN_GUARD_BYTES, RN_GUARD_BYTES))
        return RN_OK;
    uint32_t node = session->plan->steps[step].node;
    return rn_fail(RN_INTERNAL, "%s wrote outside of its buffers",
                   rn_graph_node(session->plan->graph, node)->name);
}

rn_status rn_guard_create(const rn_session *session, rn_guard **out) {
    const rn_plan *plan = session->plan;
    rn_arena *memory = (rn_arena *)&session->memory;
    void *block = NULL, *order = NULL;
    *out = NULL;
    RN_TRY(rn_arena_alloc(memory, sizeof(rn_guard), &block));
    RN_TRY(rn_arena_array(memory, plan->buffer_count, sizeof(uint32_t), &order));
    rn_guard *guard = block;
    *guard = (rn_guard){session, order};
    for (uint32_t i = 0; i < plan->buffer_count; i++) { // by insertion: it is for debugging
        uint32_t at = i;
        for (; at > 0 && plan->buffers[guard->by_offset[at - 1]].offset > plan->buffers[i].offset;
             at--)
            guard->by_offset[at] = guard->by_offset[at - 1];
        guard->by_offset[at] = i;
    }
    memset(session->arena.base, PAINT, RN_GUARD_BYTES);
    memset(session->arena.base + session->arena.bytes - RN_GUARD_BYTES, PAINT, RN_GUARD_BYTES);
    *out = guard;
    return RN_OK;
}
