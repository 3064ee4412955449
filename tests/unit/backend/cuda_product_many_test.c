// Launches of products of many rows: every row, token and segment has one block, and blocks that
// wait for each other have room at the same time.
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

// A ring is one cluster, each of its blocks has a segment, and all rings run at the same time.
static void rings_have_segments_and_room(void **state) {
    (void)state;
    rn_product_args a;
    uint32_t rings = 0;
    for (uint32_t pick = 0; next_shape(pick, &a); pick++)
        for (uint32_t i = 0; i < COUNT(tokens); i++) {
            a.rows = tokens[i];
            rn_many_launch l = rn_many_pick(&a, 132, true);
            bool some = l.family > RN_FAMILY_MMA && l.family < RN_FAMILY_NARROW;
            assert_int_equal(some ? l.z : 0, l.ring);
            assert_int_equal(some ? l.ring : 1, l.z);
            if (l.z == 1) continue;
            assert_in_range(l.z, 2, RN_RING_MOST);
            assert_true(l.z <= rn_many_ceil(a.cols, RN_PRODUCT_SEGMENT));
            assert_true(l.x * l.y * l.z <= (l.shared_bytes == RN_MANY_SHARED ? 132u : 264u));
            rings++;
        }
    assert_true(rings > 0);
}

static void a_device_without_wgmma_takes_the_plain_kernel(void **state) {
    (void)state;
    rn_product_args a = {.rows = 100, .cols = 256, .count = 2};
    a.weights[0].rows = 40, a.weights[1].rows = 20;
    rn_many_launch l = rn_many_pick(&a, 108, false);
    assert_int_equal(l.family, RN_FAMILY_MMA);
    assert_int_equal(l.x, 4); // of 32 tokens
    assert_int_equal(l.y, 2); // of four tiles: three and two
    assert_int_equal(l.ring, 0);
}

static void packed_rows_are_whole_eights_and_columns_whole_tiles(void **state) {
    (void)state;
    assert_int_equal(rn_pack_blocks(17), 24);
    assert_int_equal(rn_pack_bytes(17, 100), 24 * 128 * 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_and_token_has_a_block),
        cmocka_unit_test(rings_have_segments_and_room),
        cmocka_unit_test(a_device_without_wgmma_takes_the_plain_kernel),
        cmocka_unit_test(packed_rows_are_whole_eights_and_columns_whole_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
