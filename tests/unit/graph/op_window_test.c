// Convolutions and pools: naive sums over padded images, and gradients as adjoints: for a linear op
// A, <A x, dy> = <x, Aᵀ dy>.
#include "op_run.h"

#include "graph/op/grads.h"
#include "tensor/small_float.h"

typedef struct image {
    size_t n, h, w, c;
} image;

// x[n, h, w, c], or 0 outside.
static double pixel(const float *x, image of, size_t n, long h, long w, size_t c) {
    if (h < 0 || w < 0 || h >= (long)of.h || w >= (long)of.w) return 0;
    return x[((n * of.h + (size_t)h) * of.w + (size_t)w) * of.c + c];
}

enum { N = 2, H = 6, W = 5, C = 3, O = 4, MOST = N * 8 * 8 * O };

typedef struct conv_case {
    rn_conv2d_attrs attrs;
    size_t kh, kw, oh, ow; // kernel, output
} conv_case;

static const conv_case convs[] = {
    {{1, 1, 0, 0, 0, 0}, 1, 1, 6, 5}, {{1, 1, 1, 1, 1, 1}, 3, 3, 6, 5},
    {{2, 2, 1, 1, 1, 1}, 3, 3, 3, 3}, {{2, 1, 0, 2, 1, 0}, 2, 4, 3, 4},
    {{3, 2, 3, 0, 3, 1}, 3, 2, 4, 3}, // windows that lie in the padding alone
};
#define CONV_COUNT (sizeof convs / sizeof *convs)

static double expect_conv(const conv_case *v, const float *x, const float *w, size_t n, size_t oh,
                          size_t ow, size_t o) {
    double sum = 0;
    for (size_t kh = 0; kh < v->kh; kh++)
        for (size_t kw = 0; kw < v->kw; kw++)
            for (size_t c = 0; c < C; c++)
                sum += pixel(x, (image){N, H, W, C}, n,
                             (long)(oh * v->attrs.stride_h + kh) - (long)v->attrs.pad_top,
                             (long)(ow * v->attrs.stride_w + kw) - (long)v->attrs.pad_left, c) *
                       w[((o * C + c) * v->kh + kh) * v->kw + kw];
    return sum;
}

static void a_convolution_sums_its_windows(void **state) {
    (void)state;
    float x[N * H * W * C], w[O * C * 16], bias[O], y[MOST];
    fill(x, N * H * W * C, 1);
    fill(w, O * C * 16, 2);
    fill(bias, O, 3);
    for (size_t i = 0; i < 2 * CONV_COUNT; i++) {
        const conv_case *v = &convs[i / 2];
        rn_tensor in[] = {f32_tensor(x, RN_SHAPE(N, H, W, C)),
                          f32_tensor(w, RN_SHAPE(O, C, v->kh, v->kw)),
                          i % 2 ? f32_tensor(bias, RN_SHAPE(O)) : no_tensor()};
        rn_tensor out[] = {f32_tensor(y, RN_SHAPE(N, v->oh, v->ow, O))};
        assert_ok(run_op(RN_OP_CONV2D, in, out, NULL, &v->attrs));
        for (size_t n = 0; n < N; n++)
            for (size_t oh = 0; oh < v->oh; oh++)
                for (size_t ow = 0; ow < v->ow; ow++)
                    for (size_t o = 0; o < O; o++)
                        assert_close(expect_conv(v, x, w, n, oh, ow, o) + (i % 2 ? bias[o] : 0),
                                     y[((n * v->oh + oh) * v->ow + ow) * O + o], 1e-6);
    }
}

