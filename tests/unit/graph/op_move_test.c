// Ops that move elements: shapes, views, copies, conversions, and what they refuse.
#include "op_check.h"

// ---- reshape ------------------------------------------------------------------------------------

static void a_reshape_fills_the_open_axis_and_is_a_view(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 6)), y = rn_op_reshape(t.graph, x, RN_SHAPE(3, 0, 2));
    uint64_t offset = 1;
    WANT_SHAPE(&t, y, 3, 2, 2);
    assert_int_equal(alias_at(&t, y, 0, 0, &offset).kind, RN_ALIAS_KIND_VIEW);
    assert_int_equal(offset, 0);
    assert_string_equal(printed(&t, y), "to (3, 0, 2)");
    end(&t);
}

static void rows_stay_outermost_in_a_reshape(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 6));
    rn_value split = rn_op_reshape(t.graph, x, RN_SHAPE(RN_ROWS, 2, 0));
    rn_value open = rn_op_reshape(t.graph, split, RN_SHAPE(0, 6));
    WANT_SHAPE(&t, split, RN_ROWS, 2, 3);
    WANT_SHAPE(&t, open, RN_ROWS, 6);
    rn_op_reshape(t.graph, x, RN_SHAPE(3, 0));
    refuse(&t, "the elements do not fit into (3, 0)");
}

static void a_single_element_can_gain_and_lose_axes(void **state) {
    (void)state;
    op_check t = begin();
    rn_value y = rn_op_reshape(t.graph, floats(&t, RN_SCALAR), RN_SHAPE(1, 0));
    WANT_SHAPE(&t, y, 1, 1);
    rn_value z = rn_op_reshape(t.graph, y, RN_SCALAR);
    assert_int_equal(rn_graph_value(t.graph, z)->shape.rank, 0);
    end(&t);
}

static void a_reshape_to_another_size_is_refused(void **state) {
    (void)state;
    const rn_shape wrong[] = {RN_SHAPE(5), RN_SHAPE(5, 0), RN_SHAPE(0, 0, 12), RN_SHAPE(RN_ROWS, 0),
                              RN_SHAPE(UINT64_MAX / 2, 3)};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        op_check t = begin();
        rn_op_reshape(t.graph, floats(&t, RN_SHAPE(2, 6)), wrong[i]);
        refuse(&t, "the elements do not fit into");
    }
}

static void blocks_of_quantised_elements_stay_where_they_are(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_reshape(t.graph, input(&t, RN_DTYPE_Q4_0, RN_SHAPE(2, 32)), RN_SHAPE(64));
    refuse(&t, "elements of q4_0 cannot be moved one by one");
}

// ---- permute ------------------------------------------------------------------------------------

static void a_permute_moves_axes(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 3, 2)), ids = input(&t, RN_DTYPE_I32, RN_SHAPE(2, 2));
    rn_value y = rn_op_permute(t.graph, x, (uint8_t[]){2, 0, 1});
    rn_value turned = rn_op_permute(t.graph, ids, (uint8_t[]){1, 0});
    ready(&t, 0);
    SET(&t, x, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    SET_WHOLE(&t, ids, 1, 2, 3, 4);
    test_run_all(&t.run);
    WANT_SHAPE(&t, y, 2, 2, 3);
    WANT(&t, y, 1, 3, 5, 7, 9, 11, 2, 4, 6, 8, 10, 12);
    WANT_WHOLE(&t, turned, 1, 3, 2, 4);
    assert_string_equal(printed(&t, y), "axes 2 0 1");
    end(&t);
}

static void the_gradient_of_a_permute_moves_axes_back(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 3, 1)), weight = floats(&t, RN_SHAPE(1, 2, 3));
    rn_value y = rn_op_permute(t.graph, x, (uint8_t[]){2, 0, 1}), dx = RN_NO_VALUE;
    rn_value loss = rn_op_sum(t.graph, rn_op_mul(t.graph, y, weight), 0x7, false);
    assert_ok(rn_graph_gradient(t.graph, loss, &x, 1, &dx));
    ready(&t, 0);
    SET(&t, x, 1, 2, 3, 4, 5, 6);
    SET(&t, weight, 1, 2, 3, 4, 5, 6);
    test_run_all(&t.run);
    WANT_SHAPE(&t, dx, 2, 3, 1);
    WANT(&t, dx, 1, 2, 3, 4, 5, 6);
    end(&t);
}

