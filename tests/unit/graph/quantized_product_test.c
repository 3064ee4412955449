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

// Where a kind has its f16 scales, and how its blocks are added (below).
typedef enum form { SIMPLE, LOW, MINNED, PARTED } form;
typedef struct kind {
    rn_dtype dtype;
    form form;
    int scale_at, second_at; // -1: none
} kind;

static const kind kinds[] = {
    {RN_DTYPE_Q8_0, SIMPLE, 0, -1},   {RN_DTYPE_Q4_0, SIMPLE, 0, -1},
    {RN_DTYPE_Q5_0, SIMPLE, 0, -1},   {RN_DTYPE_IQ4_NL, SIMPLE, 0, -1},
    {RN_DTYPE_MXFP4, SIMPLE, -1, -1}, {RN_DTYPE_Q1_0, SIMPLE, 0, -1},
    {RN_DTYPE_Q2_0, SIMPLE, 0, -1},   {RN_DTYPE_TQ1_0, SIMPLE, 52, -1},
    {RN_DTYPE_TQ2_0, SIMPLE, 64, -1}, {RN_DTYPE_IQ4_XS, SIMPLE, 0, -1},
    {RN_DTYPE_Q4_1, LOW, 0, 2},       {RN_DTYPE_Q5_1, LOW, 0, 2},
    {RN_DTYPE_Q4_K, MINNED, 0, 2},    {RN_DTYPE_Q5_K, MINNED, 0, 2},
    {RN_DTYPE_Q6_K, PARTED, 208, -1}, {RN_DTYPE_Q3_K, PARTED, 108, -1},
    {RN_DTYPE_Q2_K, PARTED, 80, 82},  {RN_DTYPE_NVFP4, PARTED, -1, -1},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static uint8_t *block_of(const kind *k, uint8_t *row, int b) {
    const rn_dtype_info *info = rn_dtype_get(k->dtype);
    return row + (uint64_t)b * 32 / info->block_elements * info->block_bytes;
}

static float half_at(const uint8_t *bytes) {
    return rn_f16_widen(rn_load_u16(bytes));
}

// A file's row of COLS elements with scales of a decent size; everything else is noise.
static void make_weight(const kind *k, uint8_t *row, uint32_t seed) {
    const rn_dtype_info *info = rn_dtype_get(k->dtype);
    uint64_t blocks = COLS / info->block_elements;
    float noise[1024];
    fill(noise, 1024, seed);
    for (uint64_t i = 0; i < blocks * info->block_bytes; i++)
        row[i] = (uint8_t)(int)(noise[i % 1024] * 128 + 128);
    for (uint64_t b = 0; b < blocks; b++) {
        uint8_t *block = row + b * info->block_bytes;
        float sign = b % 3 ? 1 : -1;
        if (k->scale_at >= 0)
            rn_store_u16(block + k->scale_at,
                         rn_f16_narrow(sign * (0.001f + 0.0005f * (float)(b % 5))));
        if (k->second_at >= 0) rn_store_u16(block + k->second_at, rn_f16_narrow(0.0007f));
        if (k->dtype == RN_DTYPE_MXFP4) block[0] = (uint8_t)(116 + b % 5);
    }
}

// sum of q_x * (w / factor) within [first, first + count), which is whole, in whole numbers.
static double whole_sum(const rounded *x, const float *w, double factor, int first, int count) {
    double sum = 0;
    for (int i = first; i < first + count && factor != 0; i++)
        sum += x->q[i] * (double)nearest((double)w[i] / factor);
    return sum;
}

static double sum_of_q(const rounded *x, int first, int count) {
    double sum = 0;
    for (int i = first; i < first + count; i++)
        sum += x->q[i];
    return sum;
}

// Of block b of 32; w is scale * q, so that q can be had back from w.
static float simple_scale(const kind *k, uint8_t *row, int b) {
    const uint8_t *block = block_of(k, row, b);
    if (k->dtype == RN_DTYPE_MXFP4) return ldexpf(1, block[0] - 128);
    if (k->dtype != RN_DTYPE_IQ4_XS) return half_at(block + k->scale_at);
    int ib = b % 8, ls = ((block[4 + ib / 2] >> 4 * (ib % 2)) & 0xf);
    ls |= ((rn_load_u16(block + 2) >> 2 * ib) & 3) << 4;
    return half_at(block) * (float)(ls - 32);
}

static float expect_simple(const kind *k, const rounded *x, uint8_t *row, const float *w) {
    float acc = 0;
    for (int b = 0; b < BLOCKS; b++) {
        float dw = simple_scale(k, row, b);
        acc = fmaf(x->d[b] * dw, (float)whole_sum(x, w, dw, b * 32, 32), acc);
    }
    return acc;
}

// q4_1 and q5_1: w = scale q + low; q is read bit by bit.
static float expect_low(const kind *k, const rounded *x, uint8_t *row) {
    bool five = k->dtype == RN_DTYPE_Q5_1;
    float acc = 0;
    for (int b = 0; b < BLOCKS; b++) {
        const uint8_t *block = block_of(k, row, b), *qs = block + (five ? 8 : 4);
        double isum = 0;
        for (int i = 0; i < 32; i++) {
            int number = i < 16 ? qs[i] % 16 : qs[i - 16] / 16;
            if (five && block[4 + i / 8] & 1 << i % 8) number += 16;
            isum += number * x->q[b * 32 + i];
        }
        acc = fmaf(x->d[b] * half_at(block), (float)isum, acc);
        acc = fmaf(x->d[b] * half_at(block + 2), (float)sum_of_q(x, b * 32, 32), acc);
    }
    return acc;
}

// q4_k and q5_k: w = d sc q - dmin m; the 6-bit numbers are read as ggml's get_scale_min_k4 does.
static float expect_minned(const kind *k, const rounded *x, const uint8_t *row) {
    bool five = k->dtype == RN_DTYPE_Q5_K;
    float acc = 0;
    for (int b = 0; b < BLOCKS; b++) {
        const uint8_t *super = row + b / 8 * (five ? 176 : 144), *s = super + 4;
        const uint8_t *qh = super + 16, *qs = super + (five ? 48 : 16);
        int j = b % 8, sc = 0, m = 0, isum = 0;
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
        }
        acc = fmaf(x->d[b] * (half_at(super) * (float)sc), (float)isum, acc);
        acc =
            fmaf(-(x->d[b] * (half_at(super + 2) * (float)m)), (float)sum_of_q(x, b * 32, 32), acc);
    }
    return acc;
}

