// rates_test.c — measured rates: where they are kept, what is read back, and what is refused.
#include "support.h"

#include "backend/cuda/cost.h"
#include "backend/cuda/cuda.h"
#include "backend/sim/sim.h"
#include "base/cpu.h"
#include "base/fault.h"
#include "memory/account.h"
#include "memory/budget.h"
#include "runtime/rates.h"

#include <ration/log.h>

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
    assert_fails(RN_NOT_FOUND, rn_rates_path(path, sizeof path));
    assert_non_null(strstr(rn_last_error()->hint, "XDG_CACHE_HOME"));
    setenv("HOME", "somewhere", 1);
    assert_fails(RN_NOT_FOUND, rn_rates_path(path, sizeof path));
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1)); // will do
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

static rn_rates_device some_device(const char *name, const char *hardware) {
    rn_rates_device device = {.rates = {.flops = 520e12,
                                        .quantized_flops = 430e12,
                                        .memory_bytes_second = 4.1e12,
                                        .disk_bytes_second = 7, // not its own
                                        .link_bytes_second = 53.2e9,
                                        .step_seconds = 2.2e-6}};
    snprintf(device.name, sizeof device.name, "%s", name);
    snprintf(device.hardware, sizeof device.hardware, "%s", hardware);
    return device;
}

static void devices_are_saved_beside_the_cpu(void **state) {
    (void)state;
    rn_rates saved = some_rates(), loaded;
    const char *path = test_own_path("rates.json");
    saved.devices[0] = some_device("cuda:0", "NVIDIA \"H200\" \\");
    saved.devices[0].rates.own[RN_CUDA_UNPACK_WEIGHTS] = 4.7e12;
    saved.devices[0].rates.own[RN_CUDA_UNPACK_BYTES] = 3.8e12;
    saved.devices[0].rates.own[RN_CUDA_ATTEND_FLOPS] = 232e12;
    saved.devices[0].rates.own[RN_CUDA_ATTEND_SECONDS] = 23e-6;
    saved.devices[0].rates.run_seconds = 51e-6;
    saved.devices[0].rates.link_share = 0.93;
    saved.devices[1] = some_device("sim", "");
    saved.device_count = 2;
    saved.cpu.beside_link = 0.85;
    assert_ok(rn_rates_save(&saved, path));
    assert_ok(rn_rates_load(path, &loaded));
    assert_int_equal(2, loaded.device_count);
    assert_true(is_near(loaded.cpu.beside_link, 0.85));
    assert_true(is_near(loaded.cpu.flops, 61e9));
    const rn_rates_device *gpu = &loaded.devices[0], *sim = &loaded.devices[1];
    assert_string_equal("cuda:0", gpu->name);
    assert_string_equal("NVIDIA \"H200\" \\", gpu->hardware);
    assert_true(is_near(gpu->rates.flops, 520e12));
    assert_true(is_near(gpu->rates.quantized_flops, 430e12));
    assert_true(is_near(gpu->rates.memory_bytes_second, 4.1e12));
    assert_true(is_near(gpu->rates.link_bytes_second, 53.2e9));
    assert_true(is_near(gpu->rates.step_seconds, 2.2e-6));
    assert_true(is_near(gpu->rates.own[RN_CUDA_UNPACK_WEIGHTS], 4.7e12));
    assert_true(is_near(gpu->rates.own[RN_CUDA_UNPACK_BYTES], 3.8e12));
    assert_true(is_near(gpu->rates.own[RN_CUDA_ATTEND_FLOPS], 232e12));
    assert_true(is_near(gpu->rates.own[RN_CUDA_ATTEND_SECONDS], 23e-6));
    assert_true(is_near(gpu->rates.run_seconds, 51e-6));
    assert_true(is_near(gpu->rates.link_share, 0.93));
    assert_true(is_near(gpu->rates.disk_bytes_second, 1.9e9)); // the host's
    assert_string_equal("sim", sim->name);
    assert_string_equal("", sim->hardware);
    assert_true(sim->rates.own[RN_CUDA_UNPACK_WEIGHTS] == 0 &&
                sim->rates.own[RN_CUDA_UNPACK_BYTES] == 0);
    assert_true(sim->rates.own[RN_CUDA_ATTEND_FLOPS] == 0 &&
                sim->rates.own[RN_CUDA_ATTEND_SECONDS] == 0);
    assert_true(sim->rates.run_seconds == 0 && sim->rates.link_share == 0);
}

