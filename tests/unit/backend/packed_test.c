// labels: threads
// packed_test.c — products with packed weights: the bits of the definition at every level, for any
// number of rows beside each other and any number of threads, within the workspace that was asked
// for.
#include "support.h"

#include "../tensor/levels.h"
#include "backend/cpu/packed.h"
#include "graph/plain_matrix.h"
#include "graph/quantized_product.h"
#include "guarded.h"
#include "tensor/kinds.h"
#include "tensor/panels.h"
#include "tensor/quant.h"

#include <math.h>

// ThreadSanitizer sees the same with a strip of eight rows and one more.
enum { MOST_ROWS = TEST_THREADS_ONLY ? 9 : 40 };

// ---- a weight -----------------------------------------------------------------------------------

typedef struct weight {
    rn_dtype dtype;
    uint64_t rows, cols;
    bool plain_only; // no panels: a generic product
    bool is_plain;   // the product is to take the file's bytes
    bool plain_x;    // activations are to stay as they are
    rn_panels panels;
    rn_plain_components parts;
    test_guard plain, packed;
} weight;

static float *floats_of(const weight *w, rn_component part) {
    return (float *)(void *)(w->plain.data + w->parts.offset[part]);
}

// Where a block has f16 scales: as a mask of 2-byte places would be too long, first and second.
static void scales_at(rn_dtype dtype, int *first, int *second) {
    static const struct {
        rn_dtype dtype;
        int first, second;
    } places[] = {{RN_DTYPE_Q4_1, 0, 2},    {RN_DTYPE_Q5_1, 0, 2},    {RN_DTYPE_Q4_K, 0, 2},
                  {RN_DTYPE_Q5_K, 0, 2},    {RN_DTYPE_Q6_K, 208, -1}, {RN_DTYPE_Q3_K, 108, -1},
                  {RN_DTYPE_Q2_K, 80, 82},  {RN_DTYPE_TQ1_0, 52, -1}, {RN_DTYPE_TQ2_0, 64, -1},
                  {RN_DTYPE_MXFP4, -1, -1}, {RN_DTYPE_NVFP4, -1, -1}};
    *first = 0, *second = -1;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (places[i].dtype == dtype) *first = places[i].first, *second = places[i].second;
}

// Any nibbles; scales of ordinary size, both signs.
static void fill_data(const weight *w, uint64_t *state) {
    const rn_dtype_info *info = rn_dtype_get(w->dtype);
    uint8_t *data = w->plain.data;
    uint64_t bytes = w->parts.bytes[RN_COMPONENT_DATA];
    rn_dtype half = w->dtype == RN_DTYPE_BF16 ? RN_DTYPE_BF16 : RN_DTYPE_F16;
    int first, second;
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)random_bits(state);
    scales_at(w->dtype, &first, &second);
    bool halves = info->block_bytes == 2 || info->block_elements >= 32;
    for (uint64_t at = 0; halves && at < bytes; at += info->block_bytes) {
        float scale = random_weight(state) * 0.01f;
        if (first >= 0) assert_ok(rn_dtype_from_f32(half, &scale, data + at + first, 1));
        if (second >= 0) assert_ok(rn_dtype_from_f32(half, &scale, data + at + second, 1));
        if (w->dtype == RN_DTYPE_MXFP4) // small ones, and some below the least normal number
            data[at] = (uint8_t)(at % 5 ? 110 + data[at] % 16 : data[at] % 3);
    }
    if (w->dtype == RN_DTYPE_F32) fill_weights(floats_of(w, RN_COMPONENT_DATA), bytes / 4, 5);
}

