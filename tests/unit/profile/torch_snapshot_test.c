// PyTorch's memory snapshots: tests/python/make_torch_snapshot.py says what happens in the files.
#include "support.h"

#include <ration/memory.h>

#include "base/buffer.h"
#include "base/fault.h"
#include "profile/timeline.h"

#define MIB    ((uint64_t)1 << 20)
#define CORPUS "tests/fuzz/corpus/torch_snapshot/"

static rn_timeline *open_file(const char *name) {
    char path[128];
    rn_timeline *t;
    snprintf(path, sizeof path, CORPUS "%s", name);
    size_t bytes;
    void *file = test_read(path, &bytes);
    assert_ok(rn_torch_snapshot_read(path, file, bytes, &t));
    free(file);
    assert_ok(rn_timeline_finish(t));
    return t;
}

static rn_status read_bytes(const void *data, size_t bytes) {
    rn_timeline *t;
    rn_status s = rn_torch_snapshot_read("test", data, bytes, &t);
    if (s == RN_OK) s = rn_timeline_finish(t);
    rn_timeline_destroy(t);
    return s;
}

static uint64_t most_active(const rn_timeline *t, uint8_t device) {
    uint64_t most = 0;
    rn_timeline_walk walk;
    rn_timeline_walk_begin(&walk, t, device);
    while (rn_timeline_walk_next(&walk))
        if (walk.level.active_bytes > most) most = walk.level.active_bytes;
    return most;
}

static const rn_timeline_alloc *find_bytes(const rn_timeline *t, uint64_t bytes) {
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].bytes == bytes) return &t->allocs[i];
    fail_msg("no block of %llu bytes", (unsigned long long)bytes);
    return NULL;
}

// ---- what is in it ------------------------------------------------------------------------------

static void every_protocol_gives_the_same_timeline(void **state) {
    (void)state;
    for (int protocol = 0; protocol <= 5; protocol++) {
        char name[64];
        snprintf(name, sizeof name, "protocol_%d.pickle", protocol);
        rn_timeline *t = open_file(name);
        assert_string_equal(t->format, "torch snapshot");
        assert_int_equal(t->device_count, 2);
        assert_string_equal(t->devices[0].name, "cuda:0");
        assert_string_equal(t->devices[1].name, "cuda:1");
        assert_int_equal(t->event_count, 15 + 6);
        assert_int_equal(t->start_unix_ns, 1700000000000000000);
        rn_timeline_level peak = rn_timeline_peak(t, 0);
        assert_int_equal(peak.reserved_bytes, 24 * MIB);
        assert_int_equal(most_active(t, 0), 10 * MIB + 300000 + 1024 + 2048);
        rn_timeline_level end = rn_timeline_level_at(t, 0, t->end_ns);
        assert_int_equal(end.reserved_bytes, 4 * MIB);
        assert_int_equal(end.active_bytes, 300000 + 1024 + 2048);
        assert_int_equal(end.purpose_bytes[RN_PURPOSE_WEIGHTS], 1024);
        assert_int_equal(end.purpose_bytes[RN_PURPOSE_OPTIMIZER], 2048);
        rn_timeline_destroy(t);
    }
}

static void what_was_there_before_begins_at_the_beginning(void **state) {
    (void)state;
    rn_timeline *t = open_file("protocol_4.pickle");
    rn_timeline_level begin = rn_timeline_level_at(t, 0, 0);
    assert_int_equal(begin.reserved_bytes, 2 * MIB);
    assert_int_equal(begin.active_bytes, 300000 + 512);
    const rn_timeline_alloc *freed = find_bytes(t, 512), *held = find_bytes(t, 300000);
    assert_true(freed->before && freed->inner && freed->end_ns == 1000);
    assert_true(held->before && held->inner && held->end_ns == RN_STILL_LIVE);
    assert_true(held->parent != RN_NO_INDEX && t->allocs[held->parent].bytes == 2 * MIB);
    assert_true(freed->parent == held->parent);
    rn_timeline_destroy(t);
}

