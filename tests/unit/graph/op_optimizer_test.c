// Optimisers, accumulation and clipping, against PyTorch's own results (torch 2.15, CPU).
#include "op_run.h"

// Three gradients, one a step.
static const float steps[3][3] = {{0.3f, -0.1f, 2.0f}, {-0.5f, 0.2f, 1.0f}, {0.1f, 0.1f, -3.0f}};

static rn_value f32_state(rn_graph *g, const char *name) {
    return rn_graph_state(g, name, RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_OPTIMIZER);
}

static void assert_all_close(const double expected[3], const float *is, double tolerance) {
    for (int i = 0; i < 3; i++)
        assert_close(expected[i], is[i], tolerance);
}

// torch.optim.AdamW([1, -2, 0.5], lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
static void adamw_follows_pytorch(void **state) {
    (void)state;
    static const double expected[3][3] = {{0.989000022, -1.98800004, 0.489500016},
                                          {0.990946651, -1.98967314, 0.479688704},
                                          {0.991111815, -1.99287593, 0.480028808}};
    static const double expected_m[3] = {-0.0106999967, 0.0199000016, -0.0480000004};
    static const double expected_v[3] = {0.000349570124, 5.99400119e-05, 0.0139910039};
    rn_graph *g = make_graph();
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value gradient = rn_graph_input(g, "g", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value m = f32_state(g, "m"), v = f32_state(g, "v");
    uint32_t rate = rn_graph_scalar(g, "rate"), step = rn_graph_scalar(g, "step");
    rn_value first =
        rn_op_adamw(g, w, gradient, m, v, (rn_adamw_attrs){0.9, 0.999, 1e-8, 0.1, rate, step});
    assert_ok(rn_graph_finish(g));
    test_run run;
    test_run_open(&run, g, 1);
    memcpy(test_run_data(&run, w), (float[]){1, -2, 0.5f}, 3 * sizeof(float));
    run.scalars[rate].f64 = 0.01;
    for (int i = 0; i < 3; i++) {
        run.scalars[step].f64 = i + 1;
        memcpy(test_run_data(&run, gradient), steps[i], sizeof steps[i]);
        test_run_all(&run);
        assert_all_close(expected[i], test_run_data(&run, w), 2e-7);
    }
    assert_all_close(expected_m, test_run_data(&run, m), 1e-7);
    for (int i = 0; i < 3; i++)
        assert_close(1, ((float *)test_run_data(&run, v))[i] / expected_v[i], 1e-6);
    assert_ptr_equal(test_run_data(&run, w), test_run_data(&run, first));
    assert_ptr_equal(test_run_data(&run, m), test_run_data(&run, rn_graph_output_of(g, first, 1)));
    assert_ptr_equal(test_run_data(&run, v), test_run_data(&run, rn_graph_output_of(g, first, 2)));
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void adamw_steps_count_from_one(void **state) {
    (void)state;
    float w[1] = {1}, gradient[1] = {1}, m[1] = {0}, v[1] = {0}, out_w[1], out_m[1], out_v[1];
    rn_shape one = RN_SHAPE(1);
    rn_tensor in[] = {f32_tensor(w, one), f32_tensor(gradient, one), f32_tensor(m, one),
                      f32_tensor(v, one)};
    rn_tensor out[] = {f32_tensor(out_w, one), f32_tensor(out_m, one), f32_tensor(out_v, one)};
    rn_scalar scalars[2] = {{.f64 = 0.1}, {.f64 = 0}};
    memcpy(out_w, w, sizeof w);
    memcpy(out_m, w, sizeof w);
    memcpy(out_v, w, sizeof w);
    assert_fails(RN_INVALID, run_op(RN_OP_ADAMW, in, out, scalars,
                                    &(rn_adamw_attrs){0.9f, 0.999f, 1e-8f, 0.1f, 0, 1}));
    assert_non_null(strstr(rn_last_error()->message, "steps count from 1"));
}

// [1, -2, 0.5], rate 0.01, betas 0.9 and 0.99, decay 0.1: the numbers of the paper's formula, made
// in double by a plain loop in Python.
static void lion_follows_its_formula(void **state) {
    (void)state;
    static const double expected[3][3] = {{0.989, -1.988, 0.4895},
                                          {0.998011, -1.996012, 0.4790105},
                                          {0.987012989, -2.00401599, 0.48853149}};
    static const double expected_m[3] = {-0.00100969987, 0.00199990003, -0.000498};
    rn_graph *g = make_graph();
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value gradient = rn_graph_input(g, "g", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value m = f32_state(g, "m");
    uint32_t rate = rn_graph_scalar(g, "rate");
    rn_value first = rn_op_lion(g, w, gradient, m, (rn_lion_attrs){0.9, 0.99, 0.1, rate});
    assert_ok(rn_graph_finish(g));
    test_run run;
    test_run_open(&run, g, 1);
    memcpy(test_run_data(&run, w), (float[]){1, -2, 0.5f}, 3 * sizeof(float));
    run.scalars[rate].f64 = 0.01;
    for (int i = 0; i < 3; i++) {
        memcpy(test_run_data(&run, gradient), steps[i], sizeof steps[i]);
        test_run_all(&run);
        assert_all_close(expected[i], test_run_data(&run, w), 3e-7);
    }
    assert_all_close(expected_m, test_run_data(&run, m), 1e-8);
    assert_ptr_equal(test_run_data(&run, w), test_run_data(&run, first));
    assert_ptr_equal(test_run_data(&run, m), test_run_data(&run, rn_graph_output_of(g, first, 1)));
    test_run_close(&run);
    rn_graph_destroy(g);
}

// Where mixture and gradient are 0 only decay moves a weight; a NaN is not hidden by the sign.
static void lion_stands_still_without_a_gradient(void **state) {
    (void)state;
    float w[2] = {1, 1}, gradient[2] = {0, NAN}, m[2] = {0, 0}, out_w[2], out_m[2];
    rn_shape two = RN_SHAPE(2);
    rn_tensor in[] = {f32_tensor(w, two), f32_tensor(gradient, two), f32_tensor(m, two)};
    rn_tensor out[] = {f32_tensor(out_w, two), f32_tensor(out_m, two)};
    rn_scalar scalars[1] = {{.f64 = 0.5}};
    assert_ok(run_op(RN_OP_LION, in, out, scalars, &(rn_lion_attrs){0.9, 0.99, 0.5, 0}));
    assert_true(out_w[0] == 0.75f && out_m[0] == 0 && isnan(out_w[1]) && isnan(out_m[1]));
}

static void check_sgd(float momentum, const double expected[3][3], const double *velocity) {
    rn_graph *g = make_graph();
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value gradient = rn_graph_input(g, "g", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value v = velocity ? f32_state(g, "v") : RN_NO_VALUE;
    uint32_t rate = rn_graph_scalar(g, "rate");
    rn_op_sgd(g, w, gradient, v, (rn_sgd_attrs){momentum, 0.1f, rate});
    assert_ok(rn_graph_finish(g));
    test_run run;
    test_run_open(&run, g, 1);
    memcpy(test_run_data(&run, w), (float[]){1, -2, 0.5f}, 3 * sizeof(float));
    run.scalars[rate].f64 = 0.01;
    for (int i = 0; i < 3; i++) {
        memcpy(test_run_data(&run, gradient), steps[i], sizeof steps[i]);
        test_run_all(&run);
        assert_all_close(expected[i], test_run_data(&run, w), 1e-7);
    }
    if (velocity) assert_all_close(velocity, test_run_data(&run, v), 1e-7);
    test_run_close(&run);
    rn_graph_destroy(g);
}

// torch.optim.SGD([1, -2, 0.5], lr=0.01, momentum=0.9 or 0, weight_decay=0.1)
static void sgd_follows_pytorch(void **state) {
    (void)state;
    static const double with[3][3] = {{0.995999992, -1.99699998, 0.479499996},
                                      {0.996403992, -1.99430299, 0.450570494},
                                      {0.994771183, -1.99088144, 0.454083383}};
    static const double velocity[3] = {0.163280383, -0.342160314, -0.351287842};
    static const double without[3][3] = {{0.995999992, -1.99699998, 0.479499996},
                                         {1.00000393, -1.99700296, 0.469020486},
                                         {0.99800396, -1.99600601, 0.498551458}};
    check_sgd(0.9f, with, velocity);
    check_sgd(0, without, NULL);
}

static void momentum_and_velocity_belong_together(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value gradient = rn_graph_input(g, "g", RN_DTYPE_F32, RN_SHAPE(3));
    rn_op_sgd(g, w, gradient, RN_NO_VALUE, (rn_sgd_attrs){.momentum = 0.9f});
    assert_refused(g, "sgd.0", "momentum 0.9 needs a velocity");
    g = make_graph();
    w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(3));
    gradient = rn_graph_input(g, "g", RN_DTYPE_F32, RN_SHAPE(4));
    rn_op_sgd(g, w, gradient, RN_NO_VALUE, (rn_sgd_attrs){0});
    assert_refused(g, "input 1 must have the shape of the first");
}

static void gradients_accumulate(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value sum = rn_graph_state(g, "sum", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_GRADIENTS);
    rn_value gradient = rn_graph_input(g, "g", RN_DTYPE_F32, RN_SHAPE(3));
    rn_op_accumulate(g, sum, gradient);
    assert_ok(rn_graph_finish(g));
    test_run run;
    test_run_open(&run, g, 1);
    for (int i = 0; i < 3; i++) {
        memcpy(test_run_data(&run, gradient), steps[i], sizeof steps[i]);
        test_run_all(&run);
    }
    assert_all_close((double[]){-0.1, 0.2, 0}, test_run_data(&run, sum), 1e-7);
    test_run_close(&run);
    rn_graph_destroy(g);
}

// ---- clipping -----------------------------------------------------------------------------------

// torch.nn.utils.clip_grad_norm_ of (3, 4) and (-12): norm 13, clipped to 2.
static void clipping_follows_pytorch(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value a = rn_graph_input(g, "a", RN_DTYPE_F32, RN_SHAPE(2));
    rn_value b = rn_graph_input(g, "b", RN_DTYPE_F32, RN_SHAPE(1, 1));
    rn_value norm = rn_graph_global_norm(g, (rn_value[]){a, b}, 2);
    rn_value clipped_a = rn_graph_clip(g, a, norm, 2), clipped_b = rn_graph_clip(g, b, norm, 2);
    rn_value kept = rn_graph_clip(g, a, norm, 20);        // longer than the norm: as it is
    rn_value alone = rn_graph_clip(g, a, RN_NO_VALUE, 1); // its own norm is 5
    assert_ok(rn_graph_finish(g));
    test_run run;
    test_run_open(&run, g, 1);
    memcpy(test_run_data(&run, a), (float[]){3, 4}, 2 * sizeof(float));
    memcpy(test_run_data(&run, b), (float[]){-12}, sizeof(float));
    test_run_all(&run);
    const float *is = test_run_data(&run, clipped_a);
    assert_close(13, *(float *)test_run_data(&run, norm), 1e-7);
    assert_close(0.461538434, is[0], 1e-7);
    assert_close(0.615384579, is[1], 1e-7);
    assert_close(-1.84615374, *(float *)test_run_data(&run, clipped_b), 1e-7);
    assert_memory_equal(test_run_data(&run, a), test_run_data(&run, kept), 2 * sizeof(float));
    is = test_run_data(&run, alone);
    assert_close(3 / (5 + 1e-6), is[0], 1e-7);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void nothing_has_no_norm(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    assert_int_equal(RN_NO_VALUE, rn_graph_global_norm(g, NULL, 0));
    assert_refused(g, "the norm of no gradients");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_follows_pytorch),
        cmocka_unit_test(adamw_steps_count_from_one),
        cmocka_unit_test(lion_follows_its_formula),
        cmocka_unit_test(lion_stands_still_without_a_gradient),
        cmocka_unit_test(sgd_follows_pytorch),
        cmocka_unit_test(momentum_and_velocity_belong_together),
        cmocka_unit_test(gradients_accumulate),
        cmocka_unit_test(clipping_follows_pytorch),
        cmocka_unit_test(nothing_has_no_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
