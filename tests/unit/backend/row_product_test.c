// labels: threads
// row_product_test.c — products with weights that are read row by row (tensor/row_kinds.h): the
// bits of the definition at every level, for any number of rows and threads, within the workspace.
#include "support.h"

#include "../tensor/levels.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/row_product.h"
#include "guarded.h"

#include <math.h>

enum { ROWS = 19, COLS = 2560, MOST_M = 9 };

static uint8_t weights[ROWS * COLS / 32 * 36];
static float x[MOST_M * COLS], bias[ROWS];

// Any bytes; scales below 2.
static void fill(rn_dtype dtype) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    uint64_t state = dtype;
    for (size_t i = 0; i < sizeof weights; i++)
        weights[i] = (uint8_t)random_bits(&state);
    for (size_t b = 0; b < ROWS * COLS / info->block_elements; b++) {
        uint8_t *block = weights + b * info->block_bytes;
        block[dtype == RN_DTYPE_IQ1_M ? 55 : info->ggml < 0 ? 3 : 1] &= 0xbf;
        if (dtype == RN_DTYPE_U4_B32) block[4] %= 17;
    }
    bool f8 = dtype == RN_DTYPE_F8_B128 || dtype == RN_DTYPE_F8_B32;
    size_t row_bytes = COLS / info->block_elements * info->block_bytes;
    for (size_t i = 0; f8 && i < ROWS * row_bytes; i++) // row 3 alone has NaN
        if (i % info->block_bytes >= 4 && (weights[i] & 0x7f) == 0x7f && i / row_bytes != 3)
            weights[i] = 0;
    fill_weights(x, MOST_M * COLS, 5);
    fill_weights(bias, ROWS, 6);
}

static void define(rn_dtype dtype, size_t m, float *y) {
    static uint8_t memory[2 * COLS];
    const rn_dtype_info *info = rn_dtype_get(dtype);
    uint64_t row_bytes = COLS / info->block_elements * info->block_bytes;
    rn_quantized_row row = rn_quantized_row_at(memory, COLS);
    for (size_t i = 0; i < m; i++) {
        rn_quantize_row(x + i * COLS, COLS, row);
        for (size_t n = 0; n < ROWS; n++)
            y[i * ROWS + n] =
                rn_quantized_product(dtype, row, weights + n * row_bytes, 1, COLS) + bias[n];
    }
}

static void run(rn_dtype dtype, size_t m, rn_workers *workers, uint32_t threads, float *y) {
    rn_matmul_attrs attrs = {0};
    const rn_tensor inputs[] = {{.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(m, COLS), .data = x},
                                {.dtype = dtype, .shape = RN_SHAPE(ROWS, COLS), .data = weights},
                                {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(ROWS), .data = bias}};
    const rn_tensor output = {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(m, ROWS), .data = y};
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &attrs,
                    .inputs = inputs,
                    .outputs = &output,
                    .input_count = 3,
                    .output_count = 1,
                    .workers = workers,
                    .threads = threads};
    call.workspace_bytes = rn_cpu_matmul_workspace(&call);
    test_guard workspace = test_guard_make(call.workspace_bytes);
    call.workspace = workspace.data;
    assert_ok(rn_cpu_matmul(&call));
    assert_true(test_guard_intact(&workspace));
    test_guard_free(&workspace);
}

static void every_level_gives_the_bits_of_the_definition(void **unused) {
    (void)unused;
    static float expected[MOST_M * ROWS], y[MOST_M * ROWS];
    size_t kinds = 0;
    rn_workers *workers;
    assert_ok(rn_workers_create(2, &rn_system_allocator, &workers));
    for (rn_dtype dtype = 0; dtype < RN_DTYPE_COUNT; dtype++) {
        if (!rn_row_kind(dtype)) continue;
        fill(dtype);
        define(dtype, MOST_M, expected);
        for_each_level(level) for (size_t m = 1; m <= MOST_M; m += 4) {
            memset(y, 0xff, sizeof y);
            run(dtype, m, m > 1 ? workers : NULL, m > 1 ? 2 : 1, y);
            if (memcmp(y, expected, m * ROWS * sizeof *y))
                fail_msg("%s, %zu rows: not the definition's bits", rn_dtype_get(dtype)->name, m);
        }
        kinds++;
    }
    assert_int_equal(kinds, 9);
    rn_workers_destroy(workers);
}

// A scale that is not finite spoils its own row of w and no other.
static void broken_scales_spoil_their_row(void **unused) {
    (void)unused;
    for_each_level(level) {
        float y[ROWS];
        fill(RN_DTYPE_IQ2_XXS);
        weights[3 * 660 + 66] = 0x00, weights[3 * 660 + 67] = 0x7e; // row 3, its second block
        run(RN_DTYPE_IQ2_XXS, 1, NULL, 1, y);
        for (size_t n = 0; n < ROWS; n++)
            assert_int_equal(isnan(y[n]) != 0, n == 3);
    }
}

// 32 columns as products read them are the numbers that dequantisation has, up to rounding.
static void blocks_are_the_numbers(void **unused) {
    (void)unused;
    for (rn_dtype dtype = 0; dtype < RN_DTYPE_COUNT; dtype++) {
        static float numbers[COLS];
        int8_t q[COLS];
        float scales[COLS / 16];
        if (!rn_row_kind(dtype)) continue;
        fill(dtype);
        assert_ok(rn_dtype_to_f32(dtype, weights, numbers, COLS));
        rn_row_kind_read(dtype, weights, 0, COLS / 32, (rn_row_blocks){q, scales, scales + 1, 2});
        for (int i = 0; i < COLS; i++)
            assert_float_equal(numbers[i], scales[i / 16] * (float)q[i], fabsf(numbers[i]) * 1e-6f);
    }
}

// Few rows have a product of their own; it has the bits of the generic one, which many rows have.
static void fp8_has_the_same_bits_for_any_number_of_rows(void **unused) {
    (void)unused;
    static float many[MOST_M * ROWS], y[MOST_M * ROWS];
    for_each_level(level) for (int small = 0; small < 2; small++) {
        rn_dtype dtype = small ? RN_DTYPE_F8_B32 : RN_DTYPE_F8_B128;
        fill(dtype);
        run(dtype, MOST_M, NULL, 1, many);
        for (size_t m = 1; m <= 5; m++) {
            run(dtype, m, NULL, 1, y);
            for (size_t i = 0; i < m * ROWS; i++)
                assert_true(isnan(many[i]) ? isnan(y[i]) : y[i] == many[i]);
        }
        assert_true(isnan(many[3]) && !isnan(many[4])); // as fill has it
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_gives_the_bits_of_the_definition),
        cmocka_unit_test(fp8_has_the_same_bits_for_any_number_of_rows),
        cmocka_unit_test(broken_scales_spoil_their_row),
        cmocka_unit_test(blocks_are_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
