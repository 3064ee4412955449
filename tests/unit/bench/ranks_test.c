// ranks_test.c — intervals by ranks: the published table, every order counted, and how often they
// hold.
#include "support.h"

#include "bench/ranks.h"

#include <math.h>

// Mann and Whitney's table: U at and below these is significant; the interval begins behind them.
static void critical_values_are_the_published_ones(void **state) {
    (void)state;
    static const struct {
        size_t n, m;
        double confidence;
        size_t k;
    } table[] = {{3, 3, 0.95, 0},     {4, 4, 0.95, 1},   {5, 5, 0.95, 3},    {5, 5, 0.99, 1},
                 {8, 8, 0.95, 14},    {7, 13, 0.95, 21}, {10, 10, 0.99, 17}, {20, 20, 0.95, 128},
                 {20, 20, 0.99, 106}, {5, 20, 0.99, 14}, {6, 6, 0.999, 0},   {7, 7, 0.999, 1}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(rn_ranks_of_interval(table[i].n, table[i].m, table[i].confidence),
                         table[i].k);
        assert_int_equal(rn_ranks_of_interval(table[i].m, table[i].n, table[i].confidence),
                         table[i].k);
    }
    assert_int_equal(rn_ranks_of_interval(0, 5, 0.9), 0);
    assert_int_equal(rn_ranks_of_interval(5, RN_RANKS_MOST + 1, 0.9), 0);
}

// Of large sets U is normal: the number is where that says, with its correction for steps.
static void the_largest_sets_agree_with_the_normal_distribution(void **state) {
    (void)state;
    double n = RN_RANKS_MOST, deviation = sqrt(n * n * (2 * n + 1) / 12);
    double k = (double)rn_ranks_of_interval(RN_RANKS_MOST, RN_RANKS_MOST, 0.999);
    assert_true(fabs(k - (n * n / 2 - 3.2905 * deviation)) < 0.01 * k);
}

// Every order of 4 + 5 figures, as likely as any other: how many have U below k.
static void the_interval_has_its_confidence_exactly(void **state) {
    (void)state;
    size_t k = rn_ranks_of_interval(4, 5, 0.9), below = 0, at = 0, orders = 0;
    for (unsigned set = 0; set < 1u << 9; set++) {
        if (__builtin_popcount(set) != 4) continue;
        size_t u = 0, others = 0;
        for (int i = 0; i < 9; i++)
            if (set >> i & 1)
                u += others;
            else
                others++;
        orders++;
        below += u < k;
        at += u <= k;
    }
    assert_true((double)below / (double)orders <= 0.05);
    assert_true((double)at / (double)orders > 0.05);
}

static void a_shift_is_found_beside_figures_far_off(void **state) {
    (void)state;
    double before[8] = {1, 2, 3, 4, 5, 6, 7, 8}, after[8] = {21, 22, 23, 24, 25, 26, 27, 900};
    double shift;
    rn_interval interval;
    assert_true(rn_ranks_shift(before, 8, after, 8, 0.95, &shift, &interval));
    assert_true(fabs(shift - 20) < 1);
    assert_true(interval.low > 15 && interval.low <= shift && interval.high < 26);
    assert_false(rn_ranks_shift(before, 3, after, 3, 0.95, &shift, &interval));
}

// Wilcoxon's table: a sum of ranks at and below these is significant.
static void critical_values_of_pairs_are_the_published_ones(void **state) {
    (void)state;
    static const struct {
        size_t n;
        double confidence;
        size_t k;
    } table[] = {{5, 0.95, 0},   {6, 0.95, 1},   {8, 0.95, 4},    {10, 0.95, 9},
                 {10, 0.99, 4},  {20, 0.95, 53}, {20, 0.99, 38},  {25, 0.95, 90},
                 {10, 0.999, 0}, {11, 0.999, 1}, {30, 0.95, 138}, {64, 0.95, 748}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_int_equal(rn_ranks_of_pairs(table[i].n, table[i].confidence), table[i].k);
    assert_int_equal(rn_ranks_of_pairs(0, 0.9), 0);
    assert_int_equal(rn_ranks_of_pairs(RN_RANKS_MOST + 1, 0.9), 0);
}

// Both of a pair have what happened to the machine: however much that is, it is not in the shift.
static void pairs_find_a_shift_that_the_sets_hide(void **state) {
    (void)state;
    double before[12], after[12], differences[12], shift;
    rn_interval interval;
    for (int i = 0; i < 12; i++) {
        before[i] = (i * 7) % 12;
        after[i] = before[i] + 1 + 0.01 * ((i * 5) % 12);
        differences[i] = after[i] - before[i];
    }
    assert_true(rn_ranks_pairs(differences, 12, 0.999, &shift, &interval));
    assert_true(interval.low >= 1 && interval.high <= 1.11 && fabs(shift - 1.055) < 0.02);
    assert_true(rn_ranks_shift(before, 12, after, 12, 0.999, &shift, &interval));
    assert_true(interval.low < 0);
    assert_false(rn_ranks_pairs(differences, 10, 0.999, &shift, &interval));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(critical_values_are_the_published_ones),
        cmocka_unit_test(the_largest_sets_agree_with_the_normal_distribution),
        cmocka_unit_test(the_interval_has_its_confidence_exactly),
        cmocka_unit_test(a_shift_is_found_beside_figures_far_off),
        cmocka_unit_test(critical_values_of_pairs_are_the_published_ones),
        cmocka_unit_test(pairs_find_a_shift_that_the_sets_hide),
    };
    return test_verdict(cmocka_run_group_tests(tests, NULL, NULL));
}