static void kernels_may_be_half_floats(void **state) {
    (void)state;
    float x[N * H * W * C], w[O * C * 9], y[MOST], expected[MOST];
    uint16_t narrow[O * C * 9];
    fill(x, N * H * W * C, 1);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        fill(w, O * C * 9, 2);
        for (int i = 0; i < O * C * 9; i++) {
            narrow[i] = bf16 ? rn_bf16_narrow(w[i]) : rn_f16_narrow(w[i]);
            w[i] = bf16 ? rn_bf16_widen(narrow[i]) : rn_f16_widen(narrow[i]);
        }
        rn_tensor in[] = {f32_tensor(x, RN_SHAPE(N, H, W, C)), f32_tensor(w, RN_SHAPE(O, C, 3, 3)),
                          no_tensor()};
        rn_tensor out[] = {f32_tensor(expected, RN_SHAPE(N, H, W, O))};
        assert_ok(run_op(RN_OP_CONV2D, in, out, NULL, &convs[1].attrs));
        in[1].data = narrow;
        in[1].dtype = bf16 ? RN_DTYPE_BF16 : RN_DTYPE_F16;
        out[0].data = y;
        assert_ok(run_op(RN_OP_CONV2D, in, out, NULL, &convs[1].attrs));
        assert_memory_equal(expected, y, N * H * W * O * sizeof(float));
    }
}

static void the_gradients_of_a_convolution_are_its_adjoints(void **state) {
    (void)state;
    float x[N * H * W * C], w[O * C * 16], dy[MOST], dx[N * H * W * C], dw[O * C * 16];
    fill(x, N * H * W * C, 1);
    fill(w, O * C * 16, 2);
    for (size_t i = 0; i < CONV_COUNT; i++) {
        const conv_case *v = &convs[i];
        rn_shape of_x = RN_SHAPE(N, H, W, C), of_w = RN_SHAPE(O, C, v->kh, v->kw);
        rn_shape of_y = RN_SHAPE(N, v->oh, v->ow, O);
        rn_conv2d_grad_input_attrs for_input = {v->attrs, of_x};
        rn_conv2d_grad_weight_attrs for_weight = {v->attrs, v->kh, v->kw};
        // dy is one at a time, so that every element of the gradients is seen
        for (size_t one = 0; one < N * v->oh * v->ow * O; one += 7) {
            memset(dy, 0, sizeof dy);
            dy[one] = 1;
            size_t o = one % O, ow = one / O % v->ow, oh = one / O / v->ow % v->oh;
            double y = expect_conv(v, x, w, one / O / v->ow / v->oh, oh, ow, o);
            rn_tensor in[] = {f32_tensor(w, of_w), f32_tensor(dy, of_y)};
            rn_tensor out[] = {f32_tensor(dx, of_x)};
            assert_ok(run_op(RN_OP_CONV2D_GRAD_INPUT, in, out, NULL, &for_input));
            assert_close(y, inner(x, dx, N * H * W * C), 1e-6);
            rn_tensor in_w[] = {f32_tensor(x, of_x), f32_tensor(dy, of_y)};
            rn_tensor out_w[] = {f32_tensor(dw, of_w)};
            assert_ok(run_op(RN_OP_CONV2D_GRAD_WEIGHT, in_w, out_w, NULL, &for_weight));
            assert_close(y, inner(w, dw, O * C * v->kh * v->kw), 1e-6);
        }
    }
}

static void a_convolutions_gradient_reaches_x_kernels_and_bias(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, H, W, C));
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(O, C, 3, 3));
    rn_value b = rn_graph_weight(g, "b", RN_DTYPE_F32, RN_SHAPE(O)), gradients[3];
    rn_value y = rn_op_conv2d(g, x, w, b, convs[2].attrs);
    assert_ok(rn_graph_gradient(g, rn_op_sum_squares(g, y), (rn_value[]){x, w, b}, 3, gradients));
    test_run run;
    test_run_open(&run, g, N);
    fill(test_run_data(&run, x), N * H * W * C, 1);
    fill(test_run_data(&run, w), O * C * 9, 2);
    memset(test_run_data(&run, b), 0, O * sizeof(float));
    test_run_all(&run);
    const float *py = test_run_data(&run, y);
    // the loss is |y|^2 and y is linear in x and in w: <x, dx> = <w, dw> = 2 |y|^2
    double twice = 2 * inner(py, py, N * 3 * 3 * O);
    assert_close(twice,
                 inner(test_run_data(&run, x), test_run_data(&run, gradients[0]), N * H * W * C),
                 1e-5);
    assert_close(twice, inner(test_run_data(&run, w), test_run_data(&run, gradients[1]), O * C * 9),
                 1e-5);
    for (size_t o = 0; o < O; o++) {
        double sum = 0;
        for (size_t i = 0; i < N * 3 * 3; i++)
            sum += 2 * py[i * O + o];
        assert_close(sum, ((const float *)test_run_data(&run, gradients[2]))[o], 1e-5);
    }
    test_run_close(&run);
    rn_graph_destroy(g);
}

