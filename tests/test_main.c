// test_main.c — the main of test_<layer>: runs the tests of one file, by its name.
//
//     build/dev/bin/test_plan cost               those of tests/unit/plan/cost_test.c
//     build/dev/bin/test_plan cost '*budget*'    the ones among them whose names match
#include "support.h"

#define TEST(name, function) int function(void);
#include RN_TEST_LIST
#undef TEST

static const struct {
    const char *name;
    int (*run)(void);
} files[] = {
#define TEST(name, function) {#name, function},
#include RN_TEST_LIST
};

// In tests that load them, XLA's plugin and ONNX Runtime leak a little of their own.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:xla_cpu_pjrt\nleak:libonnxruntime\n";
}

// What AddressSanitizer keeps of freed memory counts as the process's own; tests of budgets measure
// that.
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "quarantine_size_mb=4";
}

enum { FILE_COUNT = sizeof files / sizeof files[0] };

int main(int argc, char **argv) {
    for (size_t i = 0; argc >= 2 && argc <= 3 && i < FILE_COUNT; i++) {
        if (strcmp(files[i].name, argv[1]) != 0) continue;
        if (argc == 3) cmocka_set_test_filter(argv[2]);
        return test_verdict(files[i].run());
    }
    fprintf(stderr, "usage: %s NAME [PATTERN]\n", argv[0]);
    for (size_t i = 0; i < FILE_COUNT; i++)
        fprintf(stderr, "  %s\n", files[i].name);
    return 2;
}