// Scale and min of part `part` of 16 in block b of 32.
static float part_scale(const kind *k, const uint8_t *block, int b, int part, int *out_min) {
    int at = b % 8 * 2 + part;
    *out_min = 0;
    if (k->dtype == RN_DTYPE_Q6_K) return (int8_t)block[192 + at];
    if (k->dtype == RN_DTYPE_NVFP4) {
        float scale;
        uint8_t byte = block[b % 2 * 2 + part] & 0x7f;
        if (block[b % 2 * 2 + part] == 0x7f) return 0;
        if (byte == 0x7f) return 240; // with a sign bit it is a number in ggml's eyes
        assert_ok(rn_dtype_to_f32(RN_DTYPE_F8_E4M3, &byte, &scale, 1));
        return scale / 2;
    }
    if (k->dtype == RN_DTYPE_Q2_K) {
        *out_min = block[at] >> 4;
        return (float)(block[at] % 16);
    }
    const uint8_t *s = block + 96; // q3_k
    int low = at < 8 ? s[at] % 16 : s[at - 8] / 16;
    return (float)(low + 16 * (s[8 + at % 4] >> at / 4 * 2 & 3) - 32);
}

// w = d sc q (- dmin m) with two scales a block of 32; q is had back from w by division.
static float expect_parted(const kind *k, const rounded *x, uint8_t *row, const float *w) {
    float acc = 0;
    for (int b = 0; b < BLOCKS; b++) {
        const uint8_t *block = block_of(k, row, b);
        float d = k->scale_at < 0 ? 1 : half_at(block + k->scale_at);
        float dmin = k->second_at < 0 ? 0 : half_at(block + k->second_at), sum = 0;
        double mins = 0;
        for (int part = 0; part < 2; part++) {
            int min, first = b * 32 + part * 16;
            float sc = part_scale(k, block, b, part, &min), plain[COLS];
            for (int i = 0; i < 16; i++)
                plain[first + i] = w[first + i] + dmin * (float)min;
            sum = fmaf(sc, (float)whole_sum(x, plain, (double)d * (double)sc, first, 16), sum);
            mins += min * sum_of_q(x, first, 16);
        }
        acc = fmaf(x->d[b] * d, sum, acc);
        if (k->second_at >= 0) acc = fmaf(-(x->d[b] * dmin), (float)mins, acc);
    }
    return acc;
}

