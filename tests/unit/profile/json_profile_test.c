// JSON memory profiles: the documented form, pie's own, and files that lack or twist anything.
#include "json_check.h"
#include "support.h"

#include <ration/memory.h>

#include "base/buffer.h"
#include "base/fault.h"
#include "profile/foreign/foreign.h"
#include "profile/timeline.h"

#define MIB    ((uint64_t)1 << 20)
#define CORPUS "tests/fuzz/corpus/json_profile/"
#define SECOND ((uint64_t)1000000000)

static rn_status read_into(const char *text, size_t bytes, rn_timeline **out) {
    rn_status s = rn_json_profile_read("test", (const uint8_t *)text, bytes, out);
    if (s == RN_OK) s = rn_timeline_finish(*out);
    if (s == RN_OK) return s;
    rn_timeline_destroy(*out);
    *out = NULL;
    return s;
}

static rn_timeline *read_text(const char *text) {
    rn_timeline *t;
    assert_ok(read_into(text, strlen(text), &t));
    return t;
}

static rn_timeline *read_file(const char *path) {
    size_t bytes;
    rn_timeline *t;
    char *text = test_read(path, &bytes);
    assert_ok(read_into(text, bytes, &t));
    free(text);
    return t;
}

static uint64_t total_at(const rn_timeline *t, uint32_t mark) {
    return rn_timeline_level_at(t, RN_DEVICE_ANY, t->marks[mark].time_ns).reserved_bytes;
}

static int device_named(const rn_timeline *t, const char *name) {
    for (uint32_t i = 0; i < t->device_count; i++)
        if (strcmp(t->devices[i].name, name) == 0) return (int)i;
    return -1;
}

static bool has_note(const rn_timeline *t, const char *part) {
    for (uint32_t i = 0; i < t->note_count; i++)
        if (strstr(t->notes[i], part)) return true;
    return false;
}

// ---- forms --------------------------------------------------------------------------------------

static void the_documented_form_is_read(void **state) {
    (void)state;
    rn_timeline *t = read_file(CORPUS "seed.json");
    int mps = device_named(t, "mps"), other = device_named(t, "other");
    assert_string_equal(t->format, "memory profile");
    assert_int_equal(t->mark_count, 2);
    assert_int_equal(total_at(t, 0), 2147483648);
    assert_int_equal(total_at(t, 1), 600 * MIB);
    assert_true(mps >= 0 && other >= 0);
    assert_int_equal(rn_timeline_level_at(t, (uint8_t)mps, 0).reserved_bytes, 2000 * MIB);
    assert_int_equal(rn_timeline_level_at(t, (uint8_t)other, 0).reserved_bytes, 48 * MIB);
    assert_int_equal(t->marks[1].time_ns, 5 * SECOND);
    assert_int_equal(t->marks[0].kind, RN_MARK_CHECKPOINT);
    assert_string_equal(t->names[t->marks[0].name].name, "model_forward_pre");
    assert_int_equal(t->start_unix_ns, 1736764185 * SECOND);
    const rn_timeline_alloc *tensor = NULL;
    for (uint32_t i = 0; i < t->alloc_count; i++)
        if (t->allocs[i].bytes == 512 * MIB) tensor = &t->allocs[i];
    assert_non_null(tensor);
    assert_int_equal(tensor->end_ns, RN_STILL_LIVE); // both snapshots list it: it is one
    assert_string_equal(t->names[tensor->name].name, "model_forward");
    assert_string_equal(t->names[tensor->name].detail, "torch.float16 [10240, 2, 16, 8, 128]");
    rn_timeline_destroy(t);
}