static weight make_weight(rn_dtype dtype, uint64_t rows, uint64_t cols) {
    weight w = {.dtype = dtype, .rows = rows, .cols = cols};
    uint64_t state = rows * 31 + cols, bytes;
    rn_packer packer;
    assert_true(rn_plain_components_of(dtype, rows, cols, &w.parts));
    w.plain_only = !rn_panels_of(dtype, rows, cols, &w.panels);
    w.plain = test_guard_make(w.parts.total_bytes);
    fill_data(&w, &state);
    for (int part = RN_COMPONENT_SCALE; part < RN_COMPONENT_COUNT; part++)
        for (uint64_t i = 0; i < w.parts.bytes[part] / 4; i++)
            floats_of(&w, (rn_component)part)[i] = random_weight(&state) * 0.02f;
    if (w.plain_only) return w;
    assert_true(rn_panels_bytes(dtype, rows, cols, &bytes));
    w.packed = test_guard_make(bytes);
    assert_ok(rn_packer_begin(&packer, dtype, rows, cols, w.packed.data));
    for (int part = 0; part < RN_COMPONENT_COUNT; part++)
        assert_ok(rn_packer_take(&packer, (rn_component)part, 0,
                                 w.plain.data + w.parts.offset[part], w.parts.bytes[part]));
    assert_true(rn_packer_is_done(&packer));
    return w;
}

static void free_weight(weight *w) {
    test_guard_free(&w->plain);
    test_guard_free(&w->packed);
}

// ---- what the product is ------------------------------------------------------------------------

// One row of x by all rows of the weight, activations rounded.
static void expect_rounded(const weight *w, const float *x, const float *bias, float *y) {
    void *memory = malloc(rn_quantized_row_bytes(w->cols));
    rn_quantized_row row = rn_quantized_row_at(memory, w->cols);
    uint64_t row_bytes = w->parts.bytes[RN_COMPONENT_DATA] / w->rows;
    rn_quantize_row(x, w->cols, row);
    for (uint64_t n = 0; n < w->rows; n++) {
        float scale = w->dtype == RN_DTYPE_INT8 ? floats_of(w, RN_COMPONENT_SCALE)[n] : 0;
        y[n] = rn_quantized_product(w->dtype, row, w->plain.data + n * row_bytes, scale, w->cols);
        if (bias) y[n] += bias[n];
    }
    free(memory);
}

// A chain over k: fused multiply-adds, but for the portable level.
static void expect_chain(const weight *w, const float *x, const float *bias, bool fused, float *y) {
    float *scratch = malloc(w->cols * sizeof(float));
    rn_tensor tensor = {w->plain.data, w->dtype, RN_LAYOUT_PLAIN, RN_SHAPE(w->rows, w->cols)};
    rn_plain_matrix matrix;
    assert_ok(rn_plain_matrix_of(&tensor, &matrix));
    for (uint64_t n = 0; n < w->rows; n++) {
        const float *row = rn_plain_row(&matrix, n, scratch);
        float sum = 0;
        for (uint64_t k = 0; k < w->cols; k++)
            sum = fused ? fmaf(x[k], row[k], sum) : sum + x[k] * row[k];
        y[n] = bias ? sum + bias[n] : sum;
    }
    free(scratch);
}

static bool is_rounded(const weight *w) {
    return rn_product_is_quantized(w->dtype) && !w->plain_x;
}

static void expect(const weight *w, const float *x, const float *bias, bool fused, float *y) {
    for (uint64_t m = 0; m < MOST_ROWS; m++) {
        if (is_rounded(w))
            expect_rounded(w, x + m * w->cols, bias, y + m * w->rows);
        else
            expect_chain(w, x + m * w->cols, bias, fused, y + m * w->rows);
    }
}

// ---- what the kernel says -----------------------------------------------------------------------

// Makes the first m rows; everything around what it may touch stays as it was.
static void run_product(const weight *w, const float *x, const float *bias, uint64_t m,
                        rn_workers *workers, uint32_t threads, test_guard *y) {
    test_guard own_x = test_guard_make(m * w->cols * 4);
    memcpy(own_x.data, x, own_x.bytes);
    rn_tensor in[3] = {
        {own_x.data, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(m, w->cols)},
        {w->packed.data, w->dtype, RN_LAYOUT_PANELS, RN_SHAPE(w->rows, w->cols)},
        {(void *)(uintptr_t)bias, bias ? RN_DTYPE_F32 : RN_DTYPE_NONE, RN_LAYOUT_PLAIN,
         RN_SHAPE(w->rows)},
    };
    if (w->plain_only || w->is_plain) in[1].data = w->plain.data, in[1].layout = RN_LAYOUT_PLAIN;
    *y = test_guard_make(m * w->rows * 4);
    rn_tensor out = {y->data, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(m, w->rows)};
    rn_matmul_attrs attrs = {.unquantised_activations = w->plain_x};
    rn_call call = {.op = RN_OP_MATMUL,
                    .attrs = &attrs,
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 3,
                    .output_count = 1,
                    .workers = workers,
                    .threads = threads};
    call.workspace_bytes = w->plain_only ? rn_cpu_generic_matmul_workspace(&call)
                                         : rn_cpu_packed_matmul_workspace(&call);
    test_guard workspace = test_guard_make(call.workspace_bytes);
    call.workspace = workspace.data;
    assert_ok(w->plain_only ? rn_cpu_generic_matmul(&call) : rn_cpu_packed_matmul(&call));
    assert_true(test_guard_intact(&workspace));
    assert_true(test_guard_intact(&own_x));
    assert_true(test_guard_intact(y));
    test_guard_free(&workspace);
    test_guard_free(&own_x);
}