static float expect(const kind *k, const rounded *x, uint8_t *row, const float *w) {
    switch (k->form) {
    case LOW:
        return expect_low(k, x, row);
    case MINNED:
        return expect_minned(k, x, row);
    case PARTED:
        return expect_parted(k, x, row, w);
    default:
        return expect_simple(k, x, row, w);
    }
}

static void block_products_have_the_definitions_bits(void **state) {
    (void)state;
    _Alignas(64) uint8_t memory[1024];
    uint8_t row[COLS * 2];
    float x[COLS], w[COLS];
    for (int k = 0; k < KINDS; k++)
        for (uint32_t seed = 0; seed < 20; seed++) {
            rn_dtype dtype = kinds[k].dtype;
            fill(x, COLS, 100 + seed);
            make_weight(&kinds[k], row, seed);
            assert_true(rn_product_is_quantized(dtype));
            assert_ok(rn_dtype_to_f32(dtype, row, w, COLS));
            rounded r = round_row(x, COLS);
            float expected = expect(&kinds[k], &r, row, w);
            float is = rn_quantized_product(dtype, quantize(x, COLS, memory), row, 1, COLS);
            if (memcmp(&expected, &is, sizeof is))
                fail_msg("%s, seed %u: %a, not %a", rn_dtype_get(dtype)->name, seed, (double)is,
                         (double)expected);
            // and it is near the product of the widened numbers: rounding costs d / 2 an element
            double bound = 0, largest = 0;
            for (int i = 0; i < COLS; i++) {
                bound += fabs((double)w[i]) * r.d[i / 32] * 0.51;
                largest = fmax(largest, fabs((double)w[i]));
            }
            assert_true(fabs(inner(x, w, COLS) - is) <= bound + 1e-4 * largest + 1e-5);
        }
}

static void nan_and_infinity_never_become_numbers(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const kind int8 = {RN_DTYPE_INT8, SIMPLE, -1, -1};
    _Alignas(64) uint8_t memory[1024];
    uint8_t row[COLS * 2];
    float x[COLS];
    for (int k = 0; k <= KINDS; k++)
        for (int i = 0; i < 3; i++) {
            const kind *of = k < KINDS ? &kinds[k] : &int8;
            fill(x, COLS, 9);
            x[77] = bad[i];
            make_weight(of, row, 3);
            float y = rn_quantized_product(of->dtype, quantize(x, COLS, memory), row, 1, COLS);
            assert_false(isfinite(y));
        }
}

// A scale that is no number spoils its own row of the weight, which is all that is read here.
static void a_scale_that_is_no_number_shows(void **state) {
    (void)state;
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e00};
    _Alignas(64) uint8_t memory[1024];
    uint8_t row[COLS * 2];
    float x[COLS];
    fill(x, COLS, 4);
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 3; i++) {
            if (kinds[k].scale_at < 0) continue; // scales of 8 bits are always numbers
            make_weight(&kinds[k], row, 8);
            rn_store_u16(block_of(&kinds[k], row, 8) + kinds[k].scale_at, bad[i]);
            rn_dtype dtype = kinds[k].dtype;
            assert_false(
                isfinite(rn_quantized_product(dtype, quantize(x, COLS, memory), row, 1, COLS)));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_rounded_in_blocks_of_32),
        cmocka_unit_test(ties_go_to_the_even_number),
        cmocka_unit_test(tiny_blocks_are_zero),
        cmocka_unit_test(block_products_have_the_definitions_bits),
        cmocka_unit_test(int8_multiplies_the_row_scale_at_last),
        cmocka_unit_test(nan_and_infinity_never_become_numbers),
        cmocka_unit_test(a_scale_that_is_no_number_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
