// Plugins that are tried in a child: one that works is remembered, and whatever one does instead of
// working is a class of error with the plugin's own words.
#include "support.h"

#include "backend/pjrt/pjrt.h"
#include "base/error_class.h"

#include <fcntl.h>
#include <sys/stat.h>

#define PLUGIN RN_BIN_DIR "/../lib/fake_pjrt.so"

static char copy[300]; // of the plugin, so that it can be changed

static int open_all(void **state) {
    (void)state;
    size_t bytes = 0;
    void *file = test_read(PLUGIN, &bytes);
    setenv("XDG_CACHE_HOME", test_folder(), 1);
    snprintf(copy, sizeof copy, "%s", test_path("plugin.so"));
    test_write(copy, file, bytes);
    free(file);
    return 0;
}

static int forget(void **state) {
    (void)state;
    unsetenv("FAKE_PJRT");
    remove(test_path("ration/plugins"));
    return 0;
}

static rn_status try_as(const char *behaviour, const char *path) {
    rn_pjrt_facts facts;
    setenv("FAKE_PJRT", behaviour, 1);
    return rn_pjrt_try(path, &facts);
}

static void assert_message(const char *text) {
    if (!strstr(rn_last_error()->message, text)) fail_msg("%s", rn_last_error()->message);
}

static void plugin_that_works_says_what_it_is(void **state) {
    (void)state;
    rn_pjrt_facts facts;
    setenv("FAKE_PJRT", "limit=12345678", 1);
    assert_ok(rn_pjrt_try(copy, &facts));
    assert_int_equal(104, facts.minor);
    assert_int_equal(1, facts.device_count);
    assert_int_equal(12345678, facts.limit_bytes);
    assert_string_equal("neuron", facts.platform);
    assert_string_equal("NC_v2", facts.kind);
}

static void plugin_that_was_tried_is_not_tried_again(void **state) {
    (void)state;
    rn_pjrt_facts facts;
    assert_false(rn_pjrt_was_tried(copy, &facts));
    assert_ok(try_as("", copy));
    assert_ok(try_as("abort", copy)); // it is not even loaded
    assert_true(rn_pjrt_was_tried(copy, &facts));
    assert_string_equal("NC_v2", facts.kind);
    // Another file under the same name, and another environment, are another matter.
    setenv("NEURON_RT_VISIBLE_CORES", "1", 1);
    assert_false(rn_pjrt_was_tried(copy, &facts));
    unsetenv("NEURON_RT_VISIBLE_CORES");
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(0, utimensat(AT_FDCWD, copy, times, 0));
    assert_false(rn_pjrt_was_tried(copy, &facts));
    assert_fails(RN_DEVICE, try_as("abort", copy));
    // A failure is not remembered.
    assert_ok(try_as("", copy));
}

static void other_lines_stay_and_nonsense_is_none(void **state) {
    (void)state;
    rn_pjrt_facts facts;
    assert_ok(try_as("", copy));
    assert_ok(try_as("", PLUGIN));
    assert_true(rn_pjrt_was_tried(copy, &facts));
    assert_true(rn_pjrt_was_tried(PLUGIN, &facts));
    size_t bytes = 0;
    char *file = test_read(test_path("ration/plugins"), &bytes);
    for (size_t cut = 0; cut < bytes; cut += 7) {
        test_write(test_path("ration/plugins"), file, cut);
        (void)rn_pjrt_was_tried(copy, &facts);
    }
    free(file);
    test_write(test_path("ration/plugins"), "\xff\n\n\t\t\t\n", 7);
    assert_false(rn_pjrt_was_tried(copy, &facts));
    assert_ok(try_as("", copy));
    assert_true(rn_pjrt_was_tried(copy, &facts));
}

static void what_is_no_plugin_is_told_apart(void **state) {
    (void)state;
    test_write(test_path("broken.so"), "no library", 10);
    assert_fails(RN_NOT_FOUND, try_as("", "/nowhere/plugin.so"));
    assert_string_equal("library_missing", rn_error_classify(rn_last_error())->name);
    assert_string_equal("/nowhere/plugin.so", rn_last_error()->path);
    assert_fails(RN_UNSUPPORTED, try_as("", test_path("broken.so")));
    assert_string_equal("library_unusable", rn_error_classify(rn_last_error())->name);
    assert_fails(RN_UNSUPPORTED, try_as("", "libm.so.6"));
    assert_message("no PJRT plugin: the library has no GetPjrtApi");
}

