// compare_test.c — changes between two results: a planted slow-down is found, none is not, in
// repeats with the noise that real runs have.
#include "printed.h"
#include "support.h"

#include <ration/bench_report.h>

#include "bench/result.h"
#include "bench/samples.h"

#include <math.h>

enum { SAMPLES = 300, REPEATS = 20, VARIANTS = 8 };

// ---- simulated runs -----------------------------------------------------------------------------

static double uniform(uint64_t *state) { // in (0, 1)
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *state) {
    double radius = sqrt(-2 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Times of a process around `seconds`: its own bias of 0.5 %, samples that vary by 3 %, one in ten
// disturbed by up to half. The interval is of order statistics, as the harness computes it.
static rn_bench_latency simulate(double seconds, uint64_t *state) {
    double times[SAMPLES], bias = exp(0.005 * normal(state));
    for (int i = 0; i < SAMPLES; i++) {
        times[i] = seconds * bias * exp(0.03 * normal(state));
        if (uniform(state) < 0.1) times[i] *= 1 + 0.5 * uniform(state);
    }
    qsort(times, SAMPLES, sizeof *times, by_value);
    int half = (int)ceil(1.96 * sqrt(SAMPLES) / 2);
    return (rn_bench_latency){.samples = SAMPLES,
                              .p50_s = times[SAMPLES / 2],
                              .p99_s = times[SAMPLES * 99 / 100],
                              .p50_low_s = times[SAMPLES / 2 - half],
                              .p50_high_s = times[SAMPLES / 2 + half]};
}

static rn_bench_results *make(double slow_down, uint64_t *state) {
    rn_bench_results *results;
    assert_ok(rn_bench_results_create(VARIANTS, &results));
    for (int i = 0; i < VARIANTS; i++) {
        rn_bench_result *r = &results->items[i];
        snprintf(r->name, sizeof r->name, "variant%d", i);
        r->batch = 1;
        r->latency = simulate(0.001 * (1 + i) * (i == 3 ? slow_down : 1), state);
        r->host.peak_bytes = 100 << 20;
    }
    return results;
}

static rn_bench_changes *compare(rn_bench_results *before, rn_bench_results *after, double slower,
                                 double larger) {
    rn_bench_changes *changes;
    assert_ok(rn_bench_compare(before, after, &(rn_bench_limits){slower, larger}, &changes));
    return changes;
}

static void a_slow_down_of_a_tenth_is_found_and_none_is_silent(void **state) {
    (void)state;
    uint64_t seed = 7;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        rn_bench_results *before = make(1, &seed), *same = make(1, &seed), *slow = make(1.1, &seed);
        rn_bench_changes *none = compare(before, same, 0.05, 0.01);
        rn_bench_changes *planted = compare(before, slow, 0.05, 0.01);
        assert_int_equal(none->failed_count, 0);
        for (size_t i = 0; i < none->count; i++)
            assert_false(none->items[i].significant);
        assert_int_equal(planted->failed_count, 1);
        const rn_bench_change *c = &planted->items[3];
        assert_true(c->too_slow && c->significant);
        assert_true(c->slower_low < 0.1 && c->slower_high > 0.1); // the truth is in the interval
        rn_bench_changes_destroy(none);
        rn_bench_changes_destroy(planted);
        rn_bench_results_destroy(before);
        rn_bench_results_destroy(same);
        rn_bench_results_destroy(slow);
    }
}

// What n processes come to whose medians scatter by so much.
static rn_bench_latency simulate_processes(double seconds, double scatter, uint64_t n,
                                           uint64_t *state) {
    rn_bench_latency t = simulate(seconds, state);
    double logs[8];
    for (uint64_t i = 0; i < n; i++)
        logs[i] = log(seconds) + scatter * normal(state);
    if (n == 1) {
        t.p50_s = exp(logs[0]);
        t.p50_low_s = t.p50_s * 0.998;
        t.p50_high_s = t.p50_s * 1.002;
        return t;
    }
    rn_interval interval = rn_samples_of_processes(logs, n, &t.between);
    t.processes = n;
    t.p50_s = sqrt(interval.low * interval.high);
    t.p50_low_s = interval.low;
    t.p50_high_s = interval.high;
    return t;
}

// Alarms of the first variant in REPEATS comparisons, of old results by `before_n` processes.
static int count_alarms(double slow_down, double scatter, uint64_t before_n) {
    uint64_t seed = 11;
    int alarms = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        rn_bench_results *before = make(1, &seed), *after = make(1, &seed);
        before->items[0].latency = simulate_processes(0.003, scatter, before_n, &seed);
        after->items[0].latency = simulate_processes(0.003 * slow_down, scatter, 5, &seed);
        rn_bench_changes *changes = compare(before, after, 0.05, 0);
        alarms += changes->items[0].too_slow;
        rn_bench_changes_destroy(changes);
        rn_bench_results_destroy(before);
        rn_bench_results_destroy(after);
    }
    return alarms;
}

