// Softmax, norms and losses: rows against numbers of PyTorch in double precision.
#include "op_check.h"

// ---- softmax ------------------------------------------------------------------------------------

static void softmax_and_its_gradient_work_along_the_last_axis(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 3)), dy = floats(&t, RN_SHAPE(RN_ROWS, 3));
    rn_value y = rn_op_softmax(t.graph, x), dx = rn_op_softmax_grad(t.graph, y, dy);
    ready(&t, 2);
    SET(&t, x, 1001, 1002, 1003, 0, 0, 0);
    SET(&t, dy, 1, 0, -1, 2, 0, 0);
    test_run_all(&t.run);
    WANT(&t, y, 0.09003057, 0.24472847, 0.66524096, 1.0 / 3, 1.0 / 3, 1.0 / 3);
    WANT(&t, dx, 0.14181709, 0.14077036, -0.28258745, 4.0 / 9, -2.0 / 9, -2.0 / 9);
    end(&t);
}

static void a_masked_element_gets_nothing_and_a_masked_row_is_nan(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(2, 2)), y = rn_op_softmax(t.graph, x);
    ready(&t, 0);
    SET(&t, x, 3, -INFINITY, -INFINITY, -INFINITY);
    test_run_all(&t.run);
    WANT(&t, y, 1, 0, NAN, NAN);
    end(&t);
}

static void softmax_of_a_single_element_is_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_softmax(t.graph, floats(&t, RN_SCALAR));
    refuse(&t, "a single element has no last axis");
}

// ---- layernorm and rmsnorm ----------------------------------------------------------------------

#define X_ROWS  1, 2, 4, 0, -3, 3
#define DY_ROWS 1, -1, 2, 0.5, 0, 1
#define WEIGHT  0.5, 1, -2
#define BIAS    0.1, 0, 1

static void layernorm_and_its_gradient_are_those_of_pytorch(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 3)), dy = floats(&t, RN_SHAPE(RN_ROWS, 3));
    rn_value weight = floats(&t, RN_SHAPE(3)), bias = floats(&t, RN_SHAPE(3));
    rn_value y = rn_op_layernorm(t.graph, x, weight, bias, 1e-5f);
    rn_value mean = rn_graph_output_of(t.graph, y, 1), rstd = rn_graph_output_of(t.graph, y, 2);
    rn_value dx = rn_op_layernorm_grad(t.graph, x, weight, mean, rstd, dy);
    ready(&t, 2);
    SET(&t, x, X_ROWS);
    SET(&t, dy, DY_ROWS);
    SET(&t, weight, WEIGHT);
    SET(&t, bias, BIAS);
    test_run_all(&t.run);
    WANT_SHAPE(&t, mean, RN_ROWS);
    WANT(&t, y, -0.43452077, -0.26726038, -1.67260383, 0.1, -1.22474385, -1.4494877);
    WANT(&t, mean, 7.0 / 3, 0);
    WANT(&t, rstd, 0.80178115, 0.40824795);
    WANT(&t, dx, 1.03085e-05, 2.57714e-06, -1.28857e-05, 0.34020663, -0.17010263, -0.17010399);
    WANT(&t, rn_graph_output_of(t.graph, dx, 1), -1.06904153, 0.26726038, 3.89734768);
    WANT(&t, rn_graph_output_of(t.graph, dx, 2), 1.5, -1, 3);
    assert_string_equal(printed(&t, y), "eps 1e-05");
    end(&t);
}

