// The report says what the trace says, in words and as JSON, whatever the names are.
#include "base/buffer.h"
#include "base/fault.h"
#include "base/str.h"
#include "json_check.h"
#include "printed.h"
#include "profile/timeline.h"
#include "support.h"
#include "trace_make.h"

static trace_maker maker;

// ---- making reports -----------------------------------------------------------------------------

static rn_timeline *read_made(void) {
    rn_timeline *t = NULL;
    assert_ok(rn_trace_read("run.rntrace", maker.data, maker.bytes, &t));
    assert_ok(rn_timeline_finish(t));
    return t;
}

static void report(const rn_timeline *t, const rn_report_options *options) {
    assert_ok(rn_timeline_report(t, options, printed_sink()));
    printed_end();
}

static void report_json(const rn_timeline *t, const rn_report_options *options) {
    assert_ok(rn_timeline_report_json(t, options, printed_sink()));
    printed_json_check();
}

static uint64_t number(const char *path) {
    return test_json_u64(printed.data, printed.bytes, path);
}

static void assert_json(const char *path, const char *expected) {
    char value[256];
    assert_true(test_json_get(printed.data, printed.bytes, path, value, sizeof value));
    assert_string_equal(value, expected);
}

// ---- tests --------------------------------------------------------------------------------------

static void the_report_has_the_peak_and_what_was_live_at_it(void **state) {
    (void)state;
    trace_small_run(&maker);
    rn_timeline *t = read_made();
    report(t, NULL);
    assert_printed("run.rntrace (ration trace, spill)");
    assert_printed("command    ration run");
    assert_printed("host           13.2 KiB    3.20 us     13.2 KiB     13.2 KiB     19.5 KiB");
    assert_printed("host at its peak, 3.20 us: 13.2 KiB in use in 4 blocks, 13.2 KiB reserved");
    assert_printed("    9.77 KiB   74.1%        1  weights\n");
    assert_printed("    2.93 KiB   22.2%        2  layer 0\n");
    assert_printed("    1.95 KiB   14.8%        1  matmul\n");
    assert_printed("matmul, layer 0, f32 [64, 64], in matmul\n");
    assert_printed("host at the end: 10.3 KiB in use in 2 blocks; 0 B in 0 of them");
    assert_printed("1.50 us stage          10.3 KiB     10.3 KiB  model_loaded\n");
    rn_timeline_destroy(t);
}

static rn_trace_event at_site(uint64_t time_ns, uint64_t address, uint32_t name) {
    return (rn_trace_event){.time_ns = time_ns,
                            .address = address,
                            .name = name,
                            .kind = RN_TRACE_ALLOC,
                            .flags = RN_PROFILE_SITE};
}

static rn_trace_event block(uint64_t time_ns, uint64_t address, uint64_t bytes) {
    return (rn_trace_event){
        .time_ns = time_ns, .address = address, .bytes = bytes, .kind = RN_TRACE_ALLOC};
}

// Call stacks are merged where they begin alike; a site of a block that is not there is passed
// over.
static void the_report_says_who_asked_for_memory(void **state) {
    (void)state;
    const rn_trace_event events[] = {block(10, 0x1000, 3000), at_site(11, 0x1000, 1),
                                     block(20, 0x2000, 1000), at_site(21, 0x2000, 2),
                                     block(30, 0x3000, 500),  at_site(31, 0x9000, 1)};
    maker = (trace_maker){0};
    trace_preamble(&maker, "spill");
    trace_total(&maker, 0, RN_PURPOSE_COUNT, 0, 0);
    trace_name(&maker, 1, "load (a.py:3)", "call stack", "main (a.py:9)\nload (a.py:3)\nmalloc");
    trace_name(&maker, 2, "make (a.py:5)", "call stack", "main (a.py:9)\nmake (a.py:5)");
    trace_events(&maker, 1, events, sizeof events / sizeof *events);
    trace_end(&maker);
    rn_timeline *t = read_made();
    report(t, NULL);
    assert_printed("    3.91 KiB  100.0%        2  main (a.py:9)\n"
                   "    2.93 KiB   75.0%        1   load (a.py:3)\n"
                   "    2.93 KiB   75.0%        1    malloc\n"
                   "      1000 B   25.0%        1   make (a.py:5)\n");
    report_json(t, NULL);
    assert_json("devices/0/moment/call_stacks/0/site", "load (a.py:3)");
    assert_int_equal(number("devices/0/moment/call_stacks/0/bytes"), 3000);
    assert_json("devices/0/moment/call_stacks/0/stack/2", "malloc");
    assert_json("devices/0/moment/call_stacks/1/stack/0", "main (a.py:9)");
    assert_json("devices/0/moment/largest/0/site", "load (a.py:3)");
    assert_int_equal(number("devices/0/moment/active_bytes"), 4500);
    rn_timeline_destroy(t);
}

