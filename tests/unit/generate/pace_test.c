// Prompt rows by time, on machines that are formulas: no clock is asked.
#include "support.h"

#include "generate/pace.h"

#define MS 1000000ull

// A step's time: weights are read once, each row costs, and rows further in a text cost more.
typedef struct machine {
    double weights_ns, row_ns, row_row_ns; // row_row_ns: a row for each thousand tokens before it
} machine;

static uint64_t take(const machine *m, uint32_t makers, uint32_t rows, uint32_t position) {
    double each = m->row_ns + m->row_row_ns * position / 1000;
    return (uint64_t)(m->weights_ns + makers * m->row_ns + rows * each);
}

// What a server measures before its first request: a chunk alone, a batch of tokens.
static rn_pace warm(const machine *m, uint64_t gap_ns, uint32_t makers) {
    rn_pace pace = {.gap_ns = gap_ns};
    rn_pace_learn(&pace, 128, take(m, 0, 128, 0));
    rn_pace_learn(&pace, 0, take(m, makers, 0, 0));
    return pace;
}

// Reads a prompt beside `makers` answers; returns the longest step, and the steps in *out_steps.
static uint64_t read_prompt(const machine *m, rn_pace *pace, uint32_t makers, uint32_t tokens,
                            uint32_t *out_steps) {
    uint64_t longest = 0;
    *out_steps = 0;
    for (uint32_t at = 0; at < tokens; ++*out_steps) {
        uint32_t rows = rn_pace_rows(pace);
        if (rows > tokens - at) rows = tokens - at;
        if (rows > 512) rows = 512;
        uint64_t ns = take(m, makers, rows, at);
        rn_pace_learn(pace, rows, ns);
        if (ns > longest) longest = ns;
        at += rows;
    }
    return longest;
}

static void without_a_gap_or_a_measurement_nothing_is_limited(void **state) {
    (void)state;
    rn_pace none = {0}, unknown = {.gap_ns = 500 * MS};
    rn_pace_learn(&none, 100, 1000 * MS);
    assert_int_equal(rn_pace_rows(&none), UINT32_MAX);
    assert_int_equal(rn_pace_rows(&unknown), UINT32_MAX);
}

// Fast and slow machines, short and long gaps, one answer and eight; rows that get dearer, by up to
// a fifth for each thousand tokens before them (attention of a 1.5B model: 6 %).
static void no_step_is_longer_than_the_gap(void **state) {
    (void)state;
    const double rows[] = {0.02e6, 0.5e6, 5e6, 18e6}, dearer[] = {0, 0.06, 0.2};
    const uint64_t gaps[] = {200 * MS, 500 * MS, 2000 * MS};
    for (size_t r = 0; r < 4; r++)
        for (size_t d = 0; d < 3; d++)
            for (size_t g = 0; g < 3; g++)
                for (uint32_t makers = 1; makers <= 8; makers += 7) {
                    machine m = {.weights_ns = 40e6, .row_ns = rows[r] / 4};
                    m.row_row_ns = m.row_ns * dearer[d];
                    rn_pace pace = warm(&m, gaps[g], makers);
                    uint32_t steps;
                    assert_true(read_prompt(&m, &pace, makers, 2000, &steps) <= gaps[g]);
                }
}

// The gap is used: chunks of half the length would take twice the steps.
static void chunks_are_not_shorter_than_the_gap_asks_for(void **state) {
    (void)state;
    const machine m = {.weights_ns = 60e6, .row_ns = 8e6};
    rn_pace pace = warm(&m, 500 * MS, 4);
    uint32_t steps, best = 2000 * 8 / (500 - 60 - 32) + 1; // without any margin
    (void)read_prompt(&m, &pace, 4, 2000, &steps);
    assert_true(steps <= best * 3 / 2);
}

// One step is slow (the machine did something else): chunks shrink at once, and grow again.
static void a_hiccup_is_forgotten(void **state) {
    (void)state;
    const machine m = {.weights_ns = 60e6, .row_ns = 4e6};
    rn_pace pace = warm(&m, 500 * MS, 1);
    uint32_t before = rn_pace_rows(&pace), steps;
    rn_pace_learn(&pace, before, 5000 * MS);
    assert_true(rn_pace_rows(&pace) < before / 4);
    (void)read_prompt(&m, &pace, 1, 2000, &steps);
    assert_true(rn_pace_rows(&pace) >= before * 9 / 10);
}

// Steps of tokens alone take longer than the gap: prompts go on all the same.
static void prompts_go_on_where_no_step_fits(void **state) {
    (void)state;
    const machine streamed = {.weights_ns = 3000e6, .row_ns = 2e6};
    const machine slow = {.weights_ns = 3000e6, .row_ns = 9000e6};
    rn_pace pace = warm(&streamed, 500 * MS, 1);
    uint32_t steps;
    (void)read_prompt(&streamed, &pace, 1, 500, &steps);
    assert_true(rn_pace_rows(&pace) >= 1 && steps < 50); // half of 3 s are hundreds of rows
    pace = warm(&slow, 500 * MS, 1);
    assert_int_equal(rn_pace_rows(&pace), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_gap_or_a_measurement_nothing_is_limited),
        cmocka_unit_test(no_step_is_longer_than_the_gap),
        cmocka_unit_test(chunks_are_not_shorter_than_the_gap_asks_for),
        cmocka_unit_test(a_hiccup_is_forgotten),
        cmocka_unit_test(prompts_go_on_where_no_step_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