static void rmsnorm_and_its_gradient_are_those_of_pytorch(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(RN_ROWS, 3)), dy = floats(&t, RN_SHAPE(RN_ROWS, 3));
    rn_value weight = floats(&t, RN_SHAPE(3)), y = rn_op_rmsnorm(t.graph, x, weight, 1e-5f);
    rn_value rstd = rn_graph_output_of(t.graph, y, 1);
    rn_value dx = rn_op_rmsnorm_grad(t.graph, x, weight, rstd, dy);
    ready(&t, 2);
    SET(&t, x, X_ROWS);
    SET(&t, dy, DY_ROWS);
    SET(&t, weight, WEIGHT);
    test_run_all(&t.run);
    WANT(&t, y, 0.1889821, 0.75592841, -3.02371362, 0, -1.22474385, -2.4494877);
    WANT(&t, rstd, 0.3779642, 0.40824795);
    WANT(&t, dx, 0.50395182, 0.25197524, -0.25197794, 0.10206199, -0.40824727, -0.40824863);
    WANT(&t, rn_graph_output_of(t.graph, dx, 1), 0.3779642, -0.75592841, 4.24845748);
    end(&t);
}

static void norms_work_without_weights_and_without_what_nobody_reads(void **state) {
    (void)state;
    op_check t = begin();
    rn_value x = floats(&t, RN_SHAPE(1, 2));
    rn_value y = rn_op_layernorm(t.graph, x, RN_NO_VALUE, RN_NO_VALUE, 0);
    rn_value z = rn_op_rmsnorm(t.graph, x, RN_NO_VALUE, 0);
    rn_value mean = rn_graph_output_of(t.graph, y, 1), rstd = rn_graph_output_of(t.graph, y, 2);
    rn_value dy = rn_op_layernorm_grad(t.graph, x, RN_NO_VALUE, mean, rstd, y);
    rn_value root = rn_graph_output_of(t.graph, z, 1);
    rn_value dz = rn_op_rmsnorm_grad(t.graph, x, RN_NO_VALUE, root, z);
    ready(&t, 0);
    SET(&t, x, 1, 7);
    SET(&t, mean, 4);
    SET(&t, rstd, 1.0f / 3);
    SET(&t, root, 0.2f);
    assert_ok(run_without(&t, y, 0x6));
    assert_ok(run_without(&t, z, 0x2));
    assert_ok(run_without(&t, dy, 0x6));
    assert_ok(run_without(&t, dz, 0x2));
    WANT(&t, y, -1, 1);
    WANT(&t, z, 0.2, 1.4);
    WANT(&t, dy, 0, 0);
    WANT(&t, dz, 0, 0);
    assert_ok(run_without(&t, dy, 0x5));
    WANT(&t, rn_graph_output_of(t.graph, dy, 1), 1, 1);
    assert_ok(run_without(&t, dz, 0x1));
    WANT(&t, rn_graph_output_of(t.graph, dz, 1), 0.04, 1.96);
    end(&t);
}

static void a_weight_of_another_length_is_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_rmsnorm(t.graph, floats(&t, RN_SHAPE(RN_ROWS, 3)), floats(&t, RN_SHAPE(4)), 1e-5f);
    refuse(&t, "the weight must be (3); inputs: (rows, 3) f32, (4) f32");
}

static void a_norm_along_the_rows_is_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_layernorm(t.graph, floats(&t, RN_SHAPE(RN_ROWS)), RN_NO_VALUE, RN_NO_VALUE, 1e-5f);
    refuse(&t, "the last axis must be a constant");
}

// ---- batchnorm ----------------------------------------------------------------------------------

typedef struct batch {
    op_check t;
    rn_value x, dy, weight, bias, mean, variance; // given
    rn_value y, dx;
} batch;

static batch make_batch(bool training) {
    batch b = {.t = begin()};
    rn_graph *g = b.t.graph;
    rn_batchnorm_attrs attrs = {.eps = 1e-5f, .momentum = 0.1f, .training = training};
    b.x = floats(&b.t, RN_SHAPE(RN_ROWS, 3)), b.dy = floats(&b.t, RN_SHAPE(RN_ROWS, 3));
    b.weight = floats(&b.t, RN_SHAPE(3)), b.bias = floats(&b.t, RN_SHAPE(3));
    b.mean = rn_graph_state(g, "mean", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_OTHER);
    b.variance = rn_graph_state(g, "variance", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_OTHER);
    b.y = rn_op_batchnorm(g, b.x, b.weight, b.bias, b.mean, b.variance, attrs);
    b.dx = rn_op_batchnorm_grad(g, b.x, b.weight, rn_graph_output_of(g, b.y, 1),
                                rn_graph_output_of(g, b.y, 2), b.dy, &attrs);
    return b;
}

