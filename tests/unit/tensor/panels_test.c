// labels: threads
// panels_test.c — what goes into panels comes out again, in whatever pieces it came.
#include "support.h"

#include "guarded.h"
#include "levels.h"
#include "tensor/panels.h"
#include "tensor/quant.h"

#include <math.h>

static const rn_dtype all_types[] = {
    RN_DTYPE_F32,    RN_DTYPE_F16,   RN_DTYPE_BF16,   RN_DTYPE_F8_E4M3, RN_DTYPE_INT8,
    RN_DTYPE_INT4,   RN_DTYPE_NF4,   RN_DTYPE_Q8_0,   RN_DTYPE_Q4_0,    RN_DTYPE_Q4_K,
    RN_DTYPE_Q5_K,   RN_DTYPE_Q6_K,  RN_DTYPE_Q5_0,   RN_DTYPE_Q4_1,    RN_DTYPE_Q5_1,
    RN_DTYPE_Q2_K,   RN_DTYPE_Q3_K,  RN_DTYPE_IQ4_NL, RN_DTYPE_IQ4_XS,  RN_DTYPE_MXFP4,
    RN_DTYPE_NVFP4,  RN_DTYPE_TQ1_0, RN_DTYPE_TQ2_0,  RN_DTYPE_Q1_0,    RN_DTYPE_Q2_0,
    RN_DTYPE_NF4_DQ,
};
enum { TYPES = sizeof all_types / sizeof all_types[0] };