static void an_axis_cannot_be_used_twice(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_permute(t.graph, floats(&t, RN_SHAPE(2, 3)), (uint8_t[]){1, 1});
    refuse(&t, "axis 1 of the output cannot be axis 1 of the input");
}

static void rows_cannot_be_permuted_away(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_permute(t.graph, floats(&t, RN_SHAPE(RN_ROWS, 3)), (uint8_t[]){1, 0});
    refuse(&t, "the rows must stay the outermost axis");
}

// ---- slice, concat, pad -------------------------------------------------------------------------

static void an_inner_slice_is_a_copy(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 3, 2)), y = rn_op_slice(t.graph, x, 1, 1, 2);
    uint64_t offset = 0;
    ready(&t, 2);
    SET(&t, x, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    test_run_all(&t.run);
    WANT_SHAPE(&t, y, RN_ROWS, 2, 2);
    WANT(&t, y, 3, 4, 5, 6, 9, 10, 11, 12);
    assert_int_equal(alias_at(&t, y, 0, 2, &offset).kind, RN_ALIAS_KIND_NONE);
    assert_string_equal(printed(&t, y), "axis 1, 2 from 1 on");
    end(&t);
}

static void an_outer_slice_is_a_view(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(1, 4, 3)), y = rn_op_slice(t.graph, x, 1, 2, 1);
    uint64_t offset = 0;
    assert_int_equal(alias_at(&t, y, 0, 0, &offset).kind, RN_ALIAS_KIND_VIEW);
    assert_int_equal(offset, 2 * 3 * sizeof(float));
    end(&t);
}

static void a_slice_outside_its_axis_is_refused(void **state) {
    (void)state;
    const rn_slice_attrs wrong[] = {{1, 2, 2}, {1, 3, 1}, {1, 0, 0}, {1, UINT64_MAX, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        op_check t = begin();
        rn_op_slice(t.graph, floats(&t, RN_SHAPE(RN_ROWS, 3)), wrong[i].axis, wrong[i].start,
                    wrong[i].count);
        refuse(&t, "are not within the 3 of axis 1");
    }
}

static void rows_are_not_sliced_joined_or_padded(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_slice(t.graph, floats(&t, RN_SHAPE(RN_ROWS, 3)), 0, 0, 1);
    refuse(&t, "the rows cannot be sliced");
    t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 3));
    rn_op_concat(t.graph, (rn_value[]){x, x}, 2, 0);
    refuse(&t, "parts cannot be joined along the rows");
    t = begin();
    rn_op_pad(t.graph, floats(&t, RN_SHAPE(RN_ROWS, 3)), (rn_pad_attrs){.after = {1}});
    refuse(&t, "the rows cannot be padded");
}

static void parts_are_joined_along_an_axis(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(RN_ROWS, 1)), b = floats(&t, RN_SHAPE(RN_ROWS, 2));
    rn_value y = rn_op_concat(t.graph, (rn_value[]){a, b, a}, 3, 1);
    ready(&t, 2);
    SET(&t, a, 1, 2);
    SET(&t, b, 3, 4, 5, 6);
    test_run_all(&t.run);
    WANT_SHAPE(&t, y, RN_ROWS, 4);
    WANT(&t, y, 1, 3, 4, 1, 2, 5, 6, 2);
    assert_string_equal(printed(&t, y), "axis 1");
    end(&t);
}

static void parts_that_differ_elsewhere_are_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(2, 3)), b = floats(&t, RN_SHAPE(3, 3));
    rn_op_concat(t.graph, (rn_value[]){a, b}, 2, 1);
    refuse(&t, "part 1 differs in more than axis 1");
}

