// quant_test.c — what holds for every input of the quantised forms: levels agree, pieces join,
// errors are bounded, and bad numbers show.
#include "support.h"

#include "tensor/quant.h"

#include "levels.h"

#include <math.h>

enum { MOST = 4096 };

// What one form makes of `count` values in groups of `group`.
typedef struct outcome {
    uint8_t q[MOST];
    float scale[MOST], shift[MOST], restored[MOST];
} outcome;

typedef void run_form(const float *values, uint64_t count, uint64_t group, outcome *out);

static void run_int8(const float *values, uint64_t count, uint64_t group, outcome *out) {
    rn_quant_int8_rows(values, count / group, group, (int8_t *)out->q, out->scale);
    rn_dequant_int8_rows((int8_t *)out->q, out->scale, count / group, group, out->restored);
}

static void run_int4(const float *values, uint64_t count, uint64_t group, outcome *out) {
    rn_quant_int4_groups(values, count / group, group, out->q, out->scale, out->shift);
    rn_dequant_int4_groups(out->q, out->scale, out->shift, count / group, group, out->restored);
}

static void run_nf4(const float *values, uint64_t count, uint64_t group, outcome *out) {
    (void)group;
    rn_quant_nf4_blocks(values, count, out->q, out->scale);
    rn_dequant_nf4_blocks(out->q, out->scale, count, out->restored);
}

static run_form *const forms[] = {run_int8, run_int4, run_nf4};
#define FORM_COUNT (sizeof forms / sizeof forms[0])

// Weights of all sizes; every third group has an awkward value in it, every seventh is constant.
static void make_values(float *values, uint64_t count, uint64_t group, uint64_t seed) {
    uint64_t state = seed * 77 + 1;
    fill_weights(values, count, seed);
    for (uint64_t g = 0; g < count / group; g++) {
        float *at = values + g * group;
        float size = ldexpf(1, (int)(random_bits(&state) % 290) - 150);
        for (uint64_t i = 0; i < group; i++)
            at[i] = g % 7 == 6 ? size : at[i] * size;
        if (g % 3 == 0)
            at[random_bits(&state) % group] =
                float_of(awkward_bits[random_bits(&state) % AWKWARD_COUNT]);
    }
}

static void levels_give_identical_bits(void **unused) {
    (void)unused;
    static float values[MOST];
    static outcome outcomes[2];
    for (size_t form = 0; form < FORM_COUNT; form++)
        for (uint64_t group = 1; group <= 200; group += group < 40 ? 1 : 13) {
            uint64_t count = MOST / group * group;
            make_values(values, count, group, group);
            for_each_level(level) {
                outcome *out = &outcomes[level != RN_CPU_PORTABLE];
                memset(out, 0xee, sizeof *out);
                forms[form](values, count, group, out);
                assert_memory_equal(&outcomes[0], out, sizeof *out);
            }
        }
}

// Nothing is further from its value than half a step, and the ends are exact to rounding.
static void restored_values_are_near(void **unused) {
    (void)unused;
    static float values[MOST];
    static outcome out;
    fill_weights(values, MOST, 9);
    for_each_level(level) {
        run_int8(values, MOST, 128, &out);
        for (int i = 0; i < MOST; i++)
            assert_true(fabsf(out.restored[i] - values[i]) <= 0.501f * out.scale[i / 128]);
        run_int4(values, MOST, 128, &out);
        for (int i = 0; i < MOST; i++)
            assert_true(fabsf(out.restored[i] - values[i]) <= 0.501f * out.scale[i / 128]);
        run_nf4(values, MOST, 64, &out);
        for (int i = 0; i < MOST; i++)
            assert_true(fabsf(out.restored[i] - values[i]) <= 0.153f * out.scale[i / 64]);
    }
}

static void zero_groups_stay_zero(void **unused) {
    (void)unused;
    static const float zeros[200];
    static outcome out;
    for_each_level(level) for (size_t form = 0; form < FORM_COUNT; form++) {
        forms[form](zeros, 200, 100, &out);
        for (int i = 0; i < 200; i++)
            assert_true(out.restored[i] == 0);
        assert_true(isfinite(out.scale[0]));
    }
}

static void constant_int4_groups_are_exact(void **unused) {
    (void)unused;
    float values[128];
    static outcome out;
    for_each_level(level) for (int i = -3; i <= 3; i++) {
        for (int j = 0; j < 128; j++)
            values[j] = (float)i * 0.1f;
        run_int4(values, 128, 128, &out);
        assert_true(out.scale[0] == 0);
        for (int j = 0; j < 128; j++)
            assert_true(out.q[j] == 0 && out.restored[j] == values[j]);
    }
}

static void check_bad_number(run_form *form, float bad) {
    static float values[320];
    static outcome out;
    fill_weights(values, 320, 4);
    values[70] = bad;
    form(values, 320, 64, &out);
    for (int i = 0; i < 320; i++)
        assert_int_equal(!isfinite(out.restored[i]), i / 64 == 1);
}

static void bad_numbers_never_become_plausible(void **unused) {
    (void)unused;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for_each_level(level) {
        for (size_t form = 0; form < FORM_COUNT; form++)
            for (size_t b = 0; b < 4; b++)
                check_bad_number(forms[form], bad[b]);
    }
}

static void pieces_join_to_the_whole(void **unused) {
    (void)unused;
    static float values[1000];
    static outcome whole, piece;
    fill_weights(values, 1000, 6);
    for_each_level(level) {
        run_nf4(values, 1000, 64, &whole);
        run_nf4(values, 640, 64, &piece);
        rn_quant_nf4_blocks(values + 640, 360, piece.q + 320, piece.scale + 10);
        assert_memory_equal(whole.q, piece.q, 500);
        assert_memory_equal(whole.scale, piece.scale, 16 * sizeof(float));
        run_int8(values, 1000, 100, &whole);
        run_int8(values, 300, 100, &piece);
        rn_quant_int8_rows(values + 300, 7, 100, (int8_t *)piece.q + 300, piece.scale + 3);
        assert_memory_equal(whole.q, piece.q, 1000);
        assert_memory_equal(whole.scale, piece.scale, 10 * sizeof(float));
    }
}