// ---- pools --------------------------------------------------------------------------------------

typedef struct pool_case {
    rn_pool2d_attrs attrs;
    size_t oh, ow;
} pool_case;

static const pool_case pools[] = {
    {{2, 2, 2, 2, 0, 0, 0, 0}, 3, 2},
    {{3, 3, 2, 2, 1, 1, 1, 1}, 3, 3},
    {{3, 2, 1, 2, 2, 0, 1, 1}, 7, 3},
};
#define POOL_COUNT (sizeof pools / sizeof *pools)

// The window's average with padding as zeros, or its maximum without.
static double expect_pool(const pool_case *v, const float *x, bool max, size_t n, size_t oh,
                          size_t ow, size_t c) {
    const rn_pool2d_attrs *a = &v->attrs;
    double sum = 0, top = -INFINITY;
    for (size_t i = 0; i < a->size_h; i++)
        for (size_t j = 0; j < a->size_w; j++) {
            long h = (long)(oh * a->stride_h + i) - (long)a->pad_top;
            long w = (long)(ow * a->stride_w + j) - (long)a->pad_left;
            double value = pixel(x, (image){N, H, W, C}, n, h, w, c);
            sum += value;
            if (h >= 0 && w >= 0 && h < H && w < W) top = fmax(top, value);
        }
    return max ? top : sum / (a->size_h * a->size_w);
}

static void pools_average_with_padding_and_maximise_without(void **state) {
    (void)state;
    float x[N * H * W * C], y[MOST];
    fill(x, N * H * W * C, 1);
    for (int i = 0; i < N * H * W * C; i++)
        x[i] -= 2; // below the padding's zeros
    for (size_t p = 0; p < 2 * POOL_COUNT; p++) {
        const pool_case *v = &pools[p / 2];
        rn_tensor in[] = {f32_tensor(x, RN_SHAPE(N, H, W, C))};
        rn_tensor out[] = {f32_tensor(y, RN_SHAPE(N, v->oh, v->ow, C))};
        assert_ok(run_op(p % 2 ? RN_OP_MAX_POOL : RN_OP_AVG_POOL, in, out, NULL, &v->attrs));
        for (size_t i = 0; i < N * v->oh * v->ow * C; i++)
            assert_close(expect_pool(v, x, p % 2, i / C / v->ow / v->oh, i / C / v->ow % v->oh,
                                     i / C % v->ow, i % C),
                         y[i], 1e-6);
    }
}

static void the_gradient_of_an_average_is_its_adjoint(void **state) {
    (void)state;
    float x[N * H * W * C], y[MOST], dy[MOST], dx[N * H * W * C];
    fill(x, N * H * W * C, 1);
    fill(dy, MOST, 2);
    for (size_t p = 0; p < POOL_COUNT; p++) {
        const pool_case *v = &pools[p];
        rn_shape of_x = RN_SHAPE(N, H, W, C), of_y = RN_SHAPE(N, v->oh, v->ow, C);
        rn_tensor in[] = {f32_tensor(x, of_x)}, out[] = {f32_tensor(y, of_y)};
        assert_ok(run_op(RN_OP_AVG_POOL, in, out, NULL, &v->attrs));
        rn_tensor back[] = {f32_tensor(dy, of_y)}, out_back[] = {f32_tensor(dx, of_x)};
        assert_ok(run_op(RN_OP_AVG_POOL_GRAD, back, out_back, NULL,
                         &(rn_avg_pool_grad_attrs){v->attrs, of_x}));
        assert_close(inner(y, dy, N * v->oh * v->ow * C), inner(x, dx, N * H * W * C), 1e-6);
    }
}

