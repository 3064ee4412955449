// The meaning of quantised products, against the definition written down a second time: weights
// come out of rn_dtype_to_f32, and the sums are spelled out block by block.
#include "op_run.h"

#include "graph/quantized_product.h"
#include "tensor/small_float.h"

enum { COLS = 512, BLOCKS = COLS / 32 };

typedef struct rounded {
    int q[COLS];
    float d[BLOCKS];
} rounded;

// By division into cases, not by the code's formula: the nearest whole number, the even one of two.
static int nearest(double value) {
    double down = floor(value), rest = value - down;
    if (rest > 0.5 || (rest == 0.5 && fmod(down, 2) != 0)) down += 1;
    return (int)down;
}

static rounded round_row(const float *x, uint64_t cols) {
    rounded r = {0};
    for (uint64_t b = 0; b * 32 < cols; b++) {
        float most = 0;
        for (uint64_t i = b * 32; i < cols && i < b * 32 + 32; i++)
            most = fmaxf(most, fabsf(x[i]));
        r.d[b] = most / 127;
        for (uint64_t i = b * 32; most > 0 && i < cols && i < b * 32 + 32; i++)
            r.q[i] = nearest(x[i] * (1 / r.d[b]));
    }
    return r;
}

static rn_quantized_row quantize(const float *x, uint64_t cols, uint8_t *memory) {
    rn_quantized_row row = rn_quantized_row_at(memory, cols);
    rn_quantize_row(x, cols, row);
    return row;
}

static void a_row_is_rounded_in_blocks_of_32(void **state) {
    (void)state;
    _Alignas(64) uint8_t memory[1024];
    float x[COLS];
    fill(x, COLS, 1);
    memset(x + 64, 0, 32 * sizeof(float)); // a block of zeros
    for (uint64_t cols = 1; cols <= COLS; cols += 73) {
        assert_true(rn_quantized_row_bytes(cols) <= sizeof memory);
        assert_int_equal(0, rn_quantized_row_bytes(cols) % 64);
        rn_quantized_row row = quantize(x, cols, memory);
        rounded expected = round_row(x, cols);
        for (uint64_t i = 0; i < (cols + 31) / 32 * 32; i++)
            assert_int_equal(i < cols ? expected.q[i] : 0, row.q[i]);
        assert_memory_equal(expected.d, row.scale, (cols + 31) / 32 * sizeof(float));
    }
}

static void ties_go_to_the_even_number(void **state) {
    (void)state;
    _Alignas(64) uint8_t memory[64];
    float x[32] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
    rn_quantized_row row = quantize(x, 32, memory);
    static const int8_t expected[8] = {127, 0, 2, 2, 0, -2, -2, 126};
    assert_true(row.scale[0] == 1.0f);
    assert_memory_equal(expected, row.q, sizeof expected);
}

static void tiny_blocks_are_zero(void **state) {
    (void)state;
    _Alignas(64) uint8_t memory[64];
    float x[32] = {1e-40f, -3e-39f};
    rn_quantized_row row = quantize(x, 32, memory);
    assert_true(row.scale[0] == 0);
    assert_int_equal(0, row.q[0]);
    x[0] = 1e-36f; // 127 / FLT_MAX is 3.7e-37
    row = quantize(x, 32, memory);
    assert_int_equal(127, row.q[0]);
}

// ---- products -----------------------------------------------------------------------------------

// A file's row of COLS elements with scales of a decent size; everything else is noise.
static void make_weight(rn_dtype dtype, uint8_t *row, uint32_t seed) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    uint64_t blocks = COLS / info->block_elements;
    float noise[1024];
    fill(noise, 1024, seed);
    for (uint64_t i = 0; i < blocks * info->block_bytes; i++)
        row[i] = (uint8_t)(int)(noise[i % 1024] * 128 + 128);
    for (uint64_t b = 0; b < blocks; b++) {
        uint8_t *block = row + b * info->block_bytes;
        uint16_t scale = rn_f16_narrow(0.001f + 0.0005f * (float)(b % 5));
        if (dtype == RN_DTYPE_Q6_K)
            rn_store_u16(block + 208, scale);
        else
            rn_store_u16(block, scale);
        if (dtype == RN_DTYPE_Q4_K || dtype == RN_DTYPE_Q5_K)
            rn_store_u16(block + 2, rn_f16_narrow(0.0007f));
    }
}

// sum of q_x * (w / factor) within [first, first + count), which is whole, in whole numbers.
static double whole_sum(const rounded *x, const float *w, float factor, int first, int count) {
    double sum = 0;
    for (int i = first; i < first + count; i++)
        sum += x->q[i] * (double)nearest((double)w[i] / factor);
    return sum;
}

// q8_0 and q4_0: w is scale * q, so that q can be had back from w.
static float expect_simple(rn_dtype dtype, const rounded *x, const uint8_t *row, const float *w) {
    float acc = 0;
    for (int b = 0; b < BLOCKS; b++) {
        float dw = rn_f16_widen(rn_load_u16(row + b * rn_dtype_get(dtype)->block_bytes));
        acc = fmaf(x->d[b] * dw, (float)whole_sum(x, w, dw, b * 32, 32), acc);
    }
    return acc;
}