// Shapes that some dtype has panels for: odd rows, odd columns, whole blocks, several superblocks.
static const uint64_t shapes[][2] = {
    {1, 1},   {3, 7},    {16, 4},    {17, 100}, {5, 33},    {16, 256}, {32, 192}, {33, 64},
    {40, 96}, {19, 256}, {64, 1024}, {48, 512}, {16, 1000}, {24, 288}, {70, 576},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

// A weight as its file has it: random bytes for the data (any bytes are some numbers), ordinary
// numbers for scales and shifts.
typedef struct plain {
    rn_plain_components parts;
    uint8_t *bytes;
} plain;

static plain make_plain(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t seed) {
    plain p;
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    assert_true(rn_plain_components_of(dtype, rows, cols, &p.parts));
    p.bytes = malloc(p.parts.total_bytes + 1);
    for (uint64_t i = 0; i < p.parts.bytes[RN_COMPONENT_DATA]; i++)
        p.bytes[i] = (uint8_t)random_bits(&state);
    for (int part = RN_COMPONENT_SCALE; part < RN_COMPONENT_COUNT; part++)
        fill_weights((float *)(void *)(p.bytes + p.parts.offset[part]), p.parts.bytes[part] / 4,
                     seed + (uint64_t)part);
    for (uint64_t i = 0; dtype == RN_DTYPE_NF4_DQ && i < p.parts.bytes[RN_COMPONENT_SCALE]; i++)
        p.bytes[p.parts.offset[RN_COMPONENT_SCALE] + i] = (uint8_t)random_bits(&state);
    return p;
}

static const float *floats_of(const plain *p, rn_component part) {
    return (const float *)(const void *)(p->bytes + p->parts.offset[part]);
}

// Row `row` by the plain form's own functions.
static void plain_row(rn_dtype dtype, const plain *p, uint64_t rows, uint64_t cols, uint64_t row,
                      float *out) {
    if (dtype == RN_DTYPE_INT8) {
        rn_dequant_int8_rows((const int8_t *)p->bytes + row * cols,
                             floats_of(p, RN_COMPONENT_SCALE) + row, 1, cols, out);
    } else if (dtype == RN_DTYPE_INT4) {
        uint64_t group = rn_quant_int4_group(cols), half = (rows * cols / group + 1) / 2;
        for (uint64_t k = 0; k < cols; k++) {
            uint64_t g = (row * cols + k) / group;
            uint8_t byte = p->bytes[g % half * group + k % group];
            uint8_t q = g < half ? byte & 15 : byte >> 4;
            rn_dequant_int4_groups(&q, floats_of(p, RN_COMPONENT_SCALE) + g,
                                   floats_of(p, RN_COMPONENT_SHIFT) + g, 1, 1, &out[k]);
        }
    } else if (dtype == RN_DTYPE_NF4) {
        uint64_t first = row * cols;
        rn_dequant_nf4_blocks(p->bytes + first / 2,
                              floats_of(p, RN_COMPONENT_SCALE) + first / RN_NF4_BLOCK, cols, out);
    } else if (dtype == RN_DTYPE_NF4_DQ) {
        const float *nested = floats_of(p, RN_COMPONENT_SHIFT);
        uint64_t count = p->parts.bytes[RN_COMPONENT_SHIFT] / 4 - 1;
        for (uint64_t k = 0; k < cols; k += RN_NF4_BLOCK) {
            uint64_t first = row * cols + k;
            float absmax = rn_dequant_nf4_absmax(p->bytes + p->parts.offset[RN_COMPONENT_SCALE],
                                                 nested, count, first / RN_NF4_BLOCK);
            rn_dequant_nf4_blocks(p->bytes + first / 2, &absmax, RN_NF4_BLOCK, out + k);
        }
    } else {
        assert_ok(rn_dtype_to_f32(dtype, p->bytes + row * (p->parts.bytes[0] / rows), out, cols));
    }
}

static rn_workers *helpers; // of the packer

static test_guard pack_in_pieces(rn_dtype dtype, const plain *p, uint64_t rows, uint64_t cols,
                                 uint64_t piece, uint64_t seed) {
    rn_packer packer;
    uint64_t bytes;
    assert_true(rn_panels_bytes(dtype, rows, cols, &bytes));
    test_guard panels = test_guard_make(bytes);
    assert_ok(rn_packer_begin(&packer, dtype, rows, cols, panels.data));
    packer.workers = helpers;
    for (int part = RN_COMPONENT_COUNT - 1; part >= 0; part--)
        for (uint64_t at = 0, take; at < p->parts.bytes[part]; at += take) {
            assert_false(rn_packer_is_done(&packer));
            take = seed ? 1 + random_bits(&seed) % piece : piece;
            if (take > p->parts.bytes[part] - at) take = p->parts.bytes[part] - at;
            assert_ok(rn_packer_take(&packer, (rn_component)part, at,
                                     p->bytes + p->parts.offset[part] + at, take));
        }
    assert_true(rn_packer_is_done(&packer));
    assert_true(test_guard_intact(&panels));
    return panels;
}

// Runs fn for each dtype and each shape that it has panels for.
static void for_each_weight(void (*fn)(rn_dtype, const plain *, uint64_t rows, uint64_t cols)) {
    for (int t = 0; t < TYPES; t++)
        for (int s = 0; s < SHAPES; s++) {
            uint64_t bytes, rows = shapes[s][0], cols = shapes[s][1];
            if (!rn_panels_bytes(all_types[t], rows, cols, &bytes)) continue;
            plain p = make_plain(all_types[t], rows, cols, (uint64_t)s + 1);
            fn(all_types[t], &p, rows, cols);
            free(p.bytes);
        }
}

static void check_unpacking(rn_dtype dtype, const plain *p, uint64_t rows, uint64_t cols) {
    test_guard panels = pack_in_pieces(dtype, p, rows, cols, UINT64_MAX, 0);
    float *expected = malloc(cols * sizeof(float)), *got = malloc(cols * sizeof(float));
    rn_panels geometry;
    assert_true(rn_panels_of(dtype, rows, cols, &geometry));
    for (uint64_t row = 0; row < rows; row++) {
        plain_row(dtype, p, rows, cols, row, expected);
        rn_panels_unpack_row(&geometry, panels.data, row, got);
        for (uint64_t k = 0; k < cols; k++)
            if (bits_of(got[k]) != bits_of(expected[k]))
                fail_msg("%s (%d, %d), row %d, column %d: %a is not %a", rn_dtype_get(dtype)->name,
                         (int)rows, (int)cols, (int)row, (int)k, got[k], expected[k]);
    }
    free(expected);
    free(got);
    test_guard_free(&panels);
}

static void a_row_comes_out_as_the_plain_form_is_dequantised(void **unused) {
    (void)unused;
    for_each_level(level) for_each_weight(check_unpacking);
}

static void check_pieces(rn_dtype dtype, const plain *p, uint64_t rows, uint64_t cols) {
    test_guard whole = pack_in_pieces(dtype, p, rows, cols, UINT64_MAX, 0);
    const uint64_t pieces[] = {1, 3, 7, 33, 1000, 4096};
    for (size_t i = 0; i < 2 * sizeof pieces / sizeof pieces[0]; i++) {
        test_guard cut = pack_in_pieces(dtype, p, rows, cols, pieces[i / 2], i % 2 ? 77 + i : 0);
        if (memcmp(cut.data, whole.data, whole.bytes) != 0)
            fail_msg("%s (%d, %d) in pieces of %d", rn_dtype_get(dtype)->name, (int)rows, (int)cols,
                     (int)pieces[i / 2]);
        test_guard_free(&cut);
    }
    test_guard_free(&whole);
}

static void pieces_of_any_length_give_the_same_bytes(void **unused) {
    (void)unused;
    for_each_weight(check_pieces);
}

// But for lanes and columns that are filled up, a panel has the file's bytes.
static void panels_are_as_large_as_the_file(void **unused) {
    (void)unused;
    for (int t = 0; t < TYPES; t++) {
        uint64_t bytes;
        rn_plain_components parts;
        assert_true(rn_panels_bytes(all_types[t], 4096, 4096, &bytes));
        assert_true(rn_plain_components_of(all_types[t], 4096, 4096, &parts));
        uint64_t floats = all_types[t] == RN_DTYPE_NF4_DQ ? 256 * 64 : parts.bytes[2]; // heads
        assert_int_equal(bytes, parts.bytes[0] + parts.bytes[1] + floats);
    }
    uint64_t bytes;
    assert_true(rn_panels_bytes(RN_DTYPE_F32, 17, 5, &bytes));
    assert_int_equal(bytes, 2 * 5 * 64);
    assert_true(rn_panels_bytes(RN_DTYPE_BF16, 17, 5, &bytes));
    assert_int_equal(bytes, 2 * 8 * 32); // 32 rows, 8 columns
    assert_true(rn_panels_bytes(RN_DTYPE_Q4_0, 16, 96, &bytes));
    assert_int_equal(bytes, 896); // 3 * 288 = 864
    assert_true(rn_panels_bytes(RN_DTYPE_INT8, 1, 33, &bytes));
    assert_int_equal(bytes, 64 + 2 * 512);
}

static void what_has_no_panels_is_refused(void **unused) {
    (void)unused;
    uint64_t bytes;
    rn_packer packer;
    assert_false(rn_panels_bytes(RN_DTYPE_Q4_0, 16, 40, &bytes)); // not in whole blocks
    assert_false(rn_panels_bytes(RN_DTYPE_Q6_K, 16, 128, &bytes));
    assert_false(rn_panels_bytes(RN_DTYPE_NF4, 16, 100, &bytes)); // blocks go over rows' ends
    assert_false(rn_panels_bytes(RN_DTYPE_Q8_K, 16, 256, &bytes));
    assert_false(rn_panels_bytes(RN_DTYPE_I32, 16, 32, &bytes));
    assert_false(rn_panels_bytes(RN_DTYPE_F32, 16, 0, &bytes));
    assert_false(rn_panels_bytes(RN_DTYPE_F32, UINT64_MAX / 8, 1024, &bytes));
    assert_false(rn_panels_bytes(RN_DTYPE_F32, 2, UINT64_MAX / 4, &bytes));
    assert_false(rn_panels_bytes((rn_dtype)1000, 2, 4, &bytes));
    assert_fails(RN_INVALID, rn_packer_begin(&packer, RN_DTYPE_Q8_K, 16, 256, &bytes));
}

static void a_piece_out_of_turn_is_refused(void **unused) {
    (void)unused;
    plain p = make_plain(RN_DTYPE_INT8, 16, 32, 9);
    test_guard panels = test_guard_make(64 + 512);
    rn_packer packer;
    assert_ok(rn_packer_begin(&packer, RN_DTYPE_INT8, 16, 32, panels.data));
    assert_fails(RN_INVALID, rn_packer_take(&packer, RN_COMPONENT_DATA, 4, p.bytes, 8));
    assert_fails(RN_INVALID, rn_packer_take(&packer, RN_COMPONENT_DATA, 0, p.bytes, 16 * 32 + 1));
    assert_fails(RN_INVALID, rn_packer_take(&packer, RN_COMPONENT_SHIFT, 0, p.bytes, 4));
    assert_ok(rn_packer_take(&packer, RN_COMPONENT_DATA, 0, p.bytes, 16 * 32));
    assert_fails(RN_INVALID, rn_packer_take(&packer, RN_COMPONENT_DATA, 0, p.bytes, 1));
    assert_false(rn_packer_is_done(&packer));
    free(p.bytes);
    test_guard_free(&panels);
}

static void an_empty_weight_is_done_at_once(void **unused) {
    (void)unused;
    rn_packer packer;
    assert_ok(rn_packer_begin(&packer, RN_DTYPE_Q8_0, 0, 64, NULL));
    assert_true(rn_packer_is_done(&packer));
    assert_ok(rn_packer_take(&packer, RN_COMPONENT_DATA, 0, NULL, 0));
}

static void plain_parts_lie_on_boundaries(void **unused) {
    (void)unused;
    rn_plain_components parts;
    uint64_t bytes;
    assert_true(rn_plain_components_of(RN_DTYPE_INT8, 3, 7, &parts));
    assert_int_equal(parts.bytes[RN_COMPONENT_DATA], 21);
    assert_int_equal(parts.offset[RN_COMPONENT_SCALE], 64);
    assert_int_equal(parts.total_bytes, 64 + 12);
    assert_true(rn_plain_components_of(RN_DTYPE_INT4, 3, 256, &parts)); // 6 groups of 128
    assert_int_equal(parts.bytes[RN_COMPONENT_DATA], 3 * 128);
    assert_int_equal(parts.offset[RN_COMPONENT_SHIFT], 384 + 64);
    assert_int_equal(parts.total_bytes, 384 + 64 + 24);
    assert_true(rn_plain_components_of(RN_DTYPE_NF4, 3, 33, &parts)); // 99 values
    assert_int_equal(parts.bytes[RN_COMPONENT_DATA], 50);
    assert_int_equal(parts.bytes[RN_COMPONENT_SCALE], 8);
    assert_true(rn_layout_bytes(RN_LAYOUT_PLAIN, RN_DTYPE_Q4_0, 3, 64, &bytes));
    assert_int_equal(bytes, 3 * 36);
    assert_false(rn_layout_bytes(RN_LAYOUT_PLAIN, RN_DTYPE_Q4_0, 2, 16, &bytes)); // half blocks
    assert_false(rn_layout_bytes(RN_LAYOUT_PLAIN, RN_DTYPE_F32, UINT64_MAX, 2, &bytes));
    assert_false(rn_layout_bytes(RN_LAYOUT_PLAIN, RN_DTYPE_INT8, UINT64_MAX / 2, 0, &bytes));
    assert_string_equal(rn_layout_name(RN_LAYOUT_PANELS), "panels");
    assert_string_equal(rn_layout_name(RN_LAYOUT_PLAIN), "plain");
}

// Large enough that a piece is shared out; pieces that begin within a row, too.
static void workers_give_the_same_bytes(void **state) {
    (void)state;
    for (int t = 0; t < TYPES; t++) {
        plain p = make_plain(all_types[t], 112, 2048, 1);
        test_guard alone = pack_in_pieces(all_types[t], &p, 112, 2048, UINT64_MAX, 0);
        assert_ok(rn_workers_create(3, &rn_system_allocator, &helpers));
        for (int odd = 0; odd < 2; odd++) {
            test_guard shared =
                pack_in_pieces(all_types[t], &p, 112, 2048, odd ? 300001 : UINT64_MAX, 0);
            assert_memory_equal(alone.data, shared.data, alone.bytes);
            test_guard_free(&shared);
        }
        rn_workers_destroy(helpers);
        helpers = NULL;
        test_guard_free(&alone);
        free(p.bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_comes_out_as_the_plain_form_is_dequantised),
        cmocka_unit_test(pieces_of_any_length_give_the_same_bytes),
        cmocka_unit_test(workers_give_the_same_bytes),
        cmocka_unit_test(panels_are_as_large_as_the_file),
        cmocka_unit_test(what_has_no_panels_is_refused),
        cmocka_unit_test(a_piece_out_of_turn_is_refused),
        cmocka_unit_test(an_empty_weight_is_done_at_once),
        cmocka_unit_test(plain_parts_lie_on_boundaries),
    };
    const struct CMUnitTest threaded[] = {cmocka_unit_test(workers_give_the_same_bytes)};
    if (TEST_THREADS_ONLY) return cmocka_run_group_tests(threaded, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