static void parts_of_another_type_are_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(2)), b = input(&t, RN_DTYPE_I32, RN_SHAPE(2));
    rn_op_concat(t.graph, (rn_value[]){a, b}, 2, 0);
    refuse(&t, "input 1 must be f32, it is i32");
}

static void padding_surrounds_the_elements(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 2));
    rn_value y =
        rn_op_pad(t.graph, x, (rn_pad_attrs){.before = {1, 0}, .after = {0, 2}, .fill = -1});
    ready(&t, 0);
    SET(&t, x, 1, 2, 3, 4);
    test_run_all(&t.run);
    WANT_SHAPE(&t, y, 3, 4);
    WANT(&t, y, -1, -1, -1, -1, 1, 2, -1, -1, 3, 4, -1, -1);
    assert_string_equal(printed(&t, y), "-1, axis 0 by 1 and 0, axis 1 by 0 and 2");
    end(&t);
}

static void a_column_is_padded_to_a_matrix(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(3, 1));
    rn_value y = rn_op_pad(t.graph, x, (rn_pad_attrs){.before = {0, 1}, .after = {0, 1}});
    ready(&t, 0);
    SET(&t, x, 1, 2, 3);
    test_run_all(&t.run);
    WANT(&t, y, 0, 1, 0, 0, 2, 0, 0, 3, 0);
    end(&t);
}

static void gradients_of_slices_parts_and_padding_find_their_way_back(void **state) {
    (void)state;
    op_check t = begin();
    rn_graph *g = t.graph;
    rn_value x = floats(&t, RN_SHAPE(2, 3)), weight = floats(&t, RN_SHAPE(3, 4)), dx = 0;
    rn_value left = rn_op_slice(g, x, 1, 0, 1), right = rn_op_slice(g, x, 1, 1, 2);
    rn_value joined = rn_op_concat(g, (rn_value[]){right, left}, 2, 1);
    rn_value padded = rn_op_pad(g, joined, (rn_pad_attrs){.before = {0, 1}, .after = {1, 0}});
    rn_value loss = rn_op_sum(g, rn_op_mul(g, padded, weight), 0x3, false);
    assert_ok(rn_graph_gradient(g, loss, &x, 1, &dx));
    ready(&t, 0);
    SET(&t, x, 1, 1, 1, 1, 1, 1);
    SET(&t, weight, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    test_run_all(&t.run);
    WANT(&t, dx, 4, 2, 3, 8, 6, 7);
    end(&t);
}

// ---- broadcast ----------------------------------------------------------------------------------

static void a_broadcast_repeats_and_its_gradient_sums(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 1)), dx = RN_NO_VALUE;
    rn_value y = rn_op_broadcast(t.graph, x, RN_SHAPE(2, 2, 3));
    rn_value same = rn_op_broadcast(t.graph, x, RN_SHAPE(1, 2, 1));
    rn_value loss = rn_op_sum(t.graph, y, 0x7, false);
    assert_ok(rn_graph_gradient(t.graph, loss, &x, 1, &dx));
    uint64_t offset = 0;
    assert_int_equal(alias_at(&t, y, 0, 0, &offset).kind, RN_ALIAS_KIND_NONE);
    assert_int_equal(alias_at(&t, same, 0, 0, &offset).kind, RN_ALIAS_KIND_VIEW);
    ready(&t, 0);
    SET(&t, x, 1, 2);
    test_run_all(&t.run);
    WANT(&t, y, 1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2);
    WANT(&t, dx, 6, 6);
    end(&t);
}

static void a_broadcast_cannot_shrink(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_broadcast(t.graph, floats(&t, RN_SHAPE(2, 3)), RN_SHAPE(3));
    refuse(&t, "the input cannot be stretched to (3)");
}

// ---- other types --------------------------------------------------------------------------------

