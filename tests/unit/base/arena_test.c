// Arenas: nothing overlaps, everything is zero, one call frees it all.
#include "support.h"
#include "base/arena.h"
#include "base/fault.h"

static rn_arena make(size_t chunk_bytes) {
    rn_arena arena;
    rn_arena_init(&arena, &rn_system_allocator, chunk_bytes);
    return arena;
}

static void *take(rn_arena *arena, size_t bytes) {
    void *block;
    assert_ok(rn_arena_alloc(arena, bytes, &block));
    assert_int_equal(0, (uintptr_t)block % 16);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(0, ((char *)block)[i]);
    return block;
}

static void arena_takes_nothing_before_it_is_asked(void **state) {
    (void)state;
    rn_arena arena = make(0);
    assert_int_equal(0, arena.held_bytes);
    rn_arena_free_all(&arena);
    take(&arena, 1);
    assert_int_equal(64 << 10, arena.held_bytes);
    rn_arena_free_all(&arena);
    assert_int_equal(0, arena.held_bytes);
}

static void blocks_of_no_bytes_are_still_different(void **state) {
    (void)state;
    rn_arena arena = make(0);
    void *a = take(&arena, 0), *b = take(&arena, 0), *c = take(&arena, 1);
    assert_non_null(a);
    assert_ptr_not_equal(a, b);
    assert_ptr_not_equal(b, c);
    rn_arena_free_all(&arena);
}

static void blocks_never_overlap(void **state) {
    (void)state;
    enum { COUNT = 2000 };
    static struct {
        unsigned char *data;
        size_t bytes;
    } blocks[COUNT];
    rn_arena arena = make(1024);
    uint32_t random = 1;
    for (int i = 0; i < COUNT; i++) {
        random = random * 1664525u + 1013904223u;
        blocks[i].bytes = (random >> 16) % (i % 50 == 0 ? 5000 : 200);
        blocks[i].data = take(&arena, blocks[i].bytes);
        memset(blocks[i].data, i % 251 + 1, blocks[i].bytes);
    }
    for (int i = 0; i < COUNT; i++)
        for (size_t b = 0; b < blocks[i].bytes; b++)
            assert_int_equal(i % 251 + 1, blocks[i].data[b]);
    rn_arena_free_all(&arena);
}

static void large_block_does_not_waste_the_current_chunk(void **state) {
    (void)state;
    rn_arena arena = make(4096);
    char *first = take(&arena, 100);
    size_t held = arena.held_bytes;
    take(&arena, 100000);
    assert_true(arena.held_bytes >= held + 100000);
    assert_true(arena.held_bytes < held + 100000 + 4096);
    held = arena.held_bytes;
    char *next = take(&arena, 100);
    assert_ptr_equal(first + 112, next); // 100 rounded up to 16
    assert_int_equal(held, arena.held_bytes);
    rn_arena_free_all(&arena);
}

static void chunk_is_filled_to_its_last_byte(void **state) {
    (void)state;
    rn_arena arena = make(4096);
    take(&arena, 16);
    int count = 1;
    while (arena.held_bytes == 4096) {
        take(&arena, 16);
        count++;
    }
    // One header's worth of 32 bytes; the block that made a second chunk is not in the first.
    assert_int_equal((4096 - 32) / 16 + 1, count);
    rn_arena_free_all(&arena);
}

static void tiny_chunks_still_hold_anything(void **state) {
    (void)state;
    rn_arena arena = make(1);
    for (int i = 0; i < 100; i++)
        memset(take(&arena, (size_t)i), 0xFF, (size_t)i);
    rn_arena_free_all(&arena);
}

static void copies_are_terminated_and_keep_nul_bytes(void **state) {
    (void)state;
    rn_arena arena = make(0);
    void *copy;
    assert_ok(rn_arena_copy(&arena, "a\0b", 3, &copy));
    assert_memory_equal("a\0b\0", copy, 4);
    assert_ok(rn_arena_copy(&arena, NULL, 0, &copy));
    assert_string_equal("", copy);
    rn_arena_free_all(&arena);
}

static void arena_may_be_used_again_and_is_zero_again(void **state) {
    (void)state;
    rn_arena arena = make(2048);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 100; i++)
            memset(take(&arena, 300), 0xEE, 300);
        rn_arena_free_all(&arena);
        assert_int_equal(0, arena.held_bytes);
    }
}

static void sizes_that_overflow_are_refused(void **state) {
    (void)state;
    rn_arena arena = make(0);
    void *block = &block;
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 14, SIZE_MAX - 15, SIZE_MAX - 40,
                            SIZE_MAX / 2 + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_fails(RN_NO_MEMORY, rn_arena_alloc(&arena, sizes[i], &block));
        assert_null(block);
    }
    assert_fails(RN_NO_MEMORY, rn_arena_array(&arena, SIZE_MAX / 2, 3, &block));
    assert_fails(RN_NO_MEMORY, rn_arena_copy(&arena, "", SIZE_MAX, &block));
    assert_int_equal(0, arena.held_bytes);
    assert_ok(rn_arena_array(&arena, 10, 8, &block));
    memset(block, 1, 80);
    rn_arena_free_all(&arena);
}

static void failed_allocation_leaves_the_arena_usable(void **state) {
    (void)state;
    bool fired = true;
    for (uint64_t nth = 1; fired; nth++) {
        rn_arena arena = make(256);
        int failures = 0;
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        for (int i = 0; i < 40; i++) {
            void *block;
            rn_status s = rn_arena_alloc(&arena, i % 7 == 0 ? 1000 : 60, &block);
            if (s == RN_OK)
                memset(block, 0xCC, i % 7 == 0 ? 1000 : 60);
            else
                assert_int_equal(RN_NO_MEMORY, s);
            failures += s != RN_OK;
        }
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        assert_int_equal(fired, failures);
        rn_arena_free_all(&arena);
    }
    rn_fault_arm(RN_FAULT_ALLOC, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_takes_nothing_before_it_is_asked),
        cmocka_unit_test(blocks_of_no_bytes_are_still_different),
        cmocka_unit_test(blocks_never_overlap),
        cmocka_unit_test(large_block_does_not_waste_the_current_chunk),
        cmocka_unit_test(chunk_is_filled_to_its_last_byte),
        cmocka_unit_test(tiny_chunks_still_hold_anything),
        cmocka_unit_test(copies_are_terminated_and_keep_nul_bytes),
        cmocka_unit_test(arena_may_be_used_again_and_is_zero_again),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(failed_allocation_leaves_the_arena_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
