// guarded.h — memory with a fence on both sides, for tests that hand buffers to kernels.
//
//     | fence 64 | bytes, 64-byte aligned | fence 64 |
//
// A write into a fence is found by test_guard_intact; where AddressSanitizer is on, a read is an
// error at once.
#ifndef RN_TEST_GUARDED_H
#define RN_TEST_GUARDED_H

#include <stdbool.h>
#include <stdint.h>

typedef struct test_guard {
    uint8_t *data; // (bytes); a valid pointer also for 0 bytes
    uint64_t bytes;
} test_guard;

// Bytes that are no plausible number: a kernel that reads what it has not written shows.
test_guard test_guard_make(uint64_t bytes);
// Whether nobody has written there since.
bool test_guard_fresh(const void *data, uint64_t bytes);
// Whether both fences are as they were.
bool test_guard_intact(const test_guard *guard);
// Zeroes the handle; harmless on zeros.
void test_guard_free(test_guard *guard);

#endif