static void compare(const weight *w, const float *expected, const test_guard *y, uint64_t m,
                    rn_cpu_level level, unsigned threads) {
    const float *got = (const float *)(const void *)y->data;
    for (uint64_t i = 0; i < m * w->rows; i++)
        if (bits_of(got[i]) != bits_of(expected[i]) && !(isnan(got[i]) && isnan(expected[i])))
            fail_msg("%s (%d, %d), %s, %d rows, %u threads: row %d, column %d is %a, not %a",
                     rn_dtype_get(w->dtype)->name, (int)w->rows, (int)w->cols,
                     rn_cpu_level_name(level), (int)m, threads, (int)(i / w->rows),
                     (int)(i % w->rows), got[i], expected[i]);
}

static void check_form(weight w, bool with_bias) {
    static const struct {
        uint32_t rows, threads;
    } runs[] = {{1, 1}, {1, 2}, {2, 1},  {3, 2},  {4, 1},         {5, 2},        {6, 1},
                {7, 2}, {8, 1}, {15, 1}, {25, 2}, {MOST_ROWS, 1}, {MOST_ROWS, 2}};
    const uint64_t rows = w.rows, cols = w.cols;
    float *x = malloc(MOST_ROWS * cols * sizeof(float)), *bias = malloc(rows * sizeof(float));
    float *expected = malloc(MOST_ROWS * rows * sizeof(float));
    const float *added = with_bias ? bias : NULL;
    rn_workers *workers;
    assert_ok(rn_workers_create(2, &rn_system_allocator, &workers));
    fill_weights(x, MOST_ROWS * cols, cols);
    fill_weights(bias, rows, 3);
    for_each_level(level) {
        if (level == RN_CPU_PORTABLE || !is_rounded(&w))
            expect(&w, x, added, level > RN_CPU_PORTABLE, expected);
        for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
            test_guard y;
            if (runs[i].rows > MOST_ROWS || (TEST_THREADS_ONLY && runs[i].threads == 1)) continue;
            run_product(&w, x, added, runs[i].rows, runs[i].threads > 1 ? workers : NULL,
                        runs[i].threads, &y);
            compare(&w, expected, &y, runs[i].rows, level, runs[i].threads);
            test_guard_free(&y);
        }
    }
    rn_workers_destroy(workers);
    free(x);
    free(bias);
    free(expected);
}

// Activations as they are, from panels and from the bytes of a file.
static void check_widened(weight w, bool with_bias) {
    if (!rn_product_is_quantized(w.dtype)) return;
    w.plain_x = true;
    check_form(w, with_bias);
}

// From panels; and from the bytes of a file, where they are packed as they are used.
static void check_product(rn_dtype dtype, uint64_t rows, uint64_t cols, bool with_bias) {
    weight w = make_weight(dtype, rows, cols);
    check_form(w, with_bias);
    check_widened(w, with_bias);
    rn_tensor plain = {w.plain.data, dtype, RN_LAYOUT_PLAIN, RN_SHAPE(rows, cols)};
    w.is_plain = rn_packed_plain_works(&plain);
    assert_int_equal(w.is_plain, !w.plain_only && w.parts.bytes[RN_COMPONENT_SCALE] == 0);
    if (w.is_plain) check_form(w, with_bias);
    check_widened(w, with_bias);
    free_weight(&w);
}

