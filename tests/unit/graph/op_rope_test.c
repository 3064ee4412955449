// Rotary positions: frequencies against numbers from transformers' formulas (in Python, double),
// rotations against sines and cosines, and the inverse.
#include "op_run.h"

#include "graph/rope_frequencies.h"

static void assert_frequencies(const rn_rope_attrs *attrs, uint64_t head_dim,
                               const double *expected, double factor) {
    double is[64], attention_factor = 0;
    rn_rope_frequencies(attrs, head_dim, is, &attention_factor);
    for (uint64_t i = 0; i < head_dim / 2; i++)
        if (!(fabs(is[i] - expected[i]) <= 1e-14 * expected[i]))
            fail_msg("pair %d: %.17g is not %.17g", (int)i, is[i], expected[i]);
    assert_true(fabs(attention_factor - factor) < 1e-7);
}

static void every_scaling_has_transformers_frequencies(void **state) {
    (void)state;
    static const double plain[8] = {1,
                                    0.31622776601683794,
                                    0.10000000000000001,
                                    0.031622776601683791,
                                    0.01,
                                    0.0031622776601683794,
                                    0.001,
                                    0.00031622776601683794};
    static const double linear[8] = {0.25,
                                     0.079056941504209485,
                                     0.025000000000000001,
                                     0.0079056941504209478,
                                     0.0025000000000000001,
                                     0.00079056941504209485,
                                     0.00025000000000000001,
                                     7.9056941504209485e-05};
    static const double ntk[8] = {1,
                                  0.25941281701492275,
                                  0.067295009631617803,
                                  0.017457188019584336,
                                  0.0045286183213195334,
                                  0.0011747816359188909,
                                  0.00030475341355111886,
                                  7.9056941504209485e-05};
    static const double llama3[8] = {1,
                                     0.19392274474868576,
                                     0.037606030930863933,
                                     0.0072926647372171093,
                                     0.00052484616099295468,
                                     3.4281021959525912e-05,
                                     6.6478698711812354e-06,
                                     1.2891731721515574e-06};
    static const double yarn[8] = {1,
                                   0.31622776601683794,
                                   0.10000000000000001,
                                   0.02569350598886808,
                                   0.0062500000000000003,
                                   0.0013834964763236657,
                                   0.00025000000000000001,
                                   7.9056941504209485e-05};
    rn_rope_attrs a = {.base = 10000, .factor = 4};
    assert_frequencies(&a, 16, plain, 1);
    a.scaling = RN_ROPE_LINEAR;
    assert_frequencies(&a, 16, linear, 1);
    a.scaling = RN_ROPE_NTK;
    assert_frequencies(&a, 16, ntk, 1);
    a.scaling = RN_ROPE_YARN;
    a.original_context = 4096;
    assert_frequencies(&a, 16, yarn, 1.138629436111989);
    a.attention_factor = 0.75f;
    assert_frequencies(&a, 16, yarn, 0.75);
    a = (rn_rope_attrs){.scaling = RN_ROPE_LLAMA3,
                        .base = 500000,
                        .factor = 8,
                        .low_frequency = 1,
                        .high_frequency = 4,
                        .original_context = 8192};
    assert_frequencies(&a, 16, llama3, 1);
}

// Qwen2.5's: ramp from pair 23 to pair 40.
static void yarn_at_full_size(void **state) {
    (void)state;
    static const struct {
        int pair;
        double expected;
    } some[] = {{0, 1},
                {20, 0.013335214321633241},
                {25, 0.0041317380225183937},
                {30, 0.0010643609812470017},
                {40, 4.4456985250973067e-05},
                {63, 3.1023444018792988e-07}};
    rn_rope_attrs a = {
        .scaling = RN_ROPE_YARN, .base = 1000000, .factor = 4, .original_context = 32768};
    double is[64], factor;
    rn_rope_frequencies(&a, 128, is, &factor);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        assert_true(fabs(is[some[i].pair] - some[i].expected) <= 1e-13 * some[i].expected);
}

// ---- rotation -----------------------------------------------------------------------------------

enum { T = 5, HEADS = 2, D = 8 };

static void rotate(const rn_rope_attrs *attrs, float *x, int32_t *positions, float *y) {
    rn_tensor in[] = {f32_tensor(x, RN_SHAPE(T, HEADS, D)), i32_tensor(positions, RN_SHAPE(T))};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(T, HEADS, D))};
    assert_ok(run_op(RN_OP_ROPE, in, out, NULL, attrs));
}

static void pairs_turn_by_position_times_frequency(void **state) {
    (void)state;
    float x[T * HEADS * D], y[T * HEADS * D];
    int32_t positions[T] = {0, 1, 7, 100000, 3};
    fill(x, T * HEADS * D, 1);
    for (int form = 0; form < 4; form++) {
        bool neighbours = form & 1;
        int dims = form & 2 ? 4 : D;
        rn_rope_attrs a = {.pairing = neighbours ? RN_ROPE_NEIGHBOURS : RN_ROPE_HALVES,
                           .base = 10000,
                           .dims = form & 2 ? 4 : 0};
        rotate(&a, x, positions, y);
        for (int row = 0; row < T * HEADS; row++) {
            const float *px = x + row * D, *py = y + row * D;
            for (int i = 0; i < dims / 2; i++) {
                int u = neighbours ? 2 * i : i, v = neighbours ? 2 * i + 1 : i + dims / 2;
                double angle = positions[row / HEADS] * pow(10000, -2.0 * i / dims);
                assert_close(px[u] * cos(angle) - px[v] * sin(angle), py[u], 1e-6);
                assert_close(px[v] * cos(angle) + px[u] * sin(angle), py[v], 1e-6);
            }
            assert_memory_equal(px + dims, py + dims, (size_t)(D - dims) * sizeof(float));
        }
    }
}

