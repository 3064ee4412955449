// export_json_snapshots.c — what was live at the moments that matter: marks, new peaks, the end.
//
// The set of what is live is carried along one walk over all changes (an array, and for each
// allocation its place in it), so a snapshot costs what is live then and not what was ever
// recorded. New peaks are the tops of the curve of bytes in use, all devices together; one must be
// 1 % above the one before it. Where there are more than RN_JSON_PEAKS of them, every other is
// dropped and the step is doubled. The last is always the true peak.
#include "profile/export/export_json.h"

#include "memory/account.h"
#include "profile/export/export_largest.h"

#include <stdio.h>

#define FROM (&rn_host_allocators[RN_PURPOSE_PROFILER])
#define TOP  10 // of top_allocations

// ---- which moments ------------------------------------------------------------------------------

static void drop_every_other(rn_json_export *x) {
    size_t kept = 0;
    for (size_t i = 1; i < x->peak_count; i += 2)
        x->peaks[kept++] = x->peaks[i];
    x->peak_count = kept;
}

typedef struct rise {
    uint64_t bytes, count;     // in use now; changes so far
    uint64_t top, top_count;   // the most so far, and when
    uint64_t kept, kept_count; // of the last peak that was kept
    double step;
} rise;

// The curve has turned down, or ended.
static void turn(rn_json_export *x, rise *c, bool is_last) {
    if (c->top_count == c->kept_count) return;
    if (!is_last && (double)c->top < (double)c->kept * c->step) return;
    if (x->peak_count == RN_JSON_PEAKS) {
        drop_every_other(x);
        c->step *= c->step;
    }
    x->peaks[x->peak_count++] = c->top_count;
    c->kept = c->top;
    c->kept_count = c->top_count;
}

static void find_peaks(rn_json_export *x) {
    rn_change_walk walk;
    rn_change change;
    rise c = {.step = 1.01};
    rn_change_walk_begin(&walk, x->timeline);
    while (rn_change_walk_next(&walk, &change)) {
        const rn_timeline_alloc *a = &x->timeline->allocs[change.alloc];
        bool counts = rn_json_counts(a);
        if (counts && change.is_end) turn(x, &c, false);
        c.count++;
        if (counts) c.bytes += change.is_end ? 0 - a->bytes : a->bytes;
        if (c.bytes > c.top) {
            c.top = c.bytes;
            c.top_count = c.count;
        }
    }
    turn(x, &c, true);
    x->peak_bytes = c.top;
}

// The count of every `step`-th of `count`.
static uint64_t thinned(uint64_t count, uint64_t most, uint64_t *out_step) {
    *out_step = count / most + (count % most != 0);
    if (*out_step == 0) *out_step = 1;
    return count / *out_step + (count % *out_step != 0);
}

void rn_json_export_plan(rn_json_export *x) {
    const rn_timeline *t = x->timeline;
    uint64_t periodic = 0;
    for (uint32_t i = 0; i < t->mark_count; i++)
        periodic += t->marks[i].kind == RN_MARK_PERIODIC;
    find_peaks(x);
    uint64_t marks = thinned(periodic, RN_JSON_MARKS / 2, &x->periodic_step) +
                     thinned(t->mark_count - periodic, RN_JSON_MARKS / 2, &x->mark_step);
    x->snapshot_omitted_count = t->mark_count - marks;
    x->snapshot_count = marks + x->peak_count + 1;
    x->listed = RN_JSON_LIST_TOTAL / x->snapshot_count;
    if (x->listed > RN_JSON_LISTED) x->listed = RN_JSON_LISTED;
}

// ---- what is live -------------------------------------------------------------------------------

typedef struct live_set {
    rn_json_export *x;
    uint32_t *live;  // (alloc_count), count of them filled: in use now
    uint32_t *place; // (alloc_count): where in `live`
    uint32_t *top;   // (RN_JSON_LISTED)
    uint32_t count;
    uint64_t reserved_bytes;
    struct {
        uint64_t bytes, count;
    } devices[RN_DEVICE_MAX];
    uint64_t periodic, others; // marks passed
    size_t next_peak;
    uint32_t next_mark;
    uint64_t changes;
} live_set;

static void add_live(live_set *s, uint32_t index) {
    const rn_timeline_alloc *a = &s->x->timeline->allocs[index];
    if (!a->inner) s->reserved_bytes += a->bytes;
    if (!rn_json_counts(a)) return;
    s->devices[s->x->device_of[a->device]].bytes += a->bytes;
    s->devices[s->x->device_of[a->device]].count++;
    s->place[index] = s->count;
    s->live[s->count++] = index;
}

static void remove_live(live_set *s, uint32_t index) {
    const rn_timeline_alloc *a = &s->x->timeline->allocs[index];
    if (!a->inner) s->reserved_bytes -= a->bytes;
    if (!rn_json_counts(a)) return;
    s->devices[s->x->device_of[a->device]].bytes -= a->bytes;
    s->devices[s->x->device_of[a->device]].count--;
    uint32_t last = s->live[--s->count];
    s->live[s->place[index]] = last;
    s->place[last] = s->place[index];
}