static void as_many_devices_as_there_may_be_fit_into_a_file(void **state) {
    (void)state;
    rn_rates saved = some_rates(), loaded;
    char name[32], hardware[64];
    memset(hardware, 1, sizeof hardware); // six bytes each, in JSON
    hardware[63] = 0;
    for (uint32_t i = 0; i < RN_RATES_DEVICES; i++) {
        snprintf(name, sizeof name, "a name of some thirty bytes %u", i % 8);
        saved.devices[i] = some_device(name, hardware);
        saved.devices[i].rates.flops = 1e18;
        saved.devices[i].rates.own[RN_CUDA_UNPACK_WEIGHTS] = 1e18;
        saved.devices[i].rates.own[RN_CUDA_UNPACK_BYTES] = 1e18;
        saved.devices[i].rates.own[RN_CUDA_ATTEND_FLOPS] = 1e18;
        saved.devices[i].rates.own[RN_CUDA_ATTEND_SECONDS] = 1e9;
        saved.devices[i].rates.run_seconds = 1e9;
        saved.devices[i].rates.link_share = 1;
    }
    saved.device_count = RN_RATES_DEVICES;
    assert_ok(rn_rates_save(&saved, test_own_path("rates.json")));
    assert_ok(rn_rates_load(test_own_path("rates.json"), &loaded));
    assert_int_equal(RN_RATES_DEVICES, loaded.device_count);
    for (uint32_t i = 0; i < RN_RATES_DEVICES; i++) {
        assert_string_equal(saved.devices[i].name, loaded.devices[i].name);
        assert_string_equal(hardware, loaded.devices[i].hardware);
    }
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
    assert_non_null(strstr(rn_last_error()->message, "file"));
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
    assert_string_equal("ration calibrate makes it anew", rn_last_error()->hint);
    assert_string_equal(path, rn_last_error()->path);
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
    rates.devices[0] = some_device("cuda:0", "NVIDIA H200");
    rates.device_count = 1;
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

#define DEVICE                                                                                     \
    "\"flops\": 5, \"quantized_flops\": 5, \"memory_bytes_second\": 5, "                           \
    "\"link_bytes_second\": 5, \"step_ns\": 5"
#define WITH(devices) "{" GOOD ", \"step_ns\": 5, \"devices\": " devices "}"

static void devices_that_cannot_be_are_corrupt(void **state) {
    (void)state;
    static const char *const texts[] = {
        WITH("[]"),
        WITH("null"),
        WITH("\"cuda:0\""),
        WITH("{\"cuda:0\": 5}"),
        WITH("{\"cuda:0\": {}}"),
        WITH("{\"cuda:0\": [" DEVICE "]}"),
        WITH("{\"\": {" DEVICE "}}"),
        WITH("{\"cuda:0\": {" DEVICE "}, \"cuda:0\": {" DEVICE "}}"),
        WITH("{\"cuda:0\": {" DEVICE "}}, \"devices\": {\"cuda:0\": {" DEVICE "}}"),
        WITH("{\"cuda:0\\u0000x\": {" DEVICE "}}"),
        WITH("{\"a name that has thirty-two bytes\": {" DEVICE "}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"hardware\": 7}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"hardware\": \"a\\u0000b\"}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"hardware\": \"0123456789012345678901234567890123456789"
             "012345678901234567890123\"}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"flops\": 0}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"flops\": 1e9}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"unpack_weights_second\": 0}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"unpack_weights_second\": -1}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"unpack_bytes_second\": 0}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"attend_flops\": 0}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"attend_ns\": \"many\"}}"),
        WITH("{\"cuda:0\": {" DEVICE ", \"run_ns\": 1.5}}"),
        WITH("{\"1\": {" DEVICE "}, \"2\": {" DEVICE "}, \"3\": {" DEVICE "}, \"4\": {" DEVICE
             "}, \"5\": {" DEVICE "}, \"6\": {" DEVICE "}, \"7\": {" DEVICE "}, \"8\": {" DEVICE
             "}, \"9\": {" DEVICE "}}"),
    };
    rn_rates rates;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_corrupt(texts[i]);
    const char *good = WITH("{\"cuda:0\": {" DEVICE ", \"later\": [1]}, \"b\": {" DEVICE "}}");
    test_write(test_own_path("rates.json"), good, strlen(good));
    assert_ok(rn_rates_load(test_own_path("rates.json"), &rates));
    assert_int_equal(2, rates.device_count);
}

static void every_missing_field_of_a_device_is_corrupt(void **state) {
    (void)state;
    static const char *const names[] = {"flops", "quantized_flops", "memory_bytes_second",
                                        "link_bytes_second", "step_ns"};
    for (size_t left_out = 0; left_out < 5; left_out++) {
        char text[1024] = "{" GOOD ", \"step_ns\": 5, \"devices\": {\"cuda:0\": {\"x\": 1";
        for (size_t i = 0; i < 5; i++) {
            size_t at = strlen(text);
            if (i != left_out) snprintf(text + at, sizeof text - at, ", \"%s\": 5", names[i]);
        }
        assert_corrupt(strcat(text, "}}}"));
        assert_non_null(strstr(rn_last_error()->message, "a device's "));
        assert_non_null(strstr(rn_last_error()->message, names[left_out]));
    }
}

static void a_file_from_before_there_were_devices_is_read(void **state) {
    (void)state;
    rn_rates rates;
    const char *text = "{" GOOD ", \"step_ns\": 1000}";
    test_write(test_own_path("rates.json"), text, strlen(text));
    assert_ok(rn_rates_load(test_own_path("rates.json"), &rates));
    assert_int_equal(0, rates.device_count);
    assert_true(rates.cpu.flops == 5);
}

static void a_large_file_is_corrupt(void **state) {
    (void)state;
    char text[32768];
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
    const char *level = rn_cpu_level_name(rn_cpu_level_get());
    rn_device_caps before = *rn_cpu_caps();
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(7));
    save_for(7, level);
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(6));
    save_for(7, "abacus");
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(7));
    assert_true(rn_cpu_caps()->flops == before.flops);
    save_for(7, level);
    assert_int_equal(RN_RATES_CALIBRATED, rn_rates_use(7));
    assert_true(is_near(rn_cpu_caps()->flops, 61e9));
    assert_true(is_near(rn_cpu_caps()->step_seconds, 1.8e-6));
    save_for((uint32_t)rn_cpu_count(), level);
    assert_int_equal(RN_RATES_CALIBRATED, rn_rates_use(0)); // one for each CPU
}

