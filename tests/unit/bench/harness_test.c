// harness_test.c — whatever becomes of a worker is a result, and the others run.
//
// This program is its own worker: started again with FAKE in its environment, it does what that
// says.
#include "support.h"

#include "bench/child.h"
#include "bench/records.h"
#include "bench/result.h"

#include <ration/bench.h>

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the worker ---------------------------------------------------------------------------------

static void send_outputs(rn_bench_worker *worker, size_t count, float add) {
    float values[4096];
    for (size_t at = 0; at < count; at += 4096) {
        for (size_t i = 0; i < 4096; i++)
            values[i] = (float)((at + i) % 1000) / 1000 + add;
        assert_ok(rn_bench_worker_output(worker, values, count - at < 4096 ? count - at : 4096));
    }
}

static void print_much(size_t megabytes) {
    static char line[1 << 20];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (size_t i = 0; i < megabytes; i++)
        fwrite(line, 1, sizeof line, i % 2 ? stderr : stdout);
    printf("the last line\n");
    fflush(stdout);
}

static int work(const char *what) {
    rn_bench_worker *worker;
    assert_ok(rn_bench_worker_open(&worker));
    rn_bench_worker_stage(worker, "loading");
    if (strcmp(what, "hang") == 0) pause();
    if (strcmp(what, "killed") == 0) raise(SIGKILL);
    if (strcmp(what, "137") == 0) _exit(137);
    if (strcmp(what, "exit") == 0) _exit(3);
    if (strcmp(what, "silent") == 0) _exit(0);
    if (strcmp(what, "noise") == 0) (void)!write(3, "Segmentation fault, or whatever\n", 32);
    if (strcmp(what, "crash") == 0) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (strcmp(what, "prints") == 0) print_much(100);
    if (strcmp(what, "over_budget") == 0) {
        (void)rn_hint(rn_fail(RN_OVER_BUDGET, "it does not fit"), "more memory");
        rn_bench_worker_fail(worker, rn_last_error());
    } else {
        double ns = 1e6;
        while (rn_bench_worker_sample(worker, ns))
            ns = 1e6 + fmod(ns * 7, 1000);
        if (strcmp(what, "wrong") == 0) send_outputs(worker, 1 << 22, 0.5f);
        if (strcmp(what, "short") == 0) send_outputs(worker, 1000, 0);
        if (strcmp(what, "good") == 0 || strcmp(what, "prints") == 0)
            send_outputs(worker, 1 << 22, 0); // 16 MiB
        assert_ok(rn_bench_worker_figures(worker, "{\"device\": \"fake\", \"load_s\": 0.5}"));
    }
    assert_ok(rn_bench_worker_close(worker));
    return 0;
}

// ---- the harness --------------------------------------------------------------------------------

static char self_path[4096];

typedef struct fake {
    char variable[64];
    const char *words[8];
} fake;

static void make_fake(fake *f, const char *what, rn_bench_variant *out) {
    snprintf(f->variable, sizeof f->variable, "FAKE=%s", what);
    const char *words[] = {"env",     f->variable, "ASAN_OPTIONS=handle_segv=0:detect_leaks=0",
                           self_path, "harness",   NULL};
    memcpy(f->words, words, sizeof words);
    *out = (rn_bench_variant){.name = what, .command = f->words};
}

