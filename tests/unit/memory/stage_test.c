// Stages: one line each, for people or for machines, and a marker for the profiler.
#include "support.h"
#include "json_check.h"
#include "base/fault.h"
#include "base/str.h"
#include <ration/log.h>
#include <ration/memory.h>

#define MIB ((uint64_t)1 << 20)

static const rn_account weights = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, NULL};

static char line[8192]; // what was logged since begin_log
static size_t line_bytes;

static rn_status capture(void *self, const char *text, size_t bytes) {
    (void)self;
    if (bytes > sizeof line - 1 - line_bytes) return rn_fail(RN_IO, "the test's log is full");
    memcpy(line + line_bytes, text, bytes);
    line_bytes += bytes;
    line[line_bytes] = '\0';
    return RN_OK;
}

static void begin_log(rn_log_form form, rn_log_level least) {
    line_bytes = 0;
    line[0] = '\0';
    rn_log_set((rn_sink){NULL, capture}, form, least);
}

static int stop_log(void **state) {
    (void)state;
    rn_log_set((rn_sink){NULL, NULL}, RN_LOG_TEXT, RN_LOG_DEBUG);
    rn_ledger_listen(NULL, NULL);
    return rn_ledger_total(RN_DEVICE_HOST).now_bytes == 0 ? 0 : -1;
}

static void text_line_says_what_is_held_and_free(void **state) {
    (void)state;
    begin_log(RN_LOG_TEXT, RN_LOG_INFO);
    rn_ledger_charge(weights, NULL, 3 * MIB);
    rn_stage("model_loaded_cpu");
    rn_ledger_release(weights, NULL, 3 * MIB);
    if (!rn_str_matches(rn_str_from(line), RN_STR("??:??:??.??? stage model_loaded_cpu: resident "
                                                  "*iB, host 3.00 MiB, free *iB\n")))
        fail_msg("%s", line);
    assert_ptr_equal(line + line_bytes - 1, strchr(line, '\n')); // one line
}

static void json_line_has_the_numbers(void **state) {
    (void)state;
    char text[64];
    begin_log(RN_LOG_JSON, RN_LOG_INFO);
    rn_account io = {RN_DEVICE_HOST, RN_PURPOSE_IO, NULL};
    rn_ledger_charge(weights, NULL, 3 * MIB);
    rn_ledger_charge(io, NULL, 5);
    rn_stage("server_ready");
    rn_ledger_release(weights, NULL, 3 * MIB);
    rn_ledger_release(io, NULL, 5);
    assert_true(test_json_valid(line, line_bytes));
    assert_ptr_equal(line + line_bytes - 1, strchr(line, '\n'));
    assert_true(test_json_get(line, line_bytes, "stage", text, sizeof text));
    assert_string_equal("server_ready", text);
    assert_true(test_json_get(line, line_bytes, "time", text, sizeof text));
    assert_true(rn_str_matches(rn_str_from(text), RN_STR("20*-*-*T*:*:*.*Z")));
    assert_int_equal(3 * MIB + 5, test_json_u64(line, line_bytes, "ledger/host/total"));
    assert_int_equal(3 * MIB, test_json_u64(line, line_bytes, "ledger/host/weights"));
    assert_int_equal(5, test_json_u64(line, line_bytes, "ledger/host/io"));
    assert_false(test_json_get(line, line_bytes, "ledger/host/kv", text, sizeof text));
    uint64_t resident = test_json_u64(line, line_bytes, "resident_bytes");
    assert_true(resident > 0);
    assert_true(test_json_u64(line, line_bytes, "resident_peak_bytes") >= resident);
    assert_true(test_json_u64(line, line_bytes, "free_bytes") > 0);
}

static void names_are_escaped(void **state) {
    (void)state;
    char text[64];
    begin_log(RN_LOG_JSON, RN_LOG_INFO);
    rn_stage("a \"quoted\"\nname");
    assert_true(test_json_valid(line, line_bytes));
    assert_true(test_json_get(line, line_bytes, "stage", text, sizeof text));
    assert_string_equal("a \"quoted\"\nname", text);
}

static void log_that_wants_less_gets_nothing(void **state) {
    (void)state;
    begin_log(RN_LOG_TEXT, RN_LOG_WARNING);
    rn_stage("start");
    assert_int_equal(0, line_bytes);
}

typedef struct marks {
    char text[128];
} marks;

static void mark(void *self, const rn_event *event) {
    marks *m = self;
    assert_int_equal(RN_EVENT_STAGE, event->kind);
    strcat(m->text, event->name);
    strcat(m->text, " ");
}

static void stages_are_events_with_and_without_a_log(void **state) {
    (void)state;
    marks m = {""};
    rn_ledger_listen(mark, &m);
    rn_log_set((rn_sink){NULL, NULL}, RN_LOG_TEXT, RN_LOG_DEBUG);
    rn_stage("start");
    begin_log(RN_LOG_TEXT, RN_LOG_INFO);
    rn_stage("tokenizer_loaded");
    rn_ledger_listen(NULL, NULL);
    rn_stage("final_cleanup");
    assert_string_equal("start tokenizer_loaded ", m.text);
}

static void stage_leaves_the_story_and_the_ledger_alone(void **state) {
    (void)state;
    (void)rn_fail(RN_CORRUPT, "what happened before");
    begin_log(RN_LOG_JSON, RN_LOG_INFO);
    for (uint64_t nth = 0; nth <= 3; nth++) {
        rn_fault_arm(RN_FAULT_ALLOC, nth); // its line may get lost
        rn_stage("start");
        assert_string_equal("what happened before", rn_last_story()->message);
        assert_int_equal(0, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
    }
    rn_fault_arm(RN_FAULT_ALLOC, 0);
}

// Runs last: devices stay.
static void every_device_is_in_the_line(void **state) {
    (void)state;
    rn_device_id gpu;
    assert_ok(rn_device_add("gpu:0", &gpu));
    rn_account there = {gpu, RN_PURPOSE_KV, NULL};
    rn_ledger_charge(there, NULL, 2 * MIB);
    begin_log(RN_LOG_TEXT, RN_LOG_INFO);
    rn_stage("model_on_device");
    assert_non_null(strstr(line, ", host 0 B, gpu:0 2.00 MiB, free "));
    begin_log(RN_LOG_JSON, RN_LOG_INFO);
    rn_stage("model_on_device");
    assert_int_equal(0, test_json_u64(line, line_bytes, "ledger/host/total"));
    assert_int_equal(2 * MIB, test_json_u64(line, line_bytes, "ledger/gpu:0/total"));
    assert_int_equal(2 * MIB, test_json_u64(line, line_bytes, "ledger/gpu:0/kv"));
    rn_ledger_release(there, NULL, 2 * MIB);
}

#define TEST(name) cmocka_unit_test_teardown(name, stop_log)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(text_line_says_what_is_held_and_free),
        TEST(json_line_has_the_numbers),
        TEST(names_are_escaped),
        TEST(log_that_wants_less_gets_nothing),
        TEST(stages_are_events_with_and_without_a_log),
        TEST(stage_leaves_the_story_and_the_ledger_alone),
        TEST(every_device_is_in_the_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
