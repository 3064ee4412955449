// bench_report_test.c — results for people: tables that fit, every figure as CSV, a page whose data
// cannot end its script.
#include "printed.h"
#include "support.h"

#include <ration/bench_report.h>

#include "bench/result.h"

#include <math.h>

static rn_bench_results *results;

static void fill(rn_bench_result *r, const char *name, double seconds, uint64_t resident) {
    snprintf(r->name, sizeof r->name, "%s", name);
    snprintf(r->asked, sizeof r->asked, "%s", name);
    snprintf(r->device, sizeof r->device, "cpu");
    r->batch = 1;
    r->latency.samples = 100;
    r->latency.p50_s = seconds;
    r->latency.p50_low_s = 0.99 * seconds;
    r->latency.p50_high_s = 1.01 * seconds;
    r->latency.p99_s = 1.3 * seconds;
    r->throughput = 1 / seconds;
    r->resident_peak_bytes = resident;
}

static int set_up(void **state) {
    assert_ok(rn_bench_results_create(3, &results));
    snprintf(results->model, sizeof results->model, "resnet18");
    snprintf(results->baseline, sizeof results->baseline, "cpu");
    results->elapsed_s = 12.5;
    fill(&results->items[0], "cpu", 0.010, 80 << 20);
    fill(&results->items[1], "cpu+int8", 0.005, 40 << 20);
    snprintf(results->items[1].asked, sizeof results->items[1].asked, "OPTIMUM_QUANTO_WI8");
    results->items[1].speedup = 2;
    results->items[1].accuracy = (rn_bench_accuracy){
        .reference = "cpu", .max_abs = NAN, .max_rel = 0.0123, .cosine = NAN, .top1 = NAN};
    rn_bench_result *r = &results->items[2];
    snprintf(r->name, sizeof r->name, "xla:cpu");
    r->batch = 1;
    r->outcome = RN_BENCH_CRASHED;
    r->failure.signal = 11;
    snprintf(r->failure.stage, sizeof r->failure.stage, "compiling");
    snprintf(r->failure.message, sizeof r->failure.message,
             "a message | with a bar,\na second line, </script><b> and \x1b[31mcolour");
    snprintf(r->failure.log, sizeof r->failure.log, "1\n2\n3\n4\n5\n6\n\x1b[0m7\n");
    snprintf(r->command, sizeof r->command, "ration bench-worker resnet18 --variants xla:cpu");
    return printed_begin(state);
}

static int tear_down(void **state) {
    rn_bench_results_destroy(results);
    return printed_free(state);
}

static void print(rn_bench_form form, uint32_t width) {
    assert_ok(
        rn_bench_report(results, form, &(rn_bench_report_options){.width = width}, printed_sink()));
    printed_end();
}

// Characters of the longest line.
static size_t widest(const char *text) {
    size_t most = 0, now = 0;
    for (; *text; text++) {
        now = *text == '\n' ? 0 : now + ((*text & 0xc0) != 0x80);
        if (now > most) most = now;
    }
    return most;
}

static void the_table_has_a_line_a_variant(void **state) {
    (void)state;
    print(RN_BENCH_TEXT, 120);
    assert_printed("variant");
    assert_printed("OPTIMUM_QUANTO_WI8  5.00 ms");
    assert_printed("5.00 ms");
    assert_printed("±1.0 %");
    assert_printed("1.2e-02");
    assert_printed("crashed by signal 11 while compiling: a message");
    assert_printed(
        "\n  | 3\n  | 4\n  | 5\n  | 6\n  | ?[0m7\n  again: ration bench-worker resnet18");
    assert_null(strchr((const char *)printed.data, '\x1b'));
    assert_null(strstr((const char *)printed.data, "nan"));
}

static void a_narrow_table_leaves_columns_out(void **state) {
    (void)state;
    results->items[2].failure.message[0] = results->items[2].command[0] = 0;
    for (uint32_t width = 60; width <= 160; width += 20) {
        print(RN_BENCH_TEXT, width);
        assert_in_range(widest((const char *)printed.data), 40, width);
        assert_printed("5.00 ms"); // the median is the last to go
    }
}

static void figures_that_nobody_has_are_no_columns(void **state) {
    (void)state;
    print(RN_BENCH_MARKDOWN, 0);
    assert_null(strstr((const char *)printed.data, "planned"));
    assert_printed("| xla:cpu | crashed by signal 11 while compiling: a message \\| with a bar");
    assert_printed("&lt;/script>");
    results->items[0].host.planned_bytes = results->items[0].host.measured_bytes = 64 << 20;
    print(RN_BENCH_MARKDOWN, 0);
    assert_printed("| planned | measured |");
}

static void a_sweep_names_batch_and_budget(void **state) {
    (void)state;
    results->items[1].batch = 8;
    results->items[2].batch = 32;
    results->items[2].budget_bytes = 64 << 20;
    print(RN_BENCH_TEXT, 100);
    assert_printed("batch");
    assert_printed("batch 32, within 64.0 MiB: crashed");
}

static size_t count(const char *text, char what) {
    size_t found = 0;
    bool quoted = false;
    for (; *text && (quoted || *text != '\n'); text++) {
        if (*text == '"') quoted = !quoted;
        if (*text == what && !quoted) found++;
    }
    return found;
}

static void csv_has_every_figure_under_its_name(void **state) {
    (void)state;
    print(RN_BENCH_CSV, 0);
    const char *text = (const char *)printed.data;
    assert_printed("name,asked,outcome,");
    assert_printed("latency.p50_s");
    assert_printed("cpu+int8,OPTIMUM_QUANTO_WI8,success,");
    assert_printed("\"a message | with a bar,\n");
    size_t columns = count(text, ',');
    assert_in_range(columns, 50, 100);
    for (int line = 0; line < 3; line++) { // the third has quoted line breaks
        text = strchr(text, '\n') + 1;
        assert_int_equal(count(text, ','), columns);
    }
    assert_null(strstr((const char *)printed.data, "nan"));
}

static void the_page_keeps_its_data_inside(void **state) {
    (void)state;
    print(RN_BENCH_HTML, 0);
    const char *text = (const char *)printed.data, *data = strstr(text, "id=\"results-data\">");
    assert_non_null(data);
    const char *end = strstr(data, "</script>");
    assert_printed("\\u003c/script>\\u003cb>");
    assert_non_null(strstr(end, "id=\"changes-data\">null</script>"));
    assert_null(strstr(text, "http://www.w3.org/2000/svg\" src"));
    assert_null(strstr(text, "https:"));
}

static void no_form_but_these(void **state) {
    (void)state;
    assert_fails(RN_INVALID, rn_bench_report(results, (rn_bench_form)9, NULL, printed_sink()));
    printed_end();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_table_has_a_line_a_variant),
        TEST(a_narrow_table_leaves_columns_out),
        TEST(figures_that_nobody_has_are_no_columns),
        TEST(a_sweep_names_batch_and_budget),
        TEST(csv_has_every_figure_under_its_name),
        TEST(the_page_keeps_its_data_inside),
        TEST(no_form_but_these),
    };
    return test_verdict(cmocka_run_group_tests(tests, NULL, NULL));
}