static rn_bench_results *run(const char *const *names, size_t count, rn_bench_options options) {
    static fake fakes[16];
    rn_bench_variant variants[16];
    rn_bench_results *results = NULL;
    for (size_t i = 0; i < count; i++)
        make_fake(&fakes[i], names[i], &variants[i]);
    assert_ok(rn_bench_run(variants, count, &options, &results));
    assert_int_equal(results->count, count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(results->items[i].name, names[i]); // in the order asked for
    return results;
}

static void every_end_of_a_worker_is_a_result(void **state) {
    (void)state;
    static const char *const names[] = {"killed", "good",   "137",   "exit",  "silent",     "noise",
                                        "crash",  "prints", "wrong", "short", "over_budget"};
    static const rn_bench_outcome outcomes[] = {
        RN_BENCH_KILLED, RN_BENCH_SUCCESS, RN_BENCH_NO_MEMORY, RN_BENCH_FAILED,
        RN_BENCH_FAILED, RN_BENCH_FAILED,  RN_BENCH_CRASHED,   RN_BENCH_SUCCESS,
        RN_BENCH_WRONG,  RN_BENCH_WRONG,   RN_BENCH_REFUSED};
    rn_bench_results *results =
        run(names, 11, (rn_bench_options){.baseline = "good", .samples = 50});
    for (size_t i = 0; i < 11; i++) {
        const rn_bench_result *r = &results->items[i];
        if (r->outcome != outcomes[i])
            fail_msg("%s: %s, %s", names[i], rn_bench_outcome_name(r->outcome), r->failure.message);
        assert_true(r->command[0] && r->elapsed_s >= 0);
        if (r->outcome != RN_BENCH_SUCCESS) assert_true(r->failure.message[0]);
    }
    assert_int_equal(results->items[0].failure.signal, SIGKILL);
    assert_string_equal(results->items[0].failure.stage, "loading");
    assert_int_equal(results->items[2].failure.exit_code, 137);
    assert_int_equal(results->items[3].failure.exit_code, 3);
    assert_int_equal(results->items[6].failure.signal, SIGSEGV);
    const rn_bench_result *good = &results->items[1], *prints = &results->items[7];
    assert_int_equal(good->latency.samples, 50);
    assert_string_equal(good->device, "fake");
    assert_true(good->load_s == 0.5 && good->resident_peak_bytes > 0);
    assert_non_null(strstr(prints->failure.log, "the last line"));
    assert_int_equal(prints->accuracy.values, 1 << 22);
    assert_true(prints->accuracy.max_abs == 0 && prints->accuracy.top1 == 1);
    assert_true(fabs(results->items[8].accuracy.max_abs - 0.5) < 1e-6);
    assert_string_equal(results->items[10].failure.status, "RN_OVER_BUDGET");
    assert_string_equal(results->items[10].failure.hint, "more memory");
    rn_bench_results_destroy(results);
}

static void a_worker_that_hangs_is_ended_with_all_it_started(void **state) {
    (void)state;
    static const char *const names[] = {"hang", "good"};
    rn_bench_results *results =
        run(names, 2, (rn_bench_options){.timeout_s = 0.5, .samples = 5, .baseline = "hang"});
    // A machine under load may take longer than that for the other one: what is asked is the first.
    assert_int_equal(results->items[0].outcome, RN_BENCH_TIMED_OUT);
    assert_string_equal(results->items[0].failure.stage, "loading");
    assert_int_equal(results->items[0].failure.signal, SIGKILL);
    rn_bench_results_destroy(results);
    // Something that ignores signals, holds the pipes open and outlives its parent.
    const char *path = test_path("left_behind");
    char script[600];
    snprintf(script, sizeof script, "(trap '' TERM HUP; echo $$ > %s; exec sleep 1000) & exit 4",
             path);
    const char *words[] = {"sh", "-c", script, NULL};
    rn_bench_variant variant = {.name = "x", .command = words};
    assert_ok(rn_bench_run(&variant, 1, &(rn_bench_options){0}, &results));
    assert_int_equal(results->items[0].outcome, RN_BENCH_FAILED);
    assert_int_equal(results->items[0].failure.exit_code, 4);
    rn_bench_results_destroy(results);
}

// ---- cancelling ---------------------------------------------------------------------------------

static rn_flag cancel;

static void cancel_in_the_second(void *self, const rn_bench_progress *progress) {
    (void)self;
    if (progress->index == 1 && strcmp(progress->stage, "loading") == 0) cancel = true;
}

static void what_is_done_stays_when_it_is_cancelled(void **state) {
    (void)state;
    static const char *const names[] = {"good", "hang", "exit"};
    cancel = false;
    rn_bench_results *results =
        run(names, 3,
            (rn_bench_options){.cancel = &cancel, .progress = cancel_in_the_second, .samples = 5});
    assert_true(results->cancelled);
    assert_int_equal(results->items[0].outcome, RN_BENCH_SUCCESS);
    assert_int_equal(results->items[1].outcome, RN_BENCH_CANCELLED);
    assert_int_equal(results->items[2].outcome, RN_BENCH_CANCELLED);
    assert_int_equal(results->items[0].latency.samples, 5);
    rn_bench_results_destroy(results);
}

// ---- memory -------------------------------------------------------------------------------------

// What this process has on its ledger does not depend on how many samples there are, and neither
// does the worker.
static void memory_does_not_grow_with_samples(void **state) {
    (void)state;
    static const char *const names[] = {"many"};
    rn_ledger_reset_peaks();
    rn_bench_results *few = run(names, 1, (rn_bench_options){.samples = 100});
    uint64_t few_bytes = rn_ledger_total(RN_DEVICE_HOST).peak_bytes;
    rn_bench_results *many = run(names, 1, (rn_bench_options){.samples = 1000000});
    uint64_t many_bytes = rn_ledger_total(RN_DEVICE_HOST).peak_bytes;
    assert_int_equal(few->items[0].latency.samples, 100);
    assert_int_equal(many->items[0].latency.samples, 1000000);
    assert_true(many_bytes - few_bytes < 1 << 20);
    uint64_t a = few->items[0].resident_peak_bytes, b = many->items[0].resident_peak_bytes;
#ifdef __SANITIZE_ADDRESS__
    enum { SLACK = 4 << 20 }; // its shadow of what is touched
#else
    enum { SLACK = 1 << 20 };
#endif
    assert_true((a > b ? a - b : b - a) <= SLACK);
    rn_bench_results_destroy(few);
    rn_bench_results_destroy(many);
}

static void a_memory_limit_ends_a_worker(void **state) {
    (void)state;
    const char *words[] = {"python3", "-c", "x = bytearray(400 << 20)\nx[::4096] = x[::4096]",
                           NULL};
    if (system("python3 -c '' 2> /dev/null") != 0) skip_because("no python3");
    rn_bench_variant variant = {.name = "large", .command = words};
    rn_bench_results *results;
    assert_ok(rn_bench_run(&variant, 1, &(rn_bench_options){.limit_bytes = 100 << 20}, &results));
    // A cgroup kills it, RLIMIT_DATA makes it fail: Python says so.
    const rn_bench_result *r = &results->items[0];
    assert_true(r->outcome == RN_BENCH_NO_MEMORY || strstr(r->failure.log, "MemoryError"));
    assert_true(r->resident_peak_bytes < 120 << 20);
    rn_bench_results_destroy(results);
}

// ---- asking for what is not there ---------------------------------------------------------------

static void wrong_requests_are_refused_before_anything_runs(void **state) {
    (void)state;
    rn_bench_results *results;
    rn_bench_variant variants[] = {{.name = "cpu"}, {.name = "COMPILE_INDUCTOR"}};
    rn_bench_options options = {.model = "mlp", .program = "/bin/false"};
    assert_fails(RN_NOT_FOUND, rn_bench_run(variants, 2, &options, &results));
    assert_non_null(strstr(rn_last_error()->hint, "COMPILE_INDUCTOR_DEFAULT"));
    assert_fails(RN_INVALID, rn_bench_run(variants, 0, &options, &results));
    options.baseline = "ort";
    assert_fails(RN_NOT_FOUND, rn_bench_run(variants, 1, &options, &results));
    options.baseline = NULL;
    options.reserved[1] = 1;
    assert_fails(RN_INVALID, rn_bench_run(variants, 1, &options, &results));
    const char *words[] = {"/no/such/program", NULL};
    rn_bench_variant none = {.name = "x", .command = words};
    assert_ok(rn_bench_run(&none, 1, &(rn_bench_options){0}, &results));
    assert_int_equal(results->items[0].outcome, RN_BENCH_FAILED);
    rn_bench_results_destroy(results);
}

// ---- records ------------------------------------------------------------------------------------

static rn_status count_record(void *self, rn_record_kind kind, rn_str payload) {
    size_t *counts = self;
    counts[kind] += payload.bytes + 1;
    return RN_OK;
}

static void records_come_in_any_pieces_and_damage_is_noticed(void **state) {
    (void)state;
    int fds[2];
    char bytes[256];
    assert_int_equal(pipe(fds), 0);
    assert_ok(rn_record_write(fds[1], RN_RECORD_STAGE, "loading", 7));
    assert_ok(rn_record_write(fds[1], RN_RECORD_END, NULL, 0));
    ssize_t count = read(fds[0], bytes, sizeof bytes);
    assert_int_equal(count, 39);
    for (size_t piece = 1; piece < 40; piece++) {
        rn_record_reader reader;
        size_t counts[8] = {0};
        assert_ok(rn_record_reader_create(&reader));
        for (size_t at = 0; at < 39; at += piece)
            assert_ok(rn_record_feed(&reader, bytes + at, 39 - at < piece ? 39 - at : piece,
                                     count_record, counts));
        assert_true(counts[RN_RECORD_STAGE] == 8 && counts[RN_RECORD_END] == 1);
        rn_record_reader_free(&reader);
    }
    for (size_t at = 0; at < 39; at++) {
        rn_record_reader reader;
        size_t counts[256] = {0};
        assert_ok(rn_record_reader_create(&reader));
        bytes[at] ^= 1;
        rn_status s = rn_record_feed(&reader, bytes, 39, count_record, counts);
        // A length that grew waits for more, which never comes.
        assert_true(s == RN_CORRUPT || counts[RN_RECORD_END] == 0);
        bytes[at] ^= 1;
        rn_record_reader_free(&reader);
    }
    close(fds[0]);
    close(fds[1]);
}

int main(void) {
    const char *what = getenv("FAKE");
    if (what && getenv("RATION_BENCH")) return work(what);
    ssize_t bytes = readlink("/proc/self/exe", self_path, sizeof self_path - 1);
    if (bytes <= 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_end_of_a_worker_is_a_result),
        cmocka_unit_test(a_worker_that_hangs_is_ended_with_all_it_started),
        cmocka_unit_test(what_is_done_stays_when_it_is_cancelled),
        cmocka_unit_test(memory_does_not_grow_with_samples),
        cmocka_unit_test(a_memory_limit_ends_a_worker),
        cmocka_unit_test(wrong_requests_are_refused_before_anything_runs),
        cmocka_unit_test(records_come_in_any_pieces_and_damage_is_noticed),
    };
    return test_verdict(cmocka_run_group_tests(tests, NULL, NULL));
}
