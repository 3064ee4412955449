// export_chrome_test.c — slices, counters, marks and rows of Chrome's trace format.
#include "export_support.h"
#include "json_check.h"

static rn_buffer text;

static void export_it(rn_timeline *t) {
    text = export_text(t, RN_EXPORT_CHROME);
}

static void forget(rn_timeline *t) {
    rn_buffer_free(&text);
    rn_timeline_destroy(t);
}

static size_t count_of(const char *what) {
    size_t count = 0, bytes = strlen(what);
    const char *end = text.data + text.bytes;
    for (const char *at = text.data; (at = memmem(at, (size_t)(end - at), what, bytes)); at++)
        count++;
    return count;
}

static void says(const char *line) {
    if (!strstr(text.data, line)) fail_msg("no %s in %s", line, text.data);
}

static void a_small_timeline_has_one_event_of_each(void **state) {
    (void)state;
    rn_timeline *t = make_small();
    export_it(t);
    assert_true(test_json_valid(text.data, text.bytes));
    says("\"displayTimeUnit\":\"ns\"");
    says("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"ration run\"}}");
    says("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":2,\"args\":{\"name\":"
         "\"compute\"}}");
    says("{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":1,\"tid\":2,\"args\":{"
         "\"sort_index\":4}}");
    says("{\"ph\":\"X\",\"name\":\"matmul\",\"pid\":1,\"cat\":\"op\",\"tid\":1,\"ts\":2.900,"
         "\"dur\":1.601,\"args\":{\"block\":\"blk.0\",\"shapes\":\"f16 [64, 64] x f32 [1, 64]\","
         "\"inner_delta_bytes\":3072,\"allocated_bytes\":3072,\"peak_bytes\":3072,"
         "\"allocations\":2}}");
    says("{\"ph\":\"C\",\"name\":\"memory host\",\"pid\":1,\"ts\":4.000,\"args\":{\"weights\":4096,"
         "\"activations\":2048,\"workspace\":1024}}");
    says("{\"ph\":\"C\",\"name\":\"reserved host\",\"pid\":1,\"ts\":2.000,\"args\":{\"bytes\":"
         "12288}}");
    says("{\"ph\":\"C\",\"name\":\"memory cuda:0\",\"pid\":1,\"ts\":7.000,\"args\":{\"kv\":512}}");
    says("{\"ph\":\"C\",\"name\":\"predicted peak host\",\"pid\":1,\"ts\":2.000,\"args\":{"
         "\"bytes\":12288}}");
    says("{\"ph\":\"i\",\"name\":\"after_load\",\"pid\":1,\"cat\":\"mark\",\"s\":\"g\",\"tid\":1,"
         "\"ts\":4.200,\"args\":{\"kind\":\"checkpoint\"}}");
    says("{\"ph\":\"i\",\"name\":\"refusal\",\"pid\":1,\"cat\":\"mark\",\"s\":\"g\",\"tid\":1,"
         "\"ts\":8.500,\"args\":{\"kind\":\"refusal\",\"bytes\":1048576,\"device\":\"host\"}}");
    says("{\"ph\":\"i\",\"name\":\"w\",\"pid\":1,\"cat\":\"move\",\"s\":\"t\",\"tid\":1,"
         "\"ts\":1.500,\"args\":{\"from\":\"disk\",\"to\":\"host\",\"bytes\":4096}}");
    says("{\"ph\":\"b\",\"name\":\"a\",\"pid\":1,\"cat\":\"memory\",\"id\":\"2\",\"tid\":1,"
         "\"ts\":3.000,\"args\":{\"bytes\":2048,\"purpose\":\"activations\",\"device\":\"host\","
         "\"shape\":\"f32 [512]\"}}");
    says("{\"ph\":\"e\",\"name\":\"a\",\"pid\":1,\"cat\":\"memory\",\"id\":\"2\",\"tid\":1,"
         "\"ts\":6.000}");
    assert_int_equal(count_of("\"name\":\"budget host\""), 1); // it was written twice, unchanged
    assert_int_equal(count_of("\"name\":\"budget cuda:0\""), 0);
    assert_int_equal(count_of("\"ph\":\"b\""), count_of("\"ph\":\"e\""));
    forget(t);
}

static void times_are_exact_to_the_nanosecond(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    uint32_t lane;
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    add_op(t, 9007199254740993ull, 9007199254740994ull, 0); // beyond what a double tells apart
    assert_ok(rn_timeline_finish(t));
    export_it(t);
    says("\"name\":\"(unnamed)\",\"pid\":1,\"cat\":\"op\",\"tid\":1,\"ts\":9007199254740.993,"
         "\"dur\":0.001}");
    forget(t);
}

static void counters_are_thinned_without_losing_the_peak(void **state) {
    (void)state;
    enum { COUNT = 120000 };
    rn_timeline *t = make_empty();
    uint8_t device;
    uint32_t lane;
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    for (uint64_t i = 0; i < COUNT; i++)
        add_block(t, 10 * i, 10 * i + 4, 0x1000, i == 54321 ? 999983 : 1 + i % 100, 0,
                  RN_PURPOSE_OTHER, false);
    assert_ok(rn_timeline_finish(t));
    export_it(t);
    size_t samples = count_of("\"ph\":\"C\"");
    assert_in_range(samples, 100000, 200001);
    says("\"ts\":543.210,\"args\":{\"other\":999983}");
    assert_int_equal(count_of("\"ph\":\"b\""), 0); // too many for rows
    forget(t);
}

static void hostile_names_are_valid_json(void **state) {
    (void)state;
    rn_timeline *t = make_hostile();
    export_it(t);
    assert_true(test_json_valid(text.data, text.bytes));
    says("\"name\":\"line\\u000abreak\"");
    forget(t);
}

static void an_empty_timeline_is_a_process(void **state) {
    (void)state;
    rn_timeline *t = make_empty();
    assert_ok(rn_timeline_finish(t));
    export_it(t);
    assert_true(test_json_valid(text.data, text.bytes));
    assert_int_equal(count_of("\"ph\""), 1);
    forget(t);
}

static void failing_sinks_are_reported(void **state) {
    (void)state;
    check_failing_sinks(RN_EXPORT_CHROME);
}

static void no_memory_is_reported(void **state) {
    (void)state;
    check_torture(RN_EXPORT_CHROME);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_timeline_has_one_event_of_each),
        cmocka_unit_test(times_are_exact_to_the_nanosecond),
        cmocka_unit_test(counters_are_thinned_without_losing_the_peak),
        cmocka_unit_test(hostile_names_are_valid_json),
        cmocka_unit_test(an_empty_timeline_is_a_process),
        cmocka_unit_test(failing_sinks_are_reported),
        cmocka_unit_test(no_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
