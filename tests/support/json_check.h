// json_check.h — a strict JSON reader of the tests' own: it shares no code with the writer that it
// judges.
#ifndef RN_TEST_JSON_CHECK_H
#define RN_TEST_JSON_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Whether the text is exactly one value of RFC 8259, white space around it allowed, in valid UTF-8,
// with no key twice in an object.
bool test_json_valid(const char *text, size_t bytes);

// The value at a path like "host/holders/0/name" ("" is the whole): strings decoded, everything
// else as it stands. Terminated; false where the path leads nowhere or `capacity` is too small.
bool test_json_get(const char *text, size_t bytes, const char *path, char *out, size_t capacity);

// The number at the path; fails the test where there is none.
uint64_t test_json_u64(const char *text, size_t bytes, const char *path);

#endif
