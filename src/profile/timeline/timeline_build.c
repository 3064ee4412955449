// timeline_build.c — an empty timeline, and adding to it: arrays that double, texts kept once.
#include "profile/timeline/timeline_build.h"
#include "base/checked.h"
#include "memory/account.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- arrays that double -------------------------------------------------------------------------

// Room for one more item; *items and *capacity change where it needs another block.
static rn_status grow(const rn_allocator *from, void **items, uint32_t count, uint32_t *capacity,
                      size_t item_bytes) {
    if (count < *capacity) return RN_OK;
    if (count >= UINT32_MAX / 2)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a timeline has room for %u of a kind", count),
                       "record a shorter time, or with a smaller limit");
    uint32_t more = *capacity ? *capacity * 2 : 64;
    void *block = NULL;
    RN_TRY(rn_alloc(from, more * item_bytes, &block));
    if (count) memcpy(block, *items, count * item_bytes);
    rn_free(from, *items, *capacity * item_bytes);
    *items = block;
    *capacity = more;
    return RN_OK;
}

// Appends *ITEM to t->KINDs.
#define APPEND(t, KIND, ITEM)                                                                      \
    do {                                                                                           \
        void *items_ = (t)->KIND##s;                                                               \
        RN_TRY(grow((t)->allocator, &items_, (t)->KIND##_count, &(t)->build->KIND##_capacity,      \
                    sizeof *(t)->KIND##s));                                                        \
        (t)->KIND##s = items_;                                                                     \
        (t)->KIND##s[(t)->KIND##_count++] = *(ITEM);                                               \
    } while (0)

#define FREE_ARRAY(t, KIND)                                                                        \
    rn_free((t)->allocator, (t)->KIND##s, (t)->build->KIND##_capacity * sizeof *(t)->KIND##s)

// ---- the timeline -------------------------------------------------------------------------------

static rn_status begin_build(rn_timeline *t) {
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(t->allocator, 1, sizeof *t->build, &block));
    t->build = block;
    rn_arena_init(&t->build->texts, t->allocator, 0);
    rn_map_init(&t->build->name_ids, t->allocator);
    rn_buffer_init(&t->build->key, t->allocator, SIZE_MAX / 4);
    RN_TRY(rn_alloc_zeroed(t->allocator, RN_DEVICE_MAX, sizeof *t->devices, &block));
    t->devices = block;
    uint32_t none;
    return rn_timeline_add_name(t, RN_STR(""), RN_STR(""), RN_STR(""), &none);
}

rn_status rn_timeline_create(const char *path, const char *format, rn_timeline **out) {
    *out = NULL;
    const rn_allocator *from = &rn_host_allocators[RN_PURPOSE_PROFILER];
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(from, 1, sizeof(rn_timeline), &block));
    rn_timeline *t = block;
    t->allocator = from;
    snprintf(t->path, sizeof t->path, "%s", path ? path : "");
    snprintf(t->format, sizeof t->format, "%s", format);
    rn_status s = begin_build(t);
    if (s == RN_OK)
        *out = t;
    else
        rn_timeline_destroy(t);
    return s;
}

static void free_build(rn_timeline *t) {
    FREE_ARRAY(t, name);
    FREE_ARRAY(t, lane);
    FREE_ARRAY(t, alloc);
    FREE_ARRAY(t, op);
    FREE_ARRAY(t, mark);
    FREE_ARRAY(t, counter);
    FREE_ARRAY(t, move);
    FREE_ARRAY(t, torch_op);
    FREE_ARRAY(t, sum);
    rn_free(t->allocator, t->devices, RN_DEVICE_MAX * sizeof *t->devices);
    rn_free(t->allocator, t->build->by_end, t->build->by_end_count * sizeof *t->build->by_end);
    rn_buffer_free(&t->build->key);
    rn_map_free(&t->build->name_ids);
    rn_arena_free_all(&t->build->texts);
    rn_free(t->allocator, t->build, sizeof *t->build);
}

void rn_timeline_destroy(rn_timeline *t) {
    if (!t) return;
    if (t->build) free_build(t);
    rn_free(t->allocator, t, sizeof *t);
}

void rn_timeline_note(rn_timeline *t, const char *format, ...) {
    size_t most = sizeof t->notes / sizeof t->notes[0];
    if (t->note_count == most) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->notes[t->note_count], sizeof t->notes[0], format, arguments);
    va_end(arguments);
    rn_str_clean(t->notes[t->note_count++]);
}

