// trace_read.c — a trace file becomes a timeline: blocks by sequence, events of all lanes by time,
// ALLOC with its FREE, BEGIN with its FINISH.
//
// Each lane's events are in order. Their times are made to grow strictly: a clock too coarse to
// tell two events apart is helped by a nanosecond, so the order is not lost when lanes are merged.
//
// A ring file has lost its beginning: its first TOTALS says what was held then, and events of
// blocks before it are in that sum already.
#include "base/checked.h"
#include "base/str.h"
#include "profile/timeline/radix.h"
#include "profile/timeline/timeline_build.h"
#include "profile/timeline/trace_live.h"
#include "profile/timeline/trace_scan.h"
#include "profile/timeline/trace_texts.h"

#include <string.h>

#define NO_BLOCK SIZE_MAX

typedef struct reader {
    const uint8_t *data; // (bytes)
    uint64_t bytes;
    rn_timeline *t;
    rn_scan scan;
    rn_trace_texts texts;
    rn_trace_live live;
    rn_sort_item *events; // (event_count): key: time, index: offset / 32
    uint32_t *lanes;      // (lane_span): of the events in each 64 bytes of the file
    size_t lane_span;
    size_t event_count;
    uint64_t first_ns;    // of the events
    size_t base;          // the TOTALS block that stands for the lost beginning, or NO_BLOCK
    uint64_t *lasts;      // (lane_count): the last time of each lane
    uint32_t *tops;       // (lane_count): the innermost operation under way
    size_t lane_capacity; // of these two
    uint32_t *torch_ops;  // (name_count): of each name; RN_NO_INDEX: none
    uint32_t torch_capacity;
    uint64_t odd_count; // events that make no sense
} reader;

static void load(const reader *r, uint64_t offset, void *out, size_t bytes) {
    memcpy(out, r->data + offset, bytes);
}

// ---- which blocks -------------------------------------------------------------------------------

// Where all blocks up to the first events are there, or these are of the first round, nothing is
// lost before them.
static bool has_beginning(const reader *r) {
    for (size_t i = 0; i < r->scan.count; i++) {
        const rn_scan_block *block = &r->scan.blocks[i];
        if (block->kind == RN_TRACE_EVENTS) return block->sequence == i || block->round == 0;
    }
    return false;
}

static void find_base(reader *r) {
    r->base = NO_BLOCK;
    if (has_beginning(r)) return;
    for (size_t i = 0; i < r->scan.count && r->base == NO_BLOCK; i++)
        if (r->scan.blocks[i].kind == RN_TRACE_TOTALS) r->base = i;
}

static bool is_read(const reader *r, size_t i) {
    return r->scan.blocks[i].kind == RN_TRACE_EVENTS && (r->base == NO_BLOCK || i > r->base);
}

static uint32_t events_in(const rn_scan_block *block) {
    return block->payload_bytes / (uint32_t)sizeof(rn_trace_event);
}

// ---- events in the order of time ----------------------------------------------------------------

// A span was timed by another clock, and is told later.
static uint64_t order_time(const rn_trace_event *event, uint64_t *last) {
    uint64_t time_ns = rn_min_u64(event->time_ns, RN_TIMELINE_MAX_NS);
    if (event->kind == RN_TRACE_SPAN) return time_ns;
    if (time_ns <= *last && *last) time_ns = *last + 1;
    *last = time_ns;
    return time_ns;
}

static void list_block(reader *r, const rn_scan_block *block, uint32_t lane) {
    for (uint32_t i = 0; i < events_in(block); i++) {
        rn_trace_event event;
        uint64_t offset = block->offset + i * sizeof event;
        load(r, offset, &event, sizeof event);
        uint64_t time_ns = order_time(&event, &r->lasts[lane]);
        r->first_ns = rn_min_u64(r->first_ns, time_ns);
        r->events[r->event_count++] = (rn_sort_item){time_ns, (uint32_t)(offset / sizeof event)};
        r->lanes[offset / RN_TRACE_ALIGN] = lane;
    }
}

