// torch_snapshot.c — a PyTorch memory snapshot (torch.cuda.memory._dump_snapshot, or the list of
// segments that memory_snapshot returns) as a timeline.
#include "profile/foreign/torch_snapshot.h"

#include "base/checked.h"
#include "memory/account.h"

// ---- which devices ------------------------------------------------------------------------------

typedef struct device_list {
    uint64_t numbers[RN_DEVICE_MAX];
    size_t count;
} device_list;

static rn_status note_device(device_list *list, uint64_t number) {
    for (size_t i = 0; i < list->count; i++)
        if (list->numbers[i] == number) return RN_OK;
    if (list->count == RN_DEVICE_MAX)
        return rn_fail(RN_UNSUPPORTED, "a snapshot of more than %d devices", RN_DEVICE_MAX);
    list->numbers[list->count++] = number;
    return RN_OK;
}

static bool has_items(rn_pickle_value list) {
    rn_pickle_value item;
    rn_pickle_walk walk = rn_pickle_walk_begin(list);
    return rn_pickle_walk_next(&walk, &item);
}

static rn_status find_devices(rn_pickle_value traces, rn_pickle_value segments, device_list *out) {
    rn_pickle_value item;
    uint64_t number = 0;
    *out = (device_list){.count = 0};
    rn_pickle_walk walk = rn_pickle_walk_begin(traces);
    for (; rn_pickle_walk_next(&walk, &item); number++)
        if (has_items(item)) RN_TRY(note_device(out, number));
    walk = rn_pickle_walk_begin(segments);
    while (rn_pickle_walk_next(&walk, &item))
        if (rn_pickle_u64_of(rn_pickle_get(item, RN_STR("device")), &number))
            RN_TRY(note_device(out, number));
    return RN_OK;
}

static rn_pickle_value nth(rn_pickle_value list, uint64_t n) {
    rn_pickle_value item, none = rn_pickle_get(list, RN_STR(""));
    rn_pickle_walk walk = rn_pickle_walk_begin(list);
    while (rn_pickle_walk_next(&walk, &item))
        if (n-- == 0) return item;
    return none;
}

// ---- the first time -----------------------------------------------------------------------------

static rn_status find_base_in(rn_torch_reader *r, rn_pickle_value trace) {
    rn_pickle_value item;
    rn_pickle_walk walk = rn_pickle_walk_begin(trace);
    while (rn_pickle_walk_next(&walk, &item)) {
        rn_torch_entry *entry = NULL;
        RN_TRY(rn_torch_entry_of(r, item, &entry));
        if (!entry || !entry->time_us) continue;
        r->base_us = r->has_times ? rn_min_u64(r->base_us, entry->time_us) : entry->time_us;
        r->has_times = true;
    }
    return RN_OK;
}

static rn_status find_base(rn_torch_reader *r, rn_pickle_value traces, const device_list *devices) {
    for (size_t i = 0; i < devices->count; i++)
        RN_TRY(find_base_in(r, nth(traces, devices->numbers[i])));
    // Microseconds since the epoch since torch 2.1; a counter of its own before.
    bool is_unix = r->base_us > (uint64_t)1000000000 * 1000000;
    if (is_unix && r->base_us < UINT64_MAX / 1000) r->timeline->start_unix_ns = r->base_us * 1000;
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static void tell(rn_torch_reader *r) {
    rn_timeline *t = r->timeline;
    if (!t->event_count)
        rn_timeline_note(t, "the snapshot has no history, only what was held at its end: call "
                            "torch.cuda.memory._record_memory_history() before");
    else if (!r->has_times)
        rn_timeline_note(t, "events have no times: each is drawn a microsecond after the last");
    if (t->event_count)
        rn_timeline_note(t, "sizes are those asked for; torch rounds them up to blocks, so its "
                            "max_memory_allocated is somewhat larger");
    t->has_end = true;
}

static rn_status read_parts(rn_torch_reader *r, rn_pickle_value top) {
    rn_pickle_value traces = rn_pickle_get(top, RN_STR("device_traces"));
    rn_pickle_value segments =
        rn_pickle_kind_of(top) == RN_PICKLE_LIST ? top : rn_pickle_get(top, RN_STR("segments"));
    device_list devices;
    RN_TRY(find_devices(traces, segments, &devices));
    RN_TRY(find_base(r, traces, &devices));
    for (size_t i = 0; i < devices.count; i++)
        RN_TRY(rn_torch_replay(r, devices.numbers[i], nth(traces, devices.numbers[i]), segments));
    RN_TRY(rn_torch_annotations(r, rn_pickle_get(top, RN_STR("external_annotations"))));
    rn_torch_settings(r, rn_pickle_get(top, RN_STR("allocator_settings")));
    tell(r);
    return RN_OK;
}

// A dictionary with segments or traces, or a list of segments.
static bool is_snapshot(rn_pickle_value top) {
    rn_pickle_value first = nth(top, 0);
    if (rn_pickle_kind_of(top) == RN_PICKLE_LIST)
        return rn_pickle_kind_of(rn_pickle_get(first, RN_STR("total_size"))) == RN_PICKLE_INT;
    return rn_pickle_kind_of(rn_pickle_get(top, RN_STR("device_traces"))) == RN_PICKLE_LIST ||
           rn_pickle_kind_of(rn_pickle_get(top, RN_STR("segments"))) == RN_PICKLE_LIST;
}

static rn_status read_all(rn_torch_reader *r, const uint8_t *data, uint64_t bytes) {
    rn_pickle_value top;
    RN_TRY(rn_pickle_read(&r->pickle, data, bytes, &top));
    if (is_snapshot(top)) return read_parts(r, top);
    return rn_hint(rn_fail(RN_CORRUPT, "a pickle, but no memory snapshot: neither segments nor "
                                       "device_traces"),
                   "torch.cuda.memory._dump_snapshot(\"file.pickle\") writes one");
}

rn_status rn_torch_snapshot_read(const char *path, const uint8_t *data, uint64_t bytes,
                                 rn_timeline **out) {
    *out = NULL;
    const rn_allocator *from = &rn_host_allocators[RN_PURPOSE_PROFILER];
    rn_torch_reader r = {.file_bytes = bytes};
    RN_TRY(rn_timeline_create(path, "torch snapshot", &r.timeline));
    rn_pickle_init(&r.pickle, from);
    r.pickle.folder = rn_torch_folder(&r);
    rn_map_init(&r.frame_ids, from);
    rn_map_init(&r.stack_ids, from);
    rn_buffer_init(&r.key, from, SIZE_MAX / 4);
    rn_status s = read_all(&r, data, bytes);
    rn_buffer_free(&r.key);
    rn_map_free(&r.stack_ids);
    rn_map_free(&r.frame_ids);
    rn_pickle_free(&r.pickle);
    if (s == RN_OK)
        *out = r.timeline;
    else
        rn_timeline_destroy(r.timeline);
    return s;
}
