// Random numbers by place: known answers, and what they look like.
#include "support.h"

#include "graph/philox.h"

#include <math.h>

// Random123's kat_vectors, philox4x32 with 10 rounds.
static void philox_gives_the_known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        rn_philox(cases[i].key, cases[i].counter, out);
        assert_memory_equal(cases[i].expected, out, sizeof out);
    }
}

static void a_block_puts_seed_stream_and_counter_where_the_header_says(void **state) {
    (void)state;
    uint32_t expected[4], out[4];
    rn_philox((uint32_t[]){0x89abcdef, 0x01234567}, (uint32_t[]){0x55667788, 0x11223344, 9, 0},
              expected);
    rn_philox_block(0x0123456789abcdef, 9, 0x1122334455667788, out);
    assert_memory_equal(expected, out, sizeof out);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(expected[i],
                         rn_philox_word(0x0123456789abcdef, 9, 4 * 0x1122334455667788 + i));
}

static void units_lie_in_the_half_open_interval(void **state) {
    (void)state;
    assert_true(rn_philox_unit(0) == 0.0f);
    assert_true(rn_philox_unit(UINT32_MAX) == 1 - 0x1p-24f);
    assert_true(rn_philox_unit(0x80000000) == 0.5f);
}

// Mean, deviation and the share beyond 1.96 of 100000 numbers: each within 5 standard errors.
static void normal_numbers_are_normal(void **state) {
    (void)state;
    double n = 100000, sum = 0, squares = 0, beyond = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double z = rn_philox_normal(42, 1, i);
        sum += z;
        squares += z * z;
        beyond += fabs(z) > 1.959963985;
    }
    assert_true(fabs(sum / n) < 5 / sqrt(n));
    assert_true(fabs(squares / n - 1) < 5 * sqrt(2 / n));
    assert_true(fabs(beyond / n - 0.05) < 5 * sqrt(0.05 * 0.95 / n));
}

static void neighbours_of_a_pair_are_one_point_in_polar_form(void **state) {
    (void)state;
    uint32_t words[4];
    rn_philox_block(7, 3, 5, words);
    for (uint64_t pair = 0; pair < 2; pair++) {
        double a = ((words[2 * pair] >> 8) + 1) / 16777216.0,
               b = (words[2 * pair + 1] >> 8) / 16777216.0;
        double x = rn_philox_normal(7, 3, 20 + 2 * pair), y = rn_philox_normal(7, 3, 21 + 2 * pair);
        assert_true(fabs(x * x + y * y + 2 * log(a)) < 1e-5);
        double turn = atan2(y, x) / (2 * M_PI);
        assert_true(fabs((turn < 0 ? turn + 1 : turn) - b) < 1e-6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(a_block_puts_seed_stream_and_counter_where_the_header_says),
        cmocka_unit_test(units_lie_in_the_half_open_interval),
        cmocka_unit_test(normal_numbers_are_normal),
        cmocka_unit_test(neighbours_of_a_pair_are_one_point_in_polar_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