static rn_status make_lanes(reader *r) {
    uint32_t lane = 0;
    for (size_t i = 0; i < r->scan.count; i++)
        if (is_read(r, i)) RN_TRY(rn_trace_lane(&r->texts, r->scan.blocks[i].lane, &lane));
    const rn_allocator *from = r->t->allocator;
    void *block = NULL;
    r->lane_capacity = r->t->lane_count;
    RN_TRY(rn_alloc_zeroed(from, r->lane_capacity, sizeof *r->lasts, &block));
    r->lasts = block;
    RN_TRY(rn_alloc(from, r->lane_capacity * sizeof *r->tops, &block));
    r->tops = block;
    if (block) memset(block, 0xff, r->lane_capacity * sizeof *r->tops);
    return RN_OK;
}

static rn_status list_events(reader *r) {
    uint64_t count = 0;
    for (size_t i = 0; i < r->scan.count; i++)
        if (is_read(r, i)) count += events_in(&r->scan.blocks[i]);
    void *block = NULL;
    RN_TRY(rn_alloc(r->t->allocator, count * sizeof *r->events, &block));
    r->events = block;
    r->t->event_count = count;
    r->lane_span = (size_t)(r->bytes / RN_TRACE_ALIGN + 1);
    RN_TRY(rn_alloc(r->t->allocator, r->lane_span * sizeof *r->lanes, &block));
    r->lanes = block;
    r->first_ns = count ? UINT64_MAX : 0;
    for (size_t i = 0; i < r->scan.count; i++) {
        uint32_t lane = 0;
        if (!is_read(r, i)) continue;
        RN_TRY(rn_trace_lane(&r->texts, r->scan.blocks[i].lane, &lane));
        list_block(r, &r->scan.blocks[i], lane);
    }
    return rn_radix_sort(r->t->allocator, r->events, r->event_count);
}

// ---- memory -------------------------------------------------------------------------------------

static rn_status read_alloc(reader *r, const rn_trace_event *event, uint64_t time_ns,
                            uint32_t lane) {
    uint32_t name = rn_trace_name(&r->texts, event->name);
    if (event->flags & RN_PROFILE_SITE) {
        rn_trace_live_site(&r->live, event, name);
        return RN_OK;
    }
    if (event->flags & RN_PROFILE_RELABEL) {
        rn_trace_live_relabel(&r->live, event, name, event->purpose);
        return RN_OK;
    }
    bool before = event->address && event->address < RN_TRACE_FIRST_ADDRESS;
    rn_timeline_alloc alloc = {.begin_ns = before ? 0 : time_ns,
                               .end_ns = RN_STILL_LIVE,
                               .address = before ? 0 : event->address,
                               .bytes = event->bytes,
                               .name = name,
                               .lane = lane,
                               .device = event->device,
                               .purpose = event->purpose,
                               .inner = event->flags & RN_PROFILE_INNER,
                               .before = before};
    return rn_trace_live_begin(&r->live, &alloc);
}

static rn_status read_memory(reader *r, rn_trace_event event, uint64_t time_ns, uint32_t lane) {
    if (event.device >= RN_DEVICE_MAX || event.bytes > RN_TIMELINE_MAX_BYTES) {
        r->odd_count++;
        return RN_OK;
    }
    event.device = r->texts.devices[event.device];
    event.purpose = r->texts.purposes[event.purpose];
    if (event.kind == RN_TRACE_ALLOC) return read_alloc(r, &event, time_ns, lane);
    return rn_trace_live_end(&r->live, &event, time_ns, lane);
}

// ---- operations ---------------------------------------------------------------------------------

// Until they are finished, `parent` is the operation around it.
static rn_status read_begin(reader *r, const rn_trace_event *event, uint64_t time_ns,
                            uint32_t lane) {
    rn_timeline_op op = {.begin_ns = time_ns,
                         .end_ns = RN_STILL_LIVE,
                         .name = rn_trace_name(&r->texts, event->name),
                         .lane = lane,
                         .rows = (uint32_t)rn_min_u64(event->bytes, UINT32_MAX)};
    if (event->address <= UINT32_MAX)
        op.operands = rn_trace_name(&r->texts, (uint32_t)event->address);
    RN_TRY(rn_timeline_add_op(r->t, &op));
    r->t->ops[r->t->op_count - 1].parent = r->tops[lane];
    r->tops[lane] = r->t->op_count - 1;
    return RN_OK;
}

