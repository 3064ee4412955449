// Elementwise ops: broadcasting, values, what they refuse.
#include "op_check.h"

// ---- broadcasting -------------------------------------------------------------------------------

static void equal_shapes_go_element_by_element(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(2, 2)), b = floats(&t, RN_SHAPE(2, 2));
    rn_value sum = rn_op_add(t.graph, a, b), difference = rn_op_sub(t.graph, a, b);
    rn_value product = rn_op_mul(t.graph, a, b), quotient = rn_op_div(t.graph, a, b);
    ready(&t, 0);
    SET(&t, a, 1, 2, 3, 4);
    SET(&t, b, 5, -2, 0.5, 8);
    test_run_all(&t.run);
    WANT(&t, sum, 6, 0, 3.5, 12);
    WANT(&t, difference, -4, 4, 2.5, -4);
    WANT(&t, product, 5, -4, 1.5, 32);
    WANT(&t, quotient, 0.2, -1, 6, 0.5);
    end(&t);
}

static void a_vector_is_added_to_every_row(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(RN_ROWS, 3)), b = floats(&t, RN_SHAPE(3));
    rn_value left = rn_op_sub(t.graph, a, b), right = rn_op_sub(t.graph, b, a);
    ready(&t, 2);
    SET(&t, a, 1, 2, 3, 4, 5, 6);
    SET(&t, b, 10, 20, 30);
    test_run_all(&t.run);
    WANT_SHAPE(&t, left, RN_ROWS, 3);
    WANT(&t, left, -9, -18, -27, -6, -15, -24);
    WANT(&t, right, 9, 18, 27, 6, 15, 24);
    end(&t);
}

static void a_scalar_meets_every_element(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(2, 2)), b = floats(&t, RN_SCALAR);
    rn_value left = rn_op_div(t.graph, a, b), right = rn_op_div(t.graph, b, a);
    ready(&t, 0);
    SET(&t, a, 1, 2, 4, 8);
    SET(&t, b, 2);
    test_run_all(&t.run);
    WANT(&t, left, 0.5, 1, 2, 4);
    WANT(&t, right, 2, 1, 0.5, 0.25);
    end(&t);
}

static void axes_of_one_are_stretched_on_both_sides(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(2, 1, 3)), b = floats(&t, RN_SHAPE(2, 1));
    rn_value y = rn_op_add(t.graph, a, b);
    ready(&t, 0);
    SET(&t, a, 1, 2, 3, 4, 5, 6);
    SET(&t, b, 10, 20);
    test_run_all(&t.run);
    WANT_SHAPE(&t, y, 2, 2, 3);
    WANT(&t, y, 11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26);
    end(&t);
}

static void a_run_of_no_rows_writes_nothing(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(RN_ROWS, 3)), b = floats(&t, RN_SHAPE(3));
    rn_value sum = rn_op_add(t.graph, a, b), relu = rn_op_relu(t.graph, a);
    float out = 5;
    run_no_rows(&t, sum, &out);
    run_no_rows(&t, relu, &out);
    assert_true(out == 5);
    end(&t);
}

static void shapes_that_do_not_broadcast_are_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_mul(t.graph, floats(&t, RN_SHAPE(RN_ROWS, 3)), floats(&t, RN_SHAPE(4)));
    refuse(&t, "the shapes do not broadcast; inputs: (rows, 3) f32, (4) f32");
}

static void whole_numbers_are_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_exp(t.graph, input(&t, RN_DTYPE_I32, RN_SHAPE(4)));
    refuse(&t, "exp is not for i32");
}

static void a_broadcast_may_overwrite_the_input_of_its_own_shape_only(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(RN_ROWS, 3)), b = floats(&t, RN_SHAPE(3));
    rn_value outer = rn_op_add(t.graph, rn_op_reshape(t.graph, b, RN_SHAPE(3, 1)), b);
    rn_value first = rn_op_add(t.graph, a, b), second = rn_op_add(t.graph, b, a);
    uint64_t offset = 0;
    assert_int_equal(alias_at(&t, first, 0, 5, &offset).kind, RN_ALIAS_KIND_MAY);
    assert_int_equal(alias_at(&t, first, 0, 5, &offset).input, 0);
    assert_int_equal(alias_at(&t, second, 0, 5, &offset).input, 1);
    assert_int_equal(alias_at(&t, outer, 0, 5, &offset).kind, RN_ALIAS_KIND_NONE);
    end(&t);
}

