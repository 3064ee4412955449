// trace_texts.c — records of numbers and texts. Whatever stands there is checked: a record that
// runs over its block's end ends the block.
#include "profile/timeline/trace_texts.h"
#include "base/checked.h"
#include "base/str.h"
#include "io/json_read.h"

#include <stdio.h>
#include <string.h>

// ---- records ------------------------------------------------------------------------------------

typedef struct cursor {
    const uint8_t *at;
    size_t left;
} cursor;

static bool take_u32(cursor *c, uint32_t *out) {
    if (c->left < sizeof *out) return false;
    memcpy(out, c->at, sizeof *out);
    c->at += sizeof *out;
    c->left -= sizeof *out;
    return true;
}

static bool take_text(cursor *c, rn_str *out) {
    uint32_t bytes = 0;
    if (!take_u32(c, &bytes) || bytes > c->left) return false;
    *out = (rn_str){(const char *)c->at, bytes};
    c->at += bytes;
    c->left -= bytes;
    return true;
}

// ---- tables -------------------------------------------------------------------------------------

// Numbers are handed out one by one, so a table up to the largest is small; one that is larger than
// the file could explain is a lie.
static rn_status make_table(const rn_allocator *from, uint64_t largest, uint64_t bytes,
                            uint32_t **out, size_t *capacity) {
    size_t count = (size_t)rn_min_u64(largest + 1, bytes / 4 + 4096);
    void *block = NULL;
    RN_TRY(rn_alloc(from, count * sizeof **out, &block));
    memset(block, 0xff, count * sizeof **out);
    *out = block;
    *capacity = count;
    return RN_OK;
}

static rn_status make_tables(rn_trace_texts *texts, const rn_scan *scan, const uint8_t *data,
                             uint64_t bytes) {
    uint32_t largest_name = 0, largest_lane = 0, number = 0;
    rn_str text;
    for (size_t i = 0; i < scan->count; i++) {
        const rn_scan_block *block = &scan->blocks[i];
        cursor c = {data + block->offset, block->payload_bytes};
        if (block->kind == RN_TRACE_EVENTS && block->lane > largest_lane)
            largest_lane = block->lane;
        if (block->kind != RN_TRACE_NAMES) continue;
        while (take_u32(&c, &number) && take_text(&c, &text) && take_text(&c, &text) &&
               take_text(&c, &text))
            if (number > largest_name) largest_name = number;
    }
    const rn_allocator *from = texts->timeline->allocator;
    RN_TRY(make_table(from, largest_name, bytes, &texts->names, &texts->name_capacity));
    return make_table(from, (uint64_t)largest_lane + 4096, bytes, &texts->lanes,
                      &texts->lane_capacity);
}

uint32_t rn_trace_name(const rn_trace_texts *texts, uint32_t number) {
    uint32_t name = number < texts->name_capacity ? texts->names[number] : RN_NO_INDEX;
    return name == RN_NO_INDEX ? 0 : name;
}

rn_status rn_trace_lane(rn_trace_texts *texts, uint64_t number, uint32_t *out) {
    bool fits = number < texts->lane_capacity;
    uint32_t *lane = fits ? &texts->lanes[number] : &texts->other_lane;
    if (*lane == RN_NO_INDEX) {
        char name[32] = "others";
        if (fits) snprintf(name, sizeof name, "thread %llu", (unsigned long long)number);
        RN_TRY(rn_timeline_add_lane(texts->timeline, rn_str_from(name), false, lane));
    }
    *out = *lane;
    return RN_OK;
}

static rn_status read_names(rn_trace_texts *texts, cursor c) {
    uint32_t number = 0;
    rn_str name, group, detail;
    while (take_u32(&c, &number) && take_text(&c, &name) && take_text(&c, &group) &&
           take_text(&c, &detail)) {
        if (number >= texts->name_capacity) continue;
        RN_TRY(rn_timeline_add_name(texts->timeline, name, group, detail, &texts->names[number]));
    }
    return RN_OK;
}

