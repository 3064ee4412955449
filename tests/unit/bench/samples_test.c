// samples_test.c — quantiles of streams, their interval, and when samples are enough.
#include "support.h"

#include "bench/samples.h"

#include <math.h>

static uint64_t random_state = 1;

static double next_random(void) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(random_state >> 11) / (double)(1ull << 53);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Times with a long tail, as they come in life.
static double next_time(void) {
    double u = next_random();
    return 50000 * (1 + 0.05 * next_random() + (u > 0.97 ? 4 * next_random() : 0));
}

static void check_quantiles(size_t count, double tolerance) {
    static const double shares[] = {0.01, 0.5, 0.9, 0.99, 0.999};
    rn_samples *samples;
    double *all = calloc(count, sizeof *all), sum = 0;
    assert_non_null(all);
    assert_ok(rn_samples_create(&samples));
    for (size_t i = 0; i < count; i++) {
        all[i] = next_time();
        sum += all[i];
        rn_samples_add(samples, all[i]);
    }
    qsort(all, count, sizeof *all, compare);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double exact = all[(size_t)ceil(shares[i] * (double)count) - 1];
        assert_true(fabs(rn_samples_quantile(samples, shares[i]) - exact) <= tolerance * exact);
    }
    assert_true(rn_samples_quantile(samples, 0) == all[0]);
    assert_true(rn_samples_quantile(samples, 1) == all[count - 1]);
    rn_bench_latency latency = {0};
    rn_samples_summary(samples, &latency);
    assert_int_equal(latency.samples, count);
    assert_true(fabs(latency.total_s - sum * 1e-9) < 1e-9 * sum * 1e-9);
    free(all);
    rn_samples_destroy(samples);
}

static void quantiles_are_exact_up_to_4096_samples_and_near_above(void **state) {
    (void)state;
    check_quantiles(1, 0);
    check_quantiles(2, 0);
    check_quantiles(100, 0);
    check_quantiles(4096, 0);
    check_quantiles(4097, 1.0 / 1024);
    check_quantiles(200000, 1.0 / 1024);
}

// In about 95 of 100 streams the true median is within the interval.
static void the_interval_holds_the_median(void **state) {
    (void)state;
    int held = 0;
    for (int trial = 0; trial < 400; trial++) {
        rn_samples *samples;
        assert_ok(rn_samples_create(&samples));
        for (int i = 0; i < 101; i++)
            rn_samples_add(samples, 1000 * (1 + next_random())); // its median is 1500
        rn_interval interval = rn_samples_median_interval(samples);
        held += interval.low <= 1500 && 1500 <= interval.high;
        rn_samples_destroy(samples);
    }
    assert_in_range(held, 360, 399);
}

static uint64_t run(rn_sampling_rule rule, double (*time)(uint64_t run), rn_sampling_state *state,
                    rn_samples *samples) {
    uint64_t runs = 0;
    rn_sampling_begin(state, &rule);
    do
        (void)rn_sampling_take(state, samples, time(runs++));
    while (rn_sampling_wants(state, samples));
    return runs;
}

static double steady_time(uint64_t run) {
    (void)run;
    return 1e6 * (1 + 0.001 * next_random());
}
static double falling_time(uint64_t run) {
    return 1e6 * (run < 20 ? 3 - 0.1 * (double)run : 1);
}
static double wild_time(uint64_t run) {
    (void)run;
    return 1e6 * (1 + 9 * next_random());
}
static double long_time(uint64_t run) {
    (void)run;
    return 5e9;
}

static void samples_end_when_the_interval_is_narrow_or_the_time_is_over(void **state) {
    (void)state;
    rn_sampling_rule rule = {.interval = 0.01, .seconds = 1};
    rn_sampling_state s;
    rn_samples *samples[5];
    for (int i = 0; i < 5; i++)
        assert_ok(rn_samples_create(&samples[i]));
    run(rule, steady_time, &s, samples[0]);
    assert_in_range(samples[0]->count, 90, 130); // a tenth of the time
    assert_true(s.steady);
    run(rule, falling_time, &s, samples[1]);
    assert_true(s.warm_up >= 20); // runs that still get faster do not count
    assert_true(samples[1]->max == 1e6);
    run(rule, wild_time, &s, samples[2]);
    assert_true(s.spent_ns >= 1e9 && s.spent_ns < 1.1e9);
    run(rule, long_time, &s, samples[3]);
    assert_int_equal(samples[3]->count, 1); // a run for warm-up, a run that counts
    assert_int_equal(s.warm_up, 1);
    rule.samples = 1000;
    run(rule, steady_time, &s, samples[4]);
    assert_int_equal(samples[4]->count, 1000);
    for (int i = 0; i < 5; i++)
        rn_samples_destroy(samples[i]);
}

static void times_that_make_no_sense_do_no_harm(void **state) {
    (void)state;
    static const double times[] = {NAN, -1, 0, INFINITY, 1e300, 0.5, 1};
    rn_samples *samples;
    assert_ok(rn_samples_create(&samples));
    assert_true(isnan(rn_samples_quantile(samples, 0.5)));
    for (int round = 0; round < 1000; round++)
        for (size_t i = 0; i < sizeof times / sizeof *times; i++)
            rn_samples_add(samples, times[i]);
    assert_true(rn_samples_quantile(samples, 0.5) > 0);
    rn_samples_destroy(samples);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_exact_up_to_4096_samples_and_near_above),
        cmocka_unit_test(the_interval_holds_the_median),
        cmocka_unit_test(samples_end_when_the_interval_is_narrow_or_the_time_is_over),
        cmocka_unit_test(times_that_make_no_sense_do_no_harm),
    };
    return test_verdict(cmocka_run_group_tests(tests, NULL, NULL));
}