static void blocks_are_named_after_the_place_that_asked(void **state) {
    (void)state;
    rn_timeline *t = open_file("protocol_4.pickle");
    const rn_timeline_alloc *weight = find_bytes(t, 1024), *activation = find_bytes(t, 4096);
    assert_string_equal(t->names[weight->name].name, "forward (model.py:12)");
    assert_int_equal(strncmp(t->names[weight->name].detail, "forward (/home/me/model.py:12)", 30),
                     0);
    assert_non_null(strstr(t->names[weight->name].detail, " < <module> (/home/me/train.py:40)"));
    assert_string_equal(t->names[activation->name].group, "layer 1");
    assert_int_equal(activation->purpose, RN_PURPOSE_ACTIVATIONS);
    assert_int_equal(activation->begin_ns, 4000);
    assert_int_equal(activation->end_ns, 6000);
    assert_string_equal(t->lanes[weight->lane].name, "cuda:0 stream 0");
    assert_true(t->lanes[weight->lane].is_queue);
    rn_timeline_destroy(t);
}

static void running_out_of_memory_is_marked(void **state) {
    (void)state;
    rn_timeline *t = open_file("protocol_4.pickle");
    assert_int_equal(t->mark_count, 2);
    assert_int_equal(t->marks[0].kind, RN_MARK_NO_MEMORY);
    assert_int_equal(t->marks[0].bytes, (uint64_t)1 << 30);
    assert_non_null(strstr(t->names[t->marks[0].name].detail, "free"));
    assert_int_equal(t->marks[1].kind, RN_MARK_CHECKPOINT);
    rn_timeline_destroy(t);
}

static void ranges_of_an_expandable_segment_end_where_they_are_unmapped(void **state) {
    (void)state;
    rn_timeline *t = open_file("protocol_4.pickle");
    rn_timeline_level peak = rn_timeline_peak(t, 1);
    assert_int_equal(peak.reserved_bytes, 6 * MIB);
    assert_int_equal(most_active(t, 1), 5 * MIB);
    rn_timeline_level end = rn_timeline_level_at(t, 1, t->end_ns);
    assert_int_equal(end.reserved_bytes, 4 * MIB);
    assert_int_equal(end.active_bytes, 0);
    for (uint32_t i = 0; i < t->alloc_count; i++)
        assert_false(t->allocs[i].device == 1 && t->allocs[i].before);
    rn_timeline_destroy(t);
}

static void annotations_nest_or_have_lanes_of_their_own(void **state) {
    (void)state;
    rn_timeline *t = open_file("protocol_4.pickle");
    assert_int_equal(t->op_count, 4);
    assert_string_equal(t->names[t->ops[0].name].name, "step");
    assert_int_equal(t->ops[0].end_ns - t->ops[0].begin_ns, 9000);
    assert_string_equal(t->names[t->ops[1].name].name, "forward");
    assert_int_equal(t->ops[1].depth, 1);
    assert_string_equal(t->names[t->ops[2].name].name, "other thread");
    assert_true(t->ops[2].lane != t->ops[0].lane && t->ops[2].depth == 0);
    assert_int_equal(t->ops[2].end_ns - t->ops[2].begin_ns, 4000);
    assert_true(t->ops[3].unfinished);
    rn_timeline_destroy(t);
}

static void what_is_missing_is_said(void **state) {
    (void)state;
    rn_timeline *t = open_file("protocol_4.pickle");
    assert_non_null(strstr(t->notes[0], "newest 100000 events"));
    rn_timeline_destroy(t);
    t = open_file("no_times.pickle");
    assert_non_null(strstr(t->notes[1], "no times"));
    assert_int_equal(find_bytes(t, 4096)->end_ns - find_bytes(t, 4096)->begin_ns, 2000);
    assert_int_equal(rn_timeline_peak(t, 0).reserved_bytes, 24 * MIB);
    rn_timeline_destroy(t);
}

