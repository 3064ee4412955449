// A trace, whole or damaged in every way, becomes a timeline or a clear error.
#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "profile/timeline.h"
#include "support.h"
#include "trace_make.h"

#include <sys/stat.h>
#include <unistd.h>

static trace_maker maker;

// ---- reading ------------------------------------------------------------------------------------

static rn_status read_bytes(const uint8_t *data, size_t bytes, rn_timeline **out) {
    RN_TRY(rn_trace_read("a trace", data, bytes, out));
    rn_status s = rn_timeline_finish(*out);
    if (s == RN_OK) return s;
    rn_timeline_destroy(*out);
    *out = NULL;
    return s;
}

static rn_timeline *read_made(void) {
    rn_timeline *t = NULL;
    assert_ok(read_bytes(maker.data, maker.bytes, &t));
    return t;
}

static rn_trace_event memory(rn_trace_kind kind, uint64_t time, uint64_t address, uint64_t bytes) {
    return (rn_trace_event){.time_ns = time,
                            .address = address,
                            .bytes = bytes,
                            .kind = (uint8_t)kind,
                            .purpose = RN_PURPOSE_KV};
}

static rn_trace_event plain(rn_trace_kind kind, uint64_t time, uint32_t name) {
    return (rn_trace_event){.time_ns = time, .name = name, .kind = (uint8_t)kind};
}

#define EVENTS(lane, ...)                                                                          \
    trace_events(&maker, lane, (const rn_trace_event[]){__VA_ARGS__},                              \
                 sizeof((const rn_trace_event[]){__VA_ARGS__}) / sizeof(rn_trace_event))

static void begin_trace(const char *mode) {
    maker = (trace_maker){0};
    trace_preamble(&maker, mode);
    trace_total(&maker, 0, RN_PURPOSE_COUNT, 0, 0);
}

static bool has_note(const rn_timeline *t, const char *words) {
    for (uint32_t i = 0; i < t->note_count; i++)
        if (strstr(t->notes[i], words)) return true;
    return false;
}

// ---- what is in it ------------------------------------------------------------------------------

static void a_whole_trace_is_read_with_all_it_has(void **state) {
    (void)state;
    trace_small_run(&maker);
    rn_timeline *t = read_made();
    assert_string_equal(t->mode, "spill");
    assert_string_equal(t->command, "ration run");
    assert_string_equal(t->reason, "stopped");
    assert_true(t->has_end);
    assert_int_equal(t->note_count, 0);
    assert_int_equal(t->event_count, 20);
    assert_int_equal(t->start_unix_ns, 1700000000000000000u);
    assert_int_equal(t->alloc_count, 5);
    assert_int_equal(t->op_count, 4);
    assert_int_equal(t->mark_count, 2);
    assert_int_equal(t->counter_count, 2);
    assert_int_equal(t->move_count, 1);
    assert_string_equal(t->devices[0].name, "host");
    assert_int_equal(t->counted_peaks[0].bytes, 13500);
    assert_int_equal(t->counted_peaks[0].time_ns, 2100);

    rn_timeline_level peak = rn_timeline_peak(t, 0);
    assert_int_equal(peak.reserved_bytes, 13500);
    assert_int_equal(peak.time_ns, 3200); // reserved since 2100, full at 3200
    assert_int_equal(peak.active_bytes, 13500);
    const rn_timeline_alloc *part = &t->allocs[3];
    assert_int_equal(part->bytes, 2000);
    assert_int_equal(part->parent, 2);
    assert_true(t->allocs[2].is_arena);
    assert_int_equal(part->end_ns, 3300);
    assert_string_equal(t->names[t->ops[part->op].name].name, "matmul");
    assert_string_equal(t->names[part->name].detail, "f32 [64, 64]");
    assert_true(t->allocs[0].before);
    const rn_timeline_op *span = &t->ops[2];
    assert_int_equal(span->begin_ns, 2500);
    assert_int_equal(span->end_ns, 3200);
    assert_true(t->lanes[span->lane].is_queue);
    assert_string_equal(t->lanes[span->lane].name, "read queue");
    rn_timeline_destroy(t);
}

