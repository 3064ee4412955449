// quantize_test.c — matrices in memory, in fewer bits and back: what is restored is what products
// take, within what the bits can hold.
#include "support.h"

#include <ration/quantize.h>

#include <math.h>

enum { ROWS = 24, COLS = 256 };

static const struct {
    rn_dtype dtype;
    double most; // of the values' norm
} types[] = {
    {RN_DTYPE_F32, 0},     {RN_DTYPE_BF16, 0.004}, {RN_DTYPE_INT8, 0.01},
    {RN_DTYPE_INT4, 0.1},  {RN_DTYPE_NF4, 0.1},    {RN_DTYPE_NF4_DQ, 0.1},
    {RN_DTYPE_Q8_0, 0.01}, {RN_DTYPE_Q4_K, 0.1},   {RN_DTYPE_F8_E4M3, 0.04},
};
enum { TYPES = sizeof types / sizeof *types };

static double distance(const float *a, const float *b, size_t count) {
    double error = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(error / size);
}

static void matrices_are_quantised_and_restored_in_memory(void **state) {
    static float values[ROWS * COLS], restored[ROWS * COLS];
    (void)state;
    for (uint32_t i = 0, bits = 7; i < ROWS * COLS; i++) {
        bits = bits * 1664525 + 1013904223;
        values[i] = ((float)(bits >> 8) / (1 << 23) - 1) * (0.01f + (float)(i / COLS) * 0.005f);
    }
    for (size_t i = 0; i < TYPES; i++) {
        uint64_t bytes = 0;
        assert_ok(rn_quantize_bytes(types[i].dtype, ROWS, COLS, &bytes));
        void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
        assert_ok(rn_quantize(types[i].dtype, values, ROWS, COLS, data, bytes));
        assert_ok(rn_dequantize(types[i].dtype, data, bytes, ROWS, COLS, restored));
        double off = distance(restored, values, ROWS * COLS);
        if (!(off <= types[i].most)) fail_msg("%s: %g", rn_dtype_get(types[i].dtype)->name, off);
        free(data);
    }
}

static void nf4_with_double_quantisation_takes_fewer_bytes(void **state) {
    uint64_t once = 0, twice = 0, weights = 4096 * (uint64_t)4096;
    (void)state;
    assert_ok(rn_quantize_bytes(RN_DTYPE_NF4, 4096, 4096, &once));
    assert_ok(rn_quantize_bytes(RN_DTYPE_NF4_DQ, 4096, 4096, &twice));
    assert_true(fabs((double)once * 8 / (double)weights - 4.5) < 1e-4);
    assert_true(fabs((double)twice * 8 / (double)weights - 4.127) < 1e-3);
}

static void what_cannot_be_is_refused(void **state) {
    float values[64] = {0};
    uint8_t data[1024];
    uint64_t bytes = 1;
    (void)state;
    assert_fails(RN_INVALID, rn_quantize_bytes(RN_DTYPE_INT8, 0, 64, &bytes));
    assert_int_equal(bytes, 0);
    assert_fails(RN_INVALID, rn_quantize_bytes(RN_DTYPE_NF4_DQ, UINT64_MAX / 2, 64, &bytes));
    assert_fails(RN_INVALID, rn_quantize_bytes(RN_DTYPE_Q4_K, 1, 64, &bytes)); // no whole block
    assert_fails(RN_INVALID, rn_quantize_bytes((rn_dtype)1000, 1, 64, &bytes));
    assert_ok(rn_quantize_bytes(RN_DTYPE_INT8, 1, 64, &bytes));
    assert_fails(RN_INVALID, rn_quantize(RN_DTYPE_INT8, values, 1, 64, data, bytes - 1));
    assert_fails(RN_INVALID, rn_dequantize(RN_DTYPE_INT8, data, bytes + 1, 1, 64, values));
    assert_ok(rn_quantize_bytes(RN_DTYPE_U4_B32, 1, 64, &bytes));
    assert_fails(RN_UNSUPPORTED, rn_quantize(RN_DTYPE_U4_B32, values, 1, 64, data, bytes));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_are_quantised_and_restored_in_memory),
        cmocka_unit_test(nf4_with_double_quantisation_takes_fewer_bytes),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
