// rates_test.c — measured rates: where they are kept, what is read back, and what is refused.
#include "support.h"

#include "base/cpu.h"
#include "base/fault.h"
#include "device/kernel.h"
#include "memory/account.h"
#include "runtime/rates.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static rn_rates some_rates(void) {
    rn_rates rates = {.threads = 3,
                      .cpu = {.flops = 61e9,
                              .quantized_flops = 150e9,
                              .memory_bytes_second = 12.5e9,
                              .disk_bytes_second = 1.9e9,
                              .link_bytes_second = 12.5e9,
                              .step_seconds = 1.8e-6}};
    snprintf(rates.cpu_level, sizeof rates.cpu_level, "avx2");
    return rates;
}

static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fabs(b);
}

// ---- where --------------------------------------------------------------------------------------

static int clear_environment(void **state) {
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    return test_make_folder(state);
}

static void the_cache_folder_is_the_desktops_or_the_homes(void **state) {
    (void)state;
    char path[512];
    setenv("HOME", "/home/someone", 1);
    assert_ok(rn_rates_path(path, sizeof path));
    assert_string_equal("/home/someone/.cache/ration/rates.json", path);
    setenv("XDG_CACHE_HOME", "/var/tmp/cache", 1);
    assert_ok(rn_rates_path(path, sizeof path));
    assert_string_equal("/var/tmp/cache/ration/rates.json", path);
    setenv("XDG_CACHE_HOME", "relative", 1); // which the desktops' rules say to ignore
    assert_ok(rn_rates_path(path, sizeof path));
    assert_string_equal("/home/someone/.cache/ration/rates.json", path);
    setenv("XDG_CACHE_HOME", "", 1);
    assert_ok(rn_rates_path(path, sizeof path));
    assert_string_equal("/home/someone/.cache/ration/rates.json", path);
}

static void without_a_home_there_is_no_cache_folder(void **state) {
    (void)state;
    char path[512];
    bool measured = true;
    assert_fails(RN_NOT_FOUND, rn_rates_path(path, sizeof path));
    assert_non_null(strstr(rn_last_story()->hint, "XDG_CACHE_HOME"));
    setenv("HOME", "somewhere", 1);
    assert_fails(RN_NOT_FOUND, rn_rates_path(path, sizeof path));
    assert_ok(rn_rates_use(1, &measured)); // guesses will do
    assert_false(measured);
}

static void a_path_that_is_too_long_is_refused(void **state) {
    (void)state;
    char path[512], home[600];
    memset(home, 'x', sizeof home);
    home[0] = '/';
    home[sizeof home - 1] = 0;
    setenv("HOME", home, 1);
    assert_fails(RN_INVALID, rn_rates_path(path, sizeof path));
    setenv("XDG_CACHE_HOME", home, 1);
    assert_fails(RN_INVALID, rn_rates_path(path, sizeof path));
}

// ---- there and back -----------------------------------------------------------------------------

static void what_is_saved_is_loaded(void **state) {
    (void)state;
    rn_rates saved = some_rates(), loaded;
    setenv("XDG_CACHE_HOME", test_own_path("a/new/folder"), 1);
    assert_ok(rn_rates_save(&saved, NULL));
    assert_ok(rn_rates_load(NULL, &loaded));
    assert_int_equal(saved.threads, loaded.threads);
    assert_string_equal(saved.cpu_level, loaded.cpu_level);
    assert_true(is_near(loaded.cpu.flops, 61e9));
    assert_true(is_near(loaded.cpu.quantized_flops, 150e9));
    assert_true(is_near(loaded.cpu.memory_bytes_second, 12.5e9));
    assert_true(is_near(loaded.cpu.disk_bytes_second, 1.9e9));
    assert_true(is_near(loaded.cpu.link_bytes_second, 12.5e9));
    assert_true(is_near(loaded.cpu.step_seconds, 1.8e-6));
    struct stat info;
    assert_int_equal(0, stat(test_own_path("a/new/folder/ration/rates.json"), &info));
}

// Whatever was measured is a number that can be read again.
static void absurd_rates_are_kept_within_bounds(void **state) {
    (void)state;
    rn_rates saved = some_rates(), loaded;
    saved.cpu.flops = INFINITY;
    saved.cpu.quantized_flops = NAN;
    saved.cpu.disk_bytes_second = -5;
    saved.cpu.step_seconds = 1e-12;
    assert_ok(rn_rates_save(&saved, test_own_path("rates.json")));
    assert_ok(rn_rates_load(test_own_path("rates.json"), &loaded));
    assert_true(loaded.cpu.flops > 1e18);
    assert_true(loaded.cpu.quantized_flops >= 1);
    assert_true(loaded.cpu.disk_bytes_second == 1);
    assert_true(loaded.cpu.step_seconds == 1e-9);
}