static rn_status read_lanes(rn_trace_texts *texts, cursor c) {
    uint32_t number = 0, kind = 0, lane = 0;
    rn_str name;
    while (take_u32(&c, &number) && take_u32(&c, &kind) && take_text(&c, &name)) {
        if (number >= texts->lane_capacity) continue;
        RN_TRY(rn_trace_lane(texts, number, &lane));
        texts->timeline->lanes[lane].is_queue = kind == 1;
        if (name.bytes) RN_TRY(rn_timeline_name_lane(texts->timeline, lane, name));
    }
    return RN_OK;
}

// ---- devices ------------------------------------------------------------------------------------

static void read_devices(cursor c, rn_str *names) {
    uint32_t number = 0;
    rn_str name;
    while (take_u32(&c, &number) && take_text(&c, &name))
        if (number < RN_DEVICE_MAX) names[number] = name;
}

static rn_status add_devices(rn_trace_texts *texts, rn_str *names, size_t used) {
    for (size_t d = 0; d < RN_DEVICE_MAX; d++) {
        char unnamed[32];
        if (!names[d].bytes && d >= used) continue;
        if (!names[d].bytes) {
            snprintf(unnamed, sizeof unnamed, d ? "device %zu" : "host", d);
            names[d] = rn_str_from(unnamed);
        }
        RN_TRY(rn_timeline_add_device(texts->timeline, names[d], &texts->devices[d]));
    }
    return RN_OK;
}

// Devices that events or totals have, whether or not they were named.
static size_t count_devices(const rn_scan *scan, const uint8_t *data) {
    size_t used = 1;
    for (size_t i = 0; i < scan->count; i++) {
        const rn_scan_block *block = &scan->blocks[i];
        if (block->kind != RN_TRACE_EVENTS) continue;
        for (uint32_t at = 0; at + sizeof(rn_trace_event) <= block->payload_bytes;
             at += sizeof(rn_trace_event)) {
            rn_trace_event event;
            memcpy(&event, data + block->offset + at, sizeof event);
            if (event.device < RN_DEVICE_MAX && event.device >= used) used = event.device + 1u;
        }
    }
    return used;
}

// ---- preamble and end ---------------------------------------------------------------------------

static void copy_text(char *to, size_t capacity, rn_str text) {
    snprintf(to, capacity, "%.*s", (int)rn_min_u64(text.bytes, capacity), text.data);
    rn_str_clean(to);
}

static rn_status read_purposes(rn_json_reader *reader, rn_trace_texts *texts) {
    rn_json_item item;
    for (uint32_t number = 0;; number++) {
        RN_TRY(rn_json_next(reader, &item));
        texts->purpose_count = (uint32_t)rn_min_u64(number, sizeof texts->purposes);
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (item.kind != RN_JSON_STRING) return rn_fail(RN_CORRUPT, "a purpose without a name");
        for (uint8_t p = 0; p < RN_PURPOSE_COUNT && number < 256; p++)
            if (rn_str_equal(item.text, rn_str_from(rn_purpose_name((rn_purpose)p))))
                texts->purposes[number] = p;
    }
}

static void take_string(rn_timeline *t, rn_str key, rn_str value) {
    if (rn_str_equal(key, RN_STR("mode"))) copy_text(t->mode, sizeof t->mode, value);
    if (rn_str_equal(key, RN_STR("command"))) copy_text(t->command, sizeof t->command, value);
    if (rn_str_equal(key, RN_STR("reason"))) copy_text(t->reason, sizeof t->reason, value);
}

static void take_number(rn_trace_texts *texts, rn_str key, const rn_json_item *item) {
    uint64_t value = 0;
    if (rn_json_u64_of(item, &value) != RN_OK) return;
    if (rn_str_equal(key, RN_STR("start_unix_ns"))) texts->timeline->start_unix_ns = value;
    if (rn_str_equal(key, RN_STR("dropped"))) texts->timeline->dropped_count = value;
}