static void save_device(const char *name, const char *hardware) {
    rn_rates rates = some_rates();
    rates.devices[0] = some_device("cuda:7", "Another card");
    rates.devices[1] = some_device(name, hardware);
    rates.devices[1].rates.own[RN_CUDA_UNPACK_WEIGHTS] = 4.7e12;
    rates.device_count = 2;
    assert_ok(rn_rates_save(&rates, NULL));
}

static bool apply(rn_device *device) {
    (void)rn_rates_use(0);
    return rn_rates_apply(device) == RN_RATES_CALIBRATED;
}

static void a_device_uses_rates_of_its_name_and_hardware(void **state) {
    (void)state;
    rn_device *device;
    assert_ok(rn_sim_device_create(NULL, &device));
    device->caps.backend = &rn_cuda_backend; // whose names its own rates have in the file
    snprintf(device->caps.name, sizeof device->caps.name, "cuda:3");
    snprintf(device->caps.hardware, sizeof device->caps.hardware, "A card");
    rn_device_caps before = device->caps;
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    assert_false(apply(device)); // no file
    save_for(1, "avx2");
    assert_false(apply(device)); // no devices
    save_device("cuda:0", "A card");
    assert_false(apply(device));
    save_device("cuda:3", "Some card");
    assert_false(apply(device));
    assert_memory_equal(&before, &device->caps, sizeof before);
    save_device("cuda:3", "A card");
    assert_true(apply(device));
    assert_true(is_near(device->caps.flops, 520e12));
    assert_true(is_near(device->caps.quantized_flops, 430e12));
    assert_true(is_near(device->caps.memory_bytes_second, 4.1e12));
    assert_true(is_near(device->caps.disk_bytes_second, 1.9e9));
    assert_true(is_near(device->caps.link_bytes_second, 53.2e9));
    assert_true(is_near(device->caps.step_seconds, 2.2e-6));
    assert_true(is_near(device->caps.own[RN_CUDA_UNPACK_WEIGHTS], 4.7e12));
    rn_device_destroy(device);
}

