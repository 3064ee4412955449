// Launches of products of many rows: every row, token and segment has one block, and what was
// planned for many rows does for fewer.
#include "support.h"
#include "backend/cuda/kernels/product_many.h"

static const uint32_t sizes[] = {0, 1, 16, 64, 65, 197, 1024, 2560, 4096, 14336, 128256};
static const uint32_t widths[] = {64, 100, 512, 513, 1100, 2048, 4096, 14336};
static const uint32_t tokens[] = {2, 17, 32, 33, 64, 65, 100, 128, 129, 256, 300, 512, 1000};

#define COUNT(list) (sizeof(list) / sizeof *(list))

// `pick` numbers all shapes: one weight, three, or a gate and its up.
static bool next_shape(uint32_t pick, rn_product_args *a) {
    uint32_t size = pick % COUNT(sizes), width = pick / COUNT(sizes) % COUNT(widths);
    uint32_t kind = pick / COUNT(sizes) / COUNT(widths);
    *a = (rn_product_args){.cols = widths[width], .gated = kind == 2, .count = 1};
    a->weights[0].rows = a->weights[1].rows = sizes[size];
    a->weights[2].rows = sizes[(size + 3) % COUNT(sizes)];
    if (kind) a->count = kind == 1 ? 3 : 2;
    return kind < 3;
}

static void every_row_and_token_has_a_block(void **state) {
    (void)state;
    static const uint32_t tile_tokens[] = {32, 32, 64, 128, 128, 128, 128},
                          groups[] = {0, 2, 2, 2, 1, 2, 3};
    rn_product_args a;
    for (uint32_t pick = 0; next_shape(pick, &a); pick++)
        for (uint32_t i = 0; i < COUNT(tokens); i++) {
            a.rows = tokens[i];
            rn_many_launch l = rn_many_pick(&a, 132, true);
            uint64_t each = a.gated ? 1 : groups[l.family], rows = l.y * each;
            assert_true((uint64_t)l.x * tile_tokens[l.family] >= a.rows);
            assert_true(rows >= rn_many_groups(&a, RN_MANY_GROUP));
            assert_true(rows < rn_many_groups(&a, RN_MANY_GROUP) + each); // and no block has none
            assert_true(l.family < RN_FAMILY_NARROW || l.x % 2 == 0);
            assert_true(!a.gated || groups[l.family] == 2);
        }
}

static void every_part_has_segments(void **state) {
    (void)state;
    rn_product_args a;
    for (uint32_t pick = 0; next_shape(pick, &a); pick++)
        for (uint32_t i = 0; i < COUNT(tokens); i++) {
            a.rows = tokens[i];
            rn_many_launch l = rn_many_pick(&a, 132, true);
            uint32_t segments = rn_many_ceil(a.cols, RN_PRODUCT_SEGMENT);
            uint32_t each = rn_many_ceil(segments, l.z); // as the kernel deals them out
            assert_true((l.z - 1) * each < segments && l.z * each >= segments);
            assert_int_equal(l.z > 1, l.join_x > 0);
        }
}

static void workspace_for_many_rows_does_for_fewer(void **state) {
    (void)state;
    rn_product_args a;
    for (uint32_t pick = 0; next_shape(pick, &a); pick++) {
        uint64_t most = 0;
        for (uint32_t i = 0; i < COUNT(tokens); i++) {
            a.rows = tokens[i];
            rn_many_launch l = rn_many_pick(&a, 132, true);
            uint64_t bytes = l.join_x ? rn_some_bytes(&a, a.rows) : 0;
            assert_true(!l.join_x || bytes > 0);
            if (bytes > most) most = bytes;
            assert_true(rn_many_workspace(&a) >= most);
        }
    }
}

static void a_device_without_wgmma_takes_the_plain_kernel(void **state) {
    (void)state;
    rn_product_args a = {.rows = 100, .cols = 256, .count = 2};
    a.weights[0].rows = 40, a.weights[1].rows = 20;
    rn_many_launch l = rn_many_pick(&a, 108, false);
    assert_int_equal(l.family, RN_FAMILY_MMA);
    assert_int_equal(l.x, 4); // of 32 tokens
    assert_int_equal(l.y, 2); // of four tiles: three and two
    assert_int_equal(l.join_x, 0);
}

static void packed_rows_are_whole_eights_and_columns_whole_tiles(void **state) {
    (void)state;
    assert_int_equal(rn_pack_blocks(17), 24);
    assert_int_equal(rn_pack_bytes(17, 100), 24 * 128 * 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_and_token_has_a_block),
        cmocka_unit_test(every_part_has_segments),
        cmocka_unit_test(workspace_for_many_rows_does_for_fewer),
        cmocka_unit_test(a_device_without_wgmma_takes_the_plain_kernel),
        cmocka_unit_test(packed_rows_are_whole_eights_and_columns_whole_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
