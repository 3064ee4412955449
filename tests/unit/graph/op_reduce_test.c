// Reductions: any axes, in any place, with and without the axes of 1; and what they refuse.
#include "op_check.h"

static void sums_go_over_any_axes(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 3, 2));
    rn_value first = rn_op_sum(t.graph, x, 0x1, false), last = rn_op_sum(t.graph, x, 0x4, true);
    rn_value middle = rn_op_sum(t.graph, x, 0x2, false), ends = rn_op_sum(t.graph, x, 0x5, false);
    rn_value all = rn_op_sum(t.graph, x, 0x7, false), none = rn_op_sum(t.graph, x, 0, false);
    ready(&t, 0);
    SET(&t, x, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    test_run_all(&t.run);
    WANT_SHAPE(&t, last, 2, 3, 1);
    WANT(&t, first, 8, 10, 12, 14, 16, 18);
    WANT(&t, last, 3, 7, 11, 15, 19, 23);
    WANT(&t, middle, 9, 12, 27, 30);
    WANT(&t, ends, 18, 26, 34);
    WANT(&t, all, 78);
    WANT(&t, none, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    assert_string_equal(printed(&t, ends), "axes 0 2");
    assert_string_equal(printed(&t, last), "axes 2, kept");
    end(&t);
}

static void means_and_maxima_follow_the_same_axes(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 3));
    rn_value mean = rn_op_mean(t.graph, x, 0x2, false), top = rn_op_max(t.graph, x, 0x1, false);
    rn_value squares = rn_op_sum_squares(t.graph, x);
    ready(&t, 0);
    SET(&t, x, 1, -2, 4, -8, 3, 2);
    test_run_all(&t.run);
    WANT(&t, mean, 1, -1);
    WANT(&t, top, 1, 3, 4);
    WANT(&t, squares, 98);
    end(&t);
}

// More columns than are summed side by side, and not a multiple of them.
static void many_columns_are_all_summed(void **state) {
    (void)state;
    enum { ROWS = 3, COLUMNS = 150 };
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(ROWS, COLUMNS)), y = rn_op_sum(t.graph, x, 0x1, false);
    ready(&t, 0);
    float *data = test_run_data(&t.run, x);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (float)(i % COLUMNS * 10 + i / COLUMNS);
    test_run_all(&t.run);
    const float *sums = test_run_data(&t.run, y);
    for (int i = 0; i < COLUMNS; i++)
        assert_true(sums[i] == (float)(30 * i + 3));
    end(&t);
}

static void the_rows_of_a_run_can_be_summed_away(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 2));
    rn_value sum = rn_op_sum(t.graph, x, 0x1, false), mean = rn_op_mean(t.graph, x, 0x1, true);
    rn_value each = rn_op_sum(t.graph, x, 0x2, false);
    ready(&t, 3);
    SET(&t, x, 1, 2, 3, 4, 5, 9);
    test_run_all(&t.run);
    WANT_SHAPE(&t, sum, 2);
    WANT_SHAPE(&t, mean, 1, 2);
    WANT_SHAPE(&t, each, RN_ROWS);
    WANT(&t, sum, 9, 15);
    WANT(&t, mean, 3, 5);
    WANT(&t, each, 3, 7, 14);
    end(&t);
}

static void nothing_has_a_sum_but_no_mean(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 2));
    rn_value sum = rn_op_sum(t.graph, x, 0x1, false), mean = rn_op_mean(t.graph, x, 0x1, false);
    rn_value top = rn_op_max(t.graph, x, 0x1, false), squares = rn_op_sum_squares(t.graph, x);
    float out[2] = {5, 5};
    run_no_rows(&t, sum, out);
    assert_true(out[0] == 0 && out[1] == 0);
    run_no_rows(&t, mean, out);
    assert_true(isnan(out[0]) && isnan(out[1]));
    run_no_rows(&t, top, out);
    assert_true(out[0] == -INFINITY && out[1] == -INFINITY);
    run_no_rows(&t, squares, out);
    assert_true(out[0] == 0);
    end(&t);
}

static void the_gradient_of_a_mean_over_rows_counts_the_rows_of_the_run(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 2)), dx[2] = {0};
    rn_value one = rn_op_mean(t.graph, x, 0x3, false);
    rn_value two = rn_op_sum(t.graph, rn_op_mean(t.graph, x, 0x1, true), 0x3, false);
    assert_ok(rn_graph_gradient(t.graph, one, &x, 1, &dx[0]));
    assert_ok(rn_graph_gradient(t.graph, two, &x, 1, &dx[1]));
    ready(&t, 4);
    SET(&t, x, 1, 2, 3, 4, 5, 6, 7, 8);
    test_run_all(&t.run);
    WANT(&t, dx[0], 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125);
    WANT(&t, dx[1], 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25);
    end(&t);
}

static void the_first_of_equal_maxima_takes_the_gradient(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 3)), rows = floats(&t, RN_SHAPE(2));
    rn_value columns = floats(&t, RN_SHAPE(3)), whole = floats(&t, RN_SCALAR);
    rn_value along = rn_op_max_grad(t.graph, x, rows, &(rn_reduce_attrs){0x2, false});
    rn_value down = rn_op_max_grad(t.graph, x, columns, &(rn_reduce_attrs){0x1, false});
    rn_value all = rn_op_max_grad(t.graph, x, whole, &(rn_reduce_attrs){0x3, false});
    ready(&t, 0);
    SET(&t, x, 1, 5, 5, 5, 5, 2);
    SET(&t, rows, 10, 20);
    SET(&t, columns, 1, 2, 3);
    SET(&t, whole, 7);
    test_run_all(&t.run);
    WANT(&t, along, 0, 10, 0, 20, 0, 0);
    WANT(&t, down, 0, 2, 3, 1, 0, 0);
    WANT(&t, all, 0, 7, 0, 0, 0, 0);
    end(&t);
}

static void argmax_takes_the_first_of_equals_and_a_nan_before_all(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 3)), y = rn_op_argmax(t.graph, x);
    rn_value top = rn_op_max(t.graph, x, 0x2, false);
    ready(&t, 4);
    SET(&t, x, 1, 3, 3, -1, -INFINITY, -2, 9, NAN, 10, -INFINITY, -INFINITY, -INFINITY);
    test_run_all(&t.run);
    WANT_SHAPE(&t, y, RN_ROWS);
    WANT_WHOLE(&t, y, 1, 0, 1, 0);
    WANT(&t, top, 3, -1, NAN, -INFINITY);
    end(&t);
}

static void an_axis_that_is_not_there_is_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_sum(t.graph, floats(&t, RN_SHAPE(2, 3)), 0x4, false);
    refuse(&t, "axes 0x4 are more than the 2 of the input");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_go_over_any_axes),
        cmocka_unit_test(means_and_maxima_follow_the_same_axes),
        cmocka_unit_test(many_columns_are_all_summed),
        cmocka_unit_test(the_rows_of_a_run_can_be_summed_away),
        cmocka_unit_test(nothing_has_a_sum_but_no_mean),
        cmocka_unit_test(the_gradient_of_a_mean_over_rows_counts_the_rows_of_the_run),
        cmocka_unit_test(the_first_of_equal_maxima_takes_the_gradient),
        cmocka_unit_test(argmax_takes_the_first_of_equals_and_a_nan_before_all),
        cmocka_unit_test(an_axis_that_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
