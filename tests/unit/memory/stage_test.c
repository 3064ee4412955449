// Stages: one line each, for people or for machines, and a marker for the profiler.
#include "support.h"
#include "json_check.h"
#include "base/fault.h"
#include "base/str.h"
#include "memory/device_usage.h"
#include "memory/stage.h"

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

static void symbol_stands_before_the_text(void **state) {
    (void)state;
    begin_log(RN_LOG_SYMBOLS, RN_LOG_INFO);
    rn_stage("start");
    if (!rn_str_matches(rn_str_from(line),
                        RN_STR("📊 ??:??:??.??? stage start: resident *iB, host *, free *iB\n")))
        fail_msg("%s", line);
}

static void text_is_one_line_whatever_is_in_the_name(void **state) {
    (void)state;
    begin_log(RN_LOG_TEXT, RN_LOG_INFO);
    rn_stage("a\nforged\x1b[2J line");
    assert_ptr_equal(line + line_bytes - 1, strchr(line, '\n'));
    assert_non_null(strstr(line, " stage a forged?[2J line: "));
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

static bool read_driver(void *self, rn_device_usage *out) {
    (void)self;
    out->source = "sysfs";
    rn_device_usage_add(out, "tensors", 2 * MIB);
    rn_device_usage_add(out, "model_code", MIB);
    return true;
}

static void line_has_what_a_driver_says(void **state) {
    (void)state;
    rn_device_id device;
    char text[64];
    assert_ok(rn_device_add("core", &device));
    rn_device_usage_from(device, read_driver, NULL);
    begin_log(RN_LOG_TEXT, RN_LOG_INFO);
    rn_stage("model_on_xla");
    assert_non_null(strstr(line, "core 0 B (sysfs: 3.00 MiB)"));
    begin_log(RN_LOG_JSON, RN_LOG_INFO);
    rn_stage("model_on_xla");
    assert_true(test_json_valid(line, line_bytes));
    assert_int_equal(test_json_u64(line, line_bytes, "drivers/core/used_bytes"), 3 * MIB);
    assert_int_equal(test_json_u64(line, line_bytes, "drivers/core/categories/tensors"), 2 * MIB);
    rn_device_usage_from(device, NULL, NULL);
    begin_log(RN_LOG_JSON, RN_LOG_INFO);
    rn_stage("model_on_xla");
    assert_false(test_json_get(line, line_bytes, "drivers/core/source", text, sizeof text));
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
        assert_string_equal("what happened before", rn_last_error()->message);
        assert_int_equal(0, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
    }
    rn_fault_arm(RN_FAULT_ALLOC, 0);
}

// ---- failures -----------------------------------------------------------------------------------

static const rn_error_info *over_budget(void) {
    (void)rn_hint(rn_fail(RN_OVER_BUDGET, "40 MiB do\nnot fit"), "the smallest is 41 MiB");
    return rn_last_error();
}

static void failure_is_one_line_with_class_meaning_and_hint(void **state) {
    (void)state;
    begin_log(RN_LOG_TEXT, RN_LOG_ERROR);
    rn_stage_failed("model_on_device", over_budget());
    if (!rn_str_matches(rn_str_from(line),
                        RN_STR("??:??:??.??? error failed at stage model_on_device: over_budget "
                               "(it would not fit the byte budget): 40 MiB do not fit; hint: the "
                               "smallest is 41 MiB; resident *iB, host 0 B*, free *iB\n")))
        fail_msg("%s", line);
    assert_ptr_equal(line + line_bytes - 1, strchr(line, '\n'));
    begin_log(RN_LOG_SYMBOLS, RN_LOG_ERROR);
    rn_stage_failed("start", over_budget());
    assert_true(rn_str_starts(rn_str_from(line), RN_STR("❌ ")));
    begin_log(RN_LOG_SYMBOLS, RN_LOG_INFO);
    rn_stage_failed_on("sim", RN_LOG_WARNING, "start", over_budget());
    assert_true(rn_str_starts(rn_str_from(line), RN_STR("⚠️ ")));
    assert_non_null(strstr(line, " warning failed at stage start on sim: over_budget ("));
    begin_log(RN_LOG_JSON, RN_LOG_INFO);
    rn_stage_failed_on("sim", RN_LOG_WARNING, "start", over_budget());
    assert_non_null(strstr(line, "\"target\":\"sim\""));
    begin_log(RN_LOG_TEXT, RN_LOG_ERROR);
    rn_stage_failed_on("sim", RN_LOG_WARNING, "start", over_budget());
    assert_int_equal(0, line_bytes);
}

static void failure_without_a_hint_has_that_of_its_class(void **state) {
    (void)state;
    begin_log(RN_LOG_TEXT, RN_LOG_ERROR);
    (void)rn_fail(RN_DEVICE, "nrt_execute status=1005");
    rn_stage_failed("warm_up", rn_last_error());
    assert_non_null(strstr(line, "failed at stage warm_up: nrt_exec_nc_busy ("));
    assert_non_null(strstr(line, "; hint: one process a core: see neuron-ls; resident "));
}

static void failure_in_json_has_a_field_for_each(void **state) {
    (void)state;
    static const char *const fields[][2] = {{"level", "error"},
                                            {"failed_stage", "model_on_device"},
                                            {"class", "over_budget"},
                                            {"meaning", "it would not fit the byte budget"},
                                            {"message", "40 MiB do\nnot fit"},
                                            {"hint", "the smallest is 41 MiB"}};
    char text[64];
    begin_log(RN_LOG_JSON, RN_LOG_INFO);
    rn_stage_failed("model_on_device", over_budget());
    assert_true(test_json_valid(line, line_bytes));
    assert_ptr_equal(line + line_bytes - 1, strchr(line, '\n'));
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        assert_true(test_json_get(line, line_bytes, fields[i][0], text, sizeof text));
        assert_string_equal(fields[i][1], text);
    }
    assert_true(test_json_u64(line, line_bytes, "resident_bytes") > 0);
    assert_int_equal(0, test_json_u64(line, line_bytes, "ledger/host/total"));
}