// One whose begin was overwritten is not there any more.
static void read_finish(reader *r, uint64_t time_ns, uint32_t lane) {
    if (r->tops[lane] == RN_NO_INDEX) return;
    rn_timeline_op *op = &r->t->ops[r->tops[lane]];
    op->end_ns = time_ns;
    r->tops[lane] = op->parent;
}

static rn_status read_span(reader *r, const rn_trace_event *event, uint64_t time_ns) {
    rn_timeline_op op = {.begin_ns = time_ns, .name = rn_trace_name(&r->texts, event->name)};
    op.end_ns = time_ns + rn_min_u64(event->bytes, RN_TIMELINE_MAX_NS);
    RN_TRY(rn_trace_lane(&r->texts, event->address, &op.lane));
    return rn_timeline_add_op(r->t, &op);
}

// ---- the rest -----------------------------------------------------------------------------------

static uint8_t device_of(const reader *r, uint8_t number) {
    return number < RN_DEVICE_MAX ? r->texts.devices[number] : RN_DEVICE_ANY;
}

static rn_status read_mark(reader *r, const rn_trace_event *event, uint64_t time_ns,
                           uint32_t lane) {
    rn_timeline_mark mark = {.time_ns = time_ns,
                             .bytes = event->bytes,
                             .name = rn_trace_name(&r->texts, event->name),
                             .lane = lane,
                             .kind = event->purpose,
                             .device = device_of(r, event->device)};
    return rn_timeline_add_mark(r->t, &mark);
}

// Several counters are one operation of PyTorch's; each is counted on, so the last value is all.
static rn_status read_torch(reader *r, const rn_trace_event *event) {
    uint32_t name = rn_trace_name(&r->texts, event->name);
    if (!r->torch_ops) {
        void *block = NULL;
        RN_TRY(rn_alloc(r->t->allocator, r->t->name_count * sizeof *r->torch_ops, &block));
        memset(block, 0xff, r->t->name_count * sizeof *r->torch_ops);
        r->torch_ops = block;
        r->torch_capacity = r->t->name_count;
    }
    if (r->torch_ops[name] == RN_NO_INDEX) {
        RN_TRY(rn_timeline_add_torch_op(r->t, &(rn_timeline_torch_op){.name = name}));
        r->torch_ops[name] = r->t->torch_op_count - 1;
    }
    rn_timeline_torch_op *op = &r->t->torch_ops[r->torch_ops[name]];
    switch (event->purpose) {
    case RN_COUNTER_TORCH_CALLS:
        op->count = event->bytes;
        break;
    case RN_COUNTER_TORCH_CPU_NS:
        op->cpu_us = (double)event->bytes / 1e3;
        break;
    case RN_COUNTER_TORCH_CUDA_NS:
        op->cuda_us = (double)event->bytes / 1e3;
        break;
    case RN_COUNTER_TORCH_CPU_BYTES:
        op->cpu_bytes = (int64_t)event->bytes;
        break;
    default:
        op->cuda_bytes = (int64_t)event->bytes;
        break;
    }
    return RN_OK;
}

static rn_status read_counter(reader *r, const rn_trace_event *event, uint64_t time_ns) {
    if (event->purpose >= RN_COUNTER_TORCH_CALLS) return read_torch(r, event);
    rn_timeline_counter counter = {.time_ns = time_ns,
                                   .value = event->bytes,
                                   .name = rn_trace_name(&r->texts, event->name),
                                   .kind = event->purpose,
                                   .device = device_of(r, event->device)};
    return rn_timeline_add_counter(r->t, &counter);
}

static rn_status read_move(reader *r, const rn_trace_event *event, uint64_t time_ns,
                           uint32_t lane) {
    rn_timeline_move move = {.time_ns = time_ns,
                             .bytes = event->bytes,
                             .address = event->address,
                             .name = rn_trace_name(&r->texts, event->name),
                             .lane = lane,
                             .from = device_of(r, event->purpose),
                             .to = device_of(r, event->device)};
    return rn_timeline_add_move(r->t, &move);
}

