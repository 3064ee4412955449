// stream.c — weights that do not stay pass through a ring of slots, round and round.
//
//     slot 0   | use 0 | use 2 |   use 4   | use 0 of the next run ...
//     slot 1      | use 1 | use 3 | use 1 of the next run ...
//
// A use is a unit from the first to the last position that reads it while it is in its slot: use u
// stays until use u + slots begins, so a later access before that is the same use, and one after it
// is a new use with a READ of its own. When use u has been evicted, its slot is filled with use
// u + slots; the last occupants of a run are followed by the first uses of the next one, number
// u % slots. So each use is read once a run, and a run begins with its first uses under way.
#include "plan/planner.h"

rn_status rn_stream_init(rn_arena *memory, const rn_unit_table *units, rn_stream *out) {
    *out = (rn_stream){0};
    RN_TRY(rn_arena_array(memory, units->access_count, sizeof *out->uses, (void **)&out->uses));
    return rn_arena_array(memory, units->access_count, sizeof *out->by_last,
                          (void **)&out->by_last);
}

// The use among the last `slots` that has the unit, or RN_NO_USE.
static uint32_t find_present(const rn_stream *s, uint32_t unit) {
    for (uint32_t i = 1; i <= s->slot_count && i <= s->use_count; i++)
        if (s->uses[s->use_count - i].unit == unit) return s->use_count - i;
    return RN_NO_USE;
}

// Begins a use. False where the slot's occupant is read at this very position.
static bool begin_use(rn_stream *s, uint32_t unit, uint32_t position) {
    uint32_t u = s->use_count;
    if (u >= s->slot_count && s->uses[u - s->slot_count].last == position) return false;
    s->uses[s->use_count++] = (rn_stream_use){unit, position, position};
    return true;
}

// The accesses [first, end) of one position: those that are there first, so that a new use does not
// take a slot that is needed now.
static bool take_position(const rn_unit_table *t, const bool *resident, uint32_t first,
                          uint32_t end, rn_stream *s) {
    for (uint32_t a = first; a < end; a++) {
        uint32_t use =
            resident[t->accesses[a].unit] ? RN_NO_USE : find_present(s, t->accesses[a].unit);
        if (use != RN_NO_USE) s->uses[use].last = t->accesses[a].position;
    }
    for (uint32_t a = first; a < end; a++) {
        uint32_t unit = t->accesses[a].unit;
        if (resident[unit] || find_present(s, unit) != RN_NO_USE) continue;
        if (!begin_use(s, unit, t->accesses[a].position)) return false;
    }
    return true;
}

// Uses begin in order and end nearly in order: insertion is quick.
static void sort_by_last(rn_stream *s) {
    for (uint32_t u = 0; u < s->use_count; u++) {
        uint32_t at = u;
        for (; at > 0 && s->uses[s->by_last[at - 1]].last > s->uses[u].last; at--)
            s->by_last[at] = s->by_last[at - 1];
        s->by_last[at] = u;
    }
}

bool rn_stream_walk(const rn_unit_table *t, const bool *resident, uint32_t slots, rn_stream *out) {
    out->slot_count = slots;
    out->use_count = 0;
    out->read_bytes = 0;
    for (uint32_t first = 0, end; first < t->access_count; first = end) {
        for (end = first + 1; end < t->access_count; end++)
            if (t->accesses[end].position != t->accesses[first].position) break;
        if (!take_position(t, resident, first, end, out)) return false;
    }
    for (uint32_t u = 0; u < out->use_count; u++)
        out->read_bytes += t->units[out->uses[u].unit].file_bytes;
    sort_by_last(out);
    return out->use_count > slots;
}

uint32_t rn_stream_follower(const rn_stream *s, uint32_t use, bool *out_next_run) {
    *out_next_run = use + s->slot_count >= s->use_count;
    return *out_next_run ? use % s->slot_count : use + s->slot_count;
}
