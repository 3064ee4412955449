// Random ops: numbers by place, within their bounds, repeated by a repeated node.
#include "op_run.h"

#include "graph/op/random.h"

enum { COUNT = 20000 };

static float numbers[COUNT];

static rn_status run_random(rn_op op, float low, float high, double seed, uint32_t stream,
                            uint64_t count) {
    rn_random_shape_attrs a = {{.seed = 1, .stream = stream, .low = low, .high = high},
                               RN_SHAPE(count)};
    rn_scalar scalars[2] = {{.f64 = -1}, {.f64 = seed}};
    rn_tensor out[] = {f32_tensor(numbers, RN_SHAPE(count))};
    rn_tensor in[1] = {no_tensor()};
    return run_op(op, in, out, scalars, &a);
}

static void uniform_numbers_fill_their_interval(void **state) {
    (void)state;
    assert_ok(run_random(RN_OP_RANDOM_UNIFORM, -2, 3, 42, 7, COUNT));
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_true(numbers[i] >= -2 && numbers[i] < 3);
        assert_true(numbers[i] == -2 + 5 * rn_philox_unit(rn_philox_word(42, 7, (uint64_t)i)));
        sum += numbers[i];
    }
    assert_true(fabs(sum / COUNT - 0.5) < 5 * 5 / sqrt(12.0 * COUNT));
}

static void the_upper_end_is_never_reached(void **state) {
    (void)state;
    assert_ok(run_random(RN_OP_RANDOM_UNIFORM, 1, nextafterf(1, 2), 42, 7, COUNT));
    for (int i = 0; i < COUNT; i++)
        assert_true(numbers[i] == 1);
}

static void normal_numbers_have_mean_and_deviation(void **state) {
    (void)state;
    assert_ok(run_random(RN_OP_RANDOM_NORMAL, 3, 0.5f, 42, 7, COUNT));
    for (int i = 0; i < COUNT; i++)
        assert_true(numbers[i] == 3 + 0.5f * rn_philox_normal(42, 7, (uint64_t)i));
}

static void numbers_depend_on_place_seed_and_stream_only(void **state) {
    (void)state;
    float first[16];
    assert_ok(run_random(RN_OP_RANDOM_UNIFORM, 0, 1, 42, 7, COUNT));
    memcpy(first, numbers, sizeof first);
    assert_ok(run_random(RN_OP_RANDOM_UNIFORM, 0, 1, 42, 7, 16));
    assert_memory_equal(first, numbers, sizeof first);
    assert_ok(run_random(RN_OP_RANDOM_UNIFORM, 0, 1, 43, 7, 16));
    assert_memory_not_equal(first, numbers, sizeof first);
    assert_ok(run_random(RN_OP_RANDOM_UNIFORM, 0, 1, 42, 8, 16));
    assert_memory_not_equal(first, numbers, sizeof first);
}

static void a_seed_is_a_whole_number(void **state) {
    (void)state;
    static const double bad[] = {-1, 0.5, 1e300, INFINITY, NAN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(RN_INVALID, run_random(RN_OP_RANDOM_UNIFORM, 0, 1, bad[i], 7, 16));
        assert_non_null(strstr(rn_last_error()->message, "random_uniform: the seed"));
    }
}

// ---- dropout ------------------------------------------------------------------------------------

static void dropout_drops_a_share_and_scales_the_rest(void **state) {
    (void)state;
    static float x[COUNT], y[COUNT];
    rn_scalar seed = {.f64 = 5};
    rn_dropout_attrs a = {.stream = 3, .probability = 0.25f};
    fill(x, COUNT, 1);
    rn_tensor in[] = {f32_tensor(x, RN_SHAPE(COUNT))}, out[] = {f32_tensor(y, RN_SHAPE(COUNT))};
    assert_ok(run_op(RN_OP_DROPOUT, in, out, &seed, &a));
    int dropped = 0;
    for (int i = 0; i < COUNT; i++) {
        bool drops = rn_philox_unit(rn_philox_word(5, 3, (uint64_t)i)) < 0.25f;
        assert_true(y[i] == (drops ? 0 : x[i] / 0.75f));
        dropped += drops;
    }
    assert_true(fabs(dropped / (double)COUNT - 0.25) < 5 * sqrt(0.25 * 0.75 / COUNT));
    a.probability = 1;
    assert_ok(run_op(RN_OP_DROPOUT, in, out, &seed, &a));
    for (int i = 0; i < COUNT; i++)
        assert_true(y[i] == 0);
    a.probability = 0;
    assert_ok(run_op(RN_OP_DROPOUT, in, out, &seed, &a));
    assert_memory_equal(x, y, sizeof y);
}

static void the_gradient_drops_the_same_places(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 8)), dx;
    uint32_t seed = rn_graph_scalar(g, "seed");
    rn_value y = rn_op_dropout(g, x, (rn_dropout_attrs){seed, 1, 0.5f});
    assert_ok(rn_graph_gradient(g, rn_op_sum(g, y, 3, false), &x, 1, &dx));
    test_run run;
    test_run_open(&run, g, 8);
    fill(test_run_data(&run, x), 64, 1);
    run.scalars[seed].f64 = 11;
    test_run_all(&run);
    const float *py = test_run_data(&run, y), *pdx = test_run_data(&run, dx);
    for (int i = 0; i < 64; i++)
        assert_true(pdx[i] == (py[i] == 0 ? 0 : 2));
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void misfits_are_refused_with_a_reason(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value y = rn_op_random_normal(g, RN_SHAPE(RN_ROWS, 3), (rn_random_attrs){.high = 1});
    assert_ok(rn_graph_finish(g));
    assert_string_equal("(rows, 3)", rn_shape_format(rn_graph_value(g, y)->shape).text);
    rn_op_random_uniform(g, RN_SHAPE(3), (rn_random_attrs){.low = 2, .high = 2});
    assert_refused(g, "random_uniform.1", "low must be below high");
    g = make_graph();
    rn_op_random_normal(g, RN_SHAPE(3), (rn_random_attrs){.high = -1});
    assert_refused(g, "the deviation must not be negative");
    g = make_graph();
    rn_op_dropout(g, rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(3)),
                  (rn_dropout_attrs){.probability = 1.5f});
    assert_refused(g, "1.5 is not within 0 .. 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_numbers_fill_their_interval),
        cmocka_unit_test(the_upper_end_is_never_reached),
        cmocka_unit_test(normal_numbers_have_mean_and_deviation),
        cmocka_unit_test(numbers_depend_on_place_seed_and_stream_only),
        cmocka_unit_test(a_seed_is_a_whole_number),
        cmocka_unit_test(dropout_drops_a_share_and_scales_the_rest),
        cmocka_unit_test(the_gradient_drops_the_same_places),
        cmocka_unit_test(misfits_are_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
