// Launches of products of few rows: what blocks are told lets their warps take every unit once, and
// everything that a block holds in shared memory has a place of its own.
#include "support.h"
#include "backend/cuda/kernels/product_few.h"

#include <stdlib.h>

static const uint32_t sizes[] = {1, 16, 17, 197, 1024, 4096, 14336, 32000};
static const uint32_t widths[] = {32, 100, 512, 513, 1100, 2048, 4096, 14336, 32768};
static const uint32_t tokens[] = {1, 2, 8, 9, 16};

enum { KINDS = 3, MULTIPROCESSORS = 132, SHARED_MOST = 232448 };

#define COUNT(list) (sizeof(list) / sizeof *(list))

// One weight, three, or a gate and its up.
static rn_product_args shape(uint32_t size, uint32_t width, uint32_t kind, uint32_t rows,
                             uint32_t form) {
    rn_product_args a = {.cols = widths[width], .gated = kind == 2, .rows = rows, .form = form};
    a.count = kind == 0 ? 1 : kind == 1 ? 3 : 2;
    a.weights[0].rows = a.weights[1].rows = sizes[size];
    a.weights[2].rows = sizes[(size + 3) % COUNT(sizes)];
    return a;
}

// As product_few.cu has it: the units of block `block`, warp after warp.
static void take_units(const rn_few_plan *plan, uint32_t tiles, uint32_t warps, bool in_pairs,
                       uint8_t *taken /* (tiles, segments) */) {
    for (uint32_t warp = 0; warp < warps; warp++) {
        uint32_t tile = in_pairs ? warp % 2 : 0, segment = in_pairs ? warp / 2 : warp;
        for (; segment >= plan->segments; tile += in_pairs ? 2 : 1)
            segment -= plan->segments;
        while (tile < tiles) {
            taken[tile * plan->segments + segment]++;
            tile += plan->turn_tiles[in_pairs];
            segment += plan->turn_segments[in_pairs];
            if (segment < plan->segments) continue;
            segment -= plan->segments;
            tile += in_pairs ? 2 : 1;
        }
    }
}

static void check_units(const rn_product_args *a, const rn_few_launch *l) {
    uint32_t dealt = 0;
    assert_true(l->plan.last >= 1 && l->plan.last <= 4);
    assert_int_equal(4 * (l->plan.segments - 1) + l->plan.last, l->plan.tile_cols);
    for (uint32_t block = 0; block < l->blocks; block++)
        dealt += l->plan.tiles + (block < l->plan.more_tiles);
    assert_int_equal(dealt, rn_few_row_tiles(a));
    for (uint32_t pairs = 0; pairs < 2; pairs++) {
        uint32_t tiles = (l->plan.tiles + 1) * (a->gated ? 2 : 1) & ~pairs;
        uint8_t *taken = calloc(tiles * l->plan.segments + 1, 1);
        assert_non_null(taken);
        take_units(&l->plan, tiles, l->threads / 32, pairs, taken);
        for (uint32_t i = 0; i < tiles * l->plan.segments; i++)
            assert_int_equal(1, taken[i]);
        free(taken);
    }
}

// The ring, a table, x, partial sums, the norm's sums, and the barriers of both, one behind the
// other.
static void check_places(const rn_product_args *a, const rn_few_launch *l, bool has_ring) {
    rn_few_config config = rn_few_config_of(a->form, rn_few_tokens(a->rows), has_ring);
    const rn_few_plan *plan = &l->plan;
    uint32_t stage = config.warps * config.tiles * rn_few_tile_bytes(a->form);
    uint32_t sums = plan->batch_tiles * plan->segments * RN_TILE_ROWS * 4 * rn_few_tokens(a->rows);
    bool has_table = has_ring && rn_few_has_table(a->form);
    assert_int_equal(plan->table, plan->stages * stage);
    assert_int_equal(plan->x, plan->table + (has_table ? RN_FEW_TABLE : 0));
    assert_int_equal(plan->partial, plan->x + rn_few_x_bytes(config, a));
    assert_int_equal(plan->norm, plan->partial + sums);
    assert_true(plan->x_barriers >= plan->norm + config.warps * 4);
    assert_true(plan->barriers >= plan->x_barriers + plan->segments * 8);
    assert_true(plan->bytes >= plan->barriers + plan->stages * config.warps * 8);
    assert_int_equal(0, plan->x % 128 + plan->partial % 16 + plan->barriers % 8);
    assert_true(plan->bytes <= SHARED_MOST);
    assert_int_equal(has_ring, plan->stages > 0);
}

static void blocks_are_told_what_adds_up(void **state) {
    uint32_t served = 0;
    (void)state;
    for (uint32_t pick = 0; pick < COUNT(sizes) * COUNT(widths) * KINDS; pick++)
        for (uint32_t i = 0; i < 2 * COUNT(tokens) * (RN_TILE_FORM_COUNT - 1); i++) {
            bool has_ring = i % 2;
            uint32_t form = RN_TILE_F16 + i / 2 / COUNT(tokens);
            rn_product_args a =
                shape(pick % COUNT(sizes), pick / COUNT(sizes) % COUNT(widths),
                      pick / COUNT(sizes) / COUNT(widths), tokens[i / 2 % COUNT(tokens)], form);
            if (!rn_few_serves(&a, MULTIPROCESSORS, has_ring, SHARED_MOST)) continue;
            rn_few_launch l = rn_few_launch_of(&a, MULTIPROCESSORS, has_ring);
            check_units(&a, &l);
            check_places(&a, &l, has_ring);
            served++;
        }
    assert_true(served > 10000);
}

static void weights_begin_where_the_one_before_ends(void **state) {
    (void)state;
    rn_product_args a = shape(2, 0, 1, 1, RN_TILE_Q4); // 17, 17 and 4096 rows
    rn_few_plan plan = rn_few_launch_of(&a, MULTIPROCESSORS, true).plan;
    assert_int_equal(2, plan.ends[0]);
    assert_int_equal(4, plan.ends[1]);
    a.count = 1;
    plan = rn_few_launch_of(&a, MULTIPROCESSORS, true).plan;
    assert_int_equal(UINT32_MAX, plan.ends[0]);
}

static void a_product_without_outputs_is_not_served(void **state) {
    (void)state;
    rn_product_args a = {.rows = 1, .cols = 512, .count = 1, .form = RN_TILE_F16};
    assert_false(rn_few_serves(&a, MULTIPROCESSORS, true, SHARED_MOST));
    assert_false(rn_few_serves(&a, MULTIPROCESSORS, false, SHARED_MOST));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_told_what_adds_up),
        cmocka_unit_test(weights_begin_where_the_one_before_ends),
        cmocka_unit_test(a_product_without_outputs_is_not_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