static void lanes_are_merged_by_time(void **state) {
    (void)state;
    begin_trace("spill");
    EVENTS(1, memory(RN_TRACE_ALLOC, 10, 0x1000, 5), memory(RN_TRACE_ALLOC, 30, 0x2000, 6));
    EVENTS(2, memory(RN_TRACE_FREE, 20, 0x1000, 5), memory(RN_TRACE_FREE, 40, 0x2000, 6));
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(t->alloc_count, 2);
    assert_int_equal(t->allocs[0].end_ns, 20);
    assert_int_equal(t->allocs[0].free_lane, t->allocs[0].lane + 2);
    assert_int_equal(t->allocs[1].end_ns, 40);
    rn_timeline_destroy(t);
}

static void events_at_one_time_keep_their_order(void **state) {
    (void)state;
    begin_trace("spill");
    EVENTS(1, memory(RN_TRACE_ALLOC, 10, 0x1000, 5), memory(RN_TRACE_FREE, 10, 0x1000, 5),
           memory(RN_TRACE_ALLOC, 10, 0x1000, 6), memory(RN_TRACE_FREE, 9, 0x1000, 6));
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(t->alloc_count, 2);
    assert_int_equal(rn_timeline_peak(t, 0).reserved_bytes, 6); // one after the other
    assert_int_equal(t->allocs[1].end_ns, 13);
    rn_timeline_destroy(t);
}

static void a_block_whose_release_was_lost_ends_at_the_next_one(void **state) {
    (void)state;
    begin_trace("spill");
    EVENTS(1, memory(RN_TRACE_ALLOC, 10, 0x1000, 5), memory(RN_TRACE_ALLOC, 50, 0x1000, 7));
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(t->allocs[0].end_ns, 50);
    assert_int_equal(t->allocs[1].end_ns, RN_STILL_LIVE);
    rn_timeline_destroy(t);
}

static void purposes_share_an_address(void **state) {
    (void)state;
    rn_trace_event other = memory(RN_TRACE_ALLOC, 20, 0x1000, 7);
    rn_trace_event other_free = memory(RN_TRACE_FREE, 40, 0x1000, 7);
    other.purpose = other_free.purpose = RN_PURPOSE_WEIGHTS;
    begin_trace("spill");
    EVENTS(1, memory(RN_TRACE_ALLOC, 10, 0x1000, 5), other, memory(RN_TRACE_FREE, 30, 0x1000, 5),
           other_free);
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(t->alloc_count, 2);
    assert_int_equal(t->allocs[0].end_ns, 30);
    assert_int_equal(t->allocs[1].end_ns, 40);
    rn_timeline_destroy(t);
}

static void a_block_may_be_named_later(void **state) {
    (void)state;
    rn_trace_event relabel = memory(RN_TRACE_ALLOC, 20, 0x1000, 0);
    relabel.flags = RN_PROFILE_RELABEL;
    relabel.purpose = RN_PURPOSE_GRADIENTS;
    relabel.name = 1;
    begin_trace("spill");
    trace_name(&maker, 1, "conv1.weight", "", "");
    EVENTS(1, memory(RN_TRACE_ALLOC, 10, 0x1000, 5), relabel, memory(RN_TRACE_FREE, 30, 0x1000, 5));
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(t->alloc_count, 1);
    assert_int_equal(t->allocs[0].purpose, RN_PURPOSE_GRADIENTS);
    assert_string_equal(t->names[t->allocs[0].name].name, "conv1.weight");
    assert_int_equal(t->allocs[0].end_ns, 30);
    rn_timeline_destroy(t);
}

static void releases_of_what_was_held_before_come_off_it(void **state) {
    (void)state;
    begin_trace("spill");
    EVENTS(1, memory(RN_TRACE_ALLOC, 0, 1, 1000), memory(RN_TRACE_ALLOC, 0, 2, 300),
           memory(RN_TRACE_FREE, 50, 0x7000, 300),   // one of them, as it is
           memory(RN_TRACE_FREE, 60, 0x8000, 400),   // a part of the other
           memory(RN_TRACE_FREE, 70, 0x9000, 9000)); // more than there is
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(rn_timeline_level_at(t, 0, 0).reserved_bytes, 1300);
    assert_int_equal(rn_timeline_level_at(t, 0, 50).reserved_bytes, 1000);
    assert_int_equal(rn_timeline_level_at(t, 0, 60).reserved_bytes, 600);
    assert_int_equal(rn_timeline_level_at(t, 0, 70).reserved_bytes, 0);
    assert_true(has_note(t, "1 releases of blocks that were not seen"));
    rn_timeline_destroy(t);
}

