// extents_test.c — the cutting of lists into requests, without any file.
#include "support.h"
#include "base/extents.h"

#define BLOCK 4096u
#define LIMIT (4 * BLOCK)

static const uint64_t aligns[] = {BLOCK, BLOCK};

typedef struct cut {
    rn_extent_request requests[16];
    uint32_t ends[16]; // the cursor's extent after each
    int count;
} cut;

static cut cut_list(const rn_extent *items, uint32_t count) {
    cut result = {0};
    rn_extents list = {items, count};
    rn_extent_cursor at = rn_extents_begin(list);
    while (at.extent < count) {
        assert_true(result.count < 16);
        result.requests[result.count] = rn_extents_take(list, aligns, LIMIT, &at);
        result.ends[result.count++] = at.extent;
    }
    return result;
}

static void assert_request(const rn_extent_request *got, uint32_t file, uint64_t offset,
                           size_t need_bytes) {
    assert_int_equal(got->file, file);
    assert_int_equal(got->offset, offset);
    assert_int_equal(got->need_bytes, need_bytes);
}

static void extents_round_the_beginning_down_and_keep_the_end(void **state) {
    (void)state;
    cut got = cut_list(&(rn_extent){0, BLOCK + 10, 20}, 1);
    assert_int_equal(got.count, 1);
    assert_request(&got.requests[0], 0, BLOCK, 30);
}

// Grains of 5000 bytes: three fit a request beside the rounding, the fourth begins the next one.
static void extents_divide_a_large_range_at_its_grains(void **state) {
    (void)state;
    cut got = cut_list(&(rn_extent){0, 100, 40000, 5000}, 1);
    assert_int_equal(got.count, 3);
    assert_request(&got.requests[0], 0, 0, 100 + 15000);
    assert_request(&got.requests[1], 0, 3 * BLOCK, 100 + 25000 - 3 * BLOCK);
    assert_request(&got.requests[2], 0, 6 * BLOCK, 100 + 40000 - 6 * BLOCK);
}

static void a_grain_larger_than_a_request_divides_nothing_more(void **state) {
    (void)state;
    cut plain = cut_list(&(rn_extent){0, 100, 2 * LIMIT}, 1);
    cut got = cut_list(&(rn_extent){0, 100, 2 * LIMIT, LIMIT + BLOCK}, 1);
    assert_true(got.count >= plain.count);
    assert_request(&got.requests[0], 0, 0, LIMIT);
}

static void extents_divide_a_large_range_at_block_boundaries(void **state) {
    (void)state;
    cut got = cut_list(&(rn_extent){0, 100, 2 * LIMIT}, 1);
    assert_int_equal(got.count, 3);
    assert_request(&got.requests[0], 0, 0, LIMIT);
    assert_request(&got.requests[1], 0, LIMIT, LIMIT);
    assert_request(&got.requests[2], 0, 2 * LIMIT, 100);
}

static void extents_never_divide_what_fits_a_request(void **state) {
    (void)state;
    // The second does not fit behind the first, but fits a request of its own.
    rn_extent list[] = {{0, 0, 3 * BLOCK}, {0, 3 * BLOCK, LIMIT - BLOCK}};
    cut got = cut_list(list, 2);
    assert_int_equal(got.count, 2);
    assert_request(&got.requests[0], 0, 0, 3 * BLOCK);
    assert_request(&got.requests[1], 0, 3 * BLOCK, LIMIT - BLOCK);
}

static void extents_let_neighbours_share_a_request(void **state) {
    (void)state;
    rn_extent list[] = {{0, 10, 10}, {0, 20, 10}, {0, 5000, 1}, {0, LIMIT - 1, 1}, {0, LIMIT, 1}};
    cut got = cut_list(list, 5);
    assert_int_equal(got.count, 2);
    assert_request(&got.requests[0], 0, 0, LIMIT);
    assert_int_equal(got.ends[0], 4);
    assert_request(&got.requests[1], 0, LIMIT, 1);
}

static void extents_let_followers_share_the_tail_of_a_large_range(void **state) {
    (void)state;
    rn_extent list[] = {{0, 0, LIMIT + 5}, {0, LIMIT + 5, 7}};
    cut got = cut_list(list, 2);
    assert_int_equal(got.count, 2);
    assert_request(&got.requests[1], 0, LIMIT, 12);
}

static void extents_do_not_read_wide_gaps(void **state) {
    (void)state;
    size_t limit = 4 * RN_EXTENT_GAP_BYTES;
    rn_extent list[] = {
        {0, 0, 1}, {0, RN_EXTENT_GAP_BYTES + 1, 1}, {0, 2 * RN_EXTENT_GAP_BYTES + 3, 1}};
    rn_extents extents = {list, 3};
    rn_extent_cursor at = rn_extents_begin(extents);
    rn_extent_request first = rn_extents_take(extents, aligns, limit, &at);
    assert_request(&first, 0, 0, RN_EXTENT_GAP_BYTES + 2);
    assert_int_equal(at.extent, 2);
}

static void extents_of_other_files_and_earlier_offsets_start_anew(void **state) {
    (void)state;
    rn_extent list[] = {{0, 2 * BLOCK, 1}, {1, 2 * BLOCK, 1}, {1, BLOCK, 1}};
    cut got = cut_list(list, 3);
    assert_int_equal(got.count, 3);
    assert_request(&got.requests[1], 1, 2 * BLOCK, 1);
    assert_request(&got.requests[2], 1, BLOCK, 1);
}

static void extents_that_overlap_share_a_request(void **state) {
    (void)state;
    rn_extent list[] = {{0, 100, 900}, {0, 50, 10}, {0, 100, 900}};
    cut got = cut_list(list, 3);
    assert_int_equal(got.count, 1);
    assert_request(&got.requests[0], 0, 0, 1000);
}

static void extents_of_no_bytes_are_stepped_over(void **state) {
    (void)state;
    rn_extent list[] = {{0, 9, 0}, {1, 9, 1}, {0, 9, 0}, {0, 9, 0}};
    cut got = cut_list(list, 4);
    assert_int_equal(got.count, 1);
    assert_request(&got.requests[0], 1, 0, 10);
    assert_int_equal(got.ends[0], 4);
    assert_int_equal(cut_list(list, 1).count, 0);
    assert_int_equal(cut_list(NULL, 0).count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extents_round_the_beginning_down_and_keep_the_end),
        cmocka_unit_test(extents_divide_a_large_range_at_its_grains),
        cmocka_unit_test(a_grain_larger_than_a_request_divides_nothing_more),
        cmocka_unit_test(extents_divide_a_large_range_at_block_boundaries),
        cmocka_unit_test(extents_never_divide_what_fits_a_request),
        cmocka_unit_test(extents_let_neighbours_share_a_request),
        cmocka_unit_test(extents_let_followers_share_the_tail_of_a_large_range),
        cmocka_unit_test(extents_do_not_read_wide_gaps),
        cmocka_unit_test(extents_of_other_files_and_earlier_offsets_start_anew),
        cmocka_unit_test(extents_that_overlap_share_a_request),
        cmocka_unit_test(extents_of_no_bytes_are_stepped_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