static void the_first_maximum_gets_the_gradient(void **state) {
    (void)state;
    float x[] = {1, 5, 5, 5, 2, 5, 0, 0, 9}; // 3 x 3
    float dy[] = {1, 10, 100, 1000}, dx[9];
    rn_pool2d_attrs a = {2, 2, 1, 1, 0, 0, 0, 0};
    rn_tensor in[] = {f32_tensor(x, RN_SHAPE(1, 3, 3, 1)), f32_tensor(dy, RN_SHAPE(1, 2, 2, 1))};
    rn_tensor out[] = {f32_tensor(dx, RN_SHAPE(1, 3, 3, 1))};
    assert_ok(run_op(RN_OP_MAX_POOL_GRAD, in, out, NULL, &a));
    static const float expected[9] = {0, 11, 0, 100, 0, 0, 0, 0, 1000};
    assert_memory_equal(expected, dx, sizeof dx);
}

static void nan_is_the_largest_of_all(void **state) {
    (void)state;
    float x[] = {1, NAN, 9, 2}, y[1];
    rn_pool2d_attrs a = {2, 2, 2, 2, 0, 0, 0, 0};
    rn_tensor in[] = {f32_tensor(x, RN_SHAPE(1, 2, 2, 1))};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(1, 1, 1, 1))};
    assert_ok(run_op(RN_OP_MAX_POOL, in, out, NULL, &a));
    assert_true(isnan(y[0]));
}

// ---- shapes -------------------------------------------------------------------------------------

static rn_value f32_input(rn_graph *g, const char *name, rn_shape shape) {
    return rn_graph_input(g, name, RN_DTYPE_F32, shape);
}

static void misfits_are_refused_with_a_reason(void **state) {
    (void)state;
    rn_conv2d_attrs a = {1, 1, 0, 0, 0, 0};
    rn_graph *g = make_graph();
    rn_op_conv2d(g, f32_input(g, "x", RN_SHAPE(1, 4, 4, 3)),
                 f32_input(g, "w", RN_SHAPE(8, 4, 3, 3)), RN_NO_VALUE, a);
    assert_refused(g, "conv2d.0", "x has 3 channels, the kernels have 4");
    g = make_graph();
    rn_op_conv2d(g, f32_input(g, "x", RN_SHAPE(1, 2, 4, 3)),
                 f32_input(g, "w", RN_SHAPE(8, 3, 3, 3)), RN_NO_VALUE, a);
    assert_refused(g, "a window of 3 does not fit into 2 + 0 padding (height)");
    g = make_graph();
    rn_op_conv2d(g, f32_input(g, "x", RN_SHAPE(4, 4, 3)), f32_input(g, "w", RN_SHAPE(8, 3, 3, 3)),
                 RN_NO_VALUE, a);
    assert_refused(g, "an image is (N, H, W, C), not (4, 4, 3)");
    g = make_graph();
    rn_op_conv2d(g, f32_input(g, "x", RN_SHAPE(1, 4, 4, 3)),
                 f32_input(g, "w", RN_SHAPE(8, 3, 3, 3)), RN_NO_VALUE, (rn_conv2d_attrs){0});
    assert_refused(g, "stride must be at least 1");
    g = make_graph();
    rn_op_conv2d(g, f32_input(g, "x", RN_SHAPE(1, 4, 4, 32)),
                 rn_graph_weight(g, "w", RN_DTYPE_Q8_0, RN_SHAPE(8, 3, 3, 32)), RN_NO_VALUE, a);
    assert_refused(g, "kernels must be f32, f16 or bf16, they are q8_0");
    g = make_graph();
    rn_op_max_pool(g, f32_input(g, "x", RN_SHAPE(1, 4, 4, 3)),
                   (rn_pool2d_attrs){2, 2, 2, 2, 2, 0, 0, 0});
    assert_refused(g, "padding must be smaller than the window");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolution_sums_its_windows),
        cmocka_unit_test(kernels_may_be_half_floats),
        cmocka_unit_test(the_gradients_of_a_convolution_are_its_adjoints),
        cmocka_unit_test(a_convolutions_gradient_reaches_x_kernels_and_bias),
        cmocka_unit_test(pools_average_with_padding_and_maximise_without),
        cmocka_unit_test(the_gradient_of_an_average_is_its_adjoint),
        cmocka_unit_test(the_first_maximum_gets_the_gradient),
        cmocka_unit_test(nan_is_the_largest_of_all),
        cmocka_unit_test(misfits_are_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