// ---- one input ----------------------------------------------------------------------------------

static void roots_powers_and_logarithms(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(3));
    rn_value negative = rn_op_neg(t.graph, x), e = rn_op_exp(t.graph, x);
    rn_value log = rn_op_log(t.graph, x), root = rn_op_sqrt(t.graph, x);
    rn_value inverse = rn_op_rsqrt(t.graph, x), cube = rn_op_pow(t.graph, x, 3);
    rn_value line = rn_op_scale(t.graph, x, 2, -1);
    ready(&t, 0);
    SET(&t, x, 0.25, 1, 4);
    test_run_all(&t.run);
    WANT(&t, negative, -0.25, -1, -4);
    WANT(&t, e, 1.2840254166877414, 2.718281828459045, 54.598150033144236);
    WANT(&t, log, -1.3862943611198906, 0, 1.3862943611198906);
    WANT(&t, root, 0.5, 1, 2);
    WANT(&t, inverse, 2, 1, 0.5);
    WANT(&t, cube, 0.015625, 1, 64);
    WANT(&t, line, -0.5, 1, 7);
    end(&t);
}

// Numbers of PyTorch in double precision.
static void activations_and_their_slopes_are_those_of_pytorch(void **state) {
    (void)state;
    op_check t = begin();
    rn_graph *g = t.graph;
    rn_value x = floats(&t, RN_SHAPE(5)), one = floats(&t, RN_SHAPE(5));
    rn_value silu = rn_op_silu(g, x), silu_slope = rn_op_silu_grad(g, x, one);
    rn_value gelu = rn_op_gelu(g, x), gelu_slope = rn_op_gelu_grad(g, x, one);
    rn_value fast = rn_op_gelu_tanh(g, x), fast_slope = rn_op_gelu_tanh_grad(g, x, one);
    rn_value sigmoid = rn_op_sigmoid(g, x), tanh = rn_op_tanh(g, x);
    rn_value relu = rn_op_relu(g, x), relu_slope = rn_op_relu_grad(g, relu, one);
    ready(&t, 0);
    SET(&t, x, -2, -0.5, 0, 0.5, 2);
    SET(&t, one, 1, 1, 1, 1, 1);
    test_run_all(&t.run);
    WANT(&t, silu, -0.23840584, -0.18877033, 0, 0.31122967, 1.76159416);
    WANT(&t, silu_slope, -0.09078425, 0.26003881, 0.5, 0.73996119, 1.09078425);
    WANT(&t, gelu, -0.04550026, -0.15426877, 0, 0.34573123, 1.95449974);
    WANT(&t, gelu_slope, -0.08523180, 0.13250488, 0.5, 0.86749512, 1.08523180);
    WANT(&t, fast, -0.04540231, -0.15428599, 0, 0.34571401, 1.95459769);
    WANT(&t, fast_slope, -0.08609926, 0.13263010, 0.5, 0.86736990, 1.08609926);
    WANT(&t, sigmoid, 0.11920292, 0.37754067, 0.5, 0.62245933, 0.88079708);
    WANT(&t, tanh, -0.96402758, -0.46211716, 0, 0.46211716, 0.96402758);
    WANT(&t, relu, 0, 0, 0, 0.5, 2);
    WANT(&t, relu_slope, 0, 0, 0, 1, 1);
    end(&t);
}

static void nan_passes_through_relu_and_clamp(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2));
    rn_value relu = rn_op_relu(t.graph, x), clamp = rn_op_clamp(t.graph, x, -1, 1);
    ready(&t, 0);
    SET(&t, x, NAN, -3);
    test_run_all(&t.run);
    WANT(&t, relu, NAN, 0);
    WANT(&t, clamp, NAN, -1);
    end(&t);
}

