// torch_snapshot_replay.c — the trace of a device, event by event.
//
//     segments  [ segment_alloc .................... segment_free ]   what torch holds: outer
//     blocks        [ alloc ... free_completed ] [ alloc ...           what tensors use: parts
//
// An expandable segment is mapped and unmapped in ranges that need not match: a range that is
// unmapped ends where it lies in what was mapped, and the rest goes on. What is freed without
// having been allocated, and what is there at the end without having been seen, was there before.
#include "profile/foreign/torch_snapshot.h"

#include "base/checked.h"
#include "profile/foreign/foreign.h"
#include "profile/foreign/live_blocks.h"

typedef struct replay {
    rn_torch_reader *reader;
    rn_timeline *timeline;
    uint64_t device;
    uint8_t device_id; // in the timeline
    uint64_t now_ns;
    uint64_t event_count;
    rn_live_blocks segments, blocks;
    // Parts that were there before: added last, so that they stand behind their segments.
    rn_timeline_alloc *olds;
    size_t old_count, old_capacity;
} replay;

// ---- lanes --------------------------------------------------------------------------------------

rn_status rn_torch_lane(rn_torch_reader *r, uint64_t device, uint64_t stream, uint32_t *out) {
    const uint32_t most = sizeof r->lanes / sizeof r->lanes[0];
    rn_foreign_text name = {.bytes = 0};
    for (uint32_t i = 0; i < r->lane_count; i++)
        if (r->lanes[i].device == device && r->lanes[i].stream == stream) {
            *out = r->lanes[i].lane;
            return RN_OK;
        }
    *out = r->lane_count ? r->lanes[r->lane_count - 1].lane : 0;
    if (r->lane_count == most) return RN_OK;
    if (r->lane_count == most - 1)
        rn_foreign_append(&name, RN_STR("other streams"));
    else
        rn_foreign_print(&name, stream < 4096 ? "cuda:%llu stream %llu" : "cuda:%llu stream 0x%llx",
                         (unsigned long long)device, (unsigned long long)stream);
    RN_TRY(rn_timeline_add_lane(r->timeline, rn_foreign_str(&name), true, out));
    r->lanes[r->lane_count].device = device;
    r->lanes[r->lane_count].stream = stream;
    r->lanes[r->lane_count++].lane = *out;
    return RN_OK;
}

// ---- blocks that end ----------------------------------------------------------------------------

static rn_status keep_old(replay *p, const rn_timeline_alloc *block) {
    if (!block->inner) return rn_timeline_add_alloc(p->timeline, block);
    RN_TRY(rn_foreign_grow(p->timeline->allocator, &p->olds, p->old_count, &p->old_capacity,
                           sizeof *p->olds));
    p->olds[p->old_count++] = *block;
    return RN_OK;
}

// A live block ends now.
static rn_status end_block(replay *p, rn_live_blocks *live, uint64_t address) {
    rn_timeline_alloc block = *rn_live_find(live, address);
    block.end_ns = p->now_ns;
    RN_TRY(rn_timeline_add_alloc(p->timeline, &block));
    rn_live_remove(live, address);
    return RN_OK;
}

static rn_status end_live(replay *p, rn_live_blocks *live) {
    for (rn_timeline_alloc *block; (block = rn_live_last(live));) {
        RN_TRY(rn_timeline_add_alloc(p->timeline, block));
        rn_live_remove(live, block->address);
    }
    return RN_OK;
}

// ---- ranges of segments -------------------------------------------------------------------------

// The part [from, to) of a live segment ends now; what lies before and behind it goes on.
static rn_status cut_segment(replay *p, rn_timeline_alloc *segment, uint64_t from, uint64_t to) {
    rn_timeline_alloc whole = *segment, behind = whole;
    uint64_t end = whole.address + whole.bytes;
    if (from > whole.address)
        segment->bytes = from - whole.address;
    else
        rn_live_remove(&p->segments, whole.address);
    behind.address = to;
    behind.bytes = end - to;
    if (behind.bytes) RN_TRY(rn_live_add(&p->segments, &behind));
    whole.address = from;
    whole.bytes = to - from;
    whole.end_ns = p->now_ns;
    return rn_timeline_add_alloc(p->timeline, &whole);
}

// Goes through [block->address, + bytes): what is live in it ends now (or is left alone, where
// `block` does not end), and what is not was there before.
static rn_status cover(replay *p, const rn_timeline_alloc *block) {
    uint64_t at = block->address, end, to;
    if (!rn_add_u64(at, block->bytes, &end))
        return rn_fail(RN_CORRUPT, "a segment beyond the end of the address space");
    for (; at < end; at = to) {
        rn_timeline_alloc *live = rn_live_below(&p->segments, at), *next;
        RN_TRY(rn_torch_visit(p->reader));
        if (live && at - live->address < live->bytes) {
            to = rn_min_u64(live->address + live->bytes, end);
            if (block->end_ns != RN_STILL_LIVE) RN_TRY(cut_segment(p, live, at, to));
            continue;
        }
        next = rn_live_above(&p->segments, at);
        to = next ? rn_min_u64(next->address, end) : end;
        rn_timeline_alloc old = *block;
        old.before = true;
        old.begin_ns = 0;
        old.address = at;
        old.bytes = to - at;
        RN_TRY(keep_old(p, &old));
    }
    return RN_OK;
}