static void no_file_is_not_found(void **state) {
    (void)state;
    rn_rates rates;
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    assert_fails(RN_NOT_FOUND, rn_rates_load(NULL, &rates));
    assert_fails(RN_NOT_FOUND, rn_rates_load(test_own_path("none"), &rates));
}

static void a_path_through_a_file_is_refused_and_named(void **state) {
    (void)state;
    rn_rates rates = some_rates();
    test_write(test_own_path("file"), "x", 1);
    assert_fails(RN_NOT_FOUND, rn_rates_save(&rates, test_own_path("file/rates.json")));
    assert_non_null(strstr(rn_last_story()->message, "file"));
}

// ---- corrupt ------------------------------------------------------------------------------------

#define GOOD                                                                                       \
    "\"threads\": 3, \"cpu_level\": \"avx2\", \"flops\": 5, \"quantized_flops\": 5, "              \
    "\"memory_bytes_second\": 5, \"disk_bytes_second\": 5, \"link_bytes_second\": 5"

static void assert_corrupt(const char *text) {
    rn_rates rates;
    const char *path = test_own_path("bad.json");
    test_write(path, text, strlen(text));
    if (rn_rates_load(path, &rates) != RN_CORRUPT) fail_msg("accepted: %s", text);
    assert_string_equal("ration calibrate makes it anew", rn_last_story()->hint);
    assert_string_equal(path, rn_last_story()->path);
}

static void a_file_that_is_not_ours_is_corrupt(void **state) {
    (void)state;
    static const char *const texts[] = {"",      "{",         "{}",    "[]",         "null",
                                        "rates", "{]",        "{} {}", "\xff\xfe{}", "\"x\"",
                                        "1",     "{" GOOD "}"}; // step_ns is missing
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_corrupt(texts[i]);
}

static void every_cut_is_corrupt(void **state) {
    (void)state;
    rn_rates rates = some_rates();
    char text[1024];
    size_t bytes;
    assert_ok(rn_rates_save(&rates, test_own_path("rates.json")));
    char *all = test_read(test_own_path("rates.json"), &bytes);
    for (size_t n = 0; n + 2 <= bytes; n++) { // the last byte is a line break
        memcpy(text, all, n);
        text[n] = 0;
        assert_corrupt(text);
    }
    free(all);
}

static void every_missing_field_is_corrupt(void **state) {
    (void)state;
    rn_rates rates = some_rates(), loaded;
    size_t bytes;
    assert_ok(rn_rates_save(&rates, test_own_path("rates.json")));
    char *all = test_read(test_own_path("rates.json"), &bytes);
    assert_true(bytes < 1024);
    int fields = 0;
    for (char *at = all; (at = memchr(at, ':', bytes - (size_t)(at - all))); at++, fields++) {
        char text[1024] = {0};
        memcpy(text, all, bytes);
        text[at - all - 2] = '_'; // the last letter of the name: another field, which is skipped
        assert_corrupt(text);
    }
    assert_int_equal(8, fields);
    assert_ok(rn_rates_load(test_own_path("rates.json"), &loaded));
    free(all);
}

static void numbers_that_cannot_be_rates_are_corrupt(void **state) {
    (void)state;
    static const char *const numbers[] = {"0",
                                          "-1",
                                          "-0",
                                          "1.5",
                                          "1e9",
                                          "NaN",
                                          "nan",
                                          "18446744073709551616",
                                          "1152921504606846977",
                                          "99999999999999999999999999999999999",
                                          "\"7\"",
                                          "true",
                                          "null",
                                          "{}",
                                          "[7]",
                                          "Infinity",
                                          "0x10",
                                          "07",
                                          ""};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[512];
        snprintf(text, sizeof text, "{" GOOD ", \"step_ns\": %s}", numbers[i]);
        assert_corrupt(text);
    }
    assert_corrupt("{" GOOD ", \"step_ns\": 5, \"threads\": 4294967296}");
    assert_corrupt("{" GOOD ", \"step_ns\": 5, \"threads\": -1}");
    assert_corrupt("{" GOOD ", \"step_ns\": 5, \"cpu_level\": 7}");
    assert_corrupt("{" GOOD ", \"step_ns\": 5, \"cpu_level\": \"\"}");
    assert_corrupt("{" GOOD ", \"step_ns\": 5, \"cpu_level\": \"a name of 16 byt\"}");
}

static void a_large_file_is_corrupt(void **state) {
    (void)state;
    char text[8192];
    memset(text, ' ', sizeof text);
    text[sizeof text - 1] = 0;
    assert_corrupt(text);
}