// ---- texts --------------------------------------------------------------------------------------

// A NUL within would end the text for its readers.
static rn_str cut_at_nul(rn_str text) {
    const char *nul = text.bytes ? memchr(text.data, 0, text.bytes) : NULL;
    return nul ? (rn_str){text.data, (size_t)(nul - text.data)} : text;
}

static rn_status keep_text(rn_timeline *t, rn_str text, const char **out) {
    void *copy = NULL;
    text = cut_at_nul(text);
    RN_TRY(rn_arena_copy(&t->build->texts, text.data, text.bytes, &copy));
    *out = copy;
    return RN_OK;
}

static rn_status append_text(rn_buffer *key, rn_str text) {
    if (text.bytes) RN_TRY(rn_buffer_append(key, text.data, text.bytes));
    return rn_buffer_append(key, "", 1);
}

rn_status rn_timeline_add_name(rn_timeline *t, rn_str name, rn_str group, rn_str detail,
                               uint32_t *out) {
    rn_buffer *key = &t->build->key;
    key->bytes = 0;
    name = cut_at_nul(name);
    group = cut_at_nul(group);
    RN_TRY(append_text(key, name));
    RN_TRY(append_text(key, group));
    RN_TRY(append_text(key, cut_at_nul(detail)));
    uint64_t known = 0;
    rn_str all = {key->data, key->bytes};
    bool found = rn_map_find(&t->build->name_ids, all, &known);
    *out = found ? (uint32_t)known : t->name_count;
    if (found) return RN_OK;
    void *copy = NULL;
    RN_TRY(rn_arena_copy(&t->build->texts, all.data, all.bytes, &copy));
    const char *text = copy;
    rn_timeline_name item = {text, text + name.bytes + 1, text + name.bytes + group.bytes + 2};
    RN_TRY(rn_map_add(&t->build->name_ids, (rn_str){text, all.bytes}, t->name_count, NULL));
    APPEND(t, name, &item);
    return RN_OK;
}

rn_status rn_timeline_add_device(rn_timeline *t, rn_str name, uint8_t *out) {
    name = cut_at_nul(name);
    for (uint32_t d = 0; d < t->device_count; d++)
        if (rn_str_equal(rn_str_from(t->devices[d].name), name)) {
            *out = (uint8_t)d;
            return RN_OK;
        }
    if (t->device_count == RN_DEVICE_MAX)
        return rn_fail(RN_CORRUPT, "more than %d devices", RN_DEVICE_MAX);
    RN_TRY(keep_text(t, name, &t->devices[t->device_count].name));
    *out = (uint8_t)t->device_count++;
    return RN_OK;
}

rn_status rn_timeline_add_lane(rn_timeline *t, rn_str name, bool is_queue, uint32_t *out) {
    rn_timeline_lane lane = {.is_queue = is_queue};
    RN_TRY(keep_text(t, name, &lane.name));
    APPEND(t, lane, &lane);
    *out = t->lane_count - 1;
    return RN_OK;
}

rn_status rn_timeline_name_lane(rn_timeline *t, uint32_t lane, rn_str name) {
    if (lane >= t->lane_count) return rn_fail(RN_CORRUPT, "lane %u does not exist", lane);
    return keep_text(t, name, &t->lanes[lane].name);
}

// ---- things that happened -----------------------------------------------------------------------

static rn_status check_name(const rn_timeline *t, uint32_t name) {
    return name < t->name_count ? RN_OK : rn_fail(RN_CORRUPT, "name %u does not exist", name);
}

static rn_status check_lane(const rn_timeline *t, uint32_t lane) {
    return lane < t->lane_count ? RN_OK : rn_fail(RN_CORRUPT, "lane %u does not exist", lane);
}

static rn_status check_device(uint8_t device, bool or_any) {
    bool fine = device < RN_DEVICE_MAX || (or_any && device == RN_DEVICE_ANY);
    return fine ? RN_OK : rn_fail(RN_CORRUPT, "device %u of %d", device, RN_DEVICE_MAX);
}

static uint64_t believe_time(uint64_t time_ns) {
    return rn_min_u64(time_ns, RN_TIMELINE_MAX_NS);
}

static uint64_t believe_end(uint64_t begin_ns, uint64_t end_ns) {
    return end_ns == RN_STILL_LIVE ? end_ns : rn_max_u64(believe_time(end_ns), begin_ns);
}

