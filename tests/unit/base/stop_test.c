// stop_test.c — work is counted, looks come often enough, answers stick, stops nest; and sorting.
#include "support.h"

#include "base/merge_sort.h"
#include "base/stop.h"

typedef struct script {
    uint64_t looks, end_at; // says `last` from look end_at on
    rn_stop_answer last;
} script;

static rn_stop_answer follow(void *self) {
    script *s = self;
    return ++s->looks >= s->end_at ? s->last : RN_STOP_GO_ON;
}

static void a_look_comes_after_so_much_work(void **state) {
    (void)state;
    script s = {.end_at = UINT64_MAX};
    rn_stop stop = {.check = follow, .self = &s};
    rn_stop_enter(&stop);
    (void)rn_stop_look(); // whatever was counted before
    for (int i = 0; i < 10 * RN_STOP_UNITS / 100; i++)
        assert_int_equal(rn_stop_spend(100), RN_STOP_GO_ON);
    rn_stop_leave(&stop);
    assert_in_range(s.looks, 10, 11);
    assert_in_range(stop.most_units, RN_STOP_UNITS, RN_STOP_UNITS + 100);
    assert_int_equal(stop.look_count, s.looks);
}

static void an_answer_sticks_until_its_stop_is_left(void **state) {
    (void)state;
    script s = {.end_at = 2, .last = RN_STOP_END};
    rn_stop stop = {.check = follow, .self = &s};
    rn_stop_enter(&stop);
    assert_int_equal(rn_stop_look(), RN_STOP_GO_ON);
    assert_int_equal(rn_stop_look(), RN_STOP_END);
    assert_int_equal(rn_stop_spend(1), RN_STOP_END);
    assert_int_equal(s.looks, 2);
    assert_ok(rn_stop_try(1)); // to end is no failure
    rn_stop_leave(&stop);
    assert_int_equal(rn_stop_spend(1), RN_STOP_GO_ON);
}

static void an_outer_stop_is_asked_too_and_the_weightier_answer_counts(void **state) {
    (void)state;
    script cancels = {.end_at = 3, .last = RN_STOP_CANCEL};
    script ends = {.end_at = 2, .last = RN_STOP_END};
    rn_stop outer = {.check = follow, .self = &cancels}, inner = {.check = follow, .self = &ends};
    rn_stop_enter(&outer);
    assert_int_equal(rn_stop_look(), RN_STOP_GO_ON);
    rn_stop_enter(&inner);
    assert_int_equal(rn_stop_look(), RN_STOP_GO_ON);
    assert_int_equal(rn_stop_look(), RN_STOP_CANCEL);
    assert_int_equal(inner.answer, RN_STOP_END);
    assert_fails(RN_CANCELLED, rn_stop_try(1));
    rn_stop_leave(&inner);
    assert_fails(RN_CANCELLED, rn_stop_try(1));
    rn_stop_leave(&outer);
    assert_ok(rn_stop_try(1));
}

static void a_flag_cancels_while_it_is_up(void **state) {
    (void)state;
    rn_flag flag = false;
    rn_stop_on(&flag);
    assert_ok(rn_stop_try(RN_STOP_UNITS));
    flag = true;
    assert_fails(RN_CANCELLED, rn_stop_try(RN_STOP_UNITS));
    flag = false;
    assert_ok(rn_stop_try(1));
    flag = true;
    rn_stop_on(NULL);
    assert_ok(rn_stop_try(RN_STOP_UNITS));
}

// ---- sorting ------------------------------------------------------------------------------------

enum { MOST = 50000 };
static uint64_t items[MOST], scratch[MOST];

static int by_value(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static uint64_t fill(size_t count) {
    uint64_t random = count, sum = 0;
    for (size_t i = 0; i < count; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        items[i] = random >> 40;
        sum += items[i];
    }
    return sum;
}

static void sorting_sorts_whatever_the_count(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 2, 3, 2047, 2048, 2049, 4096, 6000, 8193, MOST};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        uint64_t sum = fill(counts[c]), sorted = 0;
        assert_true(rn_sort_within(items, scratch, counts[c], sizeof *items, by_value));
        for (size_t i = 0; i < counts[c]; i++) {
            sorted += items[i];
            assert_true(i == 0 || items[i - 1] <= items[i]);
        }
        assert_int_equal(sum, sorted);
    }
}

static void sorting_can_be_ended_and_loses_nothing(void **state) {
    (void)state;
    for (uint64_t end_at = 1; end_at <= 8; end_at++) {
        uint64_t sum = fill(MOST), left = 0;
        script s = {.end_at = end_at, .last = RN_STOP_END};
        rn_stop stop = {.check = follow, .self = &s};
        rn_stop_enter(&stop);
        assert_false(rn_sort_within(items, scratch, MOST, sizeof *items, by_value));
        rn_stop_leave(&stop);
        assert_in_range(stop.most_units, 1, 2 * RN_STOP_UNITS);
        for (size_t i = 0; i < MOST; i++)
            left += items[i];
        assert_int_equal(sum, left);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_comes_after_so_much_work),
        cmocka_unit_test(an_answer_sticks_until_its_stop_is_left),
        cmocka_unit_test(an_outer_stop_is_asked_too_and_the_weightier_answer_counts),
        cmocka_unit_test(a_flag_cancels_while_it_is_up),
        cmocka_unit_test(sorting_sorts_whatever_the_count),
        cmocka_unit_test(sorting_can_be_ended_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