static void fields_of_a_later_version_are_skipped(void **state) {
    (void)state;
    rn_rates rates;
    const char *text = "{\"later\": {\"deep\": [1, 2, {}]}, " GOOD ", \"step_ns\": 1000}";
    test_write(test_own_path("rates.json"), text, strlen(text));
    assert_ok(rn_rates_load(test_own_path("rates.json"), &rates));
    assert_int_equal(3, rates.threads);
    assert_true(is_near(rates.cpu.step_seconds, 1e-6));
}

// ---- use ----------------------------------------------------------------------------------------

static void save_for(uint32_t threads, const char *level) {
    rn_rates rates = some_rates();
    rates.threads = threads;
    snprintf(rates.cpu_level, sizeof rates.cpu_level, "%s", level);
    assert_ok(rn_rates_save(&rates, NULL));
}

static void rates_are_used_where_threads_and_level_agree(void **state) {
    (void)state;
    bool measured;
    const char *level = rn_cpu_level_name(rn_cpu_level_get());
    rn_device_caps before = *rn_cpu_caps();
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    assert_ok(rn_rates_use(7, &measured));
    assert_false(measured);
    save_for(7, level);
    assert_ok(rn_rates_use(6, &measured));
    assert_false(measured);
    save_for(7, "abacus");
    assert_ok(rn_rates_use(7, &measured));
    assert_false(measured);
    assert_true(rn_cpu_caps()->flops == before.flops);
    save_for(7, level);
    assert_ok(rn_rates_use(7, &measured));
    assert_true(measured);
    assert_true(is_near(rn_cpu_caps()->flops, 61e9));
    assert_true(is_near(rn_cpu_caps()->step_seconds, 1.8e-6));
    save_for((uint32_t)rn_cpu_count(), level);
    assert_ok(rn_rates_use(0, &measured)); // one for each CPU
    assert_true(measured);
}

static void a_corrupt_file_is_not_taken_for_none(void **state) {
    (void)state;
    bool measured = true;
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    mkdir(test_own_path("ration"), 0700);
    test_write(test_own_path("ration/rates.json"), "{", 1);
    assert_fails(RN_CORRUPT, rn_rates_use(1, &measured));
    assert_false(measured);
}

// ---- failures -----------------------------------------------------------------------------------

static rn_status save_and_load(const char *path) {
    rn_rates rates = some_rates();
    RN_TRY(rn_rates_save(&rates, path));
    return rn_rates_load(path, &rates);
}

static void torture(rn_fault kind) {
    const char *path = test_own_path("rates.json");
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes, n = 1;
    for (;; n++) {
        rn_fault_arm(kind, n);
        rn_status s = save_and_load(path);
        bool fired = rn_fault_fired(kind);
        rn_fault_arm(kind, 0);
        assert_int_equal(before, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes);
        if (!fired) {
            assert_int_equal(RN_OK, s);
            break;
        }
        assert_int_not_equal(RN_OK, s);
    }
    assert_true(n > 1);
}

static void every_failure_is_told_and_nothing_leaks(void **state) {
    (void)state;
    torture(RN_FAULT_ALLOC);
    torture(RN_FAULT_READ);
    torture(RN_FAULT_WRITE);
}

static void a_calibration_that_is_stopped_leaves_nothing(void **state) {
    (void)state;
    static const volatile bool stop = true;
    rn_rates rates;
    rn_rates_options options = {.threads = 1, .disk_folder = test_own_folder, .cancel = &stop};
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    assert_fails(RN_CANCELLED, rn_rates_measure(&options, &rates));
    assert_int_equal(before, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes);
    assert_int_equal(0, rmdir(test_own_folder));
}

#define in_a_folder(test) cmocka_unit_test_setup(test, clear_environment)

int main(void) {
    const struct CMUnitTest tests[] = {
        in_a_folder(the_cache_folder_is_the_desktops_or_the_homes),
        in_a_folder(without_a_home_there_is_no_cache_folder),
        in_a_folder(a_path_that_is_too_long_is_refused),
        in_a_folder(what_is_saved_is_loaded),
        in_a_folder(absurd_rates_are_kept_within_bounds),
        in_a_folder(no_file_is_not_found),
        in_a_folder(a_path_through_a_file_is_refused_and_named),
        in_a_folder(a_file_that_is_not_ours_is_corrupt),
        in_a_folder(every_cut_is_corrupt),
        in_a_folder(every_missing_field_is_corrupt),
        in_a_folder(numbers_that_cannot_be_rates_are_corrupt),
        in_a_folder(a_large_file_is_corrupt),
        in_a_folder(fields_of_a_later_version_are_skipped),
        in_a_folder(rates_are_used_where_threads_and_level_agree),
        in_a_folder(a_corrupt_file_is_not_taken_for_none),
        in_a_folder(every_failure_is_told_and_nothing_leaks),
        in_a_folder(a_calibration_that_is_stopped_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