rn_status rn_timeline_add_alloc(rn_timeline *t, const rn_timeline_alloc *alloc) {
    RN_TRY(check_name(t, alloc->name));
    RN_TRY(check_lane(t, alloc->lane));
    if (alloc->free_lane) RN_TRY(check_lane(t, alloc->free_lane - 1));
    RN_TRY(check_device(alloc->device, false));
    if (alloc->purpose >= RN_PURPOSE_COUNT)
        return rn_fail(RN_CORRUPT, "purpose %u of %d", alloc->purpose, RN_PURPOSE_COUNT);
    if (alloc->bytes > RN_TIMELINE_MAX_BYTES)
        return rn_fail(RN_CORRUPT, "a block of %llu bytes", (unsigned long long)alloc->bytes);
    if (t->build->sum_bytes + alloc->bytes > RN_TIMELINE_MAX_SUM)
        return rn_hint(rn_fail(RN_CORRUPT, "blocks of more bytes than can be counted"),
                       "no machine allocates so much in years: the file is damaged");
    t->build->sum_bytes += alloc->bytes;
    rn_timeline_alloc item = *alloc;
    item.begin_ns = believe_time(alloc->begin_ns);
    item.end_ns = believe_end(item.begin_ns, alloc->end_ns);
    item.op = item.parent = RN_NO_INDEX;
    APPEND(t, alloc, &item);
    return RN_OK;
}

rn_status rn_timeline_split(rn_timeline *t, uint32_t index, const rn_timeline_alloc *part) {
    t->allocs[index].bytes -= part->bytes;
    t->build->sum_bytes -= part->bytes;
    return rn_timeline_add_alloc(t, part);
}

rn_status rn_timeline_add_op(rn_timeline *t, const rn_timeline_op *op) {
    RN_TRY(check_name(t, op->name));
    RN_TRY(check_name(t, op->operands));
    RN_TRY(check_lane(t, op->lane));
    rn_timeline_op item = {.begin_ns = believe_time(op->begin_ns),
                           .name = op->name,
                           .lane = op->lane,
                           .parent = RN_NO_INDEX,
                           .unfinished = op->unfinished,
                           .operands = op->operands,
                           .rows = op->rows};
    item.end_ns = believe_end(item.begin_ns, op->end_ns);
    if (op->told) {
        item.told = true;
        item.alloc_count = op->alloc_count;
        item.free_count = op->free_count;
        item.delta_bytes = op->delta_bytes;
        item.pre_bytes = op->pre_bytes;
    }
    APPEND(t, op, &item);
    return RN_OK;
}

rn_status rn_timeline_add_mark(rn_timeline *t, const rn_timeline_mark *mark) {
    RN_TRY(check_name(t, mark->name));
    RN_TRY(check_lane(t, mark->lane));
    RN_TRY(check_device(mark->device, true));
    if (mark->kind >= RN_MARK_COUNT) return rn_fail(RN_CORRUPT, "mark of kind %u", mark->kind);
    rn_timeline_mark item = *mark;
    item.time_ns = believe_time(mark->time_ns);
    APPEND(t, mark, &item);
    return RN_OK;
}

rn_status rn_timeline_add_counter(rn_timeline *t, const rn_timeline_counter *counter) {
    RN_TRY(check_name(t, counter->name));
    RN_TRY(check_device(counter->device, true));
    if (counter->kind >= RN_COUNTER_COUNT)
        return rn_fail(RN_CORRUPT, "counter of kind %u", counter->kind);
    rn_timeline_counter item = *counter;
    item.time_ns = believe_time(counter->time_ns);
    APPEND(t, counter, &item);
    return RN_OK;
}

rn_status rn_timeline_add_move(rn_timeline *t, const rn_timeline_move *move) {
    RN_TRY(check_name(t, move->name));
    RN_TRY(check_lane(t, move->lane));
    RN_TRY(check_device(move->from, true));
    RN_TRY(check_device(move->to, true));
    rn_timeline_move item = *move;
    item.time_ns = believe_time(move->time_ns);
    APPEND(t, move, &item);
    return RN_OK;
}

rn_status rn_timeline_add_torch_op(rn_timeline *t, const rn_timeline_torch_op *op) {
    RN_TRY(check_name(t, op->name));
    APPEND(t, torch_op, op);
    return RN_OK;
}

rn_status rn_timeline_add_sum(rn_timeline *t, const rn_timeline_sum *sum) {
    RN_TRY(check_name(t, sum->name));
    APPEND(t, sum, sum);
    return RN_OK;
}