static void charges_without_an_address_come_and_go(void **state) {
    (void)state;
    begin_trace("spill");
    EVENTS(1, memory(RN_TRACE_ALLOC, 10, 0, 100), memory(RN_TRACE_ALLOC, 20, 0, 50),
           memory(RN_TRACE_FREE, 30, 0, 100), memory(RN_TRACE_FREE, 40, 0, 20));
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(rn_timeline_level_at(t, 0, 20).reserved_bytes, 150);
    assert_int_equal(rn_timeline_level_at(t, 0, 30).reserved_bytes, 50);
    assert_int_equal(rn_timeline_level_at(t, 0, 40).reserved_bytes, 30);
    for (uint32_t i = 0; i < t->alloc_count; i++)
        assert_int_equal(t->allocs[i].parent, RN_NO_INDEX);
    rn_timeline_destroy(t);
}

static void many_charges_without_address_do_not_hide_what_was_there_before(void **state) {
    (void)state;
    rn_trace_event events[100] = {memory(RN_TRACE_ALLOC, 0, 1, 1000)};
    for (uint64_t i = 1; i < 99; i++)
        events[i] = memory(RN_TRACE_ALLOC, i, 0, 10);
    events[99] = memory(RN_TRACE_FREE, 100, 0x7000, 1000);
    begin_trace("spill");
    trace_events(&maker, 1, events, 100);
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(rn_timeline_level_at(t, 0, 99).reserved_bytes, 1980);
    assert_int_equal(rn_timeline_level_at(t, 0, 100).reserved_bytes, 980);
    assert_int_equal(t->note_count, 0);
    rn_timeline_destroy(t);
}

static void operations_without_an_end_are_cut_at_their_lanes_last_event(void **state) {
    (void)state;
    begin_trace("spill");
    trace_name(&maker, 1, "outer", "", "");
    trace_name(&maker, 2, "inner", "", "");
    EVENTS(1, plain(RN_TRACE_BEGIN, 10, 1), plain(RN_TRACE_BEGIN, 20, 2),
           memory(RN_TRACE_ALLOC, 30, 0x1000, 5));
    EVENTS(2, plain(RN_TRACE_FINISH, 90, 0)); // whose begin was lost
    rn_timeline *t = read_made();
    assert_int_equal(t->op_count, 2);
    assert_int_equal(t->ops[0].end_ns, 30);
    assert_true(t->ops[0].unfinished && t->ops[1].unfinished);
    assert_int_equal(t->ops[1].depth, 1);
    assert_int_equal(t->allocs[0].op, 1);
    assert_true(has_note(t, "was not ended"));
    rn_timeline_destroy(t);
}

static void torch_counters_become_operations(void **state) {
    (void)state;
    rn_trace_event calls = {.time_ns = 1,
                            .kind = RN_TRACE_COUNTER,
                            .name = 1,
                            .bytes = 3,
                            .purpose = RN_COUNTER_TORCH_CALLS};
    rn_trace_event again = calls, bytes = calls;
    again.bytes = 7;
    bytes.purpose = RN_COUNTER_TORCH_CPU_BYTES;
    bytes.bytes = (uint64_t)-64;
    begin_trace("spill");
    trace_name(&maker, 1, "aten::mm", "", "[[2, 3]]");
    EVENTS(1, calls, bytes, again);
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(t->torch_op_count, 1);
    assert_int_equal(t->torch_ops[0].count, 7);
    assert_int_equal(t->torch_ops[0].cpu_bytes, -64);
    assert_int_equal(t->counter_count, 0);
    rn_timeline_destroy(t);
}