static void the_inverse_undoes_but_for_the_factor_squared(void **state) {
    (void)state;
    float x[T * HEADS * D], y[T * HEADS * D], z[T * HEADS * D];
    int32_t positions[T] = {0, 1, 7, 1000, 3};
    rn_rope_attrs a = {.scaling = RN_ROPE_YARN,
                       .base = 10000,
                       .factor = 4,
                       .original_context = 64,
                       .attention_factor = 1.5f};
    fill(x, T * HEADS * D, 1);
    rotate(&a, x, positions, y);
    a.inverse = true;
    rotate(&a, y, positions, z);
    for (int i = 0; i < T * HEADS * D; i++)
        assert_close(2.25 * x[i], z[i], 1e-6);
}

static void it_may_work_in_place(void **state) {
    (void)state;
    float x[T * HEADS * D], y[T * HEADS * D];
    double frequencies[D / 2];
    int32_t positions[T] = {5, 1, 7, 2, 3};
    rn_rope_attrs a = {.base = 10000, .dims = 6};
    fill(x, T * HEADS * D, 1);
    rotate(&a, x, positions, y);
    rn_tensor in[] = {f32_tensor(x, RN_SHAPE(T, HEADS, D)), i32_tensor(positions, RN_SHAPE(T))};
    rn_call call = {.op = RN_OP_ROPE,
                    .attrs = &a,
                    .inputs = in,
                    .outputs = in,
                    .input_count = 2,
                    .output_count = 1,
                    .workspace = frequencies,
                    .threads = 1};
    assert_ok(rn_op_get(RN_OP_ROPE)->reference(&call));
    assert_memory_equal(y, x, sizeof x);
}

static void the_gradient_turns_back(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, HEADS, D)), dx;
    rn_value c = rn_graph_input(g, "c", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, HEADS, D));
    rn_value at = rn_graph_input(g, "at", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value y = rn_op_rope(g, x, at, (rn_rope_attrs){.base = 10000});
    rn_value loss = rn_op_sum(g, rn_op_mul(g, y, c), 7, false);
    assert_ok(rn_graph_gradient(g, loss, &x, 1, &dx));
    test_run run;
    test_run_open(&run, g, T);
    fill(test_run_data(&run, x), T * HEADS * D, 1);
    fill(test_run_data(&run, c), T * HEADS * D, 2);
    memcpy(test_run_data(&run, at), (int32_t[T]){0, 9, 4, 100, 2}, T * sizeof(int32_t));
    test_run_all(&run);
    assert_close(inner(test_run_data(&run, y), test_run_data(&run, c), T * HEADS * D),
                 inner(test_run_data(&run, x), test_run_data(&run, dx), T * HEADS * D), 1e-6);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static rn_graph *with_rope(rn_shape x, rn_shape positions, rn_rope_attrs attrs) {
    rn_graph *g = make_graph();
    rn_op_rope(g, rn_graph_input(g, "x", RN_DTYPE_F32, x),
               rn_graph_input(g, "p", RN_DTYPE_I32, positions), attrs);
    return g;
}

static void misfits_are_refused_with_a_reason(void **state) {
    (void)state;
    rn_shape x = RN_SHAPE(2, 3, 4, 8), p = RN_SHAPE(2, 3);
    rn_rope_attrs a = {.base = 10000};
    assert_refused(with_rope(x, RN_SHAPE(3), a), "rope.0", "positions must be (2, 3)");
    assert_refused(with_rope(x, p, (rn_rope_attrs){.base = 0}), "base must be above 0");
    a.dims = 10;
    assert_refused(with_rope(x, p, a), "10 dims of 8 cannot be rotated in pairs");
    a.dims = 3;
    assert_refused(with_rope(x, p, a), "3 dims of 8 cannot be rotated in pairs");
    a = (rn_rope_attrs){.base = 10000, .scaling = RN_ROPE_YARN};
    assert_refused(with_rope(x, p, a), "factor must be above 0");
    a.factor = 2;
    assert_refused(with_rope(x, p, a), "needs the original context");
    a.scaling = RN_ROPE_LLAMA3;
    a.original_context = 8192;
    assert_refused(with_rope(x, p, a), "high_frequency must be above low_frequency");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scaling_has_transformers_frequencies),
        cmocka_unit_test(yarn_at_full_size),
        cmocka_unit_test(pairs_turn_by_position_times_frequency),
        cmocka_unit_test(the_inverse_undoes_but_for_the_factor_squared),
        cmocka_unit_test(it_may_work_in_place),
        cmocka_unit_test(the_gradient_turns_back),
        cmocka_unit_test(misfits_are_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