// A file of an earlier version: what it does not say stays as the device guessed it.
static void what_a_file_does_not_say_stays(void **state) {
    (void)state;
    rn_device *device;
    rn_device_rates rates = some_device("sim", "").rates;
    assert_ok(rn_sim_device_create(NULL, &device));
    device->caps.backend = &rn_cuda_backend;
    device->caps.own[RN_CUDA_ATTEND_FLOPS] = 2e14;
    device->caps.own[RN_CUDA_ATTEND_SECONDS] = 2e-5;
    device->caps.run_seconds = 5e-5;
    rn_device_use_rates(device, &rates);
    assert_true(device->caps.step_seconds == rates.step_seconds);
    assert_true(device->caps.own[RN_CUDA_ATTEND_FLOPS] == 2e14);
    assert_true(device->caps.own[RN_CUDA_ATTEND_SECONDS] == 2e-5);
    assert_true(device->caps.run_seconds == 5e-5);
    rates.own[RN_CUDA_UNPACK_BYTES] = 3e12;
    rates.own[RN_CUDA_ATTEND_FLOPS] = 3e14;
    rates.own[RN_CUDA_ATTEND_SECONDS] = 3e-5;
    rates.run_seconds = 4e-5;
    rates.link_share = 0.9;
    rn_device_use_rates(device, &rates);
    assert_true(device->caps.own[RN_CUDA_UNPACK_BYTES] == 3e12);
    assert_true(device->caps.own[RN_CUDA_ATTEND_FLOPS] == 3e14);
    assert_true(device->caps.own[RN_CUDA_ATTEND_SECONDS] == 3e-5);
    assert_true(device->caps.run_seconds == 4e-5);
    assert_true(device->caps.link_share == 0.9);
    rn_device_destroy(device);
}

// A file may say nothing about it, or anything.
static void the_cpu_beside_a_link_has_a_tenth_at_least(void **state) {
    (void)state;
    static const double shares[][2] = {{0, 0.75}, {0.5, 0.5}, {1, 1}, {1e16, 1}, {0.01, 0.1}};
    rn_device_rates rates = some_rates().cpu;
    double before = rn_cpu_caps()->beside_link;
    assert_true(before >= 0.1 && before <= 1);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        rn_device *device;
        rates.beside_link = shares[i][0];
        rn_cpu_set_rates(&rates);
        assert_true(rn_cpu_caps()->beside_link == shares[i][1]);
        assert_ok(rn_cpu_device_create(1, &device));
        assert_true(device->caps.beside_link == shares[i][1]);
        rn_device_destroy(device);
    }
}

static void the_cpu_is_not_a_device_of_the_file(void **state) {
    (void)state;
    rn_device *device;
    assert_ok(rn_cpu_device_create(1, &device));
    rn_device_caps before = device->caps;
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    save_for((uint32_t)rn_cpu_count(), rn_cpu_level_name(rn_cpu_level_get()));
    assert_int_equal(RN_RATES_CALIBRATED, rn_rates_use(0));
    save_device("cpu", "");
    assert_int_equal(RN_RATES_CALIBRATED, rn_rates_apply(device)); // as rn_rates_use has left it
    assert_memory_equal(&before, &device->caps, sizeof before);
    rn_device_destroy(device);
}

static char log_text[4096];

static rn_status catch_log(void *self, const char *text, size_t bytes) {
    (void)self;
    size_t used = strlen(log_text), room = sizeof log_text - 1 - used;
    memcpy(log_text + used, text, bytes < room ? bytes : room);
    return RN_OK;
}

static void begin_log(rn_log_level least) {
    memset(log_text, 0, sizeof log_text);
    rn_log_set((rn_sink){NULL, catch_log}, RN_LOG_TEXT, least);
}

