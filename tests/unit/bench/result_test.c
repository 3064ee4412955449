// result_test.c — results as JSON: what is written is read again, and what is damaged is refused.
#include "printed.h"
#include "support.h"

#include "bench/result.h"

#include <math.h>
#include <unistd.h>

static const char *const golden_path = "tests/golden/bench/results.json";

// A variant with every figure, one that timed out, one of a text model.
static rn_bench_results *make_results(void) {
    rn_bench_results *results;
    assert_int_equal(rn_bench_results_create(3, &results), RN_OK);
    snprintf(results->model, sizeof results->model, "resnet18");
    snprintf(results->baseline, sizeof results->baseline, "eager");
    snprintf(results->tier, sizeof results->tier, "2");
    snprintf(results->version, sizeof results->version, "0.1.0");
    snprintf(results->date, sizeof results->date, "2026-01-31T12:03:04.123Z");
    snprintf(results->cpu, sizeof results->cpu, "A processor");
    results->parameters = 11689512;
    results->threads = 2;
    results->empty_s = 2.5e-8;
    results->elapsed_s = 12.5;
    rn_bench_result *r = &results->items[0];
    snprintf(r->name, sizeof r->name, "cpu+int8");
    snprintf(r->asked, sizeof r->asked, "OPTIMUM_QUANTO_WI8");
    snprintf(r->engine, sizeof r->engine, "ration");
    snprintf(r->device, sizeof r->device, "cpu");
    snprintf(r->weights, sizeof r->weights, "int8");
    snprintf(r->activations, sizeof r->activations, "f32");
    snprintf(r->data_dtype, sizeof r->data_dtype, "f32");
    r->batch = 8;
    r->threads = 2;
    r->latency = (rn_bench_latency){.samples = 100,
                                    .processes = 3,
                                    .between = 0.004,
                                    .warm_up = 12,
                                    .min_s = 0.0098,
                                    .p50_s = 0.010,
                                    .p90_s = 0.0104,
                                    .p99_s = 0.0125,
                                    .max_s = 0.013,
                                    .mean_s = 0.01005,
                                    .p50_low_s = 0.00995,
                                    .p50_high_s = 0.01004,
                                    .total_s = 1.005,
                                    .loop_s = 1.006,
                                    .steady = true};
    for (size_t i = 0; i < RN_BENCH_PROCESSES; i++)
        r->latency.floors_s[i] = i < 3 ? 0.0098 + 0.0001 * (double)i : NAN;
    r->throughput = 800;
    r->load_s = 0.04;
    r->first_s = 0.014;
    r->elapsed_s = 1.5;
    r->host.planned_bytes = r->host.measured_bytes = 20 << 20;
    r->host.planned[RN_PURPOSE_WEIGHTS] = r->host.measured[RN_PURPOSE_WEIGHTS] = 12 << 20;
    r->host.planned[RN_PURPOSE_ACTIVATIONS] = r->host.measured[RN_PURPOSE_ACTIVATIONS] = 8 << 20;
    r->host.peak_bytes = 21 << 20;
    r->resident_peak_bytes = 30 << 20;
    r->left_bytes = 0;
    r->read_bytes = 0;
    r->accuracy = (rn_bench_accuracy){.reference = "eager",
                                      .values = 8000,
                                      .max_abs = 0.01,
                                      .max_rel = 0.002,
                                      .cosine = 0.99999,
                                      .top1 = 1};
    r->speedup = 1.5;
    r->speedup_low = 1.48;
    r->speedup_high = 1.53;
    snprintf(r->command, sizeof r->command, "ration bench resnet18 --variants cpu+int8 --batch 8");
    r = &results->items[1];
    snprintf(r->name, sizeof r->name, "xla:cpu");
    snprintf(r->asked, sizeof r->asked, "xla:cpu");
    r->outcome = RN_BENCH_TIMED_OUT;
    r->failure.signal = 9;
    snprintf(r->failure.stage, sizeof r->failure.stage, "compiling");
    snprintf(r->failure.message, sizeof r->failure.message, "no end after 60 s");
    snprintf(r->failure.log, sizeof r->failure.log, "first \"line\"\nsecond line\n");
    r = &results->items[2];
    snprintf(r->name, sizeof r->name, "cpu");
    snprintf(r->asked, sizeof r->asked, "cpu");
    r->texts[0] = (rn_bench_text){"pp512", 512, 0, 120.5, 119, 121};
    r->texts[1] = (rn_bench_text){"tg128 @ d4096", 128, 4096, 14.25, 14, 14.5};
    r->text_count = 2;
    return results;
}