static bool makes_sense(const rn_trace_event *event) {
    switch (event->kind) {
    case RN_TRACE_MARK:
        return event->purpose < RN_MARK_COUNT;
    case RN_TRACE_COUNTER:
        return event->purpose < RN_COUNTER_COUNT;
    default:
        return event->kind > 0 && event->kind < RN_TRACE_KIND_END;
    }
}

static rn_status read_event(reader *r, const rn_sort_item *item) {
    rn_trace_event event;
    uint64_t time_ns = item->key;
    uint32_t lane = r->lanes[item->index / (RN_TRACE_ALIGN / sizeof event)];
    load(r, (uint64_t)item->index * sizeof event, &event, sizeof event);
    if (!makes_sense(&event)) {
        r->odd_count++;
        return RN_OK;
    }
    switch ((rn_trace_kind)event.kind) {
    case RN_TRACE_ALLOC:
    case RN_TRACE_FREE:
        return read_memory(r, event, time_ns, lane);
    case RN_TRACE_BEGIN:
        return read_begin(r, &event, time_ns, lane);
    case RN_TRACE_FINISH:
        read_finish(r, time_ns, lane);
        return RN_OK;
    case RN_TRACE_SPAN:
        return read_span(r, &event, time_ns);
    case RN_TRACE_MARK:
        return read_mark(r, &event, time_ns, lane);
    case RN_TRACE_COUNTER:
        return read_counter(r, &event, time_ns);
    case RN_TRACE_MOVE:
        return read_move(r, &event, time_ns, lane);
    case RN_TRACE_KIND_END:
        break;
    }
    return RN_OK;
}

// ---- totals -------------------------------------------------------------------------------------

// What was held when the ring's beginning was overwritten: one block a line, without address.
static rn_status begin_base(reader *r) {
    if (r->base == NO_BLOCK) return RN_OK;
    const rn_scan_block *block = &r->scan.blocks[r->base];
    uint32_t name = 0, lane = 0;
    RN_TRY(
        rn_timeline_add_name(r->t, RN_STR("before what was kept"), RN_STR(""), RN_STR(""), &name));
    if (r->t->lane_count == 0) RN_TRY(rn_trace_lane(&r->texts, 0, &lane));
    for (uint32_t at = 0; at + sizeof(rn_trace_total) <= block->payload_bytes;
         at += sizeof(rn_trace_total)) {
        rn_trace_total total;
        load(r, block->offset + at, &total, sizeof total);
        if (total.device >= RN_DEVICE_MAX || total.purpose >= r->texts.purpose_count ||
            total.bytes == 0 || total.bytes > RN_TIMELINE_MAX_BYTES)
            continue;
        rn_timeline_alloc alloc = {.begin_ns = r->first_ns,
                                   .end_ns = RN_STILL_LIVE,
                                   .bytes = total.bytes,
                                   .name = name,
                                   .device = r->texts.devices[total.device],
                                   .purpose = r->texts.purposes[total.purpose],
                                   .before = true};
        RN_TRY(rn_trace_live_begin(&r->live, &alloc));
    }
    return RN_OK;
}

// The newest record of each device counts.
static void read_peaks(reader *r) {
    for (size_t i = 0; i < r->scan.count; i++) {
        const rn_scan_block *block = &r->scan.blocks[i];
        if (block->kind != RN_TRACE_TOTALS) continue;
        for (uint32_t at = 0; at + sizeof(rn_trace_total) <= block->payload_bytes;
             at += sizeof(rn_trace_total)) {
            rn_trace_total total;
            load(r, block->offset + at, &total, sizeof total);
            if (total.device >= RN_DEVICE_MAX || total.purpose != r->texts.purpose_count) continue;
            uint8_t device = r->texts.devices[total.device];
            r->t->counted_peaks[device].bytes = total.bytes;
            r->t->counted_peaks[device].time_ns = rn_min_u64(total.blocks, RN_TIMELINE_MAX_NS);
        }
    }
}

// ---- notes --------------------------------------------------------------------------------------