static void end_log(void) {
    rn_log_set((rn_sink){NULL, NULL}, RN_LOG_TEXT, RN_LOG_DEBUG);
}

static void a_file_of_no_use_is_a_warning_and_no_rates(void **state) {
    (void)state;
    rn_device *device;
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    mkdir(test_own_path("ration"), 0700);
    assert_ok(rn_sim_device_create(NULL, &device));
    begin_log(RN_LOG_WARNING);
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1)); // no file is no matter
    assert_string_equal("", log_text);
    test_write(test_own_path("ration/rates.json"), "{", 1);
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1));
    assert_non_null(strstr(log_text, "rates.json"));
    assert_non_null(strstr(log_text, "ration calibrate makes the file anew"));
    const char *line_end = strchr(log_text, '\n');
    assert_int_equal(RN_RATES_GUESSED, rn_rates_apply(device));
    assert_string_equal("\n", line_end); // told once
    unlink(test_own_path("ration/rates.json"));
    mkdir(test_own_path("ration/rates.json"), 0700); // which nobody can read
    begin_log(RN_LOG_WARNING);
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1));
    assert_non_null(strstr(log_text, " warning rates: "));
    end_log();
    rmdir(test_own_path("ration/rates.json"));
    rn_device_destroy(device);
}

// ---- a tenth of a second ------------------------------------------------------------------------

static rn_rates kept(void) {
    rn_rates rates;
    assert_ok(rn_rates_load(NULL, &rates));
    return rates;
}

static rn_rates_source measure_quick(uint64_t room_bytes) {
    rn_device *device;
    rn_rates_quick_options options = {.room_bytes = room_bytes};
    assert_ok(rn_cpu_device_create(1, &device));
    double guess = device->caps.flops;
    rn_rates_source source = rn_rates_measure_quick(device, &options);
    assert_int_equal(source == RN_RATES_QUICK, device->caps.flops != guess);
    rn_device_destroy(device);
    return source;
}

static void guesses_give_way_to_a_short_measurement_that_is_kept(void **state) {
    (void)state;
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1));
    double disk = rn_cpu_caps()->disk_bytes_second;
    begin_log(RN_LOG_INFO);
    assert_int_equal(RN_RATES_QUICK, measure_quick(0));
    end_log();
    assert_non_null(strstr(log_text, " info rates: measured for "));
    assert_non_null(strstr(log_text, "kept for the next start"));
    rn_rates rates = kept();
    assert_true(rates.quick && rates.threads == 1);
    assert_true(rates.cpu.flops > 0 && rates.cpu.memory_bytes_second > 0);
    assert_true(rates.cpu.disk_bytes_second == 0); // there was no file to read
    // The next start counts with the very same numbers, and does not measure.
    rn_device_caps first = *rn_cpu_caps();
    assert_int_equal(RN_RATES_QUICK, rn_rates_use(1));
    assert_memory_equal(&first, rn_cpu_caps(), sizeof first);
    assert_true(first.disk_bytes_second == disk);
    rn_device *device;
    assert_ok(rn_cpu_device_create(1, &device));
    assert_int_equal(RN_RATES_QUICK, rn_rates_measure_quick(device, &(rn_rates_quick_options){0}));
    assert_memory_equal(&first, rn_cpu_caps(), sizeof first);
    rn_device_destroy(device);
}

static void a_calibration_is_not_overwritten_by_a_short_measurement(void **state) {
    (void)state;
    const char *level = rn_cpu_level_name(rn_cpu_level_get());
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    save_for(7, level);
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1));
    assert_int_equal(RN_RATES_QUICK, measure_quick(0));
    assert_int_equal(7, kept().threads);
    assert_false(kept().quick);
    assert_int_equal(RN_RATES_CALIBRATED, rn_rates_use(7));
    rn_device *device;
    rn_rates_quick_options options = {0};
    assert_ok(rn_cpu_device_create(7, &device));
    assert_int_equal(RN_RATES_CALIBRATED, rn_rates_measure_quick(device, &options));
    assert_true(is_near(device->caps.flops, some_rates().cpu.flops));
    rn_device_destroy(device);
    test_write(test_own_path("ration/rates.json"), "{", 1); // a damaged one is
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1));
    assert_int_equal(RN_RATES_QUICK, measure_quick(0));
    assert_true(kept().quick);
}

