// stream.c — weights that do not stay pass through a ring of slots, round and round.
//
//     slot 0   | load 0 | load 2 |   load 4   | load 0 of the next run ...
//     slot 1      | load 1 | load 3 | load 1 of the next run ...
//
// A load is a weight group from the first to the last position that reads it while it is in its
// slot: load u stays until load u + slots begins, so a later access before that is the same use,
// and one after it is a new load with a READ of its own. When load u has been evicted, its slot is
// filled with load u + slots; the last occupants of a run are followed by the first loads of the
// next one, number u % slots. So each load is read once a run, and a run begins with its first
// loads under way.
#include "plan/planner.h"

rn_status rn_stream_init(rn_arena *memory, const rn_group_table *groups, rn_stream *out) {
    *out = (rn_stream){0};
    RN_TRY(rn_arena_array(memory, groups->access_count, sizeof *out->loads, (void **)&out->loads));
    return rn_arena_array(memory, groups->access_count, sizeof *out->by_last,
                          (void **)&out->by_last);
}

// The load among the last `slots` that has the weight group, or RN_NO_LOAD.
static uint32_t find_present(const rn_stream *s, uint32_t group) {
    for (uint32_t i = 1; i <= s->slot_count && i <= s->load_count; i++)
        if (s->loads[s->load_count - i].group == group) return s->load_count - i;
    return RN_NO_LOAD;
}

// Begins a load. False where the slot's occupant is read at this very position.
static bool begin_load(rn_stream *s, uint32_t group, uint32_t position) {
    uint32_t u = s->load_count;
    if (u >= s->slot_count && s->loads[u - s->slot_count].last == position) return false;
    s->loads[s->load_count++] = (rn_stream_load){group, position, position};
    return true;
}

// The accesses [first, end) of one position: those that are there first, so that a new load does
// not take a slot that is needed now.
static bool take_position(const rn_group_table *t, const bool *resident, uint32_t first,
                          uint32_t end, rn_stream *s) {
    for (uint32_t a = first; a < end; a++) {
        uint32_t load =
            resident[t->accesses[a].group] ? RN_NO_LOAD : find_present(s, t->accesses[a].group);
        if (load != RN_NO_LOAD) s->loads[load].last = t->accesses[a].position;
    }
    for (uint32_t a = first; a < end; a++) {
        uint32_t group = t->accesses[a].group;
        if (resident[group] || find_present(s, group) != RN_NO_LOAD) continue;
        if (!begin_load(s, group, t->accesses[a].position)) return false;
    }
    return true;
}

// Uses begin in order and end nearly in order: insertion is quick.
static void sort_by_last(rn_stream *s) {
    for (uint32_t u = 0; u < s->load_count; u++) {
        uint32_t at = u;
        for (; at > 0 && s->loads[s->by_last[at - 1]].last > s->loads[u].last; at--)
            s->by_last[at] = s->by_last[at - 1];
        s->by_last[at] = u;
    }
}

bool rn_stream_walk(const rn_group_table *t, const bool *resident, uint32_t slots, rn_stream *out) {
    out->slot_count = slots;
    out->load_count = 0;
    out->read_bytes = 0;
    for (uint32_t first = 0, end; first < t->access_count; first = end) {
        for (end = first + 1; end < t->access_count; end++)
            if (t->accesses[end].position != t->accesses[first].position) break;
        if (!take_position(t, resident, first, end, out)) return false;
    }
    for (uint32_t u = 0; u < out->load_count; u++)
        out->read_bytes += t->groups[out->loads[u].group].file_bytes;
    sort_by_last(out);
    return out->load_count > slots;
}

uint32_t rn_stream_follower(const rn_stream *s, uint32_t load, bool *out_next_run) {
    *out_next_run = load + s->slot_count >= s->load_count;
    return *out_next_run ? load % s->slot_count : load + s->slot_count;
}