static void what_a_plugin_does_instead_of_working_is_told(void **state) {
    (void)state;
    setenv("RATION_XLA_TRY_MS", "300", 1);
    static const struct {
        const char *behaviour, *message, *class;
        rn_status status;
    } cases[] = {
        {"abort", "ends its process by signal 6", "plugin_failed", RN_DEVICE},
        {"exit", "exit code 1: Unknown flag in XLA_FLAGS: --xla_no_such_flag=1", "plugin_failed",
         RN_DEVICE},
        {"hang", "the plugin hangs", "plugin_failed", RN_DEVICE},
        {"no_devices", "the plugin has no devices", "device_failed", RN_DEVICE},
        {"old", "has version 0.40", "unsupported", RN_UNSUPPORTED},
        {"wrong", "1 + 1 gave 1", "device_failed", RN_DEVICE},
        {"oom_compile", "NCC_EOOM001", "compile_over_memory", RN_NO_MEMORY},
        {"oom_upload", "Failed to allocate 64.000MB", "device_memory_full", RN_NO_MEMORY},
        {"oom_run", "Allocation Failure", "nrt_resource", RN_NO_MEMORY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].behaviour, "hang") != 0) unsetenv("RATION_XLA_TRY_MS");
        rn_status s = try_as(cases[i].behaviour, copy);
        if (s != cases[i].status) fail_msg("%s: %s", cases[i].behaviour, rn_status_name(s));
        assert_message(cases[i].message);
        assert_string_equal(cases[i].class, rn_error_classify(rn_last_error())->name);
        setenv("RATION_XLA_TRY_MS", "300", 1);
    }
    unsetenv("RATION_XLA_TRY_MS");
}

// It may want larger structs than are known here: what is new in them is zeros.
static void newer_plugin_is_asked_with_its_own_sizes(void **state) {
    (void)state;
    rn_pjrt_facts facts;
    setenv("FAKE_PJRT", "new", 1);
    assert_ok(rn_pjrt_try(copy, &facts));
    assert_int_equal(200, facts.minor);
}

static void plugins_are_found_by_name(void **state) {
    (void)state;
    char path[512];
    setenv("RATION_XLA_PLUGIN", "/opt/plugin.so", 1);
    assert_ok(rn_pjrt_find("cpu", path, sizeof path));
    assert_string_equal("/opt/plugin.so", path);
    unsetenv("RATION_XLA_PLUGIN");
    mkdir(test_path("libneuronxla"), 0755);
    test_write(test_path("libneuronxla/libneuronpjrt.so"), "", 0);
    setenv("PYTHONPATH", test_folder(), 1);
    assert_ok(rn_pjrt_find("neuron", path, sizeof path));
    assert_string_equal(test_path("libneuronxla/libneuronpjrt.so"), path);
    assert_fails(RN_NOT_FOUND, rn_pjrt_find("tpu", path, sizeof path));
    assert_message(test_folder()); // where it was looked for
    assert_non_null(strstr(rn_last_error()->hint, "TPU_LIBRARY_PATH"));
    assert_fails(RN_NOT_FOUND, rn_pjrt_find("abacus", path, sizeof path));
    unsetenv("PYTHONPATH");
}

// Sizes by version, as they were measured on the headers of all versions.
static void sizes_follow_the_version(void **state) {
    (void)state;
    static const struct {
        rn_pjrt_function function;
        int minor;
        size_t bytes;
    } cases[] = {
        {RN_PJRT_CLIENT_CREATE, 60, 72},
        {RN_PJRT_CLIENT_CREATE, 61, 88},
        {RN_PJRT_DEVICE_MEMORY_STATS, 112, 185},
        {RN_PJRT_DEVICE_MEMORY_STATS, 113, 201},
        {RN_PJRT_DESERIALIZE_AND_LOAD, 70, 48},
        {RN_PJRT_DESERIALIZE_AND_LOAD, 104, 64},
        {RN_PJRT_DESERIALIZE_AND_LOAD, 111, 72},
        {RN_PJRT_EXECUTABLE_MEMORY_STATS, 71, 104},
        {RN_PJRT_EXECUTABLE_MEMORY_STATS, 75, 112},
        {RN_PJRT_EXECUTABLE_MEMORY_STATS, 90, 120},
        {RN_PJRT_EXECUTABLE_MEMORY_STATS, 104, 144},
        {RN_PJRT_EXECUTE_OPTIONS, 54, 72},
        {RN_PJRT_EXECUTE_OPTIONS, 75, 80},
        {RN_PJRT_EXECUTE_OPTIONS, 76, 88},
        {RN_PJRT_EXECUTE_OPTIONS, 78, 112},
        {RN_PJRT_EXECUTE_OPTIONS, 104, 120},
        {RN_PJRT_EXECUTE_OPTIONS, 108, 121},
        {RN_PJRT_EXECUTE_OPTIONS, 112, 144},
        {RN_PJRT_CLIENT_COMPILE, 114, 56},
        {RN_PJRT_CLIENT_BUFFER_FROM_HOST, 114, 120},
        {RN_PJRT_LOADED_EXECUTE, 114, 80},
        {RN_PJRT_BUFFER_TO_HOST, 114, 56},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cases[i].bytes, rn_pjrt_args_bytes(cases[i].function, cases[i].minor));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(plugin_that_works_says_what_it_is, forget),
        cmocka_unit_test_setup(plugin_that_was_tried_is_not_tried_again, forget),
        cmocka_unit_test_setup(other_lines_stay_and_nonsense_is_none, forget),
        cmocka_unit_test_setup(what_is_no_plugin_is_told_apart, forget),
        cmocka_unit_test_setup(what_a_plugin_does_instead_of_working_is_told, forget),
        cmocka_unit_test_setup(newer_plugin_is_asked_with_its_own_sizes, forget),
        cmocka_unit_test_setup(plugins_are_found_by_name, forget),
        cmocka_unit_test(sizes_follow_the_version),
    };
    return cmocka_run_group_tests(tests, open_all, NULL);
}
