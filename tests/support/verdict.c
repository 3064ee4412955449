// verdict.c — how a test program ends: skipped tests are counted, with their reasons, and are no
// success.
#include "support.h"

#include <ctype.h>

// What CTest takes for "skipped" (SKIP_RETURN_CODE), as do the shell tests.
enum { EXIT_SKIPPED = 77 };

enum { REASONS = 3 }; // told; of more, that there are some

static size_t count, skipped, reason_count;
static char reasons[REASONS][256]; // each once

void test_note_skip(const char *format, ...) {
    char reason[sizeof reasons[0]];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    for (char *c = reason; *c; c++)
        if (iscntrl((unsigned char)*c)) *c = ' ';
    skipped++;
    for (size_t i = 0; i < reason_count && i < REASONS; i++)
        if (strcmp(reasons[i], reason) == 0) return;
    if (reason_count < REASONS) memcpy(reasons[reason_count], reason, sizeof reason);
    reason_count++;
}

// One line, which scripts/test-summary looks for.
static void tell_skipped(void) {
    printf("skipped: %zu of %zu tests: ", skipped, count);
    for (size_t i = 0; i < reason_count && i < REASONS; i++)
        printf("%s%s", i ? "; " : "", reasons[i]);
    printf("%s\n", reason_count > REASONS ? "; and others" : "");
}

int test_run_group(const char *name, const struct CMUnitTest *tests, size_t test_count,
                   CMFixtureFunction setup, CMFixtureFunction teardown) {
    count += test_count;
    return _cmocka_run_group_tests(name, tests, test_count, setup, teardown);
}

int test_verdict(int failed) {
    if (skipped > 0) tell_skipped();
    if (failed != 0) return 1;
    return skipped > 0 ? EXIT_SKIPPED : 0;
}