static void set_batch(const batch *b) {
    SET(&b->t, b->weight, WEIGHT);
    SET(&b->t, b->bias, BIAS);
    SET(&b->t, b->mean, 0, 1, 2);
    SET(&b->t, b->variance, 1, 2, 3);
}

static void batchnorm_in_training_is_that_of_pytorch(void **state) {
    (void)state;
    batch b = make_batch(true);
    ready(&b.t, 3);
    set_batch(&b);
    SET(&b.t, b.x, 1, 2, 4, 0, -3, 3, 2, 2, -1);
    SET(&b.t, b.dy, 1, -1, 2, 0.5, 0, 1, 1, 2, -1);
    test_run_all(&b.t.run);
    WANT(&b.t, b.y, 0.1, 0.70710614, -0.85163822, -0.51236784, -1.41421229, 0.07418089, 0.71236784,
         0.70710614, 3.77745732);
    WANT(&b.t, b.dx, 0.10206131, -0.6363954, -0.17634876, -0.05103295, -2.5455775e-07, 0.22043199,
         -0.05102836, 0.63639566, -0.04408322);
    WANT(&b.t, rn_graph_output_of(b.t.graph, b.dx, 1), 0.61236784, 0.70710614, 3.70327643);
    WANT(&b.t, rn_graph_output_of(b.t.graph, b.dx, 2), 2.5, 1, 2);
    WANT(&b.t, b.mean, 0.1, 0.93333333, 2);
    WANT(&b.t, b.variance, 1, 2.63333333, 3.4);
    end(&b.t);
}

static void batchnorm_in_inference_uses_the_running_statistics(void **state) {
    (void)state;
    batch b = make_batch(false);
    ready(&b.t, 2);
    set_batch(&b);
    SET(&b.t, b.x, X_ROWS);
    SET(&b.t, b.dy, DY_ROWS);
    test_run_all(&b.t.run);
    WANT(&b.t, b.y, 0.5999975, 0.70710501, -1.30939723, 0.1, -2.82842005, -0.15469861);
    WANT(&b.t, b.dx, 0.4999975, -0.70710501, -2.30939723, 0.24999875, 0, -1.15469861);
    WANT(&b.t, rn_graph_output_of(b.t.graph, b.dx, 1), 0.999995, -0.70710501, 2.88674653);
    WANT(&b.t, b.mean, 0, 1, 2);
    WANT(&b.t, b.variance, 1, 2, 3);
    end(&b.t);
}

static void the_running_statistics_are_updated_in_place_in_training_only(void **state) {
    (void)state;
    uint64_t offset = 0;
    for (int training = 0; training < 2; training++) {
        batch b = make_batch(training);
        rn_alias alias = alias_at(&b.t, b.y, 4, 2, &offset);
        assert_int_equal(alias.kind, training ? RN_ALIAS_KIND_MUST : RN_ALIAS_KIND_VIEW);
        assert_int_equal(alias.input, 4);
        assert_string_equal(printed(&b.t, b.y), training ? "eps 1e-05, momentum 0.1, training"
                                                         : "eps 1e-05, momentum 0.1");
        end(&b.t);
    }
}

static void one_value_a_channel_is_too_little_to_learn_from(void **state) {
    (void)state;
    batch b = make_batch(true);
    ready(&b.t, 1);
    set_batch(&b);
    SET(&b.t, b.x, 1, 2, 3);
    assert_fails(RN_INVALID, run_without(&b.t, b.y, 0));
    assert_string_equal(rn_last_error()->message,
                        "batchnorm learns from 2 values a channel or more, not 1");
    WANT(&b.t, b.mean, 0, 1, 2);
    end(&b.t);
}

