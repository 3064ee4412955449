// merge_read.c — a merged file becomes one timeline: each part is read and finished by itself, its
// devices and lanes get their rank's name, its times rank 0's clock; a lane above them all has the
// collectives, from the first rank's entering to the last one's leaving.
#include "base/checked.h"
#include "base/str.h"
#include "profile/timeline/merge.h"
#include "profile/timeline/timeline_build.h"

#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 16, TEXT_BYTES = 320 };

typedef struct merge {
    rn_timeline *parts[RN_MERGE_MOST]; // by rank, once they are sorted
    uint32_t ranks[RN_MERGE_MOST];     // what each is called
    rn_merge_clock clocks[RN_MERGE_MOST];
    uint64_t shifts[RN_MERGE_MOST]; // added to times; the least is 0
    uint32_t count;
    rn_timeline *out;
} merge;

// ---- the file -----------------------------------------------------------------------------------

static uint32_t load_u32(const uint8_t *from) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static uint64_t load_u64(const uint8_t *from) {
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static rn_status read_part(merge *m, const char *path, const uint8_t *data, uint64_t bytes) {
    rn_timeline *t = NULL;
    RN_TRY(rn_trace_read(path, data, bytes, &t));
    m->parts[m->count] = t;
    m->ranks[m->count] = m->count;
    m->count++;
    return rn_timeline_finish(t);
}

static rn_status read_parts(merge *m, const char *path, const uint8_t *data, uint64_t bytes) {
    uint64_t at = HEAD_BYTES;
    uint32_t count = bytes < HEAD_BYTES ? 0 : load_u32(data + RN_MERGE_MAGIC_SIZE);
    if (count == 0 || count > RN_MERGE_MOST)
        return rn_fail(RN_CORRUPT, "a merged file of %u recordings", count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t part = bytes - at < 8 ? UINT64_MAX : load_u64(data + at);
        if (bytes - at < 8 || part > bytes - at - 8)
            return rn_fail(RN_CORRUPT, "recording %u of %u is cut", i + 1, count);
        RN_TRY(read_part(m, path, data + at + 8, part));
        at = rn_min_u64(bytes, at + 8 + rn_round_up(part, 8));
    }
    return RN_OK;
}

// ---- ranks --------------------------------------------------------------------------------------

// What the recording says; its place where it says nothing.
static void find_ranks(merge *m) {
    for (uint32_t i = 0; i < m->count; i++) {
        const rn_timeline *t = m->parts[i];
        for (uint32_t c = 0; c < t->counter_count; c++)
            if (strcmp(t->names[t->counters[c].name].name, RN_RANK_COUNTER) == 0)
                m->ranks[i] = (uint32_t)rn_min_u64(t->counters[c].value, UINT32_MAX);
    }
}

static rn_status sort_ranks(merge *m) {
    find_ranks(m);
    for (uint32_t i = 1; i < m->count; i++)
        for (uint32_t k = i; k && m->ranks[k - 1] > m->ranks[k]; k--) {
            uint32_t rank = m->ranks[k];
            rn_timeline *part = m->parts[k];
            m->ranks[k] = m->ranks[k - 1], m->ranks[k - 1] = rank;
            m->parts[k] = m->parts[k - 1], m->parts[k - 1] = part;
        }
    for (uint32_t i = 1; i < m->count; i++)
        if (m->ranks[i] == m->ranks[i - 1])
            return rn_hint(rn_fail(RN_CORRUPT, "two of the recordings are of rank %u", m->ranks[i]),
                           "give the recordings of one job, each once");
    return RN_OK;
}

static void find_shifts(merge *m) {
    int64_t least = 0;
    for (uint32_t i = 0; i < m->count; i++)
        if (m->clocks[i].shift_ns < least) least = m->clocks[i].shift_ns;
    for (uint32_t i = 0; i < m->count; i++)
        m->shifts[i] = (uint64_t)m->clocks[i].shift_ns - (uint64_t)least;
}

// ---- copying ------------------------------------------------------------------------------------

// What a part's numbers are in the whole.
typedef struct renumbering {
    uint32_t *names;                // (name_count)
    uint8_t devices[RN_DEVICE_MAX]; // devices that a part never named stay unused
    uint32_t first_lane;
    uint64_t shift_ns;
} renumbering;

static uint64_t move_time(const renumbering *r, uint64_t time_ns) {
    return time_ns == RN_STILL_LIVE ? time_ns : time_ns + r->shift_ns;
}

static uint8_t move_device(const renumbering *r, uint8_t device) {
    return device == RN_DEVICE_ANY ? device : r->devices[device];
}

static rn_status copy_places(merge *m, uint32_t i, renumbering *r) {
    const rn_timeline *t = m->parts[i];
    char text[TEXT_BYTES];
    for (uint32_t d = 0; d < t->device_count; d++) {
        snprintf(text, sizeof text, "rank %u %s", m->ranks[i], t->devices[d].name);
        if (m->out->device_count == RN_DEVICE_MAX)
            return rn_hint(
                rn_fail(RN_UNSUPPORTED, "the recordings have more than %d devices", RN_DEVICE_MAX),
                "merge those of fewer ranks");
        RN_TRY(rn_timeline_add_device(m->out, rn_str_from(text), &r->devices[d]));
        m->out->counted_peaks[r->devices[d]].bytes = t->counted_peaks[d].bytes;
        m->out->counted_peaks[r->devices[d]].time_ns = t->counted_peaks[d].time_ns + r->shift_ns;
    }
    r->first_lane = m->out->lane_count;
    for (uint32_t l = 0; l < t->lane_count; l++) {
        uint32_t lane;
        snprintf(text, sizeof text, "rank %u %s", m->ranks[i], t->lanes[l].name);
        RN_TRY(rn_timeline_add_lane(m->out, rn_str_from(text), t->lanes[l].is_queue, &lane));
    }
    for (uint32_t n = 0; n < t->name_count; n++)
        RN_TRY(rn_timeline_add_name(m->out, rn_str_from(t->names[n].name),
                                    rn_str_from(t->names[n].group), rn_str_from(t->names[n].detail),
                                    &r->names[n]));
    return RN_OK;
}

static rn_status copy_allocs(rn_timeline *out, const rn_timeline *t, const renumbering *r) {
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        rn_timeline_alloc a = t->allocs[i];
        a.begin_ns = move_time(r, a.begin_ns), a.end_ns = move_time(r, a.end_ns);
        a.name = r->names[a.name], a.site = r->names[a.site];
        a.lane += r->first_lane, a.device = move_device(r, a.device);
        if (a.free_lane) a.free_lane += r->first_lane;
        RN_TRY(rn_timeline_add_alloc(out, &a));
    }
    return RN_OK;
}