static void segments_without_history_are_what_is_held(void **state) {
    (void)state;
    static const char *const names[] = {"segments_only.pickle", "no_traces.pickle"};
    for (size_t i = 0; i < 2; i++) {
        rn_timeline *t = open_file(names[i]);
        assert_int_equal(rn_timeline_peak(t, 0).reserved_bytes, 4 * MIB);
        assert_int_equal(rn_timeline_peak(t, 0).active_bytes, 300000 + 1024 + 2048);
        assert_int_equal(rn_timeline_peak(t, 1).reserved_bytes, 4 * MIB);
        assert_non_null(strstr(t->notes[0], "no history"));
        rn_timeline_destroy(t);
    }
}

// What ration writes for torch's viewer, ration reads. (On device 1 a block lies across two ranges:
// the viewer knows no such thing, so it is written as a segment of its own.)
static void our_own_export_has_the_same_peaks(void **state) {
    (void)state;
    rn_timeline *t = open_file("protocol_4.pickle"), *again;
    rn_buffer file;
    rn_buffer_init(&file, &rn_system_allocator, 1 << 20);
    assert_ok(rn_timeline_export(t, RN_EXPORT_TORCH, rn_buffer_sink(&file)));
    assert_ok(rn_torch_snapshot_read("export", (const uint8_t *)file.data, file.bytes, &again));
    assert_ok(rn_timeline_finish(again));
    assert_int_equal(rn_timeline_peak(again, 0).reserved_bytes, 24 * MIB);
    assert_int_equal(most_active(again, 0), most_active(t, 0));
    assert_int_equal(most_active(again, 1), most_active(t, 1));
    rn_buffer_free(&file);
    rn_timeline_destroy(again);
    rn_timeline_destroy(t);
}

// ---- what is refused ----------------------------------------------------------------------------

static void other_pickles_are_no_snapshots(void **state) {
    (void)state;
    static const char *const cases[] = {
        "N.", "}.", "].", "]K\1a.", "K\7.", "}V\nI1\ns.", "}Vsegments\nI1\ns.", "](}}e."};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_fails(RN_CORRUPT, read_bytes(cases[i], strlen(cases[i])));
        assert_non_null(strstr(rn_last_error()->message, "no memory snapshot"));
        assert_true(rn_last_error()->hint[0]);
    }
    assert_fails(RN_UNSUPPORTED, read_bytes("cos\nsystem\n(Vid\ntR.", 18));
}

// Values of any type in the place of any other are passed over.
static void wrong_types_are_passed_over(void **state) {
    (void)state;
    static const char *const cases[] = {
        "}Vdevice_traces\n](I1\nN]]](I1\nN}ees.",
        "}Vdevice_traces\n](](}(Vaction\nI1\nVaddr\nVx\nVsize\nI-5\nVframes\nI7\nuees.",
        "}Vdevice_traces\n](](}(Vaction\nValloc\nVframes\n](NI1\n}euees.",
        "}(Vsegments\n](NI1\n}(Vblocks\nI1\nu}(Vdevice\nVx\nVblocks\n](N]}eueVallocator_"
        "settings\nI1\n"
        "Vexternal_annotations\n](N}}(Vname\nI1\nVstage\nVSTART\nueu.",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rn_status s = read_bytes(cases[i], strlen(cases[i]));
        if (s != RN_OK) fail_msg("case %zu: %s", i, rn_last_error()->message);
    }
}

static size_t append(char *to, size_t at, const char *text) {
    memcpy(to + at, text, strlen(text));
    return at + strlen(text);
}

// A thousand segments that are one and the same, with a thousand blocks that are one and the same:
// a million blocks in some kilobytes.
static void a_snapshot_that_repeats_itself_is_refused(void **state) {
    (void)state;
    enum { TIMES = 3000 };
    char *data = malloc(1 << 16);
    size_t at = append(data, 0,
                       "}Vsegments\n](}(Vdevice\nI0\nVaddress\nI4096\nVtotal_size\nI4096\n"
                       "Vblocks\n](}(Vsize\nI1\nVaddress\nI4096\nVstate\nVactive\nup1\n");
    for (int i = 0; i < TIMES; i++)
        at = append(data, at, "h\1");
    at = append(data, at, "eup2\n");
    for (int i = 0; i < TIMES; i++)
        at = append(data, at, "h\2");
    at = append(data, at, "es.");
    assert_fails(RN_CORRUPT, read_bytes(data, at));
    assert_non_null(strstr(rn_last_error()->message, "repeats itself"));
    free(data);
}