// A file of a version with fewer purposes: the number behind its last one is the peak's.
static void purposes_are_those_that_the_file_names(void **state) {
    (void)state;
    const char text[] = "{\"format\": \"ration trace\", \"version\": 1, \"mode\": \"spill\", "
                        "\"purposes\": [\"kv\", \"weights\"]}";
    maker = (trace_maker){0};
    trace_block(&maker, RN_TRACE_PREAMBLE, 0, text, sizeof text - 1);
    trace_total(&maker, 0, 2, 777, 0);
    rn_trace_event alloc = memory(RN_TRACE_ALLOC, 10, 0x10000, 100);
    alloc.purpose = 0;
    EVENTS(1, alloc);
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(777, t->counted_peaks[0].bytes);
    assert_int_equal(RN_PURPOSE_KV, t->allocs[0].purpose);
    rn_timeline_destroy(t);
}

// ---- rings --------------------------------------------------------------------------------------

// Two laps: the second one has overwritten the first blocks of the first.
static void make_ring(void) {
    maker = (trace_maker){0};
    trace_preamble(&maker, "ring");
    size_t first = maker.bytes;
    for (uint64_t i = 0; i < 8; i++, maker.round++) { // each round allocates 100 bytes
        trace_total(&maker, 0, RN_PURPOSE_KV, i * 100, i);
        EVENTS(1, memory(RN_TRACE_ALLOC, 1000 * (i + 1), 0x10000 * (i + 1), 100));
    }
    size_t end = maker.bytes;
    maker.bytes = first;
    trace_total(&maker, 0, RN_PURPOSE_KV, 800, 8);
    trace_name(&maker, 1, "a name that makes the lap's blocks longer than those before it", "", "");
    EVENTS(1, memory(RN_TRACE_FREE, 9000, 0x10000 * 8, 100),
           memory(RN_TRACE_FREE, 9100, 0x10000, 100));
    maker.bytes = end;
}

static void a_ring_begins_with_the_totals_of_its_first_whole_round(void **state) {
    (void)state;
    make_ring();
    rn_timeline *t = read_made();
    assert_string_equal(t->mode, "ring");
    assert_true(has_note(t, "overwritten"));
    assert_false(has_note(t, "damaged"));
    uint64_t kept = t->allocs[0].begin_ns; // all that is known of the time before
    assert_true(t->allocs[0].before);
    assert_int_equal(rn_timeline_level_at(t, 0, kept).reserved_bytes, kept / 1000 * 100);
    assert_int_equal(rn_timeline_level_at(t, 0, 8500).reserved_bytes, 800);
    assert_int_equal(rn_timeline_level_at(t, 0, 9000).reserved_bytes, 700);
    assert_int_equal(rn_timeline_level_at(t, 0, 9100).reserved_bytes, 600);
    rn_timeline_destroy(t);
}

// ---- damage -------------------------------------------------------------------------------------

static void a_trace_cut_at_any_byte_is_read_up_to_there(void **state) {
    (void)state;
    trace_small_run(&maker);
    uint32_t most = 0;
    for (size_t bytes = 0; bytes <= maker.bytes; bytes++) {
        rn_timeline *t = NULL;
        uint8_t *copy = malloc(bytes + 1); // so that reading past the end is seen
        memcpy(copy, maker.data, bytes);
        rn_status s = read_bytes(copy, bytes, &t);
        free(copy);
        if (s != RN_OK) {
            assert_int_equal(s, RN_CORRUPT);
            assert_true(bytes < 320); // no whole preamble
            continue;
        }
        assert_true(t->alloc_count >= most);
        most = t->alloc_count;
        if (bytes + RN_TRACE_ALIGN < maker.bytes) assert_true(has_note(t, "was not ended"));
        rn_timeline_destroy(t);
    }
    assert_int_equal(most, 5);
}

static void a_flipped_bit_costs_one_block(void **state) {
    (void)state;
    trace_small_run(&maker);
    for (size_t at = 0; at < maker.bytes; at += 5) {
        rn_timeline *t = NULL;
        maker.data[at] ^= 1u << at % 8;
        assert_ok(read_bytes(maker.data, maker.bytes, &t));
        assert_true(t->event_count >= 10); // the other block of events
        rn_timeline_destroy(t);
        maker.data[at] ^= 1u << at % 8;
    }
}