static rn_status copy_ops(rn_timeline *out, const rn_timeline *t, const renumbering *r) {
    for (uint32_t i = 0; i < t->op_count; i++) {
        rn_timeline_op op = t->ops[i];
        op.begin_ns = move_time(r, op.begin_ns), op.end_ns = move_time(r, op.end_ns);
        op.name = r->names[op.name], op.operands = r->names[op.operands];
        op.lane += r->first_lane;
        RN_TRY(rn_timeline_add_op(out, &op));
    }
    return RN_OK;
}

static rn_status copy_rest(rn_timeline *out, const rn_timeline *t, const renumbering *r) {
    for (uint32_t i = 0; i < t->mark_count; i++) {
        rn_timeline_mark mark = t->marks[i];
        mark.time_ns = move_time(r, mark.time_ns), mark.name = r->names[mark.name];
        mark.lane += r->first_lane, mark.device = move_device(r, mark.device);
        RN_TRY(rn_timeline_add_mark(out, &mark));
    }
    for (uint32_t i = 0; i < t->counter_count; i++) {
        rn_timeline_counter counter = t->counters[i];
        counter.time_ns = move_time(r, counter.time_ns), counter.name = r->names[counter.name];
        counter.device = move_device(r, counter.device);
        RN_TRY(rn_timeline_add_counter(out, &counter));
    }
    for (uint32_t i = 0; i < t->move_count; i++) {
        rn_timeline_move move = t->moves[i];
        move.time_ns = move_time(r, move.time_ns), move.name = r->names[move.name];
        move.lane += r->first_lane;
        move.from = move_device(r, move.from), move.to = move_device(r, move.to);
        RN_TRY(rn_timeline_add_move(out, &move));
    }
    for (uint32_t i = 0; i < t->torch_op_count; i++) {
        rn_timeline_torch_op op = t->torch_ops[i];
        op.name = r->names[op.name];
        RN_TRY(rn_timeline_add_torch_op(out, &op));
    }
    return RN_OK;
}

static void copy_facts(merge *m, uint32_t i) {
    const rn_timeline *t = m->parts[i];
    rn_timeline *out = m->out;
    out->event_count += t->event_count;
    out->dropped_count += t->dropped_count;
    out->end_ns = rn_max_u64(out->end_ns, t->end_ns + m->shifts[i]);
    out->has_end &= t->has_end;
    if (!t->has_end) rn_timeline_note(out, "rank %u: the recording has no end", m->ranks[i]);
    for (uint32_t n = 0; n < t->note_count; n++)
        rn_timeline_note(out, "rank %u: %.140s", m->ranks[i], t->notes[n]);
}

static rn_status copy_part(merge *m, uint32_t i) {
    const rn_timeline *t = m->parts[i];
    renumbering r = {.shift_ns = m->shifts[i]};
    void *names = NULL;
    RN_TRY(rn_alloc_zeroed(m->out->allocator, t->name_count, sizeof *r.names, &names));
    r.names = names;
    rn_status s = copy_places(m, i, &r);
    if (s == RN_OK) s = copy_allocs(m->out, t, &r);
    if (s == RN_OK) s = copy_ops(m->out, t, &r);
    if (s == RN_OK) s = copy_rest(m->out, t, &r);
    if (s == RN_OK) copy_facts(m, i);
    rn_free(m->out->allocator, names, t->name_count * sizeof *r.names);
    return s;
}

// ---- collectives --------------------------------------------------------------------------------

