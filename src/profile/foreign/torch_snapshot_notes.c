// torch_snapshot_notes.c — what a snapshot has beside memory: annotations with a begin and an end,
// and the allocator's settings.
#include "profile/foreign/torch_snapshot.h"

#include "base/checked.h"
#include "profile/foreign/foreign.h"

// Annotations come from all threads in one list. Those that overlap without nesting cannot be of
// one thread: each goes to the first lane in which it nests.
enum { MAX_LANES = 16, SEARCH = 256 };

typedef struct span {
    uint64_t begin_ns, end_ns; // RN_STILL_LIVE: not seen
    uint32_t name;
} span;

typedef struct spans {
    rn_torch_reader *reader;
    span *items;
    size_t count, capacity;
    uint64_t open_ends[MAX_LANES][SEARCH]; // of what is under way in each lane
    uint32_t depths[MAX_LANES];
    uint32_t lanes[MAX_LANES];
    uint32_t lane_count;
} spans;

static uint64_t time_of(const rn_torch_reader *r, rn_pickle_value dict) {
    uint64_t us, ns;
    if (!rn_pickle_u64_of(rn_pickle_get(dict, RN_STR("time_us")), &us)) us = 0;
    return rn_mul_u64(us > r->base_us ? us - r->base_us : 0, 1000, &ns) ? ns : 0;
}

static rn_status begin_span(spans *s, uint32_t name, uint64_t time_ns) {
    RN_TRY(rn_foreign_grow(s->reader->timeline->allocator, &s->items, s->count, &s->capacity,
                           sizeof *s->items));
    s->items[s->count++] = (span){time_ns, RN_STILL_LIVE, name};
    return RN_OK;
}

// The last one of that name that has not ended.
static void end_span(spans *s, uint32_t name, uint64_t time_ns) {
    for (size_t i = s->count, looked = 0; i > 0 && looked < SEARCH; i--, looked++)
        if (s->items[i - 1].name == name && s->items[i - 1].end_ns == RN_STILL_LIVE) {
            s->items[i - 1].end_ns = rn_max_u64(time_ns, s->items[i - 1].begin_ns);
            return;
        }
}

static rn_status read_span(spans *s, rn_pickle_value dict) {
    rn_foreign_text text = {.bytes = 0};
    rn_str stage = rn_pickle_text_of(rn_pickle_get(dict, RN_STR("stage")));
    uint64_t time_ns = time_of(s->reader, dict);
    uint32_t name;
    rn_foreign_append(&text, rn_pickle_text_of(rn_pickle_get(dict, RN_STR("name"))));
    RN_TRY(rn_timeline_add_name(s->reader->timeline, rn_foreign_str(&text), RN_STR(""), RN_STR(""),
                                &name));
    if (rn_str_equal(stage, RN_STR("START"))) return begin_span(s, name, time_ns);
    if (rn_str_equal(stage, RN_STR("END"))) end_span(s, name, time_ns);
    return RN_OK;
}

static bool fits(spans *s, uint32_t lane, const span *item) {
    uint32_t *depth = &s->depths[lane];
    while (*depth && s->open_ends[lane][*depth - 1] <= item->begin_ns)
        --*depth;
    return *depth < SEARCH && (!*depth || item->end_ns <= s->open_ends[lane][*depth - 1]);
}

// Beyond the last lane nothing is refused: it is drawn cut.
static rn_status place_span(spans *s, const span *item) {
    uint32_t lane = 0;
    rn_timeline_op op = {.begin_ns = item->begin_ns, .end_ns = item->end_ns, .name = item->name};
    while (lane < s->lane_count && !fits(s, lane, item))
        lane++;
    lane = (uint32_t)rn_min_u64(lane, MAX_LANES - 1);
    if (lane == s->lane_count) {
        RN_TRY(rn_timeline_add_lane(s->reader->timeline, RN_STR("annotations"), false,
                                    &s->lanes[lane]));
        s->lane_count++;
    }
    if (s->depths[lane] < SEARCH) s->open_ends[lane][s->depths[lane]++] = item->end_ns;
    op.lane = s->lanes[lane];
    op.unfinished = item->end_ns == RN_STILL_LIVE;
    return rn_timeline_add_op(s->reader->timeline, &op);
}

static rn_status read_spans(spans *s, rn_pickle_value annotations) {
    rn_pickle_value dict;
    rn_pickle_walk walk = rn_pickle_walk_begin(annotations);
    while (rn_pickle_walk_next(&walk, &dict)) {
        RN_TRY(rn_torch_visit(s->reader));
        RN_TRY(read_span(s, dict));
    }
    for (size_t i = 0; i < s->count; i++)
        RN_TRY(place_span(s, &s->items[i]));
    return RN_OK;
}

rn_status rn_torch_annotations(rn_torch_reader *r, rn_pickle_value annotations) {
    const rn_allocator *from = r->timeline->allocator;
    void *block = NULL;
    if (rn_pickle_kind_of(annotations) != RN_PICKLE_LIST) return RN_OK;
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof(spans), &block));
    spans *s = block;
    s->reader = r;
    rn_status status = read_spans(s, annotations);
    rn_free(from, s->items, s->capacity * sizeof *s->items);
    rn_free(from, s, sizeof *s);
    return status;
}

void rn_torch_settings(rn_torch_reader *r, rn_pickle_value settings) {
    uint64_t most = 0;
    bool overflowed = rn_pickle_is_true(rn_pickle_get(settings, RN_STR("trace_alloc_overflowed")));
    rn_pickle_u64_of(rn_pickle_get(settings, RN_STR("trace_alloc_max_entries")), &most);
    if (overflowed)
        rn_timeline_note(r->timeline,
                         "torch kept only the newest %llu events: what came before is missing",
                         (unsigned long long)most);
}