// ---- tests --------------------------------------------------------------------------------------

// One row of output, half a panel, panels that kernels take together and some left over; one
// column, odd columns, whole blocks, several chunks.
static void bytes_with_a_scale_a_row(void **unused) {
    (void)unused;
    check_product(RN_DTYPE_INT8, 1, 1, false);
    check_product(RN_DTYPE_INT8, 17, 100, true);
    check_product(RN_DTYPE_INT8, 70, 33, true);
    check_product(RN_DTYPE_INT8, 88, 1061, false);
}

static void blocks_of_32(void **unused) {
    (void)unused;
    const rn_dtype dtypes[] = {RN_DTYPE_Q8_0, RN_DTYPE_Q4_0,   RN_DTYPE_Q5_0, RN_DTYPE_Q4_1,
                               RN_DTYPE_Q5_1, RN_DTYPE_IQ4_NL, RN_DTYPE_MXFP4};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        check_product(dtypes[i], i < 2 ? 137 : 21, 64, false);
        check_product(dtypes[i], 68, i < 2 ? 1056 : 96, true);
    }
}

static void blocks_of_64_and_128(void **unused) {
    (void)unused;
    check_product(RN_DTYPE_NVFP4, 68, 128, true);
    check_product(RN_DTYPE_Q2_0, 68, 128, false);
    check_product(RN_DTYPE_Q1_0, 68, 256, true);
}

static void superblocks_of_256(void **unused) {
    (void)unused;
    const rn_dtype dtypes[] = {RN_DTYPE_Q4_K, RN_DTYPE_Q5_K,   RN_DTYPE_Q6_K,  RN_DTYPE_Q2_K,
                               RN_DTYPE_Q3_K, RN_DTYPE_IQ4_XS, RN_DTYPE_TQ1_0, RN_DTYPE_TQ2_0};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        check_product(dtypes[i], i < 3 ? 135 : 3, 256, false);
        check_product(dtypes[i], i < 3 ? 66 : 33, i < 3 ? 1280 : 768, true);
    }
}

#define DTYPE_OF(DTYPE, ...) RN_DTYPE_##DTYPE,
static const rn_dtype rounded_kinds[] = {RN_ROUNDED_KINDS(DTYPE_OF)};
#undef DTYPE_OF

// Rows go side by side in strips of any number up to eight, past odd panels and a part of one.
static void any_number_of_rows(void **unused) {
    (void)unused;
    if (TEST_THREADS_ONLY) skip_because("left to builds without ThreadSanitizer");
    for (size_t i = 0; i < sizeof rounded_kinds / sizeof rounded_kinds[0]; i++) {
        const rn_dtype *dtypes = rounded_kinds;
        weight w = make_weight(dtypes[i], 5 * RN_PANEL_ROWS - 3, 256);
        float *x = malloc(MOST_ROWS * w.cols * sizeof(float));
        float *expected = malloc(MOST_ROWS * w.rows * sizeof(float));
        fill_weights(x, MOST_ROWS * w.cols, i);
        expect(&w, x, NULL, false, expected);
        for_each_level(level) for (uint32_t m = 1; m <= MOST_ROWS; m += m < 12 ? 1 : 7) {
            test_guard y;
            run_product(&w, x, NULL, m, NULL, 1, &y);
            compare(&w, expected, &y, m, level, 1);
            test_guard_free(&y);
        }
        free(x);
        free(expected);
        free_weight(&w);
    }
}

static void floats_of_every_width(void **unused) {
    (void)unused;
    const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_F16, RN_DTYPE_BF16, RN_DTYPE_F8_E4M3};
    for (int i = 0; i < 4; i++) {
        check_product(dtypes[i], 1, 1, true);
        check_product(dtypes[i], 19, 35, true);
        check_product(dtypes[i], 136, 64, false);
        check_product(dtypes[i], 70, 515, true);
    }
}