static void failure_is_a_mark_and_keeps_the_story(void **state) {
    (void)state;
    marks m = {""};
    rn_ledger_listen(mark, &m);
    begin_log(RN_LOG_TEXT, RN_LOG_INFO);
    rn_stage_failed("warm_up", over_budget());
    rn_ledger_listen(NULL, NULL);
    assert_string_equal("warm_up failed: over_budget ", m.text);
    assert_string_equal("the smallest is 41 MiB", rn_last_error()->hint);
    assert_int_equal(RN_OVER_BUDGET, rn_last_error()->status);
}

static void longest_failure_is_still_one_valid_line(void **state) {
    (void)state;
    static const rn_log_form forms[] = {RN_LOG_TEXT, RN_LOG_SYMBOLS, RN_LOG_JSON};
    rn_error_info story = {.status = RN_IO};
    memset(story.message, '"', sizeof story.message - 1);
    memset(story.hint, '\\', sizeof story.hint - 1);
    for (size_t i = 0; i < 3; i++) {
        begin_log(forms[i], RN_LOG_INFO);
        rn_stage_failed("start", &story);
        assert_true(line_bytes > 1500);
        assert_ptr_equal(line + line_bytes - 1, strchr(line, '\n'));
        if (forms[i] == RN_LOG_JSON) assert_true(test_json_valid(line, line_bytes));
    }
}

static void last_stage_is_remembered_and_failing_is_none(void **state) {
    (void)state;
    rn_stage("warm_up");
    rn_stage_failed("start", over_budget());
    assert_string_equal("warm_up", rn_stage_last().text);
    char temporary[] = "server_ready";
    rn_stage(temporary);
    temporary[0] = 'x';
    assert_string_equal("server_ready", rn_stage_last().text);
    rn_stage("a name that is much longer than any stage of a server's life has");
    assert_int_equal(sizeof rn_stage_last().text - 1, strlen(rn_stage_last().text));
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
        TEST(symbol_stands_before_the_text),
        TEST(text_is_one_line_whatever_is_in_the_name),
        TEST(json_line_has_the_numbers),
        TEST(names_are_escaped),
        TEST(log_that_wants_less_gets_nothing),
        TEST(stages_are_events_with_and_without_a_log),
        TEST(stage_leaves_the_story_and_the_ledger_alone),
        TEST(failure_is_one_line_with_class_meaning_and_hint),
        TEST(failure_without_a_hint_has_that_of_its_class),
        TEST(failure_in_json_has_a_field_for_each),
        TEST(failure_is_a_mark_and_keeps_the_story),
        TEST(longest_failure_is_still_one_valid_line),
        TEST(last_stage_is_remembered_and_failing_is_none),
        TEST(every_device_is_in_the_line),
        TEST(line_has_what_a_driver_says), // its device stays
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