static void the_json_has_the_same_numbers(void **state) {
    (void)state;
    trace_small_run(&maker);
    rn_timeline *t = read_made();
    report_json(t, NULL);
    assert_json("file", "run.rntrace");
    assert_int_equal(number("devices/0/peak/bytes"), 13500);
    assert_int_equal(number("devices/0/counted_peak/bytes"), 13500);
    assert_int_equal(number("devices/0/budget_bytes"), 20000);
    assert_int_equal(number("devices/0/predicted_peak_bytes"), 13500);
    assert_json("devices/0/active_per_predicted", "1");
    assert_json("devices/0/resident_peak_bytes", "null");
    assert_int_equal(number("devices/0/moment/active_bytes"), 13500);
    assert_json("devices/0/moment/purposes/0/name", "weights");
    assert_int_equal(number("devices/0/moment/purposes/0/bytes"), 10000);
    assert_json("devices/0/moment/largest/1/detail", "f32 [64, 64]");
    assert_json("devices/0/moment/largest/1/operation", "matmul");
    assert_int_equal(number("devices/0/at_end/bytes"), 10500);
    assert_json("operations/0/name", "step");
    assert_int_equal(number("operations/0/peak_bytes"), 3000);
    assert_json("marks/1/name", "model_loaded");
    assert_int_equal(number("marks/1/held/0/reserved_bytes"), 10500);
    rn_timeline_destroy(t);
}

static void another_moment_can_be_asked_for(void **state) {
    (void)state;
    trace_small_run(&maker);
    rn_timeline *t = read_made();
    report_json(t, &(rn_report_options){.at_seconds = 2.4e-6, .rows = 1});
    assert_int_equal(number("devices/0/moment/active_bytes"), 12500);
    assert_json("devices/0/moment/is_peak", "false");
    char value[64];
    assert_false(test_json_get(printed.data, printed.bytes, "devices/0/moment/largest/1/name",
                               value, sizeof value));
    report(t, &(rn_report_options){.at_seconds = 2.4e-6, .rows = 1});
    assert_printed("host at 2.40 us: 12.2 KiB in use");
    assert_printed("and 2 more\n");
    report(t, &(rn_report_options){.at_seconds = 1e300});
    assert_printed("10.3 KiB in use in 2 blocks");
    rn_timeline_destroy(t);
}

static void operations_have_time_of_their_own_and_in_all(void **state) {
    (void)state;
    trace_small_run(&maker);
    rn_timeline *t = read_made();
    report(t, NULL);
    //         count       self      total       change    in arenas    allocated         peak
    assert_printed(
        "   1    1.30 us    3.00 us          0 B          0 B     2.93 KiB     2.93 KiB  step\n");
    assert_printed(
        "   1    0.80 us    0.80 us          0 B    +1.95 KiB     1.95 KiB     1.95 KiB  matmul\n");
    rn_timeline_destroy(t);
}

static rn_timeline *empty_timeline(void) {
    rn_timeline *t = NULL;
    uint32_t lane;
    uint8_t device;
    assert_ok(rn_timeline_create("x", "ration trace", &t));
    assert_ok(rn_timeline_add_device(t, RN_STR("host"), &device));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    return t;
}

static void what_ended_operations_left_is_listed(void **state) {
    (void)state;
    rn_timeline *t = empty_timeline();
    uint32_t leaky, running;
    assert_ok(rn_timeline_add_name(t, RN_STR("leaky"), RN_STR(""), RN_STR(""), &leaky));
    assert_ok(rn_timeline_add_name(t, RN_STR("running"), RN_STR(""), RN_STR(""), &running));
    for (uint64_t i = 0; i < 3; i++) {
        assert_ok(rn_timeline_add_op(
            t, &(rn_timeline_op){.begin_ns = i * 10, .end_ns = i * 10 + 5, .name = leaky}));
        assert_ok(rn_timeline_add_alloc(
            t,
            &(rn_timeline_alloc){.begin_ns = i * 10 + 1, .end_ns = RN_STILL_LIVE, .bytes = 100}));
    }
    assert_ok(rn_timeline_add_op(
        t, &(rn_timeline_op){.begin_ns = 50, .end_ns = RN_STILL_LIVE, .name = running}));
    assert_ok(rn_timeline_add_alloc(
        t, &(rn_timeline_alloc){.begin_ns = 60, .end_ns = RN_STILL_LIVE, .bytes = 7}));
    assert_ok(rn_timeline_finish(t));
    report(t, NULL);
    assert_printed(
        "307 B in use in 4 blocks; 300 B in 3 of them come from operations that have ended");
    assert_printed("       300 B   97.7%        3  leaky\n");
    assert_printed("running (not ended)\n");
    report_json(t, NULL);
    assert_int_equal(number("devices/0/at_end/left_bytes"), 300);
    assert_int_equal(number("devices/0/at_end/left_by/0/count"), 3);
    rn_timeline_destroy(t);
}