static void a_clamp_keeps_its_ends_and_their_gradient(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(5)), dy = floats(&t, RN_SHAPE(5));
    rn_value y = rn_op_clamp(t.graph, x, -1, 1);
    rn_value dx = rn_op_clamp_grad(t.graph, x, dy, &(rn_clamp_attrs){-1, 1});
    ready(&t, 0);
    SET(&t, x, -2, -1, 0.5, 1, 7);
    SET(&t, dy, 1, 2, 3, 4, 5);
    test_run_all(&t.run);
    WANT(&t, y, -1, -1, 0.5, 1, 1);
    WANT(&t, dx, 0, 2, 3, 4, 0);
    assert_string_equal(printed(&t, y), "from -1 to 1");
    end(&t);
}

static void a_clamp_with_crossed_ends_is_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_clamp(t.graph, floats(&t, RN_SHAPE(2)), 1, -1);
    refuse(&t, "the low end 1 is above the high end -1");
}

// ---- gates --------------------------------------------------------------------------------------

static void a_gate_scales_the_other_half(void **state) {
    (void)state;
    op_check t = begin();
    rn_value gate = floats(&t, RN_SHAPE(3)), up = floats(&t, RN_SHAPE(3));
    rn_value silu = rn_op_gated(t.graph, gate, up, RN_ACTIVATION_SILU);
    rn_value relu = rn_op_gated(t.graph, gate, up, RN_ACTIVATION_RELU);
    ready(&t, 0);
    SET(&t, gate, -2, 0.5, 2);
    SET(&t, up, 1, 10, -1);
    test_run_all(&t.run);
    WANT(&t, silu, -0.23840584, 3.1122967, -1.76159416);
    WANT(&t, relu, 0, 5, -2);
    assert_string_equal(printed(&t, silu), "silu");
    end(&t);
}

static void the_gradient_of_a_gate_has_two_halves_that_can_be_left_out(void **state) {
    (void)state;
    op_check t = begin();
    rn_value gate = floats(&t, RN_SHAPE(2)), up = floats(&t, RN_SHAPE(2));
    rn_value dy = floats(&t, RN_SHAPE(2));
    rn_value d_gate =
        rn_op_gated_grad(t.graph, gate, up, dy, &(rn_gated_attrs){RN_ACTIVATION_SILU});
    rn_value d_up = rn_graph_output_of(t.graph, d_gate, 1);
    ready(&t, 0);
    SET(&t, gate, -2, 0.5);
    SET(&t, up, 3, 10);
    SET(&t, dy, 1, 2);
    assert_ok(run_without(&t, d_gate, 0x2));
    assert_ok(run_without(&t, d_gate, 0x1));
    WANT(&t, d_gate, -0.27235275, 14.7992237);
    WANT(&t, d_up, -0.23840584, 0.62245933);
    end(&t);
}

static void an_unknown_activation_is_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2));
    rn_op_gated(t.graph, x, x, RN_ACTIVATION_COUNT);
    refuse(&t, "there is no activation 5");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_shapes_go_element_by_element),
        cmocka_unit_test(a_vector_is_added_to_every_row),
        cmocka_unit_test(a_scalar_meets_every_element),
        cmocka_unit_test(axes_of_one_are_stretched_on_both_sides),
        cmocka_unit_test(a_run_of_no_rows_writes_nothing),
        cmocka_unit_test(shapes_that_do_not_broadcast_are_refused),
        cmocka_unit_test(whole_numbers_are_refused),
        cmocka_unit_test(a_broadcast_may_overwrite_the_input_of_its_own_shape_only),
        cmocka_unit_test(roots_powers_and_logarithms),
        cmocka_unit_test(activations_and_their_slopes_are_those_of_pytorch),
        cmocka_unit_test(nan_passes_through_relu_and_clamp),
        cmocka_unit_test(a_clamp_keeps_its_ends_and_their_gradient),
        cmocka_unit_test(a_clamp_with_crossed_ends_is_refused),
        cmocka_unit_test(a_gate_scales_the_other_half),
        cmocka_unit_test(the_gradient_of_a_gate_has_two_halves_that_can_be_left_out),
        cmocka_unit_test(an_unknown_activation_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