static void garbage_between_blocks_is_skipped(void **state) {
    (void)state;
    begin_trace("spill");
    EVENTS(1, memory(RN_TRACE_ALLOC, 10, 0x1000, 5));
    for (int i = 0; i < 64 * 5; i++)
        maker.data[maker.bytes++] = (uint8_t)(i * 37 + 11);
    memcpy(maker.data + maker.bytes - 64, RN_TRACE_MAGIC, 8); // as if a header
    EVENTS(1, memory(RN_TRACE_FREE, 20, 0x1000, 5));
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_int_equal(t->allocs[0].end_ns, 20);
    assert_true(has_note(t, "1 stretch of the file was damaged"));
    rn_timeline_destroy(t);
}

static void a_file_without_blocks_is_corrupt(void **state) {
    (void)state;
    rn_timeline *t = NULL;
    memset(maker.data, 0x5a, 4096);
    assert_fails(RN_CORRUPT, rn_trace_read("x", maker.data, 4096, &t));
    assert_fails(RN_CORRUPT, rn_trace_read("x", maker.data, 0, &t));
    rn_trace_block later = {.version = RN_TRACE_VERSION + 1};
    memcpy(later.magic, RN_TRACE_MAGIC, sizeof later.magic);
    memcpy(maker.data, &later, sizeof later);
    assert_fails(RN_UNSUPPORTED, rn_trace_read("x", maker.data, 4096, &t));
    assert_null(t);
}

// ---- hostile fields -----------------------------------------------------------------------------

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t odd_number(uint64_t *seed) {
    static const uint64_t odd[] = {0,          1,         2,          UINT64_MAX, UINT64_MAX - 1,
                                   UINT32_MAX, INT64_MAX, 0x10000,    0x10010,    0x20000,
                                   1u << 20,   4096,      1ull << 62, 1ull << 48, 1ull << 47};
    return odd[next_random(seed) % (sizeof odd / sizeof *odd)];
}

static void hostile_fields_do_no_harm(void **state) {
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (int trial = 0; trial < 150; trial++) {
        rn_trace_event events[300];
        trace_small_run(&maker);
        for (size_t i = 0; i < 300; i++)
            events[i] = (rn_trace_event){odd_number(&seed),
                                         odd_number(&seed),
                                         odd_number(&seed),
                                         (uint32_t)odd_number(&seed),
                                         (uint8_t)(next_random(&seed) % 11),
                                         (uint8_t)odd_number(&seed),
                                         (uint8_t)next_random(&seed),
                                         (uint8_t)next_random(&seed)};
        trace_events(&maker, (uint32_t)odd_number(&seed), events, 300);
        trace_total(&maker, (uint32_t)odd_number(&seed), RN_PURPOSE_COUNT, odd_number(&seed), 1);
        trace_events(&maker, 1, events, 150);
        rn_timeline *t = read_made();
        rn_timeline_walk walk;
        rn_timeline_walk_begin(&walk, t, RN_DEVICE_ANY);
        while (rn_timeline_walk_next(&walk))
            assert_true(walk.level.count <= t->alloc_count);
        for (uint32_t i = 0; i < t->op_count; i++)
            assert_true(t->ops[i].parent == RN_NO_INDEX || t->ops[i].parent < i);
        rn_timeline_destroy(t);
    }
}

static void hostile_records_do_no_harm(void **state) {
    (void)state;
    const uint32_t records[] = {UINT32_MAX, UINT32_MAX, 0, 0, 7, 2, 0x41414141, 0, 0, 3};
    for (uint32_t kind = RN_TRACE_PREAMBLE; kind <= RN_TRACE_END; kind++)
        for (size_t bytes = 0; bytes <= sizeof records; bytes++) {
            trace_small_run(&maker);
            trace_block(&maker, (rn_trace_block_kind)kind, UINT32_MAX, records, bytes);
            rn_timeline_destroy(read_made());
        }
}

