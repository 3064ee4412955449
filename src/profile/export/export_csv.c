// export_csv.c — the form that placement benchmarks share, so that a recorded run can be planned
// again:
//
//     id,lower,upper,size        alive at moments lower <= t < upper
//
// If arenas were recorded, these are their parts: what a plan can move. Otherwise all blocks; those
// of all devices, as if there were one. A
// moment is the rank of a time at which something began or ended, so numbers stay small; what
// lived for no time has one moment to itself, and what was live at the end has an end behind all.
#include "memory/account.h"
#include "profile/export/export.h"

#define FROM (&rn_host_allocators[RN_PURPOSE_PROFILER])

typedef struct moments {
    uint32_t lower, upper;
} moments;

static bool has_parts(const rn_timeline *t) {
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].inner) return true;
    return false;
}

// Fills `of` (alloc_count) for those that are parts, or for those that are not.
static void rank_times(const rn_timeline *t, bool parts, moments *of) {
    rn_change_walk walk;
    rn_change change;
    uint64_t last_ns = 0;
    uint32_t moment = 0;
    bool any = false;
    rn_change_walk_begin(&walk, t);
    while (rn_change_walk_next(&walk, &change)) {
        if (t->allocs[change.alloc].inner != parts) continue;
        if (any && change.time_ns != last_ns) moment++;
        any = true;
        last_ns = change.time_ns;
        moments *m = &of[change.alloc];
        if (!change.is_end)
            m->lower = moment;
        else
            m->upper = moment > m->lower ? moment : m->lower + 1;
    }
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].end_ns == RN_STILL_LIVE) of[i].upper = moment + 1;
}

// Quotes, commas and control characters are not for a CSV that nobody quotes.
static void put_name(rn_out *out, rn_str name) {
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.data[i];
        bool bad = (unsigned char)c < ' ' || c == 0x7f || c == ',' || c == '"';
        rn_out_put(out, bad ? "_" : &c, 1);
    }
}

// The number makes ids unique, the name says what it is.
static void put_line(rn_out *out, uint32_t index, rn_str name, const moments *m, uint64_t bytes) {
    rn_out_u64(out, index);
    if (name.bytes) rn_out_put(out, ":", 1);
    put_name(out, name);
    rn_out_put(out, ",", 1);
    rn_out_u64(out, m->lower);
    rn_out_put(out, ",", 1);
    rn_out_u64(out, m->upper);
    rn_out_put(out, ",", 1);
    rn_out_u64(out, bytes);
    rn_out_put(out, "\n", 1);
}

static rn_status put_lines(const rn_timeline *t, const rn_export_names *names, bool parts,
                           const moments *of, rn_sink sink) {
    rn_out out;
    RN_TRY(rn_out_open(&out, sink));
    rn_out_text(&out, "id,lower,upper,size\n");
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].inner == parts)
            put_line(&out, i, names->names[t->allocs[i].name].name, &of[i], t->allocs[i].bytes);
    return rn_out_close(&out);
}

rn_status rn_export_csv(const rn_timeline *t, rn_sink sink) {
    bool parts = has_parts(t);
    rn_export_names names;
    moments *of = NULL;
    RN_TRY(rn_export_names_make(t, &names));
    rn_status s = rn_alloc_zeroed(FROM, t->alloc_count, sizeof *of, (void **)&of);
    if (s == RN_OK) {
        rank_times(t, parts, of);
        s = put_lines(t, &names, parts, of, sink);
    }
    rn_free(FROM, of, t->alloc_count * sizeof *of);
    rn_export_names_free(&names);
    return s;
}