static void running_statistics_that_are_no_states_cannot_learn(void **state) {
    (void)state;
    op_check t = begin();
    rn_value c = floats(&t, RN_SHAPE(3));
    rn_op_batchnorm(t.graph, floats(&t, RN_SHAPE(4, 3)), c, c, c, c,
                    (rn_batchnorm_attrs){1e-5f, 0.1f, true});
    refuse(&t, "the running mean changes in training: it must be a state");
}

// ---- losses -------------------------------------------------------------------------------------

typedef struct loss {
    op_check t;
    rn_value logits, targets, dloss; // given
    rn_value value, count, gradient;
} loss;

static loss make_loss(rn_shape logits, rn_cross_entropy_attrs attrs) {
    loss l = {.t = begin()};
    rn_graph *g = l.t.graph;
    assert_int_equal(rn_graph_scalar(g, "normalizer"), 0);
    rn_shape rows = logits;
    rows.rank--;
    l.logits = floats(&l.t, logits), l.targets = input(&l.t, RN_DTYPE_I32, rows);
    l.dloss = floats(&l.t, RN_SCALAR);
    l.value = rn_op_cross_entropy(g, l.logits, l.targets, attrs);
    l.count = rn_graph_output_of(g, l.value, 2);
    l.gradient = rn_op_cross_entropy_grad(g, l.logits, l.targets, rn_graph_output_of(g, l.value, 1),
                                          l.count, l.dloss, &attrs);
    return l;
}

static void cross_entropy_is_the_mean_over_the_rows_that_count(void **state) {
    (void)state;
    loss l = make_loss(RN_SHAPE(RN_ROWS, 3), (rn_cross_entropy_attrs){-100, RN_NO_SCALAR});
    ready(&l.t, 3);
    SET(&l.t, l.logits, 1, 2, 3, 0, 0, 0, 1, -1, 2);
    SET_WHOLE(&l.t, l.targets, 2, -100, 1);
    SET(&l.t, l.dloss, 1);
    test_run_all(&l.t.run);
    WANT(&l.t, l.value, 1.87830909);
    WANT(&l.t, rn_graph_output_of(l.t.graph, l.value, 1), 3.40760596, 1.09861229, 2.34901222);
    WANT(&l.t, l.count, 2);
    WANT(&l.t, l.gradient, 0.04501529, 0.12236424, -0.16737952, 0, 0, 0, 0.12974823, -0.48244049,
         0.35269226);
    assert_ok(run_without(&l.t, l.value, 0x6));
    WANT(&l.t, l.value, 1.87830909);
    assert_string_equal(printed(&l.t, l.value), "mean, ignore -100");
    end(&l.t);
}

static void a_scalar_of_the_run_can_take_the_place_of_the_mean(void **state) {
    (void)state;
    loss l = make_loss(RN_SHAPE(2, 2), (rn_cross_entropy_attrs){-1, 0});
    ready(&l.t, 0);
    l.t.run.scalars[0].f64 = 0.25;
    SET(&l.t, l.logits, 0, 0, 1, 1);
    SET_WHOLE(&l.t, l.targets, 0, 1);
    SET(&l.t, l.dloss, 2);
    test_run_all(&l.t.run);
    WANT(&l.t, l.value, 0.25 * 2 * 0.69314718);
    WANT(&l.t, l.gradient, -0.25, 0.25, 0.25, -0.25);
    end(&l.t);
}

static void where_no_row_counts_loss_and_gradient_are_zero(void **state) {
    (void)state;
    loss l = make_loss(RN_SHAPE(2, 2), (rn_cross_entropy_attrs){-1, RN_NO_SCALAR});
    ready(&l.t, 0);
    SET(&l.t, l.logits, 1, 2, 3, 4);
    SET_WHOLE(&l.t, l.targets, -1, -1);
    SET(&l.t, l.dloss, 1);
    test_run_all(&l.t.run);
    WANT(&l.t, l.value, 0);
    WANT(&l.t, l.count, 0);
    WANT(&l.t, l.gradient, 0, 0, 0, 0);
    end(&l.t);
}