// ---- events -------------------------------------------------------------------------------------

// Events of one microsecond keep their order: each is a nanosecond later than the one before it.
// The first is at 1, behind what was there before.
static void set_time(replay *p, const rn_torch_entry *entry) {
    const rn_torch_reader *r = p->reader;
    uint64_t us = p->event_count, ns;
    if (r->has_times) us = entry->time_us > r->base_us ? entry->time_us - r->base_us : 0;
    if (!rn_mul_u64(us, 1000, &ns) || ns > INT64_MAX) ns = 0;
    p->event_count++;
    p->now_ns = rn_max_u64(ns, p->now_ns + 1);
}

static rn_status begin_block(replay *p, rn_live_blocks *live, const rn_timeline_alloc *block) {
    uint64_t end;
    if (!rn_add_u64(block->address, block->bytes, &end))
        return rn_fail(RN_CORRUPT, "a block beyond the end of the address space");
    if (rn_live_find(live, block->address)) RN_TRY(end_block(p, live, block->address));
    return rn_live_add(live, block);
}

static rn_status free_block(replay *p, rn_timeline_alloc *block) {
    if (rn_live_find(&p->blocks, block->address)) return end_block(p, &p->blocks, block->address);
    block->before = true;
    block->begin_ns = 0;
    return keep_old(p, block);
}

static rn_status mark(replay *p, const rn_torch_entry *entry, uint32_t lane) {
    rn_foreign_text name = {.bytes = 0}, detail = {.bytes = 0};
    rn_timeline_mark mark = {.time_ns = p->now_ns, .lane = lane, .device = p->device_id};
    bool is_oom = entry->action == RN_TORCH_OOM;
    mark.kind = is_oom ? RN_MARK_NO_MEMORY : RN_MARK_CHECKPOINT;
    mark.bytes = is_oom ? entry->size : 0;
    rn_foreign_append(&name, is_oom ? RN_STR("out of memory") : RN_STR("snapshot"));
    if (is_oom) rn_foreign_print(&detail, "%s free", rn_size_format(entry->addr).text);
    RN_TRY(rn_timeline_add_name(p->timeline, rn_foreign_str(&name), RN_STR(""),
                                rn_foreign_str(&detail), &mark.name));
    return rn_timeline_add_mark(p->timeline, &mark);
}

static rn_status replay_entry(replay *p, const rn_torch_entry *entry) {
    rn_timeline_alloc block = {.begin_ns = p->now_ns,
                               .end_ns = RN_STILL_LIVE,
                               .address = entry->addr,
                               .bytes = entry->size,
                               .device = p->device_id,
                               .purpose = entry->purpose};
    RN_TRY(rn_torch_lane(p->reader, p->device, p->reader->streams[entry->stream], &block.lane));
    if (entry->action != RN_TORCH_FREE_REQUESTED)
        RN_TRY(rn_torch_name(p->reader, entry->frames, entry->group, &block.name));
    switch (entry->action) {
    case RN_TORCH_ALLOC:
        block.inner = true;
        return begin_block(p, &p->blocks, &block);
    case RN_TORCH_FREE:
    case RN_TORCH_FREE_COMPLETED:
        block.inner = true;
        block.end_ns = p->now_ns;
        block.name = 0; // where it was freed says nothing about what it was
        return free_block(p, &block);
    case RN_TORCH_SEGMENT_ALLOC:
    case RN_TORCH_SEGMENT_MAP:
        block.is_arena = true;
        return begin_block(p, &p->segments, &block);
    case RN_TORCH_SEGMENT_FREE:
    case RN_TORCH_SEGMENT_UNMAP:
        block.is_arena = true;
        block.end_ns = p->now_ns;
        return cover(p, &block);
    case RN_TORCH_OOM:
    case RN_TORCH_SNAPSHOT:
        return mark(p, entry, block.lane);
    default:
        return RN_OK;
    }
}

static rn_status replay_trace(replay *p, rn_pickle_value trace) {
    rn_pickle_value item;
    rn_pickle_walk walk = rn_pickle_walk_begin(trace);
    while (rn_pickle_walk_next(&walk, &item)) {
        rn_torch_entry *entry = NULL;
        RN_TRY(rn_torch_visit(p->reader));
        RN_TRY(rn_torch_entry_of(p->reader, item, &entry));
        if (!entry) continue;
        set_time(p, entry);
        RN_TRY(replay_entry(p, entry));
    }
    p->timeline->event_count += p->event_count;
    return RN_OK;
}

