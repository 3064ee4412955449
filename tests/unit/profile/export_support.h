// export_support.h — what the tests of exports share: a small timeline with one of everything, a
// hostile one, a long one; and the tests that every form has to pass.
#ifndef RN_TEST_EXPORT_SUPPORT_H
#define RN_TEST_EXPORT_SUPPORT_H

#include "base/buffer.h"
#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "profile/export/export.h"
#include "support.h"

// ---- making timelines ---------------------------------------------------------------------------

static inline uint32_t add_name(rn_timeline *t, const char *name, const char *group,
                                const char *detail) {
    uint32_t id = 0;
    assert_ok(
        rn_timeline_add_name(t, rn_str_from(name), rn_str_from(group), rn_str_from(detail), &id));
    return id;
}

static inline rn_timeline *make_empty(void) {
    rn_timeline *t = NULL;
    assert_ok(rn_timeline_create("run.rntrace", "ration trace", &t));
    t->start_unix_ns = (uint64_t)1700000000 * 1000000000 + 123456789; // 2023-11-14T22:13:20 UTC
    return t;
}

static inline void add_block(rn_timeline *t, uint64_t begin_ns, uint64_t end_ns, uint64_t address,
                             uint64_t bytes, uint32_t name, rn_purpose purpose, bool inner) {
    assert_ok(rn_timeline_add_alloc(t, &(rn_timeline_alloc){.begin_ns = begin_ns,
                                                            .end_ns = end_ns,
                                                            .address = address,
                                                            .bytes = bytes,
                                                            .name = name,
                                                            .purpose = (uint8_t)purpose,
                                                            .inner = inner}));
}

static inline void add_op(rn_timeline *t, uint64_t begin_ns, uint64_t end_ns, uint32_t name) {
    assert_ok(rn_timeline_add_op(
        t, &(rn_timeline_op){.begin_ns = begin_ns, .end_ns = end_ns, .name = name}));
}

static inline void add_mark(rn_timeline *t, uint64_t time_ns, uint32_t name, rn_trace_mark kind,
                            uint64_t bytes) {
    assert_ok(rn_timeline_add_mark(
        t, &(rn_timeline_mark){
               .time_ns = time_ns, .name = name, .kind = (uint8_t)kind, .bytes = bytes}));
}

static inline void add_counter(rn_timeline *t, uint64_t time_ns, rn_counter kind, uint64_t value) {
    assert_ok(rn_timeline_add_counter(
        t, &(rn_timeline_counter){.time_ns = time_ns, .kind = (uint8_t)kind, .value = value}));
}