// The budget holds while it measures, and what a small one allows is not kept for larger ones.
static void a_short_measurement_stays_within_its_room(void **state) {
    (void)state;
    static const uint64_t rooms[] = {8 << 20, 16 << 20, 40 << 20};
    setenv("XDG_CACHE_HOME", test_own_folder, 1);
    for (size_t i = 0; i < 3; i++) {
        rn_scope scope;
        assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1));
        rn_scope_begin(&scope, "quick", RN_DEVICE_HOST);
        assert_int_equal(RN_RATES_QUICK, measure_quick(rooms[i]));
        rn_scope_stats stats = rn_scope_end(&scope);
        assert_int_equal(0, stats.delta);
        if (stats.peak_allocated > rooms[i])
            fail_msg("%llu bytes of %llu", (unsigned long long)stats.peak_allocated,
                     (unsigned long long)rooms[i]);
        rn_rates rates;
        assert_int_equal(i < 2 ? RN_NOT_FOUND : RN_OK, rn_rates_load(NULL, &rates));
    }
    unlink(test_own_path("ration/rates.json"));
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1));
    assert_int_equal(RN_RATES_GUESSED, measure_quick(1 << 20));
}

static void what_cannot_be_measured_or_kept_is_no_failure(void **state) {
    (void)state;
    rn_refusal refusal = *rn_last_refusal();
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1));
    assert_int_equal(RN_RATES_QUICK, measure_quick(0)); // not kept
    assert_int_equal(RN_RATES_GUESSED, rn_rates_use(1));
    uint64_t soft = 0, hard = 0;
    rn_device *device;
    assert_ok(rn_cpu_device_create(1, &device));
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_ok(
        rn_budget_set(RN_DEVICE_HOST, 0, rn_ledger_total(RN_DEVICE_HOST).now_bytes + (1 << 20)));
    assert_int_equal(RN_RATES_GUESSED,
                     rn_rates_measure_quick(device, &(rn_rates_quick_options){0}));
    assert_ok(rn_budget_set(RN_DEVICE_HOST, soft, hard));
    assert_memory_equal(&refusal, rn_last_refusal(), sizeof refusal); // nobody was refused anything
    rn_device_destroy(device);
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
        in_a_folder(devices_are_saved_beside_the_cpu),
        in_a_folder(as_many_devices_as_there_may_be_fit_into_a_file),
        in_a_folder(absurd_rates_are_kept_within_bounds),
        in_a_folder(no_file_is_not_found),
        in_a_folder(a_path_through_a_file_is_refused_and_named),
        in_a_folder(a_file_that_is_not_ours_is_corrupt),
        in_a_folder(every_cut_is_corrupt),
        in_a_folder(every_missing_field_is_corrupt),
        in_a_folder(numbers_that_cannot_be_rates_are_corrupt),
        in_a_folder(devices_that_cannot_be_are_corrupt),
        in_a_folder(every_missing_field_of_a_device_is_corrupt),
        in_a_folder(a_file_from_before_there_were_devices_is_read),
        in_a_folder(a_large_file_is_corrupt),
        in_a_folder(fields_of_a_later_version_are_skipped),
        in_a_folder(rates_are_used_where_threads_and_level_agree),
        in_a_folder(a_device_uses_rates_of_its_name_and_hardware),
        cmocka_unit_test(what_a_file_does_not_say_stays),
        cmocka_unit_test(the_cpu_beside_a_link_has_a_tenth_at_least),
        in_a_folder(the_cpu_is_not_a_device_of_the_file),
        in_a_folder(a_file_of_no_use_is_a_warning_and_no_rates),
        in_a_folder(guesses_give_way_to_a_short_measurement_that_is_kept),
        in_a_folder(a_calibration_is_not_overwritten_by_a_short_measurement),
        in_a_folder(a_short_measurement_stays_within_its_room),
        in_a_folder(what_cannot_be_measured_or_kept_is_no_failure),
        in_a_folder(every_failure_is_told_and_nothing_leaks),
        in_a_folder(a_calibration_that_is_stopped_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