static void operations_without_durations_are_moments(void **state) {
    (void)state;
    rn_timeline *t = read_file(CORPUS "seed.json");
    assert_int_equal(t->op_count, 1);
    assert_int_equal(t->ops[0].begin_ns, t->ops[0].end_ns);
    assert_string_equal(t->names[t->ops[0].name].name, "model_forward");
    assert_true(t->ops[0].told);
    assert_int_equal(t->ops[0].delta_bytes, 320 * MIB + MIB / 2);
    assert_int_equal(t->ops[0].alloc_count, 15);
    assert_int_equal(t->ops[0].pre_bytes, 2048 * MIB + MIB / 2);
    assert_true(has_note(t, "how long operations took is not in the file"));
    assert_int_equal(t->torch_op_count, 2);
    assert_string_equal(t->names[t->torch_ops[0].name].name, "aten::matmul");
    assert_string_equal(t->names[t->torch_ops[0].name].detail, "[[1, 512, 768], [768, 768]]");
    assert_int_equal(t->torch_ops[0].count, 32);
    assert_true(t->torch_ops[0].cpu_us == 125000 && t->torch_ops[0].cpu_bytes == 2621440);
    rn_timeline_destroy(t);
}

// The file lists one of twenty calls: what it says of all of them is what is reported and written
// again.
static void sums_are_the_files_own(void **state) {
    (void)state;
    char got[64];
    rn_buffer text;
    rn_timeline *t = read_file(CORPUS "seed.json");
    assert_int_equal(t->sum_count, 1);
    assert_int_equal(t->sums[0].count, 20);
    assert_int_equal(t->sums[0].delta_bytes, 6410 * MIB);
    assert_true(has_note(t, "counts 20 operations, of which 1 are listed"));
    rn_buffer_init(&text, &rn_system_allocator, SIZE_MAX / 4);
    assert_ok(rn_timeline_report_json(t, NULL, rn_buffer_sink(&text)));
    assert_true(test_json_get(text.data, text.bytes, "operations/0/count", got, sizeof got));
    assert_string_equal(got, "20");
    assert_true(test_json_get(text.data, text.bytes, "operations/0/delta_bytes", got, sizeof got));
    assert_string_equal(got, "6721372160");
    text.bytes = 0;
    assert_ok(rn_timeline_export(t, RN_EXPORT_JSON, rn_buffer_sink(&text)));
    static const char *const same[][2] = {
        {"operation_summary/model_forward/invocation_count", "20"},
        {"operation_summary/model_forward/total_memory_delta_mb", "6410"},
        {"operation_summary/model_forward/avg_memory_delta_mb", "320.5"},
        {"operation_summary/model_forward/max_memory_delta_mb", "325.2"},
        {"operation_allocations/model_forward/0/memory_delta_mb", "320.5"},
        {"operation_allocations/model_forward/0/tensor_delta", "15"},
        {"operation_allocations/model_forward/0/pre_total_mb", "2048.5"},
        {"operation_allocations/model_forward/0/post_total_mb", "2369"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        assert_true(test_json_get(text.data, text.bytes, same[i][0], got, sizeof got));
        assert_true(strtod(got, NULL) - strtod(same[i][1], NULL) < 1e-6 &&
                    strtod(same[i][1], NULL) - strtod(got, NULL) < 1e-6);
    }
    rn_buffer_free(&text);
    rn_timeline_destroy(t);
}

// What no memory has is not believed; a summary without operations is one all the same.
static void sums_that_cannot_be_are_left_out(void **state) {
    (void)state;
    rn_timeline *t = read_text(
        "{\"operation_summary\": {\"a\": {\"invocation_count\": 1e300, "
        "\"total_memory_delta_mb\": 1}, \"b\": {\"invocation_count\": 2, "
        "\"total_memory_delta_mb\": 1e18}, \"c\": {\"invocation_count\": 4, "
        "\"total_memory_delta_mb\": -8}, \"d\": [], \"e\": {\"invocation_count\": 0, "
        "\"total_memory_delta_mb\": 1}},\"operation_allocations\": {\"x\": "
        "[{\"memory_delta_mb\": 1e40}, {\"memory_delta_mb\": -2, \"tensor_delta\": -3}]}}");
    assert_int_equal(t->sum_count, 1);
    assert_int_equal(t->sums[0].delta_bytes, -8 * (int64_t)MIB);
    assert_int_equal(t->sums[0].most_delta_bytes, -2 * (int64_t)MIB);
    assert_int_equal(t->op_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        if (t->ops[i].told) {
            assert_int_equal(t->ops[i].delta_bytes, -2 * (int64_t)MIB);
            assert_int_equal(t->ops[i].free_count, 3);
        }
    assert_int_equal(t->ops[0].told + t->ops[1].told, 1);
    rn_timeline_destroy(t);
}

static void the_form_that_pie_writes_is_read(void **state) {
    (void)state;
    static const uint64_t totals[] = {5096, 7144, 5608};
    rn_timeline *t = read_file(CORPUS "pie.json");
    assert_int_equal(t->mark_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(total_at(t, i), totals[i]);
    assert_int_equal(t->marks[0].kind, RN_MARK_PERIODIC);
    assert_int_equal(t->marks[1].time_ns, 5 * SECOND + SECOND / 2);
    int cuda = device_named(t, "cuda:0");
    rn_timeline_level level = rn_timeline_level_at(t, (uint8_t)cuda, 0);
    assert_int_equal(level.purpose_bytes[RN_PURPOSE_WEIGHTS], 4096);
    assert_int_equal(t->op_count, 2); // one of operation_allocations, one of the log
    rn_timeline_destroy(t);
}

// Begins and ends lie where they were tracked, and what lived between two snapshots is there.
static void tracked_lives_are_exact(void **state) {
    (void)state;
    rn_timeline *t = read_file(CORPUS "pie.json");
    bool met = false;
    for (uint32_t i = 0; i < t->alloc_count; i++) {
        const rn_timeline_alloc *a = &t->allocs[i];
        if (a->bytes == 2048) assert_true(a->begin_ns == 2 * SECOND && a->end_ns == 7 * SECOND);
        if (a->bytes == 512) assert_true(a->begin_ns == 8 * SECOND && a->end_ns == RN_STILL_LIVE);
        if (a->bytes != 65536) continue;
        met = true;
        assert_int_equal(a->purpose, RN_PURPOSE_GRADIENTS);
        assert_int_equal(a->begin_ns, 7 * SECOND + SECOND / 4);
        assert_int_equal(a->end_ns, 7 * SECOND + SECOND / 2);
    }
    assert_true(met);
    assert_int_equal(rn_timeline_peak(t, RN_DEVICE_ANY).reserved_bytes, 5096 + 65536);
    rn_timeline_destroy(t);
}

// What is not known to have ended must not stand beside what is known to have begun.
static void begins_wait_for_the_snapshot_where_an_end_is_not_known(void **state) {
    (void)state;
    rn_timeline *t = read_text("{\"snapshots\": ["
                               "{\"timestamp\": 10, \"device_breakdown\": {\"cpu\": {\"tensors\": "
                               "[{\"tensor_id\": 1, \"size_bytes\": 100}]}}},"
                               "{\"timestamp\": 20, \"device_breakdown\": {\"cpu\": {\"tensors\": "
                               "[{\"tensor_id\": 2, \"size_bytes\": 100}]}}}],"
                               "\"tensor_lifecycle\": {\"2\": {\"size_mb\": 1, \"events\": "
                               "[{\"event_type\": \"allocated\", \"timestamp\": 15}]}}}");
    assert_int_equal(rn_timeline_peak(t, RN_DEVICE_ANY).reserved_bytes, 100);
    rn_timeline_destroy(t);
}

static void durations_and_lanes_of_our_own_exports_are_kept(void **state) {
    (void)state;
    rn_timeline *t = read_text("{\"operation_allocations\": {\"a\": [{\"timestamp\": 100, "
                               "\"duration_us\": 3000000}], \"b\": "
                               "[{\"timestamp\": 101, \"duration_us\": 1.5}]}, \"operation_log\": "
                               "[{\"name\": \"a\", \"lane\": \"main\", "
                               "\"timestamp\": 100, \"duration_us\": 3000000, \"module_name\": "
                               "\"layer 1\"}, {\"name\": \"b\", "
                               "\"timestamp\": 101, \"duration_us\": 1.5, \"lane\": \"main\"}]}");
    assert_int_equal(t->op_count, 2);
    assert_int_equal(t->ops[0].end_ns, 3 * SECOND);
    assert_string_equal(t->names[t->ops[0].name].group, "layer 1");
    assert_int_equal(t->ops[1].begin_ns, SECOND);
    assert_int_equal(t->ops[1].end_ns, SECOND + 1500);
    assert_int_equal(t->ops[1].depth, 1);
    assert_string_equal(t->lanes[t->ops[1].lane].name, "main");
    assert_false(has_note(t, "how long"));
    rn_timeline_destroy(t);
}

// What ration exports, ration reads: the peak of what is in use, and operations as they were.
static void our_own_export_is_read(void **state) {
    (void)state;
    rn_timeline *t = read_file(CORPUS "pie.json"), *again;
    rn_buffer file;
    rn_buffer_init(&file, &rn_system_allocator, 1 << 20);
    assert_ok(rn_timeline_export(t, RN_EXPORT_JSON, rn_buffer_sink(&file)));
    assert_ok(read_into(file.data, file.bytes, &again));
    assert_int_equal(rn_timeline_peak(again, RN_DEVICE_ANY).reserved_bytes,
                     rn_timeline_peak(t, RN_DEVICE_ANY).reserved_bytes);
    assert_int_equal(again->op_count, t->op_count);
    assert_int_equal(again->start_unix_ns / SECOND, t->start_unix_ns / SECOND);
    rn_buffer_free(&file);
    rn_timeline_destroy(again);
    rn_timeline_destroy(t);
}

// ---- totals -------------------------------------------------------------------------------------

static void tensors_that_look_the_same_are_counted(void **state) {
    (void)state;
    rn_timeline *t = read_text(
        "{\"snapshots\": ["
        "{\"timestamp\": 1, \"top_allocations\": [{\"size_bytes\": 8, \"device\": \"cpu\"}, "
        "{\"size_bytes\": 8, "
        "\"device\": \"cpu\"}]},"
        "{\"timestamp\": 2, \"top_allocations\": [{\"size_bytes\": 8, \"device\": \"cpu\"}]},"
        "{\"timestamp\": 3, \"top_allocations\": [{\"size_bytes\": 8, \"device\": \"cpu\"}, "
        "{\"size_bytes\": 8, "
        "\"device\": \"cpu\"}, {\"size_bytes\": 8, \"device\": \"cpu\"}]}]}");
    assert_int_equal(total_at(t, 0), 16);
    assert_int_equal(total_at(t, 1), 8);
    assert_int_equal(total_at(t, 2), 24);
    assert_int_equal(t->alloc_count, 4);
    rn_timeline_destroy(t);
}

static void what_is_not_listed_is_still_counted(void **state) {
    (void)state;
    rn_timeline *t = read_text("{\"snapshots\": ["
                               "{\"timestamp\": 1, \"total_bytes\": 1000, \"top_allocations\": "
                               "[{\"size_bytes\": 600, \"device\": \"cpu\"}]},"
                               "{\"timestamp\": 2, \"total_bytes\": 900, \"top_allocations\": "
                               "[{\"size_bytes\": 600, \"device\": \"cpu\"}]},"
                               "{\"timestamp\": 3, \"total_bytes\": 600, \"top_allocations\": "
                               "[{\"size_bytes\": 600, \"device\": \"cpu\"}]}]}");
    assert_int_equal(total_at(t, 0), 1000);
    assert_int_equal(total_at(t, 1), 900);
    assert_int_equal(total_at(t, 2), 600);
    assert_int_equal(t->device_count, 1);
    assert_string_equal(t->names[t->allocs[0].name].name, "not listed");
    assert_int_equal(t->allocs[0].bytes, 400);
    rn_timeline_destroy(t);
}

// 3.33 MB is 3491758 or 3491759 bytes: the exact total counts.
static void rounded_megabytes_give_way_to_bytes(void **state) {
    (void)state;
    rn_timeline *t = read_text(
        "{\"snapshots\": [{\"total_bytes\": 3500000, \"device_breakdown\": {\"mps\": "
        "{\"total_mb\": 3.34, \"tensors\": [{\"size_bytes\": 3000000}]}}},"
        "{\"total_bytes\": 3500000, \"device_breakdown\": {\"mps\": {\"total_mb\": 3.33}}}]}");
    assert_int_equal(total_at(t, 0), 3500000);
    assert_int_equal(total_at(t, 1), 3500000);
    assert_int_equal(t->device_count, 1);
    assert_true(has_note(t, "no times"));
    rn_timeline_destroy(t);
}

static void lists_above_their_totals_are_said(void **state) {
    (void)state;
    rn_timeline *t = read_text(
        "{\"snapshots\": [{\"total_bytes\": 5, \"top_allocations\": [{\"size_bytes\": 7}]}]}");
    assert_int_equal(total_at(t, 0), 7);
    assert_true(has_note(t, "more bytes than their totals"));
    rn_timeline_destroy(t);
}

static void snapshots_of_one_second_keep_their_order(void **state) {
    (void)state;
    rn_timeline *t = read_text("{\"snapshots\": ["
                               "{\"timestamp\": \"2025-01-13T10:29:45\", \"total_bytes\": 1},"
                               "{\"timestamp\": \"2025-01-13T10:29:45\", \"total_bytes\": 3},"
                               "{\"timestamp\": \"2025-01-13T10:29:44\", \"total_bytes\": 2}]}");
    assert_int_equal(total_at(t, 0), 1);
    assert_int_equal(total_at(t, 1), 3);
    assert_int_equal(total_at(t, 2), 2);
    rn_timeline_destroy(t);
}

// ---- bad files ----------------------------------------------------------------------------------

static void a_file_without_a_profile_says_so(void **state) {
    (void)state;
    static const char *const cases[] = {"{}", "{\"a\": 1}", "{\"snapshots\": 5}",
                                        "{\"operation_allocations\": null, \"metadata\": []}",
                                        "{\"pytorch_operations\": []}"};
    rn_timeline *t;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_fails(RN_CORRUPT, read_into(cases[i], strlen(cases[i]), &t));
        assert_string_equal(rn_last_error()->message,
                            "no memory profile: neither snapshots nor operations");
        assert_true(rn_last_error()->hint[0]);
    }
    assert_fails(RN_CORRUPT, read_into("[1]", 3, &t));
    assert_fails(RN_CORRUPT, read_into("", 0, &t));
    assert_fails(RN_CORRUPT, read_into("{\"snapshots\": [", 15, &t));
}

static void no_entries_are_an_empty_profile(void **state) {
    (void)state;
    rn_timeline *t = read_file(CORPUS "nothing.json");
    assert_int_equal(t->alloc_count + t->op_count + t->mark_count, 0);
    rn_timeline_destroy(t);
    t = read_file(CORPUS "small.json"); // begins with a byte order mark
    assert_int_equal(total_at(t, 0), 3 * MIB / 2);
    assert_int_equal(total_at(t, 1), 6);
    rn_timeline_destroy(t);
}

// Each key in turn under another name: what is left is read.
static void every_key_may_be_missing(void **state) {
    (void)state;
    static const char *const files[] = {CORPUS "seed.json", CORPUS "pie.json"};
    for (size_t f = 0; f < 2; f++) {
        size_t bytes;
        char *text = test_read(files[f], &bytes);
        for (size_t i = 1; i + 1 < bytes; i++) {
            if (text[i] != '"' || text[i + 1] != ':') continue;
            size_t first = i;
            while (text[first - 1] != '"')
                first--;
            char letter = text[first];
            rn_timeline *t;
            text[first] = 'X';
            assert_ok(read_into(text, bytes, &t));
            rn_timeline_destroy(t);
            text[first] = letter;
        }
        free(text);
    }
}

// Behind the value that begins at `at`; no string of the files has brackets or commas.
static size_t value_end(const char *text, size_t at) {
    int depth = 0;
    for (;; at++) {
        if (strchr("[{", text[at])) depth++;
        if (depth == 0 && strchr(",]}\n", text[at])) return at;
        if (strchr("]}", text[at]) && --depth == 0) return at + 1;
    }
}

// Each value in turn is of every other type.
static void every_value_may_be_of_the_wrong_type(void **state) {
    (void)state;
    static const char *const wrong[] = {"null", "-1e999", "\"\\u0001x\"", "[[{\"a\": []}], 1]",
                                        "{\"tensors\": [{}, 1]}"};
    size_t bytes;
    char *text = test_read(CORPUS "pie.json", &bytes);
    char *twisted = malloc(bytes + 64);
    for (size_t i = 1; i + 2 < bytes; i++) {
        if (text[i - 1] != '"' || text[i] != ':') continue;
        size_t end = value_end(text, i + 2);
        for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
            int size = snprintf(twisted, bytes + 64, "%.*s %s%.*s", (int)i + 1, text, wrong[w],
                                (int)(bytes - end), text + end);
            rn_timeline *t;
            rn_status s = read_into(twisted, (size_t)size, &t);
            if (s != RN_OK) fail_msg("at %zu: %s: %s", i, wrong[w], rn_last_error()->message);
            rn_timeline_destroy(t);
        }
    }
    free(twisted);
    free(text);
}

static void a_failing_allocation_leaves_nothing(void **state) {
    (void)state;
    size_t bytes;
    char *text = test_read(CORPUS "pie.json", &bytes);
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_timeline *t;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = read_into(text, bytes, &t);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        rn_timeline_destroy(t);
        assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, before);
    }
    free(text);
}