static void a_target_that_is_no_class_is_named(void **state) {
    (void)state;
    loss l = make_loss(RN_SHAPE(2, 2), (rn_cross_entropy_attrs){-100, RN_NO_SCALAR});
    ready(&l.t, 0);
    SET(&l.t, l.logits, 1, 2, 3, 4);
    SET(&l.t, l.dloss, 1);
    SET(&l.t, l.count, 2);
    SET_WHOLE(&l.t, l.targets, 1, 2);
    assert_fails(RN_INVALID, run_without(&l.t, l.value, 0));
    assert_string_equal(rn_last_error()->message, "row 1 has target 2 of 2 classes");
    SET_WHOLE(&l.t, l.targets, -1, 0);
    assert_fails(RN_INVALID, run_without(&l.t, l.value, 0));
    assert_string_equal(rn_last_error()->message, "row 0 has target -1 of 2 classes");
    assert_fails(RN_INVALID, run_without(&l.t, l.gradient, 0));
    end(&l.t);
}

static void targets_of_another_shape_are_refused(void **state) {
    (void)state;
    op_check t = begin();
    rn_op_cross_entropy(t.graph, floats(&t, RN_SHAPE(RN_ROWS, 3)),
                        input(&t, RN_DTYPE_I32, RN_SHAPE(3)),
                        (rn_cross_entropy_attrs){-100, RN_NO_SCALAR});
    refuse(&t, "the targets must be (rows)");
}

static void a_normalizer_that_is_no_scalar_of_the_graph_is_refused(void **state) {
    (void)state;
    loss l = make_loss(RN_SHAPE(2, 2), (rn_cross_entropy_attrs){-100, 1});
    refuse(&l.t, "the graph has no scalar 1");
}

static void mse_is_a_mean_and_its_gradient_too(void **state) {
    (void)state;
    op_check t = begin();
    rn_value a = floats(&t, RN_SHAPE(RN_ROWS, 2)), b = floats(&t, RN_SHAPE(RN_ROWS, 2));
    rn_value dloss = floats(&t, RN_SCALAR), y = rn_op_mse(t.graph, a, b);
    rn_value da = rn_op_mse_grad(t.graph, a, b, dloss);
    ready(&t, 2);
    SET(&t, a, 1, 2, 3, 4);
    SET(&t, b, 0, 2, 5, 1);
    SET(&t, dloss, 3);
    test_run_all(&t.run);
    WANT(&t, y, 3.5);
    WANT(&t, da, 1.5, 0, -3, 4.5);
    end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_and_its_gradient_work_along_the_last_axis),
        cmocka_unit_test(a_masked_element_gets_nothing_and_a_masked_row_is_nan),
        cmocka_unit_test(softmax_of_a_single_element_is_refused),
        cmocka_unit_test(layernorm_and_its_gradient_are_those_of_pytorch),
        cmocka_unit_test(rmsnorm_and_its_gradient_are_those_of_pytorch),
        cmocka_unit_test(norms_work_without_weights_and_without_what_nobody_reads),
        cmocka_unit_test(a_weight_of_another_length_is_refused),
        cmocka_unit_test(a_norm_along_the_rows_is_refused),
        cmocka_unit_test(batchnorm_in_training_is_that_of_pytorch),
        cmocka_unit_test(batchnorm_in_inference_uses_the_running_statistics),
        cmocka_unit_test(the_running_statistics_are_updated_in_place_in_training_only),
        cmocka_unit_test(one_value_a_channel_is_too_little_to_learn_from),
        cmocka_unit_test(running_statistics_that_are_no_states_cannot_learn),
        cmocka_unit_test(cross_entropy_is_the_mean_over_the_rows_that_count),
        cmocka_unit_test(a_scalar_of_the_run_can_take_the_place_of_the_mean),
        cmocka_unit_test(where_no_row_counts_loss_and_gradient_are_zero),
        cmocka_unit_test(a_target_that_is_no_class_is_named),
        cmocka_unit_test(targets_of_another_shape_are_refused),
        cmocka_unit_test(a_normalizer_that_is_no_scalar_of_the_graph_is_refused),
        cmocka_unit_test(mse_is_a_mean_and_its_gradient_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
