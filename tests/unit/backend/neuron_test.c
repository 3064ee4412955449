// neuron_test.c — the memory of Neuron's cores, from a tree of files like its driver's and from
// lines like neuron-monitor's. Neither was seen on a device.
#include "support.h"

#include "backend/pjrt/neuron.h"
#include "memory/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/ration-neuron-XXXXXX";

static void write_file(const char *text, const char *format, unsigned device, unsigned core,
                       const char *category) {
    char path[512];
    snprintf(path, sizeof path, format, root, device, core, category);
    for (char *slash = path + strlen(root); (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

#define CATEGORY "%s/neuron%u/neuron_core%u/stats/memory_usage/device_mem/%s/total"
#define TOTAL    "%s/neuron%u/neuron_core%u/stats/memory_usage/device_mem/total%s"

static int make_tree(void **state) {
    (void)state;
    if (!mkdtemp(root)) return -1;
    setenv("RATION_NEURON_SYSFS", root, 1);
    write_file("1000\n", CATEGORY, 0, 0, "tensors");
    write_file("24\n", CATEGORY, 0, 0, "model_code");
    write_file("1030\n", TOTAL, 0, 0, "");
    write_file("7", CATEGORY, 0, 1, "tensors");
    write_file("500\n", CATEGORY, 1, 0, "constants");
    write_file("-3\n", CATEGORY, 1, 1, "tensors"); // no number of bytes
    write_file("99999999999999999999999\n", CATEGORY, 1, 1, "constants");
    return 0;
}

static int remove_tree(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static uint64_t category(const rn_device_usage *usage, const char *name) {
    for (uint32_t i = 0; i < usage->category_count; i++)
        if (strcmp(usage->categories[i].name, name) == 0) return usage->categories[i].bytes;
    return 0;
}

static void lists_of_cores_are_read(void **state) {
    (void)state;
    assert_true(rn_neuron_names("", 7));
    assert_true(rn_neuron_names("0-1,4", 4) && rn_neuron_names("0-1,4", 1));
    assert_false(rn_neuron_names("0-1,4", 2));
    assert_false(rn_neuron_names("x", 0) || rn_neuron_names("0-", 0) || rn_neuron_names("1;2", 2));
}

static void files_of_the_driver_are_summed_over_cores(void **state) {
    rn_device_usage usage;
    (void)state;
    assert_true(rn_neuron_read_sysfs("", &usage));
    assert_string_equal(usage.source, "sysfs");
    assert_int_equal(usage.used_bytes, 1030 + 7 + 500);
    assert_int_equal(category(&usage, "tensors"), 1007);
    assert_int_equal(category(&usage, "other"), 6); // of no category that is known
    assert_true(rn_neuron_read_sysfs("1-2", &usage));
    assert_int_equal(usage.used_bytes, 507);
    assert_false(rn_neuron_read_sysfs("3", &usage)); // its files have no numbers
    assert_false(rn_neuron_read_sysfs("9", &usage));
    setenv("RATION_NEURON_SYSFS", "/nowhere", 1);
    assert_false(rn_neuron_read_sysfs("", &usage));
    setenv("RATION_NEURON_SYSFS", root, 1);
}

#define LINE(cores)                                                                                \
    "{\"neuron_runtime_data\":[{\"pid\":1,\"report\":{\"memory_used\":{"                           \
    "\"neuron_runtime_used_bytes\":{\"host\":5,\"neuron_device\":9,\"usage_breakdown\":{"          \
    "\"host\":{\"tensors\":1},\"neuroncore_memory_usage\":" cores "}}}}}],\"system_data\":{}}"

static void lines_of_the_monitor_are_read(void **state) {
    rn_device_usage usage;
    (void)state;
    rn_str line = RN_STR(LINE("{\"0\":{\"tensors\":4096,\"constants\":1},\"1\":{\"tensors\":2}}"));
    assert_true(rn_neuron_read_line("0", line, &usage));
    assert_int_equal(usage.used_bytes, 4097);
    assert_int_equal(category(&usage, "tensors"), 4096);
    assert_true(rn_neuron_read_line("", line, &usage));
    assert_int_equal(category(&usage, "tensors"), 4098);
    for (size_t cut = 0; cut < line.bytes; cut++)
        assert_false(rn_neuron_read_line("", (rn_str){line.data, cut}, &usage));
    static const char *const others[] = {
        "",
        "{}",
        "neuron-monitor: no device",
        LINE("{\"0\":{\"tensors\":-1}}"),
        LINE("{\"0\":{\"tensors\":1e99}}"),
        LINE("{\"0\":[1]}"),
        LINE("{\"99999999999\":{\"tensors\":1}}"),
        LINE("[]"),
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(rn_neuron_read_line("", rn_str_from(others[i]), &usage));
}

static void write_script(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", text);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
}

// A line that never ends, one that is none, two that are: the last is what counts.
static void a_monitor_is_followed_and_ended(void **state) {
    char path[128];
    rn_device_usage usage = {0};
    (void)state;
    snprintf(path, sizeof path, "%s/monitor", root);
    write_script(
        path, "head -c 700000 /dev/zero | tr '\\0' '['; echo; echo nothing\n"
              "echo '" LINE(
                  "{\"0\":{\"tensors\":1}}") "'\n"
                                             "echo '" LINE(
                                                 "{\"0\":{\"tensors\":77}}") "'\nexec sleep 1000");
    setenv("RATION_NEURON_MONITOR", path, 1);
    rn_neuron_monitor *monitor = rn_neuron_monitor_start("0");
    assert_non_null(monitor);
    while (!rn_neuron_monitor_read(monitor, &usage) || usage.used_bytes != 77)
        usleep(1000);
    assert_string_equal(usage.source, "neuron-monitor");
    rn_neuron_monitor_stop(monitor);
    setenv("RATION_NEURON_MONITOR", "/nowhere/neuron-monitor", 1);
    assert_null(rn_neuron_monitor_start("0"));
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_cores_are_read),
        cmocka_unit_test(files_of_the_driver_are_summed_over_cores),
        cmocka_unit_test(lines_of_the_monitor_are_read),
        cmocka_unit_test(a_monitor_is_followed_and_ended),
    };
    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