// ---- words, numbers, times ----------------------------------------------------------------------

static void a_long_name_of_a_device_is_not_copied_for_every_tensor(void **state) {
    (void)state;
    enum { LONG = 100000 };
    char *text = malloc(1 << 18);
    size_t at = (size_t)sprintf(text, "{\"snapshots\": [{\"device_breakdown\": {\"");
    memset(text + at, 'x', LONG);
    at += LONG;
    at += (size_t)sprintf(text + at, "\": {\"tensors\": [");
    for (int i = 1; i < 200; i++)
        at += (size_t)sprintf(text + at, "{\"size_bytes\": %d}, ", i);
    at += (size_t)sprintf(text + at, "{\"size_bytes\": 200}]}}}]}");
    rn_timeline *t = NULL;
    rn_ledger_reset_peaks();
    assert_ok(read_into(text, at, &t));
    assert_true(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).peak_bytes < 4 * MIB);
    assert_int_equal(total_at(t, 0), 200 * 201 / 2);
    rn_timeline_destroy(t);
    free(text);
}

static void times_are_read_as_they_are_written(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {{"1970-01-01T00:00:00", 0},
                {"2025-01-13T10:29:45", 1736764185000000000},
                {"2025-01-13 10:29:45.5", 1736764185500000000},
                {"2025-01-13T10:29:45.123456Z", 1736764185123456000},
                {"2025-01-13T10:29:45.1234567891", 1736764185123456789},
                {"2025-01-13T11:29:45+01:00", 1736764185000000000},
                {"2025-01-13T05:59:45-0430", 1736764185000000000},
                {"2024-02-29T00:00", 1709164800000000000},
                {"1736764185.123456789", 1736764185123456789},
                {"0", 0},
                {"1.5e1", 15000000000},
                {"99999999999999999999e-15", 100000000000000}};
    static const char *const bad[] = {"",
                                      "x",
                                      "2025-13-01T00:00:00",
                                      "2025-01-13",
                                      "2025-01-13T25:00:00",
                                      "2025-01-13T10:29:45+",
                                      "-5",
                                      "1e99",
                                      "2025-01-13T10:29:45 x"};
    int64_t ns;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(rn_foreign_time(rn_str_from(good[i].text), &ns));
        assert_int_equal(ns, good[i].ns);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(rn_foreign_time(rn_str_from(bad[i]), &ns));
}