// A machine on which processes that measure the same differ by 6 %, as one was seen to.
static void several_processes_know_how_much_they_differ(void **state) {
    (void)state;
    assert_int_equal(count_alarms(1, 0.06, 5), 0);
    assert_int_equal(count_alarms(1, 0.06, 1), 0);
    assert_int_equal(count_alarms(1.1, 0.005, 5), REPEATS);
    assert_int_equal(count_alarms(1, 0.005, 5), 0);
    assert_int_equal(count_alarms(1.8, 0.06, 5), REPEATS);
}

// Floors of processes as they were measured on two cores: 2 % (beside builds 2.5 %) around what
// half of them have, one in ten disturbed from begin to end, by up to a fifth. `drift`: of the
// machine itself, from minute to minute.
static void simulate_floors(double seconds, double scatter, double drift, int count,
                            rn_bench_latency *t, uint64_t *state) {
    double all = seconds * exp(drift * normal(state));
    t->processes = (uint64_t)count;
    for (int i = 0; i < count; i++) {
        t->floors_s[i] = all * exp(scatter * normal(state));
        if (uniform(state) < 0.1) t->floors_s[i] *= 1 + 0.2 * uniform(state);
    }
    for (int i = count; i < RN_BENCH_PROCESSES; i++)
        t->floors_s[i] = NAN;
}

// Repeats of the first variant, which is the same, and the second, which is a tenth slower: how
// often the second is too slow; the first never is.
static int count_planted(double scatter, double drift) {
    uint64_t seed = 19;
    int found = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        rn_bench_results *before = make(1, &seed), *after = make(1, &seed);
        for (int i = 0; i < 2; i++) { // medians say nothing, and are not asked
            simulate_floors(0.003, scatter, drift, 30, &before->items[i].latency, &seed);
            simulate_floors(i ? 0.0033 : 0.003, scatter, drift, 30, &after->items[i].latency,
                            &seed);
            after->items[i].latency.p50_s *= 3;
        }
        rn_bench_changes *changes = compare(before, after, 0.05, 0);
        const rn_bench_change *none = &changes->items[0], *planted = &changes->items[1];
        assert_true(none->of_floors && planted->of_floors && !changes->items[2].of_floors);
        assert_false(none->too_slow);
        assert_true(planted->significant && planted->slower > 0.05 && planted->slower < 0.15);
        assert_true(planted->after_s > 0.0031 && planted->after_s < 0.0035);
        found += planted->too_slow;
        rn_bench_changes_destroy(changes);
        rn_bench_results_destroy(before);
        rn_bench_results_destroy(after);
    }
    return found;
}

static void floors_of_many_processes_find_a_tenth_on_a_busy_machine(void **state) {
    (void)state;
    assert_int_equal(count_planted(0.02, 0), REPEATS);
    assert_true(count_planted(0.025, 0.01) >= REPEATS - 4);
}

// Both sides in turns on a machine that grows slower by three tenths while they are measured, and
// whose processes scatter by 2.5 %: a tenth is found, and none is silent. As sets it is not found.
static int count_in_turns(bool in_turns, double slow_down) {
    uint64_t seed = 23;
    int found = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        rn_bench_results *before = make(1, &seed), *after = make(1, &seed);
        rn_bench_latency *b = &before->items[0].latency, *a = &after->items[0].latency;
        simulate_floors(0.003, 0.025, 0, 60, b, &seed);
        simulate_floors(0.003 * slow_down, 0.025, 0, 60, a, &seed);
        for (int i = 0; i < 60; i++) {
            b->floors_s[i] *= 1 + 0.3 * i / 60;
            a->floors_s[i] *= 1 + 0.3 * i / 60;
        }
        before->in_turns = after->in_turns = in_turns;
        rn_bench_changes *changes = compare(before, after, 0.05, 0);
        assert_int_equal(changes->items[0].in_turns, in_turns);
        found += changes->items[0].too_slow;
        rn_bench_changes_destroy(changes);
        rn_bench_results_destroy(before);
        rn_bench_results_destroy(after);
    }
    return found;
}

static void turns_divide_out_a_machine_that_drifts(void **state) {
    (void)state;
    assert_int_equal(count_in_turns(true, 1), 0);
    assert_true(count_in_turns(true, 1.1) >= REPEATS - 2);
    assert_true(count_in_turns(false, 1.1) < REPEATS / 2);
}

static void a_faster_variant_passes_and_is_told(void **state) {
    (void)state;
    uint64_t seed = 3;
    rn_bench_results *before = make(1.2, &seed), *after = make(1, &seed);
    rn_bench_changes *changes = compare(before, after, 0.05, 0);
    assert_int_equal(changes->failed_count, 0);
    assert_true(changes->items[3].significant && changes->items[3].slower < -0.1);
    rn_bench_changes_destroy(changes);
    rn_bench_results_destroy(before);
    rn_bench_results_destroy(after);
}

// A wide interval is no proof: 10 % with ± 20 % passes, however large the change looks.
static void what_is_not_certain_does_not_fail(void **state) {
    (void)state;
    uint64_t seed = 5;
    rn_bench_results *before = make(1, &seed), *after = make(1.1, &seed);
    after->items[3].latency.p50_low_s = 0.8 * after->items[3].latency.p50_s;
    after->items[3].latency.p50_high_s = 1.2 * after->items[3].latency.p50_s;
    rn_bench_changes *changes = compare(before, after, 0.05, 0);
    assert_int_equal(changes->failed_count, 0);
    assert_false(changes->items[3].significant);
    rn_bench_changes_destroy(changes);
    rn_bench_results_destroy(before);
    rn_bench_results_destroy(after);
}