static void a_cast_rounds_as_the_types_do(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(4)), whole = rn_op_cast(t.graph, x, RN_DTYPE_I32);
    rn_value half = rn_op_cast(t.graph, x, RN_DTYPE_F16);
    rn_value back = rn_op_cast(t.graph, half, RN_DTYPE_F32);
    ready(&t, 0);
    SET(&t, x, 1.5, -2.75, 2049, 1e6);
    test_run_all(&t.run);
    WANT_WHOLE(&t, whole, 2, -3, 2049, 1000000);
    WANT(&t, back, 1.5, -2.75, 2048, INFINITY);
    assert_string_equal(printed(&t, half), "to f16");
    end(&t);
}

static void a_cast_to_blocks_is_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_cast(t.graph, floats(&t, RN_SHAPE(32)), RN_DTYPE_Q8_0);
    refuse(&t, "cannot cast f32 to q8_0: both must be plain types");
}

static void quantised_elements_come_back_within_half_a_step(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 32)), q = rn_op_quantize(t.graph, x, RN_DTYPE_Q8_0);
    rn_value y = rn_op_dequantize(t.graph, q);
    ready(&t, 0);
    float *in = test_run_data(&t.run, x);
    for (int i = 0; i < 64; i++)
        in[i] = (float)(i - 31) / 8;
    test_run_all(&t.run);
    const float *out = test_run_data(&t.run, y);
    for (int i = 0; i < 64; i++)
        assert_true(fabsf(out[i] - in[i]) <= 4.01f / 127 / 2);
    assert_int_equal(rn_graph_value(t.graph, q)->dtype, RN_DTYPE_Q8_0);
    end(&t);
}

static void quantising_wants_whole_blocks_and_a_type_that_it_knows(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_quantize(t.graph, floats(&t, RN_SHAPE(2, 48)), RN_DTYPE_Q4_0);
    refuse(&t, "the last axis, 48, is not in whole blocks of 32");
    t = begin();
    rn_op_quantize(t.graph, floats(&t, RN_SHAPE(256)), RN_DTYPE_Q4_K);
    refuse(&t, "cannot quantize to q4_k");
    t = begin();
    rn_op_dequantize(t.graph, input(&t, RN_DTYPE_F6_E2M3, RN_SHAPE(256)));
    refuse(&t, "there is no reading f6_e2m3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reshape_fills_the_open_axis_and_is_a_view),
        cmocka_unit_test(rows_stay_outermost_in_a_reshape),
        cmocka_unit_test(a_single_element_can_gain_and_lose_axes),
        cmocka_unit_test(a_reshape_to_another_size_is_refused),
        cmocka_unit_test(blocks_of_quantised_elements_stay_where_they_are),
        cmocka_unit_test(a_permute_moves_axes),
        cmocka_unit_test(the_gradient_of_a_permute_moves_axes_back),
        cmocka_unit_test(an_axis_cannot_be_used_twice),
        cmocka_unit_test(rows_cannot_be_permuted_away),
        cmocka_unit_test(an_inner_slice_is_a_copy),
        cmocka_unit_test(an_outer_slice_is_a_view),
        cmocka_unit_test(a_slice_outside_its_axis_is_refused),
        cmocka_unit_test(rows_are_not_sliced_joined_or_padded),
        cmocka_unit_test(parts_are_joined_along_an_axis),
        cmocka_unit_test(parts_that_differ_elsewhere_are_refused),
        cmocka_unit_test(parts_of_another_type_are_refused),
        cmocka_unit_test(padding_surrounds_the_elements),
        cmocka_unit_test(a_column_is_padded_to_a_matrix),
        cmocka_unit_test(gradients_of_slices_parts_and_padding_find_their_way_back),
        cmocka_unit_test(a_broadcast_repeats_and_its_gradient_sums),
        cmocka_unit_test(a_broadcast_cannot_shrink),
        cmocka_unit_test(a_cast_rounds_as_the_types_do),
        cmocka_unit_test(a_cast_to_blocks_is_refused),
        cmocka_unit_test(quantised_elements_come_back_within_half_a_step),
        cmocka_unit_test(quantising_wants_whole_blocks_and_a_type_that_it_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