static void groups_of_nibbles(void **unused) {
    (void)unused;
    check_product(RN_DTYPE_INT4, 9, 7, true);     // a group a row
    check_product(RN_DTYPE_INT4, 33, 250, false); // the same, longer
    check_product(RN_DTYPE_INT4, 70, 384, true);  // 128
    check_product(RN_DTYPE_INT4, 21, 288, true);  // 96
    check_product(RN_DTYPE_INT4, 21, 160, true);  // 32
    check_product(RN_DTYPE_NF4, 7, 64, true);
    check_product(RN_DTYPE_NF4, 135, 576, true);
    check_product(RN_DTYPE_NF4_DQ, 7, 64, true);
    check_product(RN_DTYPE_NF4_DQ, 135, 576, true); // panels begin within 256 blocks of a scale
}

// What has no panels is dequantised on the way.
static void any_other_readable_weight(void **unused) {
    (void)unused;
    check_product(RN_DTYPE_F8_E5M2, 18, 301, false);
    check_product(RN_DTYPE_Q8_1, 37, 96, true);
    check_product(RN_DTYPE_NF4, 19, 33, true); // blocks go over rows' ends
    check_product(RN_DTYPE_NF4, 5, 700, true);
    check_product(RN_DTYPE_NF4_DQ, 5, 700, true);
    check_product(RN_DTYPE_NF4_DQ, 19, 33, true);
}

// A row with NaN or infinity in it becomes NaN or infinity; its neighbours stay as they are.
static void check_poison(rn_dtype dtype, uint32_t poison) {
    weight w = make_weight(dtype, 20, 512);
    uint64_t m = 8, bad = 4;
    float *x = malloc(m * w.cols * sizeof(float));
    for_each_level(level) {
        test_guard clean, y;
        fill_weights(x, m * w.cols, 11);
        run_product(&w, x, NULL, m, NULL, 1, &clean);
        x[bad * w.cols + 300] = float_of(poison);
        for (uint64_t first = 0; first <= bad; first += bad) { // beside others, and first of few
            run_product(&w, x + first * w.cols, NULL, m - first, NULL, 1, &y);
            const float *got = (const float *)(const void *)y.data;
            for (uint64_t n = 0; n < w.rows; n++)
                if (isfinite(got[(bad - first) * w.rows + n]))
                    fail_msg("%s, %s: a plausible number", rn_dtype_get(dtype)->name,
                             rn_cpu_level_name(level));
            uint64_t after = bad + 1 - first;
            assert_memory_equal(y.data + after * w.rows * 4, clean.data + (bad + 1) * w.rows * 4,
                                (m - bad - 1) * w.rows * 4);
            test_guard_free(&y);
        }
        test_guard_free(&clean);
    }
    free(x);
    free_weight(&w);
}

static void a_poisoned_row_is_not_plausible(void **unused) {
    (void)unused;
    if (TEST_THREADS_ONLY) skip_because("left to builds without ThreadSanitizer");
    const rn_dtype floats[] = {RN_DTYPE_F32, RN_DTYPE_F16, RN_DTYPE_BF16, RN_DTYPE_F8_E4M3};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        check_poison(floats[i], 0x7fc00000);
        check_poison(floats[i], 0xff800000);
    }
    for (size_t i = 0; i < sizeof rounded_kinds / sizeof rounded_kinds[0]; i++) {
        check_poison(rounded_kinds[i], 0x7fc00000);
        check_poison(rounded_kinds[i], 0xff800000);
    }
}

// A weight's scale that is infinite or NaN spoils its own column of y at every level, no other.
static void check_spoilt(rn_dtype dtype) {
    int first, second;
    weight w = make_weight(dtype, 20, 512);
    const rn_dtype_info *info = rn_dtype_get(dtype);
    uint64_t m = 5, bad = 7, row_bytes = w.parts.bytes[RN_COMPONENT_DATA] / w.rows;
    float *x = malloc(m * w.cols * sizeof(float));
    scales_at(dtype, &first, &second);
    fill_weights(x, m * w.cols, 13);
    for_each_level(level) for (int i = 0; i < 2 && first >= 0; i++) {
        test_guard clean, y;
        uint8_t *scale = w.plain.data + bad * row_bytes + info->block_bytes + first, kept[2];
        w.is_plain = true;
        run_product(&w, x, NULL, m, NULL, 1, &clean);
        memcpy(kept, scale, 2);
        memcpy(scale, (const uint16_t[]){i ? 0x7e00 : 0x7c00}, 2);
        run_product(&w, x, NULL, m, NULL, 1, &y);
        memcpy(scale, kept, 2);
        for (uint64_t at = 0; at < m * w.rows; at++) {
            float is = ((const float *)(const void *)y.data)[at];
            if (at % w.rows == bad)
                assert_false(isfinite(is));
            else
                assert_int_equal(bits_of(((const float *)(const void *)clean.data)[at]),
                                 bits_of(is));
        }
        test_guard_free(&clean);
        test_guard_free(&y);
    }
    free(x);
    free_weight(&w);
}

