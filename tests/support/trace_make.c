// trace_make.c — the writer's half of the format, as small as it can be.
#include "trace_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void trace_block(trace_maker *maker, rn_trace_block_kind kind, uint32_t lane, const void *payload,
                 size_t bytes) {
    rn_trace_block block = {.kind = kind,
                            .payload_bytes = (uint32_t)bytes,
                            .sequence = maker->sequence++,
                            .round = maker->round,
                            .lane = lane};
    size_t all = rn_trace_block_bytes((uint32_t)bytes);
    if (all > sizeof maker->data - maker->bytes) abort();
    uint8_t *at = maker->data + maker->bytes;
    rn_trace_seal(&block, payload);
    memset(at, 0, all);
    memcpy(at, &block, sizeof block);
    if (bytes) memcpy(at + sizeof block, payload, bytes);
    maker->bytes += all;
}

void trace_preamble(trace_maker *maker, const char *mode) {
    char text[256];
    int bytes = snprintf(text, sizeof text,
                         "{\"format\": \"ration trace\", \"version\": 1, \"mode\": \"%s\", "
                         "\"start_unix_ns\": 1700000000000000000, \"command\": \"ration run\"}",
                         mode);
    trace_block(maker, RN_TRACE_PREAMBLE, 0, text, (size_t)bytes);
}

void trace_end(trace_maker *maker) {
    const char text[] = "{\"reason\": \"stopped\", \"events\": 1, \"dropped\": 0}";
    trace_block(maker, RN_TRACE_END, 0, text, sizeof text - 1);
}

void trace_events(trace_maker *maker, uint32_t lane, const rn_trace_event *events, size_t count) {
    trace_block(maker, RN_TRACE_EVENTS, lane, events, count * sizeof *events);
}

static size_t put_u32(char *to, uint32_t value) {
    memcpy(to, &value, sizeof value);
    return sizeof value;
}

static size_t put_text(char *to, const char *text) {
    size_t bytes = strlen(text), at = put_u32(to, (uint32_t)bytes);
    memcpy(to + at, text, bytes);
    return at + bytes;
}

void trace_name(trace_maker *maker, uint32_t number, const char *name, const char *group,
                const char *detail) {
    char record[1024];
    size_t bytes = put_u32(record, number);
    bytes += put_text(record + bytes, name);
    bytes += put_text(record + bytes, group);
    bytes += put_text(record + bytes, detail);
    trace_block(maker, RN_TRACE_NAMES, 0, record, bytes);
}

void trace_lane(trace_maker *maker, uint32_t number, bool is_queue, const char *name) {
    char record[256];
    size_t bytes = put_u32(record, number);
    bytes += put_u32(record + bytes, is_queue);
    bytes += put_text(record + bytes, name);
    trace_block(maker, RN_TRACE_LANES, 0, record, bytes);
}

void trace_device(trace_maker *maker, uint32_t number, const char *name) {
    char record[256];
    size_t bytes = put_u32(record, number);
    bytes += put_text(record + bytes, name);
    trace_block(maker, RN_TRACE_DEVICES, 0, record, bytes);
}

void trace_total(trace_maker *maker, uint32_t device, uint32_t purpose, uint64_t bytes,
                 uint64_t blocks) {
    struct {
        uint32_t device, purpose;
        uint64_t bytes, blocks;
    } total = {device, purpose, bytes, blocks};
    trace_block(maker, RN_TRACE_TOTALS, 0, &total, sizeof total);
}

// ---- a small run --------------------------------------------------------------------------------

static rn_trace_event memory(rn_trace_kind kind, uint64_t time, uint64_t address, uint64_t bytes,
                             uint8_t purpose, uint32_t name, uint8_t flags) {
    return (rn_trace_event){time, address, bytes, name, (uint8_t)kind, 0, purpose, flags};
}

static rn_trace_event of_kind(rn_trace_kind kind, uint64_t time, uint32_t name, uint8_t purpose,
                              uint64_t bytes) {
    return (rn_trace_event){
        .time_ns = time, .bytes = bytes, .name = name, .kind = (uint8_t)kind, .purpose = purpose};
}

static void small_texts(trace_maker *maker) {
    trace_device(maker, 0, "host");
    trace_lane(maker, 1, false, "main");
    trace_lane(maker, 2, true, "read queue");
    trace_name(maker, 1, "step", "", "");
    trace_name(maker, 2, "matmul", "layer 0", "f32 [64, 64]");
    trace_name(maker, 3, "weights of the model", "", "");
    trace_name(maker, 4, "attention", "layer 0", "f32 [1, 64]");
    trace_name(maker, 5, "model_loaded", "", "");
}

void trace_small_run(trace_maker *maker) {
    *maker = (trace_maker){0};
    const uint8_t weights = RN_PURPOSE_WEIGHTS, activations = RN_PURPOSE_ACTIVATIONS;
    const rn_trace_event first[] = {
        memory(RN_TRACE_ALLOC, 0, 1, 500, RN_PURPOSE_UNACCOUNTED, 0, 0), // held before
        of_kind(RN_TRACE_MARK, 0, 0, RN_MARK_START, 0),
        memory(RN_TRACE_ALLOC, 1000, 0x10000, 10000, weights, 3, 0),
        of_kind(RN_TRACE_MARK, 1500, 5, RN_MARK_STAGE, 0),
        of_kind(RN_TRACE_COUNTER, 1600, 0, RN_COUNTER_BUDGET, 20000),
        of_kind(RN_TRACE_COUNTER, 1601, 0, RN_COUNTER_PREDICTED_PEAK, 13500),
        of_kind(RN_TRACE_BEGIN, 2000, 1, 0, 0),
        memory(RN_TRACE_ALLOC, 2100, 0x20000, 3000, activations, 0, 0),
        of_kind(RN_TRACE_BEGIN, 2200, 2, 0, 0),
        memory(RN_TRACE_ALLOC, 2300, 0x20000, 2000, activations, 2, RN_PROFILE_INNER),
    };
    const rn_trace_event second[] = {
        of_kind(RN_TRACE_FINISH, 3000, 0, 0, 0),
        of_kind(RN_TRACE_BEGIN, 3100, 4, 0, 0),
        memory(RN_TRACE_ALLOC, 3200, 0x20000 + 2000, 1000, activations, 4, RN_PROFILE_INNER),
        memory(RN_TRACE_FREE, 3300, 0x20000, 2000, activations, 0, RN_PROFILE_INNER),
        of_kind(RN_TRACE_FINISH, 4000, 0, 0, 0),
        memory(RN_TRACE_FREE, 4100, 0x20000 + 2000, 1000, activations, 0, RN_PROFILE_INNER),
        memory(RN_TRACE_FREE, 4200, 0x20000, 3000, activations, 0, 0),
        of_kind(RN_TRACE_FINISH, 5000, 0, 0, 0),
        {2500, 2, 700, 5, RN_TRACE_SPAN, 0, 0, 0},
        {5100, 0, 10000, 3, RN_TRACE_MOVE, 0, RN_DEVICE_ANY, 0},
    };
    trace_preamble(maker, "spill");
    trace_total(maker, 0, RN_PURPOSE_COUNT, 500, 0);
    small_texts(maker);
    trace_events(maker, 1, first, sizeof first / sizeof *first);
    maker->round++;
    trace_total(maker, 0, RN_PURPOSE_COUNT, 13500, 2100);
    trace_events(maker, 1, second, sizeof second / sizeof *second);
    trace_end(maker);
}
