// Blocks dealt out between the CPU and the link: which, how many, how long.
#include "support.h"

#include "plan/interleave.h"

#include <math.h>

enum { MOST = 40 };

static rn_interleave_block layers[MOST];

// Equal layers: so many milliseconds on the CPU, over the link, on the device; 32 in all.
static rn_interleave interleave_of(uint32_t count, uint32_t places, double host, double link,
                                   double device) {
    for (uint32_t i = 0; i < MOST; i++)
        layers[i] = (rn_interleave_block){host * 1e-3, link * 1e-3, device * 1e-3};
    return (rn_interleave){.blocks = layers,
                           .count = count,
                           .slots = places,
                           .tail_seconds = (32 - count) * device * 1e-3,
                           .host_share = 1};
}

static bool is_near(double a, double b) {
    return fabs(a - b) < 1e-9;
}

static void the_first_is_computed_and_the_last_is_brought(void **state) {
    (void)state;
    for (uint32_t count = 1; count < MOST; count++) {
        for (uint32_t i = 0; i < count; i++)
            assert_false(rn_interleave_streams(i, count, 0));
        for (uint32_t streamed = 1; streamed < count; streamed++) {
            uint32_t found = 0, run = 0, longest = 0, shortest = MOST;
            for (uint32_t i = 0; i < count; i++) {
                bool streams = rn_interleave_streams(i, count, streamed);
                found += streams;
                if (streams && run < shortest) shortest = run;
                run = streams ? 0 : run + 1;
                if (run > longest) longest = run;
            }
            assert_int_equal(found, streamed);
            assert_false(rn_interleave_streams(0, count, streamed));
            assert_true(rn_interleave_streams(count - 1, count, streamed));
            assert_true(longest <= shortest + 1); // evenly
        }
    }
}

// The link rests, or the CPU waits for it, or neither.
static void the_slower_side_says_how_long_it_takes(void **state) {
    (void)state;
    rn_interleave slow = interleave_of(4, 1, 1, 10, 0);
    assert_true(is_near(rn_interleave_seconds(&slow, 0), 4e-3));
    assert_true(is_near(rn_interleave_seconds(&slow, 1), 10e-3));
    assert_true(is_near(rn_interleave_seconds(&slow, 2), 20e-3));
    assert_int_equal(rn_interleave_deal(&slow), 0);
    rn_interleave fast = interleave_of(4, 1, 1, 1, 0.1);
    double device = 28 * 0.1e-3, cross = RN_INTERLEAVE_CROSSING_SECONDS;
    assert_true(is_near(rn_interleave_seconds(&fast, 1), 3e-3 + 0.1e-3 + cross + device));
    assert_true(is_near(rn_interleave_seconds(&fast, 2), 2e-3 + 0.2e-3 + 2 * cross + device));
    rn_interleave even = interleave_of(9, 1, 1, 2, 0);
    assert_int_equal(rn_interleave_deal(&even), 3);
    assert_true(is_near(rn_interleave_seconds(&even, 3), 6e-3 + 3 * cross));
}

// At 2.5 layers of the CPU to one of the link, groups of two and three: with one place the link
// rests in the long ones and the CPU waits in the short ones; with two it works all the time.
static void a_second_place_lets_the_link_run_ahead(void **state) {
    (void)state;
    rn_interleave one = interleave_of(28, 1, 1, 2.5, 0), two = interleave_of(28, 2, 1, 2.5, 0);
    double best_of_one = rn_interleave_seconds(&one, rn_interleave_deal(&one));
    double best_of_two = rn_interleave_seconds(&two, rn_interleave_deal(&two));
    assert_true(best_of_two < best_of_one);
    assert_true(best_of_two >= 28 / (1 + 1 / 2.5) * 1e-3); // both at work all the time
    assert_true(best_of_two < 28 / (1 + 1 / 2.5) * 1e-3 * 1.03);
}

static void what_needs_no_place_is_the_cpu_alone(void **state) {
    (void)state;
    rn_interleave none = interleave_of(20, 0, 1, 0.1, 0), single = interleave_of(1, 1, 1, 0.1, 0);
    assert_int_equal(rn_interleave_deal(&none), 0);
    assert_int_equal(rn_interleave_deal(&single), 0);
    assert_true(is_near(rn_interleave_seconds(&none, 0), 20e-3));
}

// What the link takes of the host's memory is missing there, while it is at work.
static void a_cpu_that_is_slowed_down_gets_more_brought_or_none(void **state) {
    (void)state;
    rn_interleave free = interleave_of(24, 1, 1, 2, 0.05), shared = free, torpid = free;
    shared.host_share = 0.8;
    torpid.host_share = 0.3;
    double alone = rn_interleave_seconds(&free, 0),
           best = rn_interleave_seconds(&free, rn_interleave_deal(&free));
    double slowed = rn_interleave_seconds(&shared, rn_interleave_deal(&shared));
    assert_true(best < slowed && slowed < alone);
    assert_true(rn_interleave_deal(&shared) > 0);
    assert_int_equal(rn_interleave_deal(&torpid), 0);
    // A link that is never idle: all of the CPU's work is slowed.
    rn_interleave busy = interleave_of(4, 1, 1, 10, 0);
    busy.host_share = 0.5;
    assert_true(is_near(rn_interleave_seconds(&busy, 1), 10e-3));
}

// More room on the device means fewer layers on the host: never slower, with one place.
static void fewer_layers_never_take_longer(void **state) {
    (void)state;
    uint32_t seed = 3;
    for (int i = 0; i < 300; i++) {
        double numbers[3]; // host, link, device
        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            numbers[k] = (double)(seed >> 8) / (1 << 24);
        }
        double before = 0;
        for (uint32_t count = 1; count <= 32; count++) {
            rn_interleave w = interleave_of(count, 1, 1 + 4 * numbers[0], 1 + 11 * numbers[1],
                                            0.01 + 0.3 * numbers[2]);
            double seconds = rn_interleave_seconds(&w, rn_interleave_deal(&w));
            assert_true(seconds >= before - 1e-12);
            before = seconds;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_is_computed_and_the_last_is_brought),
        cmocka_unit_test(the_slower_side_says_how_long_it_takes),
        cmocka_unit_test(a_second_place_lets_the_link_run_ahead),
        cmocka_unit_test(what_needs_no_place_is_the_cpu_alone),
        cmocka_unit_test(a_cpu_that_is_slowed_down_gets_more_brought_or_none),
        cmocka_unit_test(fewer_layers_never_take_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