static void results_are_written_as_the_golden_file_has_them(void **state) {
    (void)state;
    size_t bytes = 0;
    rn_bench_results *results = make_results();
    assert_ok(rn_bench_results_write(results, printed_sink()));
    printed_json_check();
    if (getenv("RATION_WRITE_GOLDEN")) test_write(golden_path, printed.data, printed.bytes);
    char *golden = test_read(golden_path, &bytes);
    assert_int_equal(bytes, printed.bytes);
    assert_memory_equal(printed.data, golden, bytes);
    free(golden);
    rn_bench_results_destroy(results);
}

static void what_is_read_is_written_again_as_it_was(void **state) {
    (void)state;
    size_t bytes = 0;
    rn_bench_results *results;
    char *golden = test_read(golden_path, &bytes);
    assert_ok(rn_bench_results_read(golden_path, &results));
    assert_int_equal(results->count, 3);
    assert_int_equal(results->items[1].outcome, RN_BENCH_TIMED_OUT);
    assert_int_equal(results->items[0].host.measured[RN_PURPOSE_WEIGHTS], 12 << 20);
    assert_true(results->items[1].limit_bytes == RN_BENCH_UNKNOWN);
    assert_true(isnan(results->items[0].joules)); // null, and not 0
    assert_true(results->items[0].latency.floors_s[2] == 0.01);
    assert_true(isnan(results->items[0].latency.floors_s[3]));
    assert_ok(rn_bench_results_write(results, printed_sink()));
    assert_int_equal(bytes, printed.bytes);
    assert_memory_equal(printed.data, golden, bytes);
    free(golden);
    rn_bench_results_destroy(results);
}

// A reader of alma's results, of either generation, finds what it looks for.
static void almas_keys_are_there(void **state) {
    (void)state;
    static const char *const keys[] = {
        "\"device\": \"cpu\"",       "\"total_elapsed_time\": 1.006",
        "\"total_inf_time\": 1.005", "\"total_samples\": 800",
        "\"batch_size\": 8",         "\"throughput\": 800",
        "\"status\": \"success\"",   "\"data_dtype\": \"f32\"",
        "\"status\": \"error\"",     "\"error\": \"no end after 60 s\"",
        "\"traceback\": \"first"};
    rn_bench_results *results = make_results();
    assert_ok(rn_bench_results_write(results, printed_sink()));
    printed_end();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_printed(keys[i]);
    rn_bench_results_destroy(results);
}

#define TEN     "1,1,1,1,1,1,1,1,1,1,"
#define SEVENTY TEN TEN TEN TEN TEN TEN TEN "1" // more than there can be

static void damaged_files_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "[]",
        "{\"format\": \"ration-bench-1\", \"results\": [",
        "{\"results\": [1]}",
        "{\"results\": [{\"outcome\": \"perfect\"}]}",
        "{\"results\": [{\"batch_size\": -1}]}",
        "{\"results\": [{\"batch_size\": \"8\"}]}",
        "{\"results\": [{\"latency\": 5}]}",
        "{\"results\": [{\"latency\": {\"floors_s\": 5}}]}",
        "{\"results\": [{\"latency\": {\"floors_s\": [1, \"2\"]}}]}",
        "{\"results\": [{\"latency\": {\"floors_s\": [1, [2]]}}]}",
        "{\"results\": [{\"latency\": {\"floors_s\": [" SEVENTY "]}}]}",
        "{\"results\": [{\"failure\": {\"signal\": 1e300}}]}",
        "{\"results\": [{\"texts\": [5]}]}",
        "{\"results\": [{\"host_memory\": {\"purposes\": []}}]}",
    };
    rn_bench_results *results;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *path = test_path("damaged.json");
        test_write(path, texts[i], strlen(texts[i]));
        assert_fails(RN_CORRUPT, rn_bench_results_read(path, &results));
        assert_null(results);
    }
    assert_fails(RN_NOT_FOUND, rn_bench_results_read(test_path("no_such.json"), &results));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_written_as_the_golden_file_has_them),
        cmocka_unit_test(what_is_read_is_written_again_as_it_was),
        cmocka_unit_test(almas_keys_are_there),
        cmocka_unit_test(damaged_files_are_refused),
    };
    return test_verdict(cmocka_run_group_tests(tests, printed_begin, printed_free));
}
