// convert_test.c — widening and narrowing against arithmetic in double, at every instruction level.
#include "support.h"

#include <ration/tensor.h>

#include "levels.h"

#include <float.h>
#include <math.h>

// What the small floats are, in numbers: the oracle knows no tricks with bits.
typedef struct kind {
    rn_dtype dtype;
    int bytes, mantissa, bias;
    bool has_infinity;
    double largest;     // the largest finite value
    double infinity_at; // from here on a finite f32 becomes infinity; 0 where it saturates
} kind;

static const kind kinds[] = {
    {RN_DTYPE_F16, 2, 10, 15, true, 65504, 65520},
    {RN_DTYPE_BF16, 2, 7, 127, true, 0x1.fep127, 0x1.ffp127},
    {RN_DTYPE_F8_E4M3, 1, 3, 7, false, 448, 0},
    {RN_DTYPE_F8_E5M2, 1, 2, 15, true, 57344, 0},
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

static double decode(const kind *k, unsigned code) {
    int bits = k->bytes * 8;
    double sign = code >> (bits - 1) ? -1 : 1;
    int exponent = (int)(code >> k->mantissa & ((1u << (bits - 1 - k->mantissa)) - 1));
    int top = (1 << (bits - 1 - k->mantissa)) - 1;
    double fraction = code & ((1u << k->mantissa) - 1);
    if (exponent == top && k->has_infinity) return fraction == 0 ? sign * (double)INFINITY : NAN;
    if (exponent == top && fraction == (1 << k->mantissa) - 1) return NAN;
    if (exponent == 0) return sign * ldexp(fraction, 1 - k->bias - k->mantissa);
    return sign * ldexp((1 << k->mantissa) + fraction, exponent - k->bias - k->mantissa);
}

static double narrowed(const kind *k, double value) {
    if (isnan(value) || (isinf(value) && !k->has_infinity)) return NAN;
    if (isinf(value) || value == 0) return value;
    int exponent = ilogb(value) < 1 - k->bias ? 1 - k->bias : ilogb(value);
    double step = ldexp(1, exponent - k->mantissa), size = nearbyint(fabs(value) / step) * step;
    if (k->infinity_at > 0 && fabs(value) >= k->infinity_at) size = (double)INFINITY;
    if (k->infinity_at == 0 && size > k->largest) size = k->largest;
    return copysign(size, value);
}

static void assert_same_number(double expected, float got, unsigned what) {
    if (isnan(expected) ? !isnan(got) : bits_of((float)expected) != bits_of(got))
        fail_msg("%#x: expected %a, got %a", what, expected, (double)got);
}

static void widening_is_exact_for_every_code(void **unused) {
    (void)unused;
    static uint16_t codes[65536];
    static uint8_t short_codes[256];
    static float values[65536];
    for (unsigned i = 0; i < 65536; i++)
        codes[i] = (uint16_t)i;
    for (unsigned i = 0; i < 256; i++)
        short_codes[i] = (uint8_t)i;
    for_each_level(level) for (size_t k = 0; k < KIND_COUNT; k++) {
        unsigned count = kinds[k].bytes == 2 ? 65536 : 256;
        const void *source = kinds[k].bytes == 2 ? (void *)codes : (void *)short_codes;
        assert_ok(rn_dtype_to_f32(kinds[k].dtype, source, values, count));
        for (unsigned i = 0; i < count; i++)
            assert_same_number(decode(&kinds[k], i), values[i], i);
    }
}

// All codes of f16 and bf16, the points halfway between neighbours, the floats on both sides of
// those, random bits.
enum { SAMPLES = 65536 * 8 + 65536 * 4 };
static float *make_samples(void) {
    float *samples = malloc(SAMPLES * sizeof(float));
    uint64_t state = 7, count = 0;
    for (unsigned i = 0; i < 65536; i++) {
        for (size_t k = 0; k < 2; k++) {
            unsigned next = (i & 0x7fff) == 0x7fff ? i : i + 1;
            double here = decode(&kinds[k], i), there = decode(&kinds[k], next);
            float half = (float)((here + there) / 2);
            samples[count++] = (float)here;
            samples[count++] = half;
            samples[count++] = nextafterf(half, INFINITY);
            samples[count++] = nextafterf(half, -INFINITY);
        }
        for (int n = 0; n < 4; n++)
            samples[count++] = float_of(random_bits(&state));
    }
    for (size_t i = 0; i < AWKWARD_COUNT; i++)
        samples[i] = float_of(awkward_bits[i]);
    assert_int_equal(count, SAMPLES);
    return samples;
}

// The same for the 8-bit types, whose neighbours are far apart.
static size_t add_short_samples(float *samples) {
    size_t count = 0;
    for (size_t k = 2; k < KIND_COUNT; k++)
        for (unsigned i = 0; i < 255; i++) {
            float half = (float)((decode(&kinds[k], i) + decode(&kinds[k], i + 1)) / 2);
            samples[count++] = half;
            samples[count++] = nextafterf(half, INFINITY);
            samples[count++] = nextafterf(half, -INFINITY);
        }
    return count;
}

static void narrowing_rounds_to_nearest_even(void **unused) {
    (void)unused;
    float *samples = make_samples(), *back = malloc(SAMPLES * sizeof(float));
    void *codes = malloc(SAMPLES * 2);
    add_short_samples(samples + 1024);
    for_each_level(level) for (size_t k = 0; k < KIND_COUNT; k++) {
        assert_ok(rn_dtype_from_f32(kinds[k].dtype, samples, codes, SAMPLES));
        assert_ok(rn_dtype_to_f32(kinds[k].dtype, codes, back, SAMPLES));
        for (size_t i = 0; i < SAMPLES; i++)
            assert_same_number(narrowed(&kinds[k], samples[i]), back[i], bits_of(samples[i]));
    }
    free(samples), free(back), free(codes);
}

static void levels_give_identical_bits(void **unused) {
    (void)unused;
    float *samples = make_samples(), *values[2];
    uint8_t *codes[2];
    for (int i = 0; i < 2; i++) {
        values[i] = malloc(SAMPLES * sizeof(float));
        codes[i] = malloc(SAMPLES * 2);
    }
    for (size_t k = 0; k < KIND_COUNT; k++) {
        size_t bytes = SAMPLES * (size_t)kinds[k].bytes;
        for_each_level(level) {
            int turn = level == RN_CPU_PORTABLE ? 0 : 1;
            assert_ok(rn_dtype_from_f32(kinds[k].dtype, samples, codes[turn], SAMPLES));
            assert_ok(rn_dtype_to_f32(kinds[k].dtype, codes[turn], values[turn], SAMPLES));
            assert_memory_equal(codes[0], codes[turn], bytes);
            assert_memory_equal(values[0], values[turn], SAMPLES * sizeof(float));
        }
    }
    for (int i = 0; i < 2; i++)
        free(values[i]), free(codes[i]);
    free(samples);
}

static void nan_codes_keep_sign_and_payload_alike(void **unused) {
    (void)unused;
    static uint16_t codes[65536], first[65536];
    static float values[65536];
    for (unsigned i = 0; i < 65536; i++)
        codes[i] = (uint16_t)i;
    for (size_t k = 0; k < 2; k++)
        for_each_level(level) {
            uint16_t again[65536];
            assert_ok(rn_dtype_to_f32(kinds[k].dtype, codes, values, 65536));
            assert_ok(rn_dtype_from_f32(kinds[k].dtype, values, again, 65536));
            if (level == RN_CPU_PORTABLE) memcpy(first, again, sizeof first);
            assert_memory_equal(first, again, sizeof first);
            uint16_t quiet = kinds[k].dtype == RN_DTYPE_F16 ? 0x200 : 0x40;
            for (unsigned i = 0; i < 65536; i++)
                assert_int_equal(again[i], isnan(values[i]) ? i | quiet : i);
        }
}

static void check_count(const kind *k, size_t count) {
    uint8_t codes[256];
    float values[71], back[71];
    uint8_t *at = codes + 1 + count % 3;
    size_t end = count * (size_t)k->bytes;
    fill_weights(values, 71, count);
    memset(codes, 0xee, sizeof codes);
    back[count] = 1234;
    assert_ok(rn_dtype_from_f32(k->dtype, values, at, count));
    assert_ok(rn_dtype_to_f32(k->dtype, at, back, count));
    assert_true(at[-1] == 0xee && at[end] == 0xee);
    assert_true(back[count] == 1234);
    for (size_t i = 0; i < count; i++)
        assert_same_number(narrowed(k, values[i]), back[i], (unsigned)i);
}

static void any_count_and_any_alignment_work(void **unused) {
    (void)unused;
    for_each_level(level) {
        for (size_t k = 0; k < KIND_COUNT; k++)
            for (size_t count = 0; count <= 70; count++)
                check_count(&kinds[k], count);
    }
}

static void fp8_saturates_finite_values_only(void **unused) {
    (void)unused;
    const float values[16] = {449,      1e30f,      -1e30f,   464,       57344, 60000,
                              61440,    -FLT_MAX,   INFINITY, -INFINITY, NAN,   -NAN,
                              0x1p-10f, 0x1.8p-10f, 0x1p-17f, -0.0f};
    const uint8_t e4m3[16] = {0x7e, 0x7e, 0xfe, 0x7e, 0x7e, 0x7e, 0x7e, 0xfe,
                              0x7f, 0xff, 0x7f, 0xff, 0x00, 0x01, 0x00, 0x80};
    const uint8_t e5m2[16] = {0x5f, 0x7b, 0xfb, 0x5f, 0x7b, 0x7b, 0x7b, 0xfb,
                              0x7c, 0xfc, 0x7f, 0xff, 0x14, 0x16, 0x00, 0x80};
    for_each_level(level) {
        uint8_t codes[16];
        assert_ok(rn_dtype_from_f32(RN_DTYPE_F8_E4M3, values, codes, 16));
        assert_memory_equal(codes, e4m3, 16);
        assert_ok(rn_dtype_from_f32(RN_DTYPE_F8_E5M2, values, codes, 16));
        assert_memory_equal(codes, e5m2, 16);
    }
}

static void e8m0_is_a_power_of_two(void **unused) {
    (void)unused;
    uint8_t codes[256];
    float values[256];
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    assert_ok(rn_dtype_to_f32(RN_DTYPE_F8_E8M0, codes, values, 256));
    for (int i = 0; i < 255; i++)
        assert_true(values[i] == (float)ldexp(1, i - 127));
    assert_true(isnan(values[255]));
}

#define check_integers(dtype, type, lowest, highest)                                               \
    do {                                                                                           \
        const float from[] = {0.5f, 1.5f,  2.5f,     -0.0f,     0.49f, 3.7f,                       \
                              NAN,  1e30f, INFINITY, -INFINITY, 100,   -1e30f};                    \
        const type to[] = {0, 2, 2, 0, 0, 4, 0, highest, highest, lowest, 100, lowest};            \
        type got[12];                                                                              \
        float back[2];                                                                             \
        const type ends[2] = {lowest, highest};                                                    \
        assert_ok(rn_dtype_from_f32(dtype, from, got, 12));                                        \
        assert_memory_equal(got, to, sizeof to);                                                   \
        assert_ok(rn_dtype_to_f32(dtype, ends, back, 2));                                          \
        assert_true(back[0] == (float)(lowest) && back[1] == (float)(highest));                    \
    } while (0)

static void integers_round_and_saturate(void **unused) {
    (void)unused;
    for_each_level(level) {
        check_integers(RN_DTYPE_I8, int8_t, INT8_MIN, INT8_MAX);
        check_integers(RN_DTYPE_I16, int16_t, INT16_MIN, INT16_MAX);
        check_integers(RN_DTYPE_I32, int32_t, INT32_MIN, INT32_MAX);
        check_integers(RN_DTYPE_I64, int64_t, INT64_MIN, INT64_MAX);
        check_integers(RN_DTYPE_U8, uint8_t, 0, UINT8_MAX);
        check_integers(RN_DTYPE_U16, uint16_t, 0, UINT16_MAX);
        check_integers(RN_DTYPE_U32, uint32_t, 0, UINT32_MAX);
        check_integers(RN_DTYPE_U64, uint64_t, 0, UINT64_MAX);
    }
}

static void integers_saturate_just_past_their_ends(void **unused) {
    (void)unused;
    const float from[] = {127.5f, 127.4f, -128.5f, -128.6f, 126.5f, -127.5f};
    const int8_t to[] = {127, 127, -128, -128, 126, -128};
    int8_t got[6];
    assert_ok(rn_dtype_from_f32(RN_DTYPE_I8, from, got, 6));
    assert_memory_equal(got, to, sizeof to);
    const float wide[] = {0x1p63f, 0x1.fffffep62f, -0x1p63f, 0x1p31f};
    const int64_t wide_to[] = {INT64_MAX, 0x7fffff8000000000, INT64_MIN, 1ll << 31};
    int64_t wide_got[4];
    assert_ok(rn_dtype_from_f32(RN_DTYPE_I64, wide, wide_got, 4));
    assert_memory_equal(wide_got, wide_to, sizeof wide_to);
}

static void every_i8_widens(void **unused) {
    (void)unused;
    int8_t codes[257];
    float values[257];
    for (int i = 0; i < 257; i++)
        codes[i] = (int8_t)(i - 128);
    for_each_level(level) {
        assert_ok(rn_dtype_to_f32(RN_DTYPE_I8, codes, values, 257));
        for (int i = 0; i < 257; i++)
            assert_true(values[i] == (float)codes[i]);
    }
}

static void bool_is_zero_or_one(void **unused) {
    (void)unused;
    const uint8_t bytes[4] = {0, 1, 2, 255};
    float values[4];
    assert_ok(rn_dtype_to_f32(RN_DTYPE_BOOL, bytes, values, 4));
    assert_true(values[0] == 0 && values[1] == 1 && values[2] == 1 && values[3] == 1);
    const float from[5] = {0, -0.0f, 0.25f, NAN, -3};
    const uint8_t to[5] = {0, 0, 1, 1, 1};
    uint8_t got[5];
    assert_ok(rn_dtype_from_f32(RN_DTYPE_BOOL, from, got, 5));
    assert_memory_equal(got, to, 5);
}

static void f64_rounds_and_returns(void **unused) {
    (void)unused;
    const double from[4] = {1 + 0x1p-24, 1 + 0x1.8p-23, 1e300, -0.0};
    float values[4];
    double back[4];
    assert_ok(rn_dtype_to_f32(RN_DTYPE_F64, from, values, 4));
    assert_true(values[0] == 1 && values[1] == 1 + 0x1p-22f && isinf(values[2]));
    assert_ok(rn_dtype_from_f32(RN_DTYPE_F64, values, back, 4));
    assert_true(back[1] == 1 + 0x1p-22 && signbit(back[3]));
    assert_ok(rn_dtype_from_f32(RN_DTYPE_F32, values, back, 4));
    assert_memory_equal(back, values, sizeof values);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_is_exact_for_every_code),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(levels_give_identical_bits),
        cmocka_unit_test(nan_codes_keep_sign_and_payload_alike),
        cmocka_unit_test(any_count_and_any_alignment_work),
        cmocka_unit_test(fp8_saturates_finite_values_only),
        cmocka_unit_test(e8m0_is_a_power_of_two),
        cmocka_unit_test(integers_round_and_saturate),
        cmocka_unit_test(integers_saturate_just_past_their_ends),
        cmocka_unit_test(every_i8_widens),
        cmocka_unit_test(bool_is_zero_or_one),
        cmocka_unit_test(f64_rounds_and_returns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