// A key's text holds only until the next string is read.
static rn_status read_member(rn_trace_texts *texts, rn_json_reader *reader, rn_str key) {
    char name[32] = "";
    rn_json_item item;
    copy_text(name, sizeof name, key);
    RN_TRY(rn_json_next(reader, &item));
    if (item.kind == RN_JSON_STRING) take_string(texts->timeline, rn_str_from(name), item.text);
    if (item.kind == RN_JSON_NUMBER) take_number(texts, rn_str_from(name), &item);
    if (item.kind == RN_JSON_ARRAY && strcmp(name, "purposes") == 0)
        return read_purposes(reader, texts);
    if (item.kind != RN_JSON_ARRAY && item.kind != RN_JSON_OBJECT) return RN_OK;
    for (int depth = 1; depth;) {
        RN_TRY(rn_json_next(reader, &item));
        depth += item.kind == RN_JSON_ARRAY || item.kind == RN_JSON_OBJECT;
        depth -= item.kind == RN_JSON_ARRAY_END || item.kind == RN_JSON_OBJECT_END;
    }
    return RN_OK;
}

static rn_status read_members(rn_trace_texts *texts, rn_json_reader *reader) {
    rn_json_item item;
    RN_TRY(rn_json_expect(reader, RN_JSON_OBJECT, NULL));
    for (;;) {
        RN_TRY(rn_json_next(reader, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        RN_TRY(read_member(texts, reader, item.text));
    }
}

// Only what helps: a preamble that is not JSON leaves its fields empty.
static rn_status read_facts(rn_trace_texts *texts, cursor c) {
    rn_json_reader reader;
    rn_str text = {(const char *)c.at, c.left};
    rn_json_reader_init(&reader, text, texts->timeline->allocator);
    rn_status s = read_members(texts, &reader);
    rn_json_reader_free(&reader);
    return s == RN_CORRUPT ? RN_OK : s;
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status read_block(rn_trace_texts *texts, const rn_scan_block *block, cursor c,
                            rn_str *devices) {
    switch (block->kind) {
    case RN_TRACE_NAMES:
        return read_names(texts, c);
    case RN_TRACE_LANES:
        return read_lanes(texts, c);
    case RN_TRACE_DEVICES:
        read_devices(c, devices);
        return RN_OK;
    case RN_TRACE_END:
        texts->timeline->has_end = true;
        return read_facts(texts, c);
    case RN_TRACE_PREAMBLE:
        return read_facts(texts, c);
    default:
        return RN_OK;
    }
}

rn_status rn_trace_texts_read(rn_trace_texts *texts, rn_timeline *t, const rn_scan *scan,
                              const uint8_t *data, uint64_t bytes) {
    rn_str devices[RN_DEVICE_MAX] = {0};
    *texts = (rn_trace_texts){
        .timeline = t, .other_lane = RN_NO_INDEX, .purpose_count = RN_PURPOSE_COUNT};
    memset(texts->purposes, RN_PURPOSE_OTHER, sizeof texts->purposes);
    for (uint8_t p = 0; p < RN_PURPOSE_COUNT; p++)
        texts->purposes[p] = p;
    RN_TRY(make_tables(texts, scan, data, bytes));
    for (size_t i = 0; i < scan->count; i++) {
        const rn_scan_block *block = &scan->blocks[i];
        cursor c = {data + block->offset, block->payload_bytes};
        RN_TRY(read_block(texts, block, c, devices));
    }
    return add_devices(texts, devices, count_devices(scan, data));
}

void rn_trace_texts_free(rn_trace_texts *texts) {
    const rn_allocator *from = texts->timeline->allocator;
    rn_free(from, texts->names, texts->name_capacity * sizeof *texts->names);
    rn_free(from, texts->lanes, texts->lane_capacity * sizeof *texts->lanes);
}