// Runs that others interrupt say little, however narrow their own interval is: a tenth passes, and
// half as much again does not.
static void a_busy_machine_makes_the_gate_blind_and_not_nervous(void **state) {
    (void)state;
    uint64_t seed = 13;
    for (int step = 0; step < 2; step++) {
        rn_bench_results *before = make(1, &seed), *after = make(step ? 1.5 : 1.1, &seed);
        before->items[3].latency.p99_s *= 20;
        after->items[3].latency.p99_s *= 20;
        rn_bench_changes *changes = compare(before, after, 0.05, 0);
        assert_int_equal(changes->failed_count, step);
        assert_true(changes->items[3].too_slow == (step == 1));
        rn_bench_changes_destroy(changes);
        rn_bench_results_destroy(before);
        rn_bench_results_destroy(after);
    }
}

static void a_few_samples_prove_nothing(void **state) {
    (void)state;
    uint64_t seed = 17;
    rn_bench_results *before = make(1, &seed), *after = make(1.3, &seed);
    rn_bench_latency *t = &after->items[3].latency;
    t->samples = 1;
    t->p50_low_s = t->p50_high_s = t->p99_s = t->p50_s;
    rn_bench_changes *changes = compare(before, after, 0.05, 0);
    assert_int_equal(changes->failed_count, 0);
    rn_bench_changes_destroy(changes);
    rn_bench_results_destroy(before);
    rn_bench_results_destroy(after);
}

static void memory_is_compared_exactly(void **state) {
    (void)state;
    uint64_t seed = 9;
    rn_bench_results *before = make(1, &seed), *after = make(1, &seed);
    after->items[0].host.peak_bytes = 101 << 20;       // + 1 %: just within
    after->items[1].host.peak_bytes = (101 << 20) + 1; // beyond
    after->items[2].host.peak_bytes = RN_BENCH_UNKNOWN;
    before->items[2].resident_peak_bytes = 200 << 20; // then the system's count decides
    after->items[2].resident_peak_bytes = 300 << 20;
    rn_bench_changes *changes = compare(before, after, 0, 0.01);
    assert_false(changes->items[0].too_large);
    assert_true(changes->items[1].too_large);
    assert_true(changes->items[2].too_large);
    assert_int_equal(changes->failed_count, 2);
    rn_bench_changes_destroy(changes);
    rn_bench_results_destroy(before);
    rn_bench_results_destroy(after);
}

static void broken_new_and_gone_variants_are_told(void **state) {
    (void)state;
    uint64_t seed = 11;
    rn_bench_results *before = make(1, &seed), *after = make(1, &seed);
    after->items[0].outcome = RN_BENCH_CRASHED;
    after->items[0].failure.signal = 11;
    snprintf(after->items[1].name, sizeof after->items[1].name, "another");
    before->items[2].outcome = RN_BENCH_REFUSED;
    after->items[4].batch = 2; // another point: not compared with batch 1
    rn_bench_changes *changes = compare(before, after, 0.05, 0);
    assert_int_equal(changes->count, VARIANTS + 2);
    assert_true(changes->items[0].broken);
    assert_null(changes->items[1].before);
    assert_null(changes->items[VARIANTS].after);
    assert_int_equal(changes->failed_count, 1);
    assert_ok(rn_bench_report(after, RN_BENCH_TEXT, &(rn_bench_report_options){.changes = changes},
                              printed_sink()));
    printed_end();
    assert_printed("broken: crashed by signal 11");
    assert_printed("another   was not measured before");
    assert_printed("variant1  is not measured any more");
    assert_printed("works now");
    assert_printed("1 of 10 beyond the limits");
    rn_bench_changes_destroy(changes);

    assert_ok(rn_bench_compare(before, after, NULL, &changes)); // no limits: nothing fails
    assert_int_equal(changes->failed_count, 0);
    rn_bench_changes_destroy(changes);
    rn_bench_results_destroy(before);
    rn_bench_results_destroy(after);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_down_of_a_tenth_is_found_and_none_is_silent),
        cmocka_unit_test(several_processes_know_how_much_they_differ),
        cmocka_unit_test(floors_of_many_processes_find_a_tenth_on_a_busy_machine),
        cmocka_unit_test(turns_divide_out_a_machine_that_drifts),
        cmocka_unit_test(a_faster_variant_passes_and_is_told),
        cmocka_unit_test(what_is_not_certain_does_not_fail),
        cmocka_unit_test(a_busy_machine_makes_the_gate_blind_and_not_nervous),
        cmocka_unit_test(a_few_samples_prove_nothing),
        cmocka_unit_test(memory_is_compared_exactly),
        cmocka_unit_test(broken_new_and_gone_variants_are_told),
    };
    return test_verdict(cmocka_run_group_tests(tests, printed_begin, printed_free));
}