// A number is no reason to allocate: the whole file is a few KiB.
static void memory_stays_in_proportion_to_the_file(void **state) {
    (void)state;
    trace_small_run(&maker);
    trace_name(&maker, UINT32_MAX, "far away", "", "");
    trace_lane(&maker, UINT32_MAX, false, "far away");
    EVENTS(UINT32_MAX, memory(RN_TRACE_ALLOC, 10, 0x1000, 5));
    rn_ledger_reset_peaks();
    uint64_t held = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
    rn_timeline_destroy(read_made());
    uint64_t peak = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).peak_bytes;
    assert_true(peak - held < 512 << 10);
}

static void reading_survives_every_refused_allocation(void **state) {
    (void)state;
    make_ring();
    uint64_t held = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_timeline *t = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = read_bytes(maker.data, maker.bytes, &t);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s != RN_OK, fired);
        rn_timeline_destroy(t);
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes, held);
    }
}

// ---- files --------------------------------------------------------------------------------------

static rn_status open_with(const void *data, size_t bytes) {
    rn_timeline *t = NULL;
    const char *path = test_path("x.rntrace");
    test_write(path, data, bytes);
    rn_status s = rn_timeline_open(path, &t);
    rn_timeline_destroy(t);
    return s;
}

static void files_that_are_no_profile_are_refused_with_advice(void **state) {
    (void)state;
    rn_timeline *t = NULL;
    assert_fails(RN_NOT_FOUND, rn_timeline_open(test_path("missing"), &t));
    assert_int_not_equal(rn_timeline_open(test_folder(), &t), RN_OK);
    assert_null(t);
    assert_fails(RN_CORRUPT, open_with("", 0));
    assert_string_equal(rn_last_error()->message, "the file is empty");
    assert_true(rn_last_error()->hint[0]);
    assert_fails(RN_CORRUPT, open_with("hello, world", 12));
    assert_non_null(strstr(rn_last_error()->hint, ".rntrace"));
    assert_fails(RN_CORRUPT, open_with("PK\3\4....", 8));
    assert_non_null(strstr(rn_last_error()->hint, "ZIP"));
    assert_fails(RN_CORRUPT, open_with(RN_TRACE_MAGIC, 8));
    assert_non_null(strstr(rn_last_error()->path, "x.rntrace"));
}

static void a_huge_sparse_file_is_refused_at_once(void **state) {
    (void)state;
    rn_timeline *t = NULL;
    const char *path = test_path("sparse");
    test_write(path, "", 0);
    assert_int_equal(truncate(path, (off_t)10 << 30), 0);
    assert_fails(RN_CORRUPT, rn_timeline_open(path, &t));
    test_write(path, "{", 1); // as if it could be one
    assert_int_equal(truncate(path, (off_t)1 << 42), 0);
    assert_fails(RN_OVER_BUDGET, rn_timeline_open(path, &t));
    assert_null(t);
}

static void a_trace_is_opened_by_what_it_holds(void **state) {
    (void)state;
    rn_timeline *t = NULL;
    trace_small_run(&maker);
    maker.data[3] ^= 1; // the first block is damaged
    const char *path = test_path("whatever.bin");
    test_write(path, maker.data, maker.bytes);
    assert_ok(rn_timeline_open(path, &t));
    assert_int_equal(t->alloc_count, 5);
    assert_string_equal(t->path, path);
    rn_timeline_destroy(t);
}

static void a_recording_under_way_is_read_as_far_as_it_is(void **state) {
    (void)state;
    rn_timeline *t = NULL;
    void *block = NULL;
    const char *path = test_path("live.rntrace");
    assert_ok(rn_profile_start(&(rn_profile_options){.path = path, .leave_signals = true}));
    assert_ok(rn_alloc(RN_HOST_STAGING, 4321, &block));
    rn_profile_flush();
    assert_ok(rn_timeline_open(path, &t));
    assert_true(has_note(t, "still running"));
    assert_int_equal(rn_timeline_peak(t, 0).purpose_bytes[RN_PURPOSE_STAGING], 4321);
    rn_timeline_destroy(t);
    rn_free(RN_HOST_STAGING, block, 4321);
    assert_ok(rn_profile_stop());
    assert_ok(rn_timeline_open(path, &t));
    assert_true(t->has_end);
    assert_int_equal(t->note_count, 0);
    assert_int_equal(rn_timeline_level_at(t, 0, t->end_ns).purpose_bytes[RN_PURPOSE_STAGING], 0);
    assert_int_equal(rn_timeline_peak(t, 0).reserved_bytes, t->counted_peaks[0].bytes);
    rn_timeline_destroy(t);
}

