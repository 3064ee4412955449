// Blocks: aligned, refused cleanly, and large ones released to the system when they are freed.
#include "support.h"
#include "base/alloc.h"
#include "base/fault.h"

#include <errno.h>
#include <sys/mman.h>

static const rn_allocator *const from = &rn_system_allocator;

static bool is_mapped(const void *address) {
    unsigned char residency;
    void *page = (void *)((uintptr_t)address & ~(uintptr_t)(RN_PAGE_BYTES - 1));
    return mincore(page, 1, &residency) == 0 || errno != ENOMEM;
}

static void nothing_is_a_block_of_no_bytes(void **state) {
    (void)state;
    void *block = &block;
    assert_ok(rn_alloc(from, 0, &block));
    assert_null(block);
    block = &block;
    assert_ok(rn_alloc_zeroed(from, 0, 8, &block));
    assert_null(block);
    rn_free(from, NULL, 0);
    rn_free(from, NULL, 100);
}

static void blocks_are_aligned_to_64_bytes_and_usable(void **state) {
    (void)state;
    const size_t sizes[] = {1, 63, 64, 65, 4095, RN_MAP_THRESHOLD - 1, RN_MAP_THRESHOLD, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block;
        assert_ok(rn_alloc(from, sizes[i], &block));
        assert_int_equal(0, (uintptr_t)block % 64);
        memset(block, 0xA5, sizes[i]);
        rn_free(from, block, sizes[i]);
    }
}

static void alignment_is_what_was_asked_for(void **state) {
    (void)state;
    const size_t sizes[] = {1, 100, RN_MAP_THRESHOLD, RN_MAP_THRESHOLD + 1};
    for (size_t align = 1; align <= (size_t)4 << 20; align *= 2)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *block;
            assert_ok(rn_alloc_aligned(from, sizes[i], align, &block));
            assert_int_equal(0, (uintptr_t)block % align);
            memset(block, 0x5A, sizes[i]);
            rn_free(from, block, sizes[i]);
        }
}

static void large_blocks_are_mapped_and_go_back_at_once(void **state) {
    (void)state;
    const size_t aligns[] = {64, RN_PAGE_BYTES, (size_t)2 << 20};
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        const size_t bytes = RN_MAP_THRESHOLD + 1;
        void *block;
        assert_ok(rn_alloc_aligned(from, bytes, aligns[i], &block));
        char *first = block, *last = first + bytes - 1;
        assert_int_equal(0, (uintptr_t)block % RN_PAGE_BYTES);
        assert_true(is_mapped(first) && is_mapped(last));
        memset(block, 1, bytes);
        rn_free(from, block, bytes);
        assert_false(is_mapped(first));
        assert_false(is_mapped(last));
    }
}

static void zeroed_blocks_are_zero_even_where_memory_was_used_before(void **state) {
    (void)state;
    const size_t sizes[] = {1, 48, 4096, RN_MAP_THRESHOLD - 8, RN_MAP_THRESHOLD, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int round = 0; round < 3; round++) {
            void *block;
            assert_ok(rn_alloc_zeroed(from, 1, sizes[i], &block));
            for (size_t b = 0; b < sizes[i]; b++)
                assert_int_equal(0, ((char *)block)[b]);
            memset(block, 0xFF, sizes[i]);
            rn_free(from, block, sizes[i]);
        }
}

static void sizes_that_overflow_are_refused(void **state) {
    (void)state;
    void *block = &block;
    assert_fails(RN_NO_MEMORY, rn_alloc_zeroed(from, SIZE_MAX / 4, 5, &block));
    assert_null(block);
    assert_non_null(strstr(rn_last_error()->message, "overflow"));
    block = &block;
    assert_fails(RN_NO_MEMORY, rn_alloc_zeroed(from, 5, SIZE_MAX / 4, &block));
    assert_null(block);
    block = &block;
    assert_fails(RN_NO_MEMORY, rn_alloc(from, (size_t)PTRDIFF_MAX + 1, &block));
    assert_null(block);
    block = &block;
    assert_fails(RN_NO_MEMORY, rn_alloc(from, SIZE_MAX, &block));
    assert_null(block);
}