// q4_k and q5_k: w = d sc q - dmin m; the 6-bit numbers are read as ggml's get_scale_min_k4 does.
static float expect_minned(rn_dtype dtype, const rounded *x, const uint8_t *row) {
    bool five = dtype == RN_DTYPE_Q5_K;
    float acc = 0;
    for (int b = 0; b < BLOCKS; b++) {
        const uint8_t *super = row + b / 8 * (five ? 176 : 144), *s = super + 4;
        const uint8_t *qh = super + 16, *qs = super + (five ? 48 : 16);
        int j = b % 8, sc = 0, m = 0, isum = 0, xsum = 0;
        if (j < 4) {
            sc = s[j] & 63;
            m = s[j + 4] & 63;
        } else {
            sc = (s[j + 4] & 0xF) | ((s[j - 4] >> 6) << 4);
            m = (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
        }
        for (int i = 0; i < 32; i++) {
            int byte = qs[j / 2 * 32 + i];
            int number = j % 2 ? byte >> 4 : byte & 0xF;
            if (five && qh[i] & 1 << j) number += 16;
            isum += x->q[b * 32 + i] * number;
            xsum += x->q[b * 32 + i];
        }
        float d = rn_f16_widen(rn_load_u16(super)), dmin = rn_f16_widen(rn_load_u16(super + 2));
        acc = fmaf(x->d[b] * (d * (float)sc), (float)isum, acc);
        acc = fmaf(-(x->d[b] * (dmin * (float)m)), (float)xsum, acc);
    }
    return acc;
}

// q6_k: w = d sc q with two scales a block of 32; q is had back from w by division.
static float expect_q6_k(const rounded *x, const uint8_t *row, const float *w) {
    float acc = 0;
    for (int b = 0; b < BLOCKS; b++) {
        const uint8_t *super = row + b / 8 * 210;
        float d = rn_f16_widen(rn_load_u16(super + 208));
        double isum = 0;
        for (int part = 0; part < 2; part++) {
            int8_t sc = (int8_t)super[192 + b % 8 * 2 + part];
            if (sc != 0) isum += sc * whole_sum(x, w, d * (float)sc, b * 32 + part * 16, 16);
        }
        acc = fmaf(x->d[b] * d, (float)isum, acc);
    }
    return acc;
}

static float expect(rn_dtype dtype, const rounded *x, const uint8_t *row, const float *w) {
    if (dtype == RN_DTYPE_Q4_K || dtype == RN_DTYPE_Q5_K) return expect_minned(dtype, x, row);
    return dtype == RN_DTYPE_Q6_K ? expect_q6_k(x, row, w) : expect_simple(dtype, x, row, w);
}

static void block_products_have_the_definitions_bits(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_Q8_0, RN_DTYPE_Q4_0, RN_DTYPE_Q4_K, RN_DTYPE_Q5_K,
                                      RN_DTYPE_Q6_K};
    _Alignas(64) uint8_t memory[1024];
    uint8_t row[COLS * 2];
    float x[COLS], w[COLS];
    for (int d = 0; d < 5; d++)
        for (uint32_t seed = 0; seed < 20; seed++) {
            fill(x, COLS, 100 + seed);
            make_weight(dtypes[d], row, seed);
            assert_true(rn_product_is_quantized(dtypes[d]));
            assert_ok(rn_dtype_to_f32(dtypes[d], row, w, COLS));
            rounded r = round_row(x, COLS);
            float expected = expect(dtypes[d], &r, row, w);
            float is = rn_quantized_product(dtypes[d], quantize(x, COLS, memory), row, 1, COLS);
            assert_memory_equal(&expected, &is, sizeof is);
            // and it is near the product of the widened numbers: rounding costs d / 2 an element
            double bound = 0;
            for (int i = 0; i < COLS; i++)
                bound += fabs((double)w[i]) * r.d[i / 32] * 0.51;
            assert_true(fabs(inner(x, w, COLS) - is) <= bound + 1e-5);
        }
}

static void int8_multiplies_the_row_scale_at_last(void **state) {
    (void)state;
    _Alignas(64) uint8_t memory[1024];
    float x[COLS], noise[COLS], acc = 0, scale = 0.0123f;
    int8_t w[COLS];
    uint64_t cols = 301; // the last block has 13 elements
    fill(x, COLS, 5);
    fill(noise, COLS, 6);
    for (int i = 0; i < COLS; i++)
        w[i] = (int8_t)(noise[i] * 127);
    rounded r = round_row(x, cols);
    for (uint64_t b = 0; b * 32 < cols; b++) {
        int sum = 0;
        for (uint64_t i = b * 32; i < cols && i < b * 32 + 32; i++)
            sum += r.q[i] * w[i];
        acc = fmaf(r.d[b], (float)sum, acc);
    }
    float expected = acc * scale;
    float is = rn_quantized_product(RN_DTYPE_INT8, quantize(x, cols, memory), w, scale, cols);
    assert_memory_equal(&expected, &is, sizeof is);
}

static void nan_and_infinity_never_become_numbers(void **state) {
    (void)state;
    static const rn_dtype dtypes[] = {RN_DTYPE_Q8_0, RN_DTYPE_Q4_0, RN_DTYPE_Q4_K,
                                      RN_DTYPE_Q5_K, RN_DTYPE_Q6_K, RN_DTYPE_INT8};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    _Alignas(64) uint8_t memory[1024];
    uint8_t row[COLS * 2];
    float x[COLS];
    for (int d = 0; d < 6; d++)
        for (int i = 0; i < 3; i++) {
            fill(x, COLS, 9);
            x[77] = bad[i];
            make_weight(dtypes[d], row, 3);
            float y = rn_quantized_product(dtypes[d], quantize(x, COLS, memory), row, 1, COLS);
            assert_false(isfinite(y));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_rounded_in_blocks_of_32),
        cmocka_unit_test(ties_go_to_the_even_number),
        cmocka_unit_test(tiny_blocks_are_zero),
        cmocka_unit_test(block_products_have_the_definitions_bits),
        cmocka_unit_test(int8_multiplies_the_row_scale_at_last),
        cmocka_unit_test(nan_and_infinity_never_become_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
