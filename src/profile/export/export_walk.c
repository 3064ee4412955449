// export_walk.c — allocations and releases as one stream: two sorted lists, merged.
#include "profile/export/export.h"

void rn_change_walk_begin(rn_change_walk *walk, const rn_timeline *t) {
    *walk = (rn_change_walk){.timeline = t, .by_end = rn_timeline_by_end(t), .pass = 2};
}

// The next release of the run; false where it is done.
static bool next_in_run(rn_change_walk *w, rn_change *out) {
    for (; w->pass < 2; w->pass++, w->at = w->run_begin) {
        while (w->at < w->run_end) {
            uint32_t index = w->by_end[w->at++];
            const rn_timeline_alloc *a = &w->timeline->allocs[index];
            if (!rn_is_in_use(a) != (w->pass == 1) || a->begin_ns == a->end_ns) continue;
            *out = (rn_change){a->end_ns, index, true};
            return true;
        }
    }
    return false;
}

static uint64_t end_at(const rn_change_walk *w, uint32_t place) {
    const rn_timeline *t = w->timeline;
    return place < t->alloc_count ? t->allocs[w->by_end[place]].end_ns : RN_STILL_LIVE;
}

static void begin_run(rn_change_walk *w) {
    uint64_t time_ns = end_at(w, w->run_end);
    w->run_begin = w->at = w->run_end;
    while (w->run_end < w->timeline->alloc_count && end_at(w, w->run_end) == time_ns)
        w->run_end++;
    w->pass = 0;
}

bool rn_change_walk_next(rn_change_walk *w, rn_change *out) {
    const rn_timeline *t = w->timeline;
    if (w->instant) {
        w->instant = false;
        *out = (rn_change){t->allocs[w->next_begin - 1].end_ns, w->next_begin - 1, true};
        return true;
    }
    for (;;) {
        if (next_in_run(w, out)) return true;
        uint64_t end_ns = end_at(w, w->run_end);
        bool more = w->next_begin < t->alloc_count;
        if (end_ns != RN_STILL_LIVE && (!more || end_ns <= t->allocs[w->next_begin].begin_ns)) {
            begin_run(w);
            continue;
        }
        if (!more) return false;
        const rn_timeline_alloc *a = &t->allocs[w->next_begin];
        *out = (rn_change){a->begin_ns, w->next_begin++, false};
        w->instant = a->begin_ns == a->end_ns;
        return true;
    }
}