// The collective that all ranks are at, from the first begin to the last end; who came last, and
// how long the first waited for it.
static rn_status add_collective(merge *m, const uint32_t *at, uint64_t *from_ns) {
    uint64_t first = UINT64_MAX, last = 0, end = 0;
    uint32_t late = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        const rn_timeline_op *op = &m->parts[i]->ops[at[i]];
        uint64_t begin = op->begin_ns + m->shifts[i];
        if (begin >= last) last = begin, late = i;
        first = rn_min_u64(first, begin);
        end = rn_max_u64(end, op->end_ns + m->shifts[i]);
    }
    const rn_timeline_name *name = &m->parts[0]->names[m->parts[0]->ops[at[0]].name];
    char text[TEXT_BYTES], detail[TEXT_BYTES];
    snprintf(text, sizeof text, "%s, all ranks", name->name);
    snprintf(detail, sizeof detail, "%s%srank %u came last, %s behind the first", name->detail,
             name->detail[0] ? "; " : "", m->ranks[late],
             rn_time_format((double)(last - first) * 1e-9).text);
    rn_timeline_op op = {.begin_ns = rn_max_u64(first, *from_ns), .end_ns = end};
    RN_TRY(rn_timeline_add_name(m->out, rn_str_from(text), RN_STR(RN_COLLECTIVE_GROUP),
                                rn_str_from(detail), &op.name));
    *from_ns = rn_max_u64(*from_ns, end); // of one lane: they do not overlap
    return rn_timeline_add_op(m->out, &op);
}

static bool find_next(merge *m, uint32_t *at) {
    for (uint32_t i = 0; i < m->count; i++) {
        at[i] = rn_merge_next_collective(m->parts[i], at[i]);
        if (at[i] == m->parts[i]->op_count) return false;
        const char *first = m->parts[0]->names[m->parts[0]->ops[at[0]].name].name;
        if (strcmp(first, m->parts[i]->names[m->parts[i]->ops[at[i]].name].name) == 0) continue;
        rn_timeline_note(m->out,
                         "collectives are matched up to rank 0's %.40s, where rank %u has another",
                         first, m->ranks[i]);
        return false;
    }
    return true;
}

static rn_status add_collectives(merge *m) {
    uint32_t at[RN_MERGE_MOST] = {0};
    uint64_t from_ns = 0;
    while (find_next(m, at)) {
        RN_TRY(add_collective(m, at, &from_ns));
        for (uint32_t i = 0; i < m->count; i++)
            at[i]++;
    }
    return RN_OK;
}

static void tell_clocks(merge *m) {
    rn_merge_clock most = {0};
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 1; i < m->count; i++) {
        const rn_merge_clock *c = &m->clocks[i];
        int64_t by = c->by_collectives_ns < 0 ? -c->by_collectives_ns : c->by_collectives_ns;
        if (by > most.by_collectives_ns) most.by_collectives_ns = by;
        if (c->scatter_ns > most.scatter_ns) most.scatter_ns = c->scatter_ns;
        if (c->count < least) least = c->count;
    }
    if (m->count == 1) return;
    if (least == 0)
        rn_timeline_note(m->out, "%u ranks by their wall clocks: no common collectives", m->count);
    else
        rn_timeline_note(
            m->out,
            "%u ranks, clocks aligned by %u collectives: wall clocks were up to %s off, "
            "ends of collectives differ by up to %s",
            m->count, least, rn_time_format((double)most.by_collectives_ns * 1e-9).text,
            rn_time_format((double)most.scatter_ns * 1e-9).text);
}

// ---- the whole ----------------------------------------------------------------------------------

static rn_status put_together(merge *m, const char *path) {
    RN_TRY(sort_ranks(m));
    RN_TRY(rn_merge_align(m->parts, m->count, m->clocks));
    find_shifts(m);
    RN_TRY(rn_timeline_create(path, "merged traces", &m->out));
    uint32_t lane;
    RN_TRY(rn_timeline_add_lane(m->out, RN_STR("all ranks"), true, &lane));
    m->out->has_end = true;
    m->out->start_unix_ns = m->parts[0]->start_unix_ns - m->shifts[0];
    snprintf(m->out->command, sizeof m->out->command, "%s", m->parts[0]->command);
    snprintf(m->out->mode, sizeof m->out->mode, "%s", m->parts[0]->mode);
    snprintf(m->out->reason, sizeof m->out->reason, "%s", m->parts[0]->reason);
    tell_clocks(m);
    RN_TRY(add_collectives(m));
    for (uint32_t i = 0; i < m->count; i++)
        RN_TRY(copy_part(m, i));
    return RN_OK;
}

rn_status rn_merge_read(const char *path, const uint8_t *data, uint64_t bytes, rn_timeline **out) {
    merge m = {.count = 0};
    *out = NULL;
    rn_status s = read_parts(&m, path, data, bytes);
    if (s == RN_OK) s = put_together(&m, path);
    for (uint32_t i = 0; i < m.count; i++)
        rn_timeline_destroy(m.parts[i]);
    if (s == RN_OK)
        *out = m.out;
    else
        rn_timeline_destroy(m.out);
    return s;
}