// Blocks that are not there although nothing is damaged: a ring that was overwritten while it was
// read. What a ring has overwritten in order is missing behind the preamble only.
static uint64_t count_missing(const rn_scan *scan) {
    uint64_t missing = 0;
    for (size_t i = 1; i < scan->count; i++)
        if (scan->blocks[i - 1].kind != RN_TRACE_PREAMBLE)
            missing += scan->blocks[i].sequence - scan->blocks[i - 1].sequence - 1;
    return missing;
}

static void note(const reader *r) {
    rn_timeline *t = r->t;
    uint64_t missing = r->scan.hole_count ? 0 : count_missing(&r->scan);
    // What a ring's newest block has half overwritten may be the last block of the file.
    bool is_cut = r->scan.is_cut && strcmp(t->mode, "ring") != 0;
    if (r->base != NO_BLOCK && r->event_count)
        rn_timeline_note(t,
                         "events before %s were overwritten or lost; what was held then is "
                         "known only by purpose",
                         rn_time_format((double)r->first_ns / 1e9).text);
    if (r->scan.hole_count)
        rn_timeline_note(t, "%zu stretch%s of the file %s damaged and skipped", r->scan.hole_count,
                         r->scan.hole_count == 1 ? "" : "es",
                         r->scan.hole_count == 1 ? "was" : "were");
    if (missing)
        rn_timeline_note(t,
                         "%llu blocks of events or names are missing: they were overwritten while "
                         "the file was read, or lost",
                         (unsigned long long)missing);
    if (!t->has_end)
        rn_timeline_note(t,
                         "the recording was not ended: the program was killed or is still "
                         "running%s",
                         is_cut ? ", or the file was cut" : "");
    else if (is_cut)
        rn_timeline_note(t, "the file's last bytes are no whole block");
    if (t->dropped_count)
        rn_timeline_note(t, "%llu events were dropped while recording",
                         (unsigned long long)t->dropped_count);
    if (r->live.unknown_count)
        rn_timeline_note(t, "%llu releases of blocks that were not seen",
                         (unsigned long long)r->live.unknown_count);
    if (r->odd_count)
        rn_timeline_note(t, "%llu events make no sense and were skipped",
                         (unsigned long long)r->odd_count);
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status read_all(reader *r) {
    RN_TRY(rn_trace_texts_read(&r->texts, r->t, &r->scan, r->data, r->bytes));
    find_base(r);
    RN_TRY(make_lanes(r));
    RN_TRY(list_events(r));
    RN_TRY(begin_base(r));
    for (size_t i = 0; i < r->event_count; i++)
        RN_TRY(read_event(r, &r->events[i]));
    read_peaks(r);
    note(r);
    return RN_OK;
}

static void free_all(reader *r) {
    const rn_allocator *from = r->t->allocator;
    rn_free(from, r->torch_ops, r->torch_capacity * sizeof *r->torch_ops);
    rn_free(from, r->lanes, r->lane_span * sizeof *r->lanes);
    rn_free(from, r->events, r->t->event_count * sizeof *r->events);
    rn_free(from, r->tops, r->lane_capacity * sizeof *r->tops);
    rn_free(from, r->lasts, r->lane_capacity * sizeof *r->lasts);
    rn_trace_live_free(&r->live);
    rn_trace_texts_free(&r->texts);
}

rn_status rn_trace_read(const char *path, const uint8_t *data, uint64_t bytes, rn_timeline **out) {
    *out = NULL;
    if (bytes / sizeof(rn_trace_event) > UINT32_MAX)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a trace of more than 128 GiB"),
                       "record with a limit, or a shorter time");
    reader r = {.data = data, .bytes = bytes};
    RN_TRY(rn_timeline_create(path, "ration trace", &r.t));
    rn_trace_live_init(&r.live, r.t);
    r.texts.timeline = r.t;
    rn_status s = rn_trace_scan(r.t->allocator, data, bytes, &r.scan);
    if (s == RN_OK) s = read_all(&r);
    free_all(&r);
    rn_trace_scan_free(&r.scan);
    if (s == RN_OK)
        *out = r.t;
    else
        rn_timeline_destroy(r.t);
    return s;
}