// step > block > step, and beside it another step in another lane.
static void operations_within_their_like_are_not_counted_twice(void **state) {
    (void)state;
    rn_timeline *t = empty_timeline();
    uint32_t step, block, lane;
    assert_ok(rn_timeline_add_lane(t, RN_STR("other"), false, &lane));
    assert_ok(rn_timeline_add_name(t, RN_STR("step"), RN_STR(""), RN_STR(""), &step));
    assert_ok(rn_timeline_add_name(t, RN_STR("block"), RN_STR(""), RN_STR(""), &block));
    const rn_timeline_op ops[] = {{.begin_ns = 0, .end_ns = 1000, .name = step},
                                  {.begin_ns = 100, .end_ns = 900, .name = block},
                                  {.begin_ns = 200, .end_ns = 500, .name = step},
                                  {.begin_ns = 300, .end_ns = 400, .name = step, .lane = lane}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        assert_ok(rn_timeline_add_op(t, &ops[i]));
    assert_ok(rn_timeline_add_alloc(
        t, &(rn_timeline_alloc){.begin_ns = 250, .end_ns = RN_STILL_LIVE, .bytes = 100}));
    assert_ok(rn_timeline_add_alloc(
        t,
        &(rn_timeline_alloc){.begin_ns = 350, .end_ns = RN_STILL_LIVE, .bytes = 7, .lane = lane}));
    assert_ok(rn_timeline_finish(t));
    report_json(t, NULL);
    assert_json("operations/0/name", "step");
    assert_int_equal(number("operations/0/count"), 3);
    assert_int_equal(number("operations/0/delta_bytes"), 107);
    assert_int_equal(number("operations/0/allocated_bytes"), 107);
    assert_json("operations/0/total_seconds", "1.1e-06");
    assert_json("operations/0/self_seconds", "6e-07");
    rn_timeline_destroy(t);
}

static void add_counter(rn_timeline *t, uint64_t time, rn_counter kind, uint64_t value) {
    assert_ok(rn_timeline_add_counter(
        t, &(rn_timeline_counter){.time_ns = time, .value = value, .kind = (uint8_t)kind}));
}

static void the_predicted_curve_is_compared_at_its_samples(void **state) {
    (void)state;
    rn_timeline *t = empty_timeline();
    assert_ok(rn_timeline_add_alloc(
        t, &(rn_timeline_alloc){.begin_ns = 10, .end_ns = 20, .bytes = 1000}));
    assert_ok(
        rn_timeline_add_alloc(t, &(rn_timeline_alloc){.begin_ns = 15, .end_ns = 30, .bytes = 500}));
    add_counter(t, 5, RN_COUNTER_PREDICTED, 0);
    add_counter(t, 10, RN_COUNTER_PREDICTED, 900);  // 1000 in use
    add_counter(t, 17, RN_COUNTER_PREDICTED, 1540); // 1500
    add_counter(t, 25, RN_COUNTER_PREDICTED, 500);
    add_counter(t, 40, RN_COUNTER_PREDICTED, 30); // nothing
    add_counter(t, 40, RN_COUNTER_PREDICTED_PEAK, 3000);
    add_counter(t, 40, RN_COUNTER_RESIDENT, 4096);
    assert_ok(rn_timeline_finish(t));
    report_json(t, NULL);
    assert_int_equal(number("devices/0/predicted_samples"), 5);
    assert_int_equal(number("devices/0/most_over_predicted_bytes"), 100);
    assert_int_equal(number("devices/0/most_under_predicted_bytes"), 40);
    assert_json("devices/0/active_per_predicted", "0.5");
    assert_int_equal(number("devices/0/resident_peak_bytes"), 4096);
    rn_timeline_destroy(t);
}

static void torch_operations_stand_in_the_order_of_their_time(void **state) {
    (void)state;
    rn_timeline *t = empty_timeline();
    const char *names[] = {"aten::add", "aten::mm", "aten::relu", "aten::t"};
    const double cpu_us[] = {5, 70, 5, 1};
    for (int i = 0; i < 4; i++) {
        rn_timeline_torch_op op = {.count = 2, .cpu_us = cpu_us[i], .cpu_bytes = -64 * i};
        assert_ok(rn_timeline_add_name(t, rn_str_from(names[i]), RN_STR(""), RN_STR("[[2, 3]]"),
                                       &op.name));
        assert_ok(rn_timeline_add_torch_op(t, &op));
    }
    assert_ok(rn_timeline_finish(t));
    report(t, &(rn_report_options){.at_seconds = -1, .rows = 3});
    const char *mm = strstr(printed.data, "aten::mm [[2, 3]]"),
               *add = strstr(printed.data, "aten::add");
    const char *relu = strstr(printed.data, "aten::relu");
    assert_true(mm && add && relu && mm < add && add < relu);
    assert_null(strstr(printed.data, "aten::t "));
    assert_printed("and 1 more\n");
    report_json(t, NULL);
    assert_json("torch_operations/1/cpu_bytes", "-64");
    rn_timeline_destroy(t);
}

static void a_counted_peak_that_differs_stands_beside(void **state) {
    (void)state;
    trace_small_run(&maker);
    trace_total(&maker, 0, RN_PURPOSE_COUNT, 14000, 2500);
    rn_timeline *t = read_made();
    report(t, NULL);
    assert_printed("counted as it happened: 13.7 KiB at 2.50 us");
    rn_timeline_destroy(t);
}

static void hostile_names_are_made_harmless(void **state) {
    (void)state;
    trace_small_run(&maker);
    trace_name(&maker, 2, "mat\x1b[31mmul\n\r\xff\xc3", "layer\n0", "\x07");
    char longest[600];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    trace_name(&maker, 4, longest, "", "");
    trace_lane(&maker, 1, false, "\x1b[2J");
    trace_device(&maker, 0, "ho\x1b[0mst\n");
    rn_timeline *t = read_made();
    report(t, NULL);
    for (size_t i = 0; i + 1 < printed.bytes; i++)
        assert_true((unsigned char)printed.data[i] >= ' ' || printed.data[i] == '\n');
    assert_printed("mat?[31mmul ");
    assert_printed("xxx...\n");
    report_json(t, NULL);
    rn_timeline_destroy(t);
}

static void an_empty_timeline_has_a_report(void **state) {
    (void)state;
    rn_timeline *t = empty_timeline();
    assert_ok(rn_timeline_finish(t));
    report(t, NULL);
    assert_printed("duration");
    report_json(t, NULL);
    rn_timeline_destroy(t);
}

static rn_status fail_write(void *self, const char *data, size_t bytes) {
    (void)self, (void)data, (void)bytes;
    return rn_fail(RN_IO, "no room");
}

static void a_sink_that_fails_ends_the_report(void **state) {
    (void)state;
    trace_small_run(&maker);
    rn_timeline *t = read_made();
    assert_fails(RN_IO, rn_timeline_report(t, NULL, (rn_sink){NULL, fail_write}));
    rn_timeline_destroy(t);
}

static rn_status report_both(const rn_timeline *t) {
    printed.bytes = 0;
    RN_TRY(rn_timeline_report(t, NULL, rn_buffer_sink(&printed)));
    return rn_timeline_report_json(t, NULL, rn_buffer_sink(&printed));
}

static void reports_survive_every_refused_allocation(void **state) {
    (void)state;
    trace_small_run(&maker);
    rn_timeline *t = read_made();
    assert_ok(report_both(t)); // the buffer is large enough from here on
    uint64_t held = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = report_both(t);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s != RN_OK, fired);
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes, held);
    }
    rn_timeline_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_report_has_the_peak_and_what_was_live_at_it),
        cmocka_unit_test(the_report_says_who_asked_for_memory),
        cmocka_unit_test(the_json_has_the_same_numbers),
        cmocka_unit_test(another_moment_can_be_asked_for),
        cmocka_unit_test(operations_have_time_of_their_own_and_in_all),
        cmocka_unit_test(what_ended_operations_left_is_listed),
        cmocka_unit_test(operations_within_their_like_are_not_counted_twice),
        cmocka_unit_test(the_predicted_curve_is_compared_at_its_samples),
        cmocka_unit_test(torch_operations_stand_in_the_order_of_their_time),
        cmocka_unit_test(a_counted_peak_that_differs_stands_beside),
        cmocka_unit_test(hostile_names_are_made_harmless),
        cmocka_unit_test(an_empty_timeline_has_a_report),
        cmocka_unit_test(a_sink_that_fails_ends_the_report),
        cmocka_unit_test(reports_survive_every_refused_allocation),
    };
    return cmocka_run_group_tests(tests, printed_begin, printed_free);
}
