// guarded.c — see guarded.h. The fences are filled with a pattern and, under AddressSanitizer,
// poisoned.
#include "guarded.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes)   ((void)(data), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) ((void)(data), (void)(bytes))
#endif

#define FENCE_BYTES   64
#define FENCE_PATTERN 0xa5
#define FRESH_PATTERN 0xff // a NaN in every float type

test_guard test_guard_make(uint64_t bytes) {
    void *block = NULL;
    if (posix_memalign(&block, FENCE_BYTES, bytes + 2 * FENCE_BYTES)) abort();
    memset(block, FENCE_PATTERN, bytes + 2 * FENCE_BYTES);
    test_guard guard = {(uint8_t *)block + FENCE_BYTES, bytes};
    memset(guard.data, FRESH_PATTERN, bytes);
    ASAN_POISON_MEMORY_REGION(block, FENCE_BYTES);
    ASAN_POISON_MEMORY_REGION(guard.data + bytes, FENCE_BYTES);
    return guard;
}

bool test_guard_fresh(const void *data, uint64_t bytes) {
    const uint8_t *b = data;
    for (uint64_t i = 0; i < bytes; i++)
        if (b[i] != FRESH_PATTERN) return false;
    return true;
}

static bool is_fence(uint8_t *fence) {
    bool intact = true;
    ASAN_UNPOISON_MEMORY_REGION(fence, FENCE_BYTES);
    for (int i = 0; i < FENCE_BYTES; i++)
        intact = intact && fence[i] == FENCE_PATTERN;
    ASAN_POISON_MEMORY_REGION(fence, FENCE_BYTES);
    return intact;
}

bool test_guard_intact(const test_guard *guard) {
    return is_fence(guard->data - FENCE_BYTES) && is_fence(guard->data + guard->bytes);
}

void test_guard_free(test_guard *guard) {
    if (!guard->data) return;
    ASAN_UNPOISON_MEMORY_REGION(guard->data - FENCE_BYTES, guard->bytes + 2 * FENCE_BYTES);
    free(guard->data - FENCE_BYTES);
    *guard = (test_guard){0};
}
