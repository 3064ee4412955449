// support.h — what every test includes: cmocka with its own needs, and a few helpers.
#ifndef RN_TEST_SUPPORT_H
#define RN_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <ration/status.h>

// The main of a test file becomes a function of its layer's executable, which calls the one that it
// is asked for (tests/test_main.c).
#ifdef RN_TEST_MAIN
int RN_TEST_MAIN(void);
#define main RN_TEST_MAIN
#endif

// Leaves the test that is running out and says why, as printf does: "no GPU: %s". It counts as
// skipped, never as passed.
#define skip_because(...)                                                                          \
    do {                                                                                           \
        test_note_skip(__VA_ARGS__);                                                               \
        _skip(__FILE__, __LINE__);                                                                 \
    } while (0)
#undef skip
#define skip() skip_because("no reason given at %s:%d", __FILE__, __LINE__)

// From here on printf writes 1,5, until setlocale(LC_NUMERIC, "C"). Skips the test where no locale
// does.
void test_write_decimal_commas(void);

// cmocka's own, counted.
#undef cmocka_run_group_tests
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    test_run_group(#tests, tests, sizeof(tests) / sizeof(tests)[0], setup, teardown)

// Asserts success and, on failure, shows the story.
#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        rn_status assert_status_ = (expr);                                                         \
        if (assert_status_ != RN_OK)                                                               \
            fail_msg("%s: %s: %s", #expr, rn_status_name(assert_status_),                          \
                     rn_last_error()->message);                                                    \
    } while (0)
// Asserts one particular failure.
#define assert_fails(expected, expr) assert_int_equal((expected), (expr))

// Refuses the allocations of `live`, one in each call of it: each time it fails with RN_NO_MEMORY
// and has given everything back. Of those that come about in the same way (by the same chain of
// calls, as in a loop) the first, the second and the last; under ThreadSanitizer the first alone.
// How many allocations it has.
uint64_t survive_refusals(rn_status (*live)(void));

// ThreadSanitizer has nothing to see where one thread works alone: what takes long there is left to
// the other builds.
#ifdef __SANITIZE_THREAD__
enum { TEST_THREADS_ONLY = 1 };
#else
enum { TEST_THREADS_ONLY = 0 };
#endif

void test_note_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
int test_run_group(const char *name, const struct CMUnitTest *tests, size_t count,
                   CMFixtureFunction setup, CMFixtureFunction teardown);
// What the process ends with, after all its groups: 1 where a test failed, 77 where none did and
// some were skipped (a line says how many and why), else 0.
int test_verdict(int failed);

// The shared test data ("../shared/data" or $RATION_DATA) joined with `name`, in a static buffer;
// NULL where it is missing.
const char *test_data(const char *name);
// The same, for a test that is nothing without it: skips where it is missing.
const char *test_data_or_skip(const char *name);
// A real model of that name in $RATION_MODELS (../models); skips where it is missing. Valid until
// the next call.
const char *test_model_or_skip(const char *name);
// A fresh folder for this test's files; removed at exit.
const char *test_folder(void);
// `test_folder()`/name, in one of a few rotating static buffers.
const char *test_path(const char *name);
// cmocka setup: a new, empty folder for each test, so that left-overs show. `test_own_folder` is
// its path.
int test_make_folder(void **state);
extern char test_own_folder[256];
// `test_own_folder`/name, in one of a few rotating static buffers.
const char *test_own_path(const char *name);
// Writes a whole file; reads a whole file (malloc'd, caller frees).
void test_write(const char *path, const void *data, size_t bytes);
void *test_read(const char *path, size_t *out_bytes);

#endif