static void a_spoilt_scale_spoils_its_own_row(void **unused) {
    (void)unused;
    if (TEST_THREADS_ONLY) skip_because("left to builds without ThreadSanitizer");
    for (size_t i = 0; i < sizeof rounded_kinds / sizeof rounded_kinds[0]; i++)
        if (rounded_kinds[i] != RN_DTYPE_INT8) check_spoilt(rounded_kinds[i]);
}

// Blocks of zeros and of denormals, where 1 / scale is infinite, and the largest numbers.
static void tiny_and_huge_activations_round_as_defined(void **unused) {
    (void)unused;
    if (TEST_THREADS_ONLY) skip_because("left to builds without ThreadSanitizer");
    const rn_dtype dtypes[] = {RN_DTYPE_INT8, RN_DTYPE_Q4_0, RN_DTYPE_Q4_K,  RN_DTYPE_Q5_K,
                               RN_DTYPE_Q6_K, RN_DTYPE_Q2_K, RN_DTYPE_IQ4_NL};
    const float sizes[] = {0, 1e-44f, 1e-37f, 2e-36f, 1, 3e38f};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        weight w = make_weight(dtypes[i], 20, 256);
        float *x = malloc(MOST_ROWS * w.cols * sizeof(float));
        float *expected = malloc(MOST_ROWS * w.rows * sizeof(float));
        fill_weights(x, MOST_ROWS * w.cols, 21);
        for (uint64_t e = 0; e < MOST_ROWS * w.cols; e++)
            x[e] *= 0.2f * sizes[e / 32 % 6];
        for_each_level(level) {
            test_guard y;
            expect(&w, x, NULL, true, expected);
            for (uint64_t m = 1; m <= MOST_ROWS; m += 39) {
                run_product(&w, x, NULL, m, NULL, 1, &y);
                compare(&w, expected, &y, m, level, 1);
                test_guard_free(&y);
            }
        }
        free(x);
        free(expected);
        free_weight(&w);
    }
}

static void a_weight_in_another_layout_is_refused(void **unused) {
    (void)unused;
    float x[4] = {0}, w[4] = {0}, y[1];
    rn_tensor in[2] = {{x, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(1, 4)},
                       {w, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(1, 4)}};
    rn_tensor out = {y, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(1, 1)};
    rn_call call = {.attrs = &(rn_matmul_attrs){0},
                    .inputs = in,
                    .outputs = &out,
                    .input_count = 2,
                    .output_count = 1};
    in[1].layout = RN_LAYOUT_PANELS;
    assert_fails(RN_UNSUPPORTED, rn_cpu_generic_matmul(&call));
    in[1].layout = RN_LAYOUT_PLAIN;
    in[1].dtype = RN_DTYPE_INT8; // has another meaning, and two parts
    assert_fails(RN_UNSUPPORTED, rn_cpu_generic_matmul(&call));
    assert_fails(RN_UNSUPPORTED, rn_cpu_packed_matmul(&call));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_with_a_scale_a_row),
        cmocka_unit_test(blocks_of_32),
        cmocka_unit_test(blocks_of_64_and_128),
        cmocka_unit_test(superblocks_of_256),
        cmocka_unit_test(any_number_of_rows),
        cmocka_unit_test(floats_of_every_width),
        cmocka_unit_test(groups_of_nibbles),
        cmocka_unit_test(any_other_readable_weight),
        cmocka_unit_test(a_poisoned_row_is_not_plausible),
        cmocka_unit_test(a_spoilt_scale_spoils_its_own_row),
        cmocka_unit_test(tiny_and_huge_activations_round_as_defined),
        cmocka_unit_test(a_weight_in_another_layout_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