static void numbers_are_read_as_they_are_written(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double number;
    } good[] = {{"0", 0},
                {"-12.5", -12.5},
                {"2048.5", 2048.5},
                {"1e3", 1000},
                {"2.5E-3", 0.0025},
                {"123456789012345678901234567890", 123456789012345678901234567890.0},
                {"0.0019073486328125", 0.0019073486328125},
                {"1e-400", 0}};
    static const char *const bad[] = {"", "-", ".", "x", "1x", "1e", "1e999", "--1"};
    double number;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(rn_foreign_number(rn_str_from(good[i].text), &number));
        double difference = number - good[i].number;
        double size = good[i].number < 0 ? -good[i].number : good[i].number;
        assert_true((difference < 0 ? -difference : difference) <= size * 1e-15);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(rn_foreign_number(rn_str_from(bad[i]), &number));
}

static void texts_are_safe_to_show(void **state) {
    (void)state;
    rn_foreign_text text = {.bytes = 0};
    rn_foreign_append(&text, RN_STR("a\x1b[31m\xff\xc3\xa9\xc2\x9b\n"));
    assert_true(rn_str_equal(rn_foreign_str(&text), RN_STR("a?[31m?\xc3\xa9??")));
    for (int i = 0; i < 2000; i++)
        rn_foreign_append(&text, RN_STR("\xe2\x82\xac"));
    assert_true(text.bytes <= sizeof text.data && rn_utf8_valid(rn_foreign_str(&text)));
    assert_int_equal(rn_foreign_purpose(RN_STR("KV_Cache")), RN_PURPOSE_KV);
    assert_int_equal(rn_foreign_purpose(RN_STR("no such thing")), RN_PURPOSE_OTHER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_documented_form_is_read),
        cmocka_unit_test(operations_without_durations_are_moments),
        cmocka_unit_test(sums_are_the_files_own),
        cmocka_unit_test(sums_that_cannot_be_are_left_out),
        cmocka_unit_test(the_form_that_pie_writes_is_read),
        cmocka_unit_test(tracked_lives_are_exact),
        cmocka_unit_test(begins_wait_for_the_snapshot_where_an_end_is_not_known),
        cmocka_unit_test(durations_and_lanes_of_our_own_exports_are_kept),
        cmocka_unit_test(our_own_export_is_read),
        cmocka_unit_test(tensors_that_look_the_same_are_counted),
        cmocka_unit_test(what_is_not_listed_is_still_counted),
        cmocka_unit_test(rounded_megabytes_give_way_to_bytes),
        cmocka_unit_test(lists_above_their_totals_are_said),
        cmocka_unit_test(snapshots_of_one_second_keep_their_order),
        cmocka_unit_test(a_file_without_a_profile_says_so),
        cmocka_unit_test(no_entries_are_an_empty_profile),
        cmocka_unit_test(every_key_may_be_missing),
        cmocka_unit_test(every_value_may_be_of_the_wrong_type),
        cmocka_unit_test(a_long_name_of_a_device_is_not_copied_for_every_tensor),
        cmocka_unit_test(a_failing_allocation_leaves_nothing),
        cmocka_unit_test(times_are_read_as_they_are_written),
        cmocka_unit_test(numbers_are_read_as_they_are_written),
        cmocka_unit_test(texts_are_safe_to_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