// Index and what it is, as sorted:
//   0  w   weights       4096 bytes  1000 .. still live, host
//   1      arena         8192        2000 .. 9000, with
//   2  a   activations   2048        3000 .. 6000 in it, allocated by matmul
//   3  b   workspace     1024        4000 .. 5000 in it, allocated by matmul
//   4      kv            512         7000 .. still live, cuda:0
// In use at most 4096 + 2048 + 1024 = 7168; reserved at most 12288 + 512.
static inline rn_timeline *make_small(void) {
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane, queue;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_device(t, RN_STR("cuda:0"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    assert_ok(rn_timeline_add_lane(t, RN_STR("compute"), true, &queue));
    uint32_t w = add_name(t, "w", "blk.0", "f16 [64, 32]");
    uint32_t a = add_name(t, "a", "", "f32 [512]");
    uint32_t b = add_name(t, "b", "", "no shape");
    add_block(t, 1000, RN_STILL_LIVE, 0x1000, 4096, w, RN_PURPOSE_WEIGHTS, false);
    add_block(t, 2000, 9000, 0x10000, 8192, 0, RN_PURPOSE_ACTIVATIONS, false);
    add_block(t, 3000, 6000, 0x10000, 2048, a, RN_PURPOSE_ACTIVATIONS, true);
    add_block(t, 4000, 5000, 0x10c00, 1024, b, RN_PURPOSE_WORKSPACE, true);
    assert_ok(rn_timeline_add_alloc(t, &(rn_timeline_alloc){.begin_ns = 7000,
                                                            .end_ns = RN_STILL_LIVE,
                                                            .address = 0x5000,
                                                            .bytes = 512,
                                                            .device = 1,
                                                            .purpose = RN_PURPOSE_KV}));
    add_op(t, 2500, 8000, add_name(t, "forward", "", ""));
    add_op(t, 2900, 4501, add_name(t, "matmul", "blk.0", "f16 [64, 64] x f32 [1, 64]"));
    assert_ok(rn_timeline_add_op(t, &(rn_timeline_op){.begin_ns = 3000,
                                                      .end_ns = 3500,
                                                      .lane = queue,
                                                      .name = add_name(t, "kernel", "", "")}));
    add_mark(t, 4200, add_name(t, "after_load", "", ""), RN_MARK_CHECKPOINT, 0);
    add_mark(t, 6500, 0, RN_MARK_PERIODIC, 0);
    add_mark(t, 8500, 0, RN_MARK_REFUSAL, 1 << 20);
    add_counter(t, 0, RN_COUNTER_BUDGET, 16384);
    add_counter(t, 100, RN_COUNTER_BUDGET, 16384);
    add_counter(t, 9000, RN_COUNTER_BUDGET, RN_NO_LIMIT);
    assert_ok(rn_timeline_add_counter( // which is none
        t, &(rn_timeline_counter){.kind = RN_COUNTER_BUDGET, .device = 1, .value = RN_NO_LIMIT}));
    add_counter(t, 2000, RN_COUNTER_PREDICTED, 7168);
    add_counter(t, 2000, RN_COUNTER_PREDICTED_PEAK, 12288);
    assert_ok(rn_timeline_add_move(
        t, &(rn_timeline_move){
               .time_ns = 1500, .bytes = 4096, .from = RN_DEVICE_ANY, .to = 0, .name = w}));
    uint32_t addmm = add_name(t, "aten::addmm", "", "[[1, 512], [512, 64]]");
    uint32_t broken = add_name(t, "aten::mm", "", "[[1, 512], [512");
    assert_ok(rn_timeline_add_torch_op(
        t,
        &(rn_timeline_torch_op){.name = addmm, .count = 3, .cpu_us = 12.5, .cpu_bytes = 1048576}));
    assert_ok(rn_timeline_add_torch_op(t, &(rn_timeline_torch_op){.name = broken, .count = 1}));
    snprintf(t->command, sizeof t->command, "ration run");
    t->event_count = 12;
    assert_ok(rn_timeline_finish(t));
    return t;
}

// Names that break what is not careful; blocks without addresses, at one address, of no duration.
static inline rn_timeline *make_hostile(void) {
    static const char *const names[] = {
        "\"",
        "\\",
        "a,b",
        "line\nbreak",
        "\x01\x7f",
        "\xff",
        "\xfe",
        "</script>",
        "{[",
        "\xe2\x82",
        "\xf0\x9f\x98\x80",
        "12345678901234567890 [99999999999999999999]",
        "[1,[2]",
    };
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("\xff"), &device));
    assert_ok(rn_timeline_add_device(t, RN_STR("\xfe"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("lane \xc0\n\""), false, &lane));
    for (uint64_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint32_t name = add_name(t, names[i], names[i], names[i]);
        add_op(t, 10 * i, 10 * i + 9, name);
        add_block(t, 10 * i, 10 * i + 5, 0, 7, name, RN_PURPOSE_OTHER, false);
        add_block(t, 10 * i, RN_STILL_LIVE, 0x1000, 16, name, RN_PURPOSE_KV, false);
        add_block(t, 10 * i, 10 * i, 0x2000, 16, name, RN_PURPOSE_IO, true); // a part of nothing
        add_mark(t, 10 * i, name, RN_MARK_STAGE, UINT64_MAX);
        assert_ok(rn_timeline_add_torch_op(t, &(rn_timeline_torch_op){.name = name}));
    }
    assert_ok(rn_timeline_add_alloc(t, &(rn_timeline_alloc){.device = 1,
                                                            .bytes = (uint64_t)1 << 48,
                                                            .end_ns = RN_STILL_LIVE,
                                                            .address = UINT64_MAX}));
    snprintf(t->command, sizeof t->command, "\xff\"\n");
    assert_ok(rn_timeline_finish(t));
    return t;
}

// `count` blocks, each alive with the 16 before it.
static inline rn_timeline *make_long(uint32_t count) {
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    uint32_t op = add_name(t, "step", "blk.1", ""), name = add_name(t, "x", "", "f32 [4, 4]");
    for (uint32_t i = 0; i < count; i++) {
        if (i % 8 == 0) add_op(t, i * 100ull, i * 100ull + 700, op);
        add_block(t, i * 100ull, i * 100ull + 1600, 0x100000 + i % 64 * 4096ull, 64 + i % 7 * 512,
                  i % 2 ? name : 0, i % 3 ? RN_PURPOSE_ACTIVATIONS : RN_PURPOSE_WORKSPACE, false);
    }
    assert_ok(rn_timeline_finish(t));
    return t;
}

// ---- running an export --------------------------------------------------------------------------

static inline rn_buffer export_text(const rn_timeline *t, rn_export form) {
    rn_buffer text;
    rn_buffer_init(&text, &rn_system_allocator, SIZE_MAX / 2);
    assert_ok(rn_timeline_export(t, form, rn_buffer_sink(&text)));
    assert_ok(rn_buffer_append(&text, "", 1)); // terminated for the tests
    text.bytes--;
    return text;
}

static inline uint64_t profiler_bytes(void) {
    return rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
}

// ---- what every form has to pass ----------------------------------------------------------------

typedef struct breaking_sink {
    uint64_t writes, fail_at, bytes;
} breaking_sink;

static inline rn_status write_or_break(void *self, const char *text, size_t bytes) {
    breaking_sink *sink = self;
    (void)text;
    sink->bytes += bytes;
    return ++sink->writes == sink->fail_at ? rn_fail(RN_IO, "the disk is full") : RN_OK;
}

// Every failing write comes back as it is, and nothing is written after it; writes are large.
static inline void check_failing_sinks(rn_export form) {
    rn_timeline *t = make_long(5000);
    uint64_t before = profiler_bytes();
    for (uint64_t n = 1;; n++) {
        breaking_sink sink = {.fail_at = n};
        rn_status s = rn_timeline_export(t, form, (rn_sink){&sink, write_or_break});
        assert_int_equal(profiler_bytes(), before);
        if (sink.writes < n) {
            assert_ok(s);
            assert_true(sink.bytes / sink.writes > RN_OUT_BYTES / 4 || sink.writes < 3);
            break;
        }
        assert_fails(RN_IO, s);
        assert_int_equal(sink.writes, n);
    }
    rn_timeline_destroy(t);
}

static inline void check_torture(rn_export form) {
    rn_timeline *t = make_small();
    uint64_t before = profiler_bytes(), n = 0;
    bool fired = true;
    while (fired) {
        breaking_sink sink = {0};
        rn_fault_arm(RN_FAULT_ALLOC, ++n);
        rn_status s = rn_timeline_export(t, form, (rn_sink){&sink, write_or_break});
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        assert_int_equal(profiler_bytes(), before);
    }
    assert_true(n > 1);
    rn_timeline_destroy(t);
}

#endif