static void nothing_is_nothing(void **unused) {
    (void)unused;
    rn_quant_error error = {0};
    for_each_level(level) {
        rn_quant_int8_rows(NULL, 0, 5, NULL, NULL);
        rn_quant_int4_groups(NULL, 0, 5, NULL, NULL, NULL);
        rn_quant_nf4_blocks(NULL, 0, NULL, NULL);
        rn_dequant_nf4_blocks(NULL, NULL, 0, NULL);
        rn_quant_error_add(&error, NULL, NULL, 0);
    }
    assert_true(error.count == 0 && error.sum_abs == 0 && error.max_abs == 0);
}

static void int4_groups_shrink_until_they_divide(void **unused) {
    (void)unused;
    static const uint64_t cols[] = {1,   100, 128, 129, 150,  160, 192,
                                    224, 256, 320, 288, 3072, 4096};
    static const uint64_t group[] = {1, 100, 128, 129, 150, 32, 96, 32, 128, 64, 96, 128, 128};
    for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++)
        assert_int_equal(rn_quant_int4_group(cols[i]), group[i]);
}

static void nibbles_pack_and_unpack(void **unused) {
    (void)unused;
    uint8_t low[100], high[100], packed[100], again[2][100];
    for (int i = 0; i < 100; i++) {
        low[i] = (uint8_t)(i % 16);
        high[i] = (uint8_t)(i * 7 % 16);
    }
    rn_quant_int4_pack(low, high, 100, packed);
    assert_int_equal(packed[3], 3 | 5 << 4);
    rn_quant_int4_unpack(packed, 100, again[0], again[1]);
    assert_memory_equal(again[0], low, 100);
    assert_memory_equal(again[1], high, 100);
    rn_quant_int4_pack(low, NULL, 100, packed);
    assert_memory_equal(packed, low, 100);
    rn_quant_int4_unpack(packed, 100, NULL, again[1]);
    assert_int_equal(again[1][99], 0);
    rn_quant_int4_pack(low, high, 100, low);
    assert_int_equal(low[3], 3 | 5 << 4);
}

static void error_is_the_sum_it_says(void **unused) {
    (void)unused;
    static float reference[1003], restored[1003];
    fill_weights(reference, 1003, 1);
    fill_weights(restored, 1003, 2);
    long double abs = 0, square = 0, square_ref = 0;
    float max = 0;
    for (int i = 0; i < 1003; i++) {
        float size = fabsf(reference[i] - restored[i]);
        abs += size, square += (long double)size * size;
        square_ref += (long double)reference[i] * reference[i];
        max = fmaxf(max, size);
    }
    for_each_level(level) {
        rn_quant_error error = {0};
        rn_quant_error_add(&error, reference, restored, 1003);
        assert_true(fabs(error.sum_abs - (double)abs) < 1e-10);
        assert_true(fabs(error.sum_square - (double)square) < 1e-10);
        assert_true(fabs(error.sum_square_ref - (double)square_ref) < 1e-10);
        assert_true(error.max_abs == max && error.count == 1003);
    }
}

static void errors_agree_at_every_level_and_count(void **unused) {
    (void)unused;
    static float reference[100], restored[100];
    make_values(reference, 100, 10, 1);
    for (uint64_t count = 0; count <= 100; count++) {
        fill_weights(restored, 100, count);
        rn_quant_error first = {0};
        for_each_level(level) {
            rn_quant_error error = {0};
            rn_quant_error_add(&error, reference, restored, count);
            rn_quant_error_add(&error, restored, restored, count / 2);
            if (level == RN_CPU_PORTABLE) first = error;
            assert_memory_equal(&first, &error, sizeof error);
        }
    }
}

static void merged_errors_are_sums(void **unused) {
    (void)unused;
    rn_quant_error a = {1, 5, 2, 3, 10}, b = {10, 4, 20, 30, 1}, c = {0, 6, 0, 0, 0};
    rn_quant_error_merge(&a, &b);
    assert_true(a.sum_abs == 11 && a.max_abs == 5 && a.sum_square == 22);
    assert_true(a.sum_square_ref == 33 && a.count == 11);
    rn_quant_error_merge(&a, &c);
    assert_true(a.max_abs == 6);
}

static void nan_shows_in_the_sums(void **unused) {
    (void)unused;
    float reference[20] = {3}, restored[20] = {1};
    restored[17] = NAN;
    for_each_level(level) {
        rn_quant_error error = {0};
        rn_quant_error_add(&error, reference, restored, 20);
        assert_true(isnan(error.sum_abs) && isnan(error.sum_square) && error.max_abs == 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_give_identical_bits),
        cmocka_unit_test(restored_values_are_near),
        cmocka_unit_test(zero_groups_stay_zero),
        cmocka_unit_test(constant_int4_groups_are_exact),
        cmocka_unit_test(bad_numbers_never_become_plausible),
        cmocka_unit_test(pieces_join_to_the_whole),
        cmocka_unit_test(nothing_is_nothing),
        cmocka_unit_test(int4_groups_shrink_until_they_divide),
        cmocka_unit_test(nibbles_pack_and_unpack),
        cmocka_unit_test(error_is_the_sum_it_says),
        cmocka_unit_test(errors_agree_at_every_level_and_count),
        cmocka_unit_test(merged_errors_are_sums),
        cmocka_unit_test(nan_shows_in_the_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