// ---- one snapshot -------------------------------------------------------------------------------

static void put_tensors(live_set *s, const char *key, uint8_t device, size_t capacity) {
    rn_json_export *x = s->x;
    rn_largest largest = {.timeline = x->timeline, .items = s->top, .capacity = capacity};
    for (uint32_t i = 0; i < s->count; i++)
        if (device == RN_DEVICE_ANY ||
            x->device_of[x->timeline->allocs[s->live[i]].device] == device)
            rn_largest_offer(&largest, s->live[i]);
    rn_largest_sort(&largest);
    rn_json_array(&x->json, key);
    for (size_t i = 0; i < largest.count; i++) {
        rn_json_object(&x->json, NULL);
        rn_json_export_tensor(x, s->top[i]);
        rn_json_end(&x->json);
    }
    rn_json_end(&x->json);
}

static void put_device(live_set *s, uint8_t device) {
    rn_json_export *x = s->x;
    uint64_t count = s->devices[device].count;
    rn_json_key(&x->json, x->names.devices[device]);
    rn_json_object(&x->json, NULL);
    rn_json_u64(&x->json, "total_bytes", s->devices[device].bytes);
    rn_json_export_mb(x, "total_mb", (double)s->devices[device].bytes);
    rn_json_u64(&x->json, "count", count);
    put_tensors(s, "tensors", device, x->listed);
    if (count > x->listed) rn_json_u64(&x->json, "tensors_omitted", count - x->listed);
    rn_json_end(&x->json);
}

static void put_snapshot(live_set *s, uint64_t time_ns, rn_str name, const char *kind) {
    rn_json_export *x = s->x;
    uint64_t total = 0;
    for (uint32_t i = 0; i < x->timeline->device_count; i++)
        total += s->devices[i].bytes;
    rn_json_object(&x->json, NULL);
    rn_json_export_time(x, "timestamp", time_ns);
    rn_json_text(&x->json, "checkpoint_name", name);
    rn_json_u64(&x->json, "total_bytes", total);
    rn_json_export_mb(x, "total_mb", (double)total);
    rn_json_u64(&x->json, "tensor_count", s->count);
    put_tensors(s, "top_allocations", RN_DEVICE_ANY, TOP);
    rn_json_object(&x->json, "device_breakdown");
    for (uint32_t i = 0; i < x->timeline->device_count; i++)
        if (s->devices[i].count) put_device(s, (uint8_t)i);
    rn_json_end(&x->json);
    rn_json_string(&x->json, "kind", kind);
    rn_json_u64(&x->json, "reserved_bytes", s->reserved_bytes);
    rn_json_end(&x->json);
}

static void put_mark(live_set *s, const rn_timeline_mark *mark) {
    char text[32];
    bool periodic = mark->kind == RN_MARK_PERIODIC;
    uint64_t number = periodic ? s->periodic++ : s->others++;
    if (number % (periodic ? s->x->periodic_step : s->x->mark_step)) return;
    rn_str name = s->x->names.names[mark->name].name;
    snprintf(text, sizeof text, "snapshot_%04llu", (unsigned long long)s->periodic);
    const char *kind = rn_mark_name(mark->kind);
    if (!name.bytes) name = rn_str_from(periodic ? text : kind);
    put_snapshot(s, mark->time_ns, name, kind);
}

// ---- all of them --------------------------------------------------------------------------------

static void put_marks_before(live_set *s, uint64_t time_ns) {
    const rn_timeline *t = s->x->timeline;
    while (s->next_mark < t->mark_count && t->marks[s->next_mark].time_ns < time_ns)
        put_mark(s, &t->marks[s->next_mark++]);
}

static void put_snapshots(live_set *s) {
    rn_json_export *x = s->x;
    rn_change_walk walk;
    rn_change change;
    rn_change_walk_begin(&walk, x->timeline);
    while (rn_change_walk_next(&walk, &change)) {
        put_marks_before(s, change.time_ns);
        if (change.is_end)
            remove_live(s, change.alloc);
        else
            add_live(s, change.alloc);
        s->changes++;
        if (s->next_peak == x->peak_count || x->peaks[s->next_peak] != s->changes) continue;
        s->next_peak++;
        put_snapshot(s, change.time_ns, RN_STR("peak"), "peak");
    }
    put_marks_before(s, UINT64_MAX);
    put_snapshot(s, x->timeline->end_ns, RN_STR("final"), "final");
}

rn_status rn_json_export_snapshots(rn_json_export *x) {
    live_set s = {.x = x};
    size_t count = x->timeline->alloc_count;
    uint32_t *block;
    RN_TRY(rn_alloc_zeroed(FROM, 2 * count + RN_JSON_LISTED, sizeof *block, (void **)&block));
    s.live = block;
    s.place = block + count;
    s.top = block + 2 * count;
    rn_json_array(&x->json, "snapshots");
    put_snapshots(&s);
    rn_json_end(&x->json);
    rn_free(FROM, block, (2 * count + RN_JSON_LISTED) * sizeof *block);
    return RN_OK;
}
