// Two recordings side by side: what changed stands first.
#include "base/buffer.h"
#include "base/fault.h"
#include "base/str.h"
#include "json_check.h"
#include "printed.h"
#include "profile/timeline.h"
#include "support.h"

// ---- two runs -----------------------------------------------------------------------------------

static void add(rn_timeline *t, const char *op, uint64_t at, uint64_t bytes, rn_purpose purpose) {
    uint32_t name = 0;
    assert_ok(rn_timeline_add_name(t, rn_str_from(op), RN_STR("layer 1"), RN_STR(""), &name));
    assert_ok(rn_timeline_add_op(
        t, &(rn_timeline_op){.begin_ns = at, .end_ns = at + 1000, .name = name}));
    assert_ok(rn_timeline_add_alloc(t, &(rn_timeline_alloc){.begin_ns = at + 10,
                                                            .end_ns = RN_STILL_LIVE,
                                                            .bytes = bytes,
                                                            .name = name,
                                                            .purpose = (uint8_t)purpose}));
}

static rn_timeline *make(const char *path, const char *device, uint64_t kv_bytes) {
    rn_timeline *t = NULL;
    uint8_t number;
    uint32_t lane;
    assert_ok(rn_timeline_create(path, "ration trace", &t));
    assert_ok(rn_timeline_add_device(t, rn_str_from(device), &number));
    assert_ok(rn_timeline_add_lane(t, RN_STR("main"), false, &lane));
    add(t, "load", 0, 1000, RN_PURPOSE_WEIGHTS);
    add(t, "attend", 2000, kv_bytes, RN_PURPOSE_KV);
    return t;
}

static void diff(const rn_timeline *a, const rn_timeline *b) {
    assert_ok(rn_timeline_diff(a, b, printed_sink()));
    printed_end();
}

static void diff_json(const rn_timeline *a, const rn_timeline *b) {
    assert_ok(rn_timeline_diff_json(a, b, printed_sink()));
    printed_json_check();
}

static void assert_json(const char *path, const char *expected) {
    char value[256];
    assert_true(test_json_get(printed.data, printed.bytes, path, value, sizeof value));
    assert_string_equal(value, expected);
}

// ---- tests --------------------------------------------------------------------------------------

static void what_grew_stands_first(void **state) {
    (void)state;
    rn_timeline *a = make("a.rntrace", "host", 200), *b = make("b.rntrace", "host", 500);
    add(b, "sample", 4000, 30, RN_PURPOSE_WORKSPACE);
    assert_ok(rn_timeline_finish(a));
    assert_ok(rn_timeline_finish(b));
    diff(a, b);
    assert_printed("a  a.rntrace, ");
    assert_printed("    1.17 KiB     1.49 KiB       +330 B    +27.5%  peak\n");
    assert_printed("purpose, at the peak\n       200 B        500 B       +300 B   +150.0%  kv\n"
                   "         0 B         30 B        +30 B            workspace\n");
    assert_printed("       0        1    0.00 us    1.00 us          0 B        +30 B          0 B "
                   "        30 B  sample\n");
    assert_null(strstr(printed.data, "weights")); // has not changed
    diff_json(a, b);
    assert_json("a/file", "a.rntrace");
    assert_json("devices/0/peak_bytes/change_bytes", "330");
    assert_json("devices/0/purposes/0/name", "kv");
    assert_json("devices/0/purposes/0/change_bytes", "300");
    assert_json("operations/0/name", "sample");
    assert_json("operations/0/b/count", "1");
    diff_json(b, a);
    assert_json("devices/0/peak_bytes/change_bytes", "-330");
    rn_timeline_destroy(a);
    rn_timeline_destroy(b);
}

static void a_recording_does_not_differ_from_itself(void **state) {
    (void)state;
    rn_timeline *a = make("a.rntrace", "host", 200);
    assert_ok(rn_timeline_finish(a));
    diff(a, a);
    assert_null(strstr(printed.data, "%"));
    assert_null(strstr(printed.data, "purpose"));
    rn_timeline_destroy(a);
}

static void devices_of_one_side_only_are_compared_with_nothing(void **state) {
    (void)state;
    rn_timeline *a = make("a.rntrace", "host", 200), *b = make("b.rntrace", "cuda:0", 200);
    rn_timeline_note(b, "was cut");
    assert_ok(rn_timeline_finish(a));
    assert_ok(rn_timeline_finish(b));
    diff_json(a, b);
    assert_json("b/notes/0", "was cut");
    assert_json("devices/0/device", "host");
    assert_json("devices/0/peak_bytes/b_bytes", "0");
    assert_json("devices/1/device", "cuda:0");
    assert_json("devices/1/peak_bytes/b_bytes", "1200");
    diff(a, b);
    rn_timeline_destroy(a);
    rn_timeline_destroy(b);
}

static rn_status diff_both(const rn_timeline *a, const rn_timeline *b) {
    printed.bytes = 0;
    RN_TRY(rn_timeline_diff(a, b, rn_buffer_sink(&printed)));
    return rn_timeline_diff_json(a, b, rn_buffer_sink(&printed));
}

static void comparing_survives_every_refused_allocation(void **state) {
    (void)state;
    rn_timeline *a = make("a.rntrace", "host", 200), *b = make("b.rntrace", "cuda:0", 500);
    assert_ok(rn_timeline_finish(a));
    assert_ok(rn_timeline_finish(b));
    assert_ok(diff_both(a, b)); // the buffer is large enough from here on
    uint64_t held = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = diff_both(a, b);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s != RN_OK, fired);
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes, held);
    }
    rn_timeline_destroy(a);
    rn_timeline_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_grew_stands_first),
        cmocka_unit_test(a_recording_does_not_differ_from_itself),
        cmocka_unit_test(devices_of_one_side_only_are_compared_with_nothing),
        cmocka_unit_test(comparing_survives_every_refused_allocation),
    };
    return cmocka_run_group_tests(tests, printed_begin, printed_free);
}