// Each of a thousand segments goes through all that are live: hundreds of thousands of blocks.
static void segments_over_segments_are_refused(void **state) {
    (void)state;
    char *data = malloc(1 << 16), line[96];
    size_t at = append(data, 0, "}(Vdevice_traces\n](](");
    for (int i = 0; i < 300; i++) {
        snprintf(line, sizeof line, "}(Vaction\nVsegment_alloc\nVaddr\nI%d\nVsize\nI1\nu",
                 4096 + 2 * i);
        at = append(data, at, line);
    }
    at =
        append(data, at, "eeVsegments\n](}(Vdevice\nI0\nVaddress\nI4096\nVtotal_size\nI600\nup1\n");
    for (int i = 0; i < 1000; i++)
        at = append(data, at, "h\1");
    at = append(data, at, "eu.");
    assert_fails(RN_CORRUPT, read_bytes(data, at));
    assert_non_null(strstr(rn_last_error()->message, "repeats itself"));
    free(data);
}

static void a_long_text_is_not_copied_for_every_frame(void **state) {
    (void)state;
    enum { LONG = 100000 };
    char *data = malloc(1 << 18), line[160];
    data[0] = 'V';
    memset(data + 1, 'x', LONG);
    size_t at = append(data, 1 + LONG, "\np1\n0}Vdevice_traces\n](](");
    for (int i = 0; i < 200; i++) {
        snprintf(line, sizeof line,
                 "}(Vaction\nValloc\nVaddr\nI%d\nVsize\nI1\nVframes\n](}(Vfilename\nh\1Vline\n"
                 "I%d\nueu",
                 4096 + i, i);
        at = append(data, at, line);
    }
    at = append(data, at, "ees.");
    rn_ledger_reset_peaks();
    assert_ok(read_bytes(data, at));
    assert_true(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).peak_bytes < 4 * MIB);
    free(data);
}

static void sizes_and_addresses_that_cannot_be_are_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        "}Vdevice_traces\n](](}("
        "Vaction\nValloc\nVaddr\nI18446744073709551615\nVsize\nI4096\nuees.",
        "}Vdevice_traces\n](](}(Vaction\nVsegment_"
        "unmap\nVaddr\nI18446744073709551615\nVsize\nI4096\nuees.",
        "}Vdevice_traces\n](](}(Vaction\nValloc\nVaddr\nI1\nVsize\nI9223372036854775807\nuees.",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_fails(RN_CORRUPT, read_bytes(cases[i], strlen(cases[i])));
        assert_null(strstr(rn_last_error()->message, "pickle:"));
    }
}

static void a_failing_allocation_leaves_nothing(void **state) {
    (void)state;
    size_t bytes;
    void *file = test_read(CORPUS "protocol_4.pickle", &bytes);
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = read_bytes(file, bytes);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
    free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_protocol_gives_the_same_timeline),
        cmocka_unit_test(what_was_there_before_begins_at_the_beginning),
        cmocka_unit_test(blocks_are_named_after_the_place_that_asked),
        cmocka_unit_test(running_out_of_memory_is_marked),
        cmocka_unit_test(ranges_of_an_expandable_segment_end_where_they_are_unmapped),
        cmocka_unit_test(annotations_nest_or_have_lanes_of_their_own),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(segments_without_history_are_what_is_held),
        cmocka_unit_test(our_own_export_has_the_same_peaks),
        cmocka_unit_test(other_pickles_are_no_snapshots),
        cmocka_unit_test(wrong_types_are_passed_over),
        cmocka_unit_test(a_snapshot_that_repeats_itself_is_refused),
        cmocka_unit_test(segments_over_segments_are_refused),
        cmocka_unit_test(a_long_text_is_not_copied_for_every_frame),
        cmocka_unit_test(sizes_and_addresses_that_cannot_be_are_refused),
        cmocka_unit_test(a_failing_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