// ---- what was there at the end ------------------------------------------------------------------

static uint64_t number_at(rn_pickle_value dict, rn_str key) {
    uint64_t number;
    return rn_pickle_u64_of(rn_pickle_get(dict, key), &number) ? number : 0;
}

// The size that was asked for, as traces have it; older snapshots know only the rounded one.
static uint64_t size_of_block(rn_pickle_value dict) {
    uint64_t requested = number_at(dict, RN_STR("requested_size"));
    return requested ? requested : number_at(dict, RN_STR("size"));
}

static rn_status hold_block(replay *p, rn_pickle_value dict, uint64_t address, uint32_t lane) {
    rn_timeline_alloc block = {.end_ns = RN_STILL_LIVE,
                               .address = address,
                               .bytes = size_of_block(dict),
                               .lane = lane,
                               .device = p->device_id,
                               .purpose = RN_PURPOSE_OTHER,
                               .inner = true,
                               .before = true};
    bool active =
        rn_str_starts(rn_pickle_text_of(rn_pickle_get(dict, RN_STR("state"))), RN_STR("active"));
    if (!active || rn_live_find(&p->blocks, address)) return RN_OK;
    RN_TRY(rn_torch_name(p->reader, rn_pickle_get(dict, RN_STR("frames")), (rn_pickle_value){0},
                         &block.name));
    return keep_old(p, &block);
}

// Blocks lie one behind another; older snapshots do not say where.
static rn_status hold_blocks(replay *p, rn_pickle_value segment, uint32_t lane) {
    rn_pickle_value dict;
    uint64_t next = number_at(segment, RN_STR("address")), address;
    rn_pickle_walk walk = rn_pickle_walk_begin(rn_pickle_get(segment, RN_STR("blocks")));
    while (rn_pickle_walk_next(&walk, &dict)) {
        RN_TRY(rn_torch_visit(p->reader));
        if (!rn_pickle_u64_of(rn_pickle_get(dict, RN_STR("address")), &address)) address = next;
        next = address + number_at(dict, RN_STR("size"));
        RN_TRY(hold_block(p, dict, address, lane));
    }
    return RN_OK;
}

static rn_status hold_segment(replay *p, rn_pickle_value dict) {
    rn_timeline_alloc segment = {.end_ns = RN_STILL_LIVE,
                                 .address = number_at(dict, RN_STR("address")),
                                 .bytes = number_at(dict, RN_STR("total_size")),
                                 .device = p->device_id,
                                 .purpose = RN_PURPOSE_OTHER,
                                 .is_arena = true};
    RN_TRY(rn_torch_lane(p->reader, p->device, number_at(dict, RN_STR("stream")), &segment.lane));
    RN_TRY(cover(p, &segment));
    return hold_blocks(p, dict, segment.lane);
}

static rn_status hold_segments(replay *p, rn_pickle_value segments) {
    rn_pickle_value dict;
    rn_pickle_walk walk = rn_pickle_walk_begin(segments);
    while (rn_pickle_walk_next(&walk, &dict)) {
        if (rn_pickle_kind_of(dict) != RN_PICKLE_DICT ||
            number_at(dict, RN_STR("device")) != p->device)
            continue;
        RN_TRY(rn_torch_visit(p->reader));
        RN_TRY(hold_segment(p, dict));
    }
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status replay_all(replay *p, rn_pickle_value trace, rn_pickle_value segments) {
    rn_foreign_text name = {.bytes = 0};
    rn_foreign_print(&name, "cuda:%llu", (unsigned long long)p->device);
    RN_TRY(rn_timeline_add_device(p->timeline, rn_foreign_str(&name), &p->device_id));
    RN_TRY(replay_trace(p, trace));
    RN_TRY(hold_segments(p, segments));
    RN_TRY(end_live(p, &p->segments));
    RN_TRY(end_live(p, &p->blocks));
    for (size_t i = 0; i < p->old_count; i++)
        RN_TRY(rn_timeline_add_alloc(p->timeline, &p->olds[i]));
    return RN_OK;
}

rn_status rn_torch_replay(rn_torch_reader *r, uint64_t device, rn_pickle_value trace,
                          rn_pickle_value segments) {
    const rn_allocator *from = r->timeline->allocator;
    replay p = {.reader = r, .timeline = r->timeline, .device = device};
    rn_live_init(&p.segments, from);
    rn_live_init(&p.blocks, from);
    rn_status s = replay_all(&p, trace, segments);
    rn_live_free(&p.segments);
    rn_live_free(&p.blocks);
    rn_free(from, p.olds, p.old_capacity * sizeof *p.olds);
    return s;
}