static void more_than_the_system_has_is_refused(void **state) {
    (void)state;
    void *block = &block;
    assert_fails(RN_NO_MEMORY, rn_alloc(from, (size_t)PTRDIFF_MAX, &block));
    assert_null(block);
    assert_non_null(strstr(rn_last_error()->message, "9223372036854775807 bytes"));
    block = &block;
    assert_fails(RN_NO_MEMORY,
                 rn_alloc_aligned(from, (size_t)PTRDIFF_MAX, (size_t)1 << 30, &block));
    assert_null(block);
}

static void armed_fault_fails_exactly_the_nth_allocation(void **state) {
    (void)state;
    for (uint64_t nth = 1; nth <= 5; nth++) {
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        for (uint64_t i = 1; i <= 6; i++) {
            void *block;
            rn_status s = rn_alloc(from, i % 2 ? 64 : RN_MAP_THRESHOLD, &block);
            assert_int_equal(i == nth ? RN_NO_MEMORY : RN_OK, s);
            assert_int_equal(i != nth, block != NULL);
            assert_int_equal(i >= nth, rn_fault_fired(RN_FAULT_ALLOC));
            rn_free(from, block, i % 2 ? 64 : RN_MAP_THRESHOLD);
        }
    }
    rn_fault_arm(RN_FAULT_ALLOC, 1);
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    void *block;
    assert_ok(rn_alloc(from, 1, &block));
    assert_false(rn_fault_fired(RN_FAULT_ALLOC));
    rn_free(from, block, 1);
}

static void faults_of_one_kind_leave_the_others_alone(void **state) {
    (void)state;
    rn_fault_arm(RN_FAULT_READ, 1);
    void *block;
    assert_ok(rn_alloc(from, 1, &block));
    rn_free(from, block, 1);
    assert_false(rn_fault_hit(RN_FAULT_WRITE));
    assert_false(rn_fault_fired(RN_FAULT_READ));
    assert_true(rn_fault_hit(RN_FAULT_READ));
    assert_false(rn_fault_hit(RN_FAULT_READ));
    rn_fault_arm(RN_FAULT_READ, 0);
}

static void *refuse(void *self, size_t bytes, size_t align) {
    (void)self, (void)bytes, (void)align;
    (void)rn_fail(RN_OVER_BUDGET, "not today");
    return NULL;
}

static void never_free(void *self, void *block, size_t bytes) {
    (void)self, (void)block, (void)bytes;
    fail_msg("there was nothing to free");
}

static void reason_of_an_allocator_is_passed_on(void **state) {
    (void)state;
    const rn_allocator miser = {NULL, refuse, never_free};
    void *block = &block;
    assert_fails(RN_OVER_BUDGET, rn_alloc(&miser, 10, &block));
    assert_null(block);
    assert_string_equal("not today", rn_last_error()->message);
    assert_fails(RN_OVER_BUDGET, rn_alloc_zeroed(&miser, 10, 10, &block));
    rn_free(&miser, NULL, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_a_block_of_no_bytes),
        cmocka_unit_test(blocks_are_aligned_to_64_bytes_and_usable),
        cmocka_unit_test(alignment_is_what_was_asked_for),
        cmocka_unit_test(large_blocks_are_mapped_and_go_back_at_once),
        cmocka_unit_test(zeroed_blocks_are_zero_even_where_memory_was_used_before),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(more_than_the_system_has_is_refused),
        cmocka_unit_test(armed_fault_fails_exactly_the_nth_allocation),
        cmocka_unit_test(faults_of_one_kind_leave_the_others_alone),
        cmocka_unit_test(reason_of_an_allocator_is_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