static void a_read_that_fails_is_an_io_error(void **state) {
    (void)state;
    trace_small_run(&maker);
    for (uint64_t n = 1; n <= 2; n++) {
        rn_fault_arm(RN_FAULT_READ, n);
        assert_fails(RN_IO, open_with(maker.data, maker.bytes));
    }
    rn_fault_arm(RN_FAULT_READ, 0);
}

static void blocks_that_are_missing_without_a_hole_are_noted(void **state) {
    (void)state;
    begin_trace("spill");
    EVENTS(1, memory(RN_TRACE_ALLOC, 10, 0x1000, 5));
    maker.sequence += 3;
    EVENTS(1, memory(RN_TRACE_ALLOC, 30, 0x2000, 6));
    trace_end(&maker);
    rn_timeline *t = read_made();
    assert_true(has_note(t, "3 blocks of events or names are missing"));
    assert_int_equal(t->alloc_count, 2);
    rn_timeline_destroy(t);
}

// Each header claims all that is behind it, with a wrong sum: to sum them all would take as long as
// the square of the file's size.
static void headers_that_overlap_are_refused(void **state) {
    (void)state;
    static uint8_t data[1 << 16];
    static const uint8_t other[sizeof data];
    for (size_t at = 0; at < sizeof data; at += RN_TRACE_ALIGN) {
        rn_trace_block block = {.kind = RN_TRACE_EVENTS,
                                .payload_bytes = (uint32_t)(sizeof data - at - sizeof block)};
        rn_trace_seal(&block, other);
        memcpy(data + at, &block, sizeof block);
    }
    rn_timeline *t = NULL;
    assert_fails(RN_CORRUPT, read_bytes(data, sizeof data, &t));
    assert_non_null(strstr(rn_last_error()->message, "overlap"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_trace_is_read_with_all_it_has),
        cmocka_unit_test(lanes_are_merged_by_time),
        cmocka_unit_test(events_at_one_time_keep_their_order),
        cmocka_unit_test(a_block_whose_release_was_lost_ends_at_the_next_one),
        cmocka_unit_test(purposes_share_an_address),
        cmocka_unit_test(purposes_are_those_that_the_file_names),
        cmocka_unit_test(a_block_may_be_named_later),
        cmocka_unit_test(releases_of_what_was_held_before_come_off_it),
        cmocka_unit_test(charges_without_an_address_come_and_go),
        cmocka_unit_test(many_charges_without_address_do_not_hide_what_was_there_before),
        cmocka_unit_test(headers_that_overlap_are_refused),
        cmocka_unit_test(blocks_that_are_missing_without_a_hole_are_noted),
        cmocka_unit_test(operations_without_an_end_are_cut_at_their_lanes_last_event),
        cmocka_unit_test(torch_counters_become_operations),
        cmocka_unit_test(a_ring_begins_with_the_totals_of_its_first_whole_round),
        cmocka_unit_test(a_trace_cut_at_any_byte_is_read_up_to_there),
        cmocka_unit_test(a_flipped_bit_costs_one_block),
        cmocka_unit_test(garbage_between_blocks_is_skipped),
        cmocka_unit_test(a_file_without_blocks_is_corrupt),
        cmocka_unit_test(hostile_fields_do_no_harm),
        cmocka_unit_test(hostile_records_do_no_harm),
        cmocka_unit_test(memory_stays_in_proportion_to_the_file),
        cmocka_unit_test(reading_survives_every_refused_allocation),
        cmocka_unit_test(files_that_are_no_profile_are_refused_with_advice),
        cmocka_unit_test(a_huge_sparse_file_is_refused_at_once),
        cmocka_unit_test(a_trace_is_opened_by_what_it_holds),
        cmocka_unit_test(a_recording_under_way_is_read_as_far_as_it_is),
        cmocka_unit_test(a_read_that_fails_is_an_io_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
