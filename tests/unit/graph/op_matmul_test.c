// matmul: every form against naive sums in double, quantised weights to the bit, and its gradient.
#include "op_run.h"

#include "graph/quantized_product.h"
#include "tensor/layout.h"
#include "tensor/quant.h"

// ---- values -------------------------------------------------------------------------------------

enum { B = 2, M = 3, N = 5, K = 7 };

// Where element (row, col) of a (rows, cols) matrix lies, or of its transpose.
static size_t at(size_t row, size_t col, size_t rows, size_t cols, bool transposed) {
    return transposed ? col * rows + row : row * cols + col;
}

static void every_form_multiplies_rows_by_columns(void **state) {
    (void)state;
    float x[B * M * K], w[B * N * K], bias[N], y[B * M * N];
    fill(x, B * M * K, 1);
    fill(w, B * N * K, 2);
    fill(bias, N, 3);
    for (int form = 0; form < 16; form++) {
        rn_matmul_attrs a = {.transpose_x = form & 1, .transpose_w = form & 2};
        bool batched = form & 4, biased = form & 8;
        rn_shape of_x = a.transpose_x ? RN_SHAPE(B, K, M) : RN_SHAPE(B, M, K);
        rn_shape of_w = a.transpose_w ? RN_SHAPE(B, K, N) : RN_SHAPE(B, N, K);
        if (!batched) of_w = RN_SHAPE(of_w.dims[1], of_w.dims[2]);
        rn_tensor in[] = {f32_tensor(x, of_x), f32_tensor(w, of_w),
                          biased ? f32_tensor(bias, RN_SHAPE(N)) : no_tensor()};
        rn_tensor out[] = {f32_tensor(y, RN_SHAPE(B, M, N))};
        assert_ok(run_op(RN_OP_MATMUL, in, out, NULL, &a));
        for (size_t b = 0; b < B; b++)
            for (size_t m = 0; m < M; m++)
                for (size_t n = 0; n < N; n++) {
                    double sum = biased ? bias[n] : 0;
                    const float *wb = w + (batched ? b * N * K : 0);
                    for (size_t k = 0; k < K; k++)
                        sum += (double)x[b * M * K + at(m, k, M, K, a.transpose_x)] *
                               wb[at(n, k, N, K, a.transpose_w)];
                    assert_close(sum, y[(b * M + m) * N + n], 1e-6);
                }
    }
}

static void an_axis_of_one_in_w_serves_all_batches(void **state) {
    (void)state;
    float x[2 * 3 * M * K], w[3 * N * K], y[2 * 3 * M * N], part[M * N];
    fill(x, 2 * 3 * M * K, 1);
    fill(w, 3 * N * K, 2);
    rn_matmul_attrs a = {0};
    rn_tensor in[] = {f32_tensor(x, RN_SHAPE(2, 3, M, K)), f32_tensor(w, RN_SHAPE(1, 3, N, K)),
                      no_tensor()};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(2, 3, M, N))};
    assert_ok(run_op(RN_OP_MATMUL, in, out, NULL, &a));
    for (size_t i = 0; i < 6; i++) {
        rn_tensor one[] = {f32_tensor(x + i * M * K, RN_SHAPE(M, K)),
                           f32_tensor(w + i % 3 * N * K, RN_SHAPE(N, K)), no_tensor()};
        rn_tensor of_one[] = {f32_tensor(part, RN_SHAPE(M, N))};
        assert_ok(run_op(RN_OP_MATMUL, one, of_one, NULL, &a));
        assert_memory_equal(part, y + i * M * N, sizeof part);
    }
}

static void sums_go_in_order_by_fused_steps(void **state) {
    (void)state;
    float x[300], w[300], y[1], expected = 0;
    fill(x, 300, 4);
    fill(w, 300, 5);
    for (int k = 0; k < 300; k++)
        expected = fmaf(x[k], w[k], expected);
    rn_tensor in[] = {f32_tensor(x, RN_SHAPE(1, 300)), f32_tensor(w, RN_SHAPE(1, 300)),
                      no_tensor()};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(1, 1))};
    assert_ok(run_op(RN_OP_MATMUL, in, out, NULL, &(rn_matmul_attrs){0}));
    assert_true(y[0] == expected);
    in[1].shape = RN_SHAPE(300, 1);
    assert_ok(run_op(RN_OP_MATMUL, in, out, NULL, &(rn_matmul_attrs){.transpose_w = true}));
    assert_true(y[0] == expected);
}

// ---- weights of other dtypes --------------------------------------------------------------------

enum { ROWS = 6, COLS = 256 };

// A (ROWS, COLS) weight of any dtype in its plain form, and what it restores to.
typedef struct weight {
    rn_tensor tensor;
    float restored[ROWS * COLS];
} weight;

static void pack_int4(const float *from, const rn_plain_components *parts, uint8_t *data,
                      float *out) {
    uint64_t group = rn_quant_int4_group(COLS), groups = ROWS * COLS / group, half = groups / 2;
    uint8_t q[ROWS * COLS];
    float *scale = (float *)(void *)(data + parts->offset[RN_COMPONENT_SCALE]);
    float *shift = (float *)(void *)(data + parts->offset[RN_COMPONENT_SHIFT]);
    rn_quant_int4_groups(from, groups, group, q, scale, shift);
    rn_quant_int4_pack(q, q + half * group, half * group, data);
    rn_dequant_int4_groups(q, scale, shift, groups, group, out);
}

static void make_weight(rn_dtype dtype, uint32_t seed, weight *out) {
    static _Alignas(64) uint8_t data[1 << 15];
    float from[ROWS * COLS];
    rn_plain_components parts;
    fill(from, ROWS * COLS, seed);
    assert_true(rn_plain_components_of(dtype, ROWS, COLS, &parts));
    assert_true(parts.total_bytes <= sizeof data);
    memset(data, 0x35, sizeof data);
    float *scale = (float *)(void *)(data + parts.offset[RN_COMPONENT_SCALE]);
    if (dtype == RN_DTYPE_INT8) {
        rn_quant_int8_rows(from, ROWS, COLS, (int8_t *)data, scale);
        rn_dequant_int8_rows((int8_t *)data, scale, ROWS, COLS, out->restored);
    } else if (dtype == RN_DTYPE_INT4) {
        pack_int4(from, &parts, data, out->restored);
    } else if (dtype == RN_DTYPE_NF4) {
        rn_quant_nf4_blocks(from, ROWS * COLS, data, scale);
        rn_dequant_nf4_blocks(data, scale, ROWS * COLS, out->restored);
    } else if (dtype == RN_DTYPE_NF4_DQ) {
        float absmax[ROWS * COLS / RN_NF4_BLOCK + 1],
            *nested = (float *)(void *)(data + parts.offset[RN_COMPONENT_SHIFT]);
        uint64_t blocks = parts.bytes[RN_COMPONENT_SCALE],
                 count = parts.bytes[RN_COMPONENT_SHIFT] / 4 - 1;
        rn_quant_nf4_blocks(from, ROWS * COLS, data, absmax);
        nested[count] = rn_quant_nf4_offset(absmax, blocks);
        rn_quant_nf4_absmax(absmax, blocks, nested[count], (uint8_t *)scale, nested);
        for (uint64_t b = 0; b < blocks; b++)
            absmax[b] = rn_dequant_nf4_absmax((uint8_t *)scale, nested, count, b);
        rn_dequant_nf4_blocks(data, absmax, ROWS * COLS, out->restored);
    } else {
        if (rn_dtype_from_f32(dtype, from, data, ROWS * COLS) != RN_OK)
            memset(data, 0x35, sizeof data); // a block with this byte everywhere is a fine block
        assert_ok(rn_dtype_to_f32(dtype, data, out->restored, ROWS * COLS));
    }
    out->tensor = (rn_tensor){.data = data, .dtype = dtype, .shape = RN_SHAPE(ROWS, COLS)};
}

static const rn_dtype widened[] = {RN_DTYPE_F16, RN_DTYPE_BF16,   RN_DTYPE_F8_E4M3, RN_DTYPE_INT4,
                                   RN_DTYPE_NF4, RN_DTYPE_NF4_DQ, RN_DTYPE_Q8_1,    RN_DTYPE_Q8_K};
static const rn_dtype rounded[] = {RN_DTYPE_INT8, RN_DTYPE_Q8_0,   RN_DTYPE_Q4_0,  RN_DTYPE_Q4_K,
                                   RN_DTYPE_Q5_K, RN_DTYPE_Q6_K,   RN_DTYPE_Q5_0,  RN_DTYPE_Q2_K,
                                   RN_DTYPE_Q5_1, RN_DTYPE_IQ4_XS, RN_DTYPE_MXFP4, RN_DTYPE_NVFP4};

// y with w of `tensor` and y with its restored f32 form, to be the same bits.
static void assert_same_as_restored(const weight *w, rn_matmul_attrs a) {
    static float x[2 * COLS], y[2 * COLS], expected[2 * COLS];
    uint64_t k = a.transpose_w ? ROWS : COLS, n = a.transpose_w ? COLS : ROWS;
    fill(x, 2 * COLS, 8);
    rn_tensor of_x = f32_tensor(x, a.transpose_x ? RN_SHAPE(k, 2) : RN_SHAPE(2, k));
    rn_tensor in[] = {of_x, w->tensor, no_tensor()};
    rn_tensor plain[] = {of_x, f32_tensor((float *)w->restored, w->tensor.shape), no_tensor()};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(2, n))};
    rn_tensor of_plain[] = {f32_tensor(expected, RN_SHAPE(2, n))};
    assert_ok(run_op(RN_OP_MATMUL, in, out, NULL, &a));
    assert_ok(run_op(RN_OP_MATMUL, plain, of_plain, NULL, &a));
    assert_memory_equal(expected, y, 2 * n * sizeof(float));
}

static void other_weights_are_widened(void **state) {
    (void)state;
    static weight w;
    for (size_t i = 0; i < sizeof widened / sizeof *widened; i++) {
        make_weight(widened[i], 7, &w);
        assert_same_as_restored(&w, (rn_matmul_attrs){0});
        assert_same_as_restored(&w, (rn_matmul_attrs){.transpose_x = true});
        assert_same_as_restored(&w, (rn_matmul_attrs){.transpose_w = true});
    }
}

static void quantised_weights_round_their_activations_in_the_usual_form(void **state) {
    (void)state;
    static weight w;
    float x[2 * COLS], y[2 * ROWS], bias[ROWS];
    _Alignas(64) uint8_t memory[512];
    fill(x, 2 * COLS, 8);
    fill(bias, ROWS, 9);
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        rn_plain_components parts;
        make_weight(rounded[i], 7, &w);
        assert_true(rn_plain_components_of(rounded[i], ROWS, COLS, &parts));
        rn_tensor in[] = {f32_tensor(x, RN_SHAPE(2, COLS)), w.tensor,
                          f32_tensor(bias, RN_SHAPE(ROWS))};
        rn_tensor out[] = {f32_tensor(y, RN_SHAPE(2, ROWS))};
        assert_ok(run_op(RN_OP_MATMUL, in, out, NULL, &(rn_matmul_attrs){0}));
        const uint8_t *data = w.tensor.data;
        uint64_t row_bytes = parts.bytes[RN_COMPONENT_DATA] / ROWS;
        for (int m = 0; m < 2; m++) {
            rn_quantized_row row = rn_quantized_row_at(memory, COLS);
            rn_quantize_row(x + m * COLS, COLS, row);
            for (int n = 0; n < ROWS; n++) {
                float scale = 1;
                if (rounded[i] == RN_DTYPE_INT8)
                    memcpy(&scale, data + parts.offset[RN_COMPONENT_SCALE] + n * sizeof scale,
                           sizeof scale);
                float expected =
                    rn_quantized_product(rounded[i], row, data + n * row_bytes, scale, COLS) +
                    bias[n];
                assert_memory_equal(&expected, &y[m * ROWS + n], sizeof expected);
            }
        }
    }
}

static void quantised_weights_are_widened_in_any_other_form(void **state) {
    (void)state;
    static weight w;
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        make_weight(rounded[i], 7, &w);
        assert_same_as_restored(&w, (rn_matmul_attrs){.transpose_w = true});
        assert_same_as_restored(&w, (rn_matmul_attrs){.transpose_x = true});
    }
}

static void quantised_weights_are_widened_where_activations_stay_plain(void **state) {
    (void)state;
    static weight w;
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        make_weight(rounded[i], 7, &w);
        assert_same_as_restored(&w, (rn_matmul_attrs){.unquantised_activations = true});
    }
}

static void packed_weights_are_not_for_the_reference(void **state) {
    (void)state;
    float x[8] = {0}, w[8] = {0}, y[1] = {0};
    rn_tensor in[] = {f32_tensor(x, RN_SHAPE(1, 8)), f32_tensor(w, RN_SHAPE(1, 8)), no_tensor()};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(1, 1))};
    in[1].layout = RN_LAYOUT_PANELS;
    assert_fails(RN_UNSUPPORTED, run_op(RN_OP_MATMUL, in, out, NULL, &(rn_matmul_attrs){0}));
    assert_non_null(strstr(rn_last_error()->message, "panels"));
}

// ---- shapes and costs ---------------------------------------------------------------------------

static rn_value f32_input(rn_graph *g, const char *name, rn_shape shape) {
    return rn_graph_input(g, name, RN_DTYPE_F32, shape);
}

static void misfits_are_refused_with_a_reason(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_op_matmul(g, f32_input(g, "x", RN_SHAPE(2, 8)), f32_input(g, "w", RN_SHAPE(4, 9)), 0);
    assert_refused(g, "matmul.0", "K is 8 in x and 9 in w", "(2, 8) f32, (4, 9) f32");
    g = make_graph();
    rn_op_matmul(g, f32_input(g, "x", RN_SHAPE(8)), f32_input(g, "w", RN_SHAPE(4, 8)), 0);
    assert_refused(g, "two axes at least");
    g = make_graph();
    rn_op_matmul(g, f32_input(g, "x", RN_SHAPE(2, 8)), f32_input(g, "w", RN_SHAPE(4, 8)),
                 f32_input(g, "b", RN_SHAPE(5)));
    assert_refused(g, "bias must be (N), N is 4");
    g = make_graph();
    rn_op_matmul(g, f32_input(g, "x", RN_SHAPE(3, 2, 8)), f32_input(g, "w", RN_SHAPE(2, 4, 8)), 0);
    assert_refused(g, "axis 0 of w must be 1 or that of x");
    g = make_graph();
    rn_op_matmul(g, f32_input(g, "x", RN_SHAPE(2, 8)),
                 rn_graph_input(g, "w", RN_DTYPE_I32, RN_SHAPE(4, 8)), 0);
    assert_refused(g, "products with i32 weights");
    g = make_graph();
    rn_op_matmul(g, rn_graph_input(g, "x", RN_DTYPE_F16, RN_SHAPE(2, 8)),
                 f32_input(g, "w", RN_SHAPE(4, 8)), 0);
    assert_refused(g, "input 0 must be f32, it is f16");
    g = make_graph();
    rn_op_matmul(g, f32_input(g, "x", RN_SHAPE(3, 2, 64)),
                 rn_graph_weight(g, "w", RN_DTYPE_Q8_0, RN_SHAPE(3, 4, 64)), 0);
    assert_refused(g, "a quantised w has two axes");
}

static void rows_may_be_rows_batches_or_the_inner_axis(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_Q4_K, RN_SHAPE(3, 256));
    rn_value x = f32_input(g, "x", RN_SHAPE(RN_ROWS, 256));
    rn_value x3 = f32_input(g, "x3", RN_SHAPE(RN_ROWS, 2, 256));
    rn_value y = rn_op_matmul(g, x, w, RN_NO_VALUE), y3 = rn_op_matmul(g, x3, w, RN_NO_VALUE);
    rn_value inner_rows = rn_op_matmul_as(
        g, y, x, RN_NO_VALUE, (rn_matmul_attrs){.transpose_x = true, .transpose_w = true});
    assert_ok(rn_graph_finish(g));
    assert_string_equal("(rows, 3)", rn_shape_format(rn_graph_value(g, y)->shape).text);
    assert_string_equal("(rows, 2, 3)", rn_shape_format(rn_graph_value(g, y3)->shape).text);
    assert_string_equal("(3, 256)", rn_shape_format(rn_graph_value(g, inner_rows)->shape).text);
    rn_graph_destroy(g);
}

static void the_cost_is_two_operations_a_product(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_op_matmul(g, f32_input(g, "x", RN_SHAPE(RN_ROWS, 64)),
                 rn_graph_weight(g, "w", RN_DTYPE_Q8_0, RN_SHAPE(32, 64)), RN_NO_VALUE);
    assert_ok(rn_graph_finish(g));
    rn_tensor tensors[4];
    rn_call call;
    rn_cost cost = {0};
    rn_graph_bind(g, 0, 10, tensors, &call);
    rn_op_get(RN_OP_MATMUL)->cost(&call, &cost);
    assert_true(cost.flops == 2.0 * 10 * 32 * 64);
    assert_true(cost.read_bytes == 10 * 64 * 4 + 32 * 2 * 34);
    assert_true(cost.write_bytes == 10 * 32 * 4);
    rn_graph_destroy(g);
}

// ---- gradients ----------------------------------------------------------------------------------

// loss = sum(y * c): dx, dw and dbias are sums that can be written down.
typedef struct problem {
    rn_shape x, w;
    rn_matmul_attrs attrs;
} problem;

static void fill_value(test_run *run, rn_value value, uint32_t seed) {
    fill(test_run_data(run, value), rn_tensor_elements(&run->values[value]), seed);
}

// y's element for (batch b, m, n) as d/dx and d/dw see it, summed into the three gradients.
static void expect_gradients(const test_run *run, const problem *p, rn_value x, rn_value w,
                             rn_value c, double *dx, double *dw, double *db) {
    rn_shape sx = run->values[x].shape, sc = run->values[c].shape;
    const float *px = test_run_data(run, x), *pw = test_run_data(run, w);
    const float *pc = test_run_data(run, c);
    size_t m_count = sc.dims[sc.rank - 2], n_count = sc.dims[sc.rank - 1];
    size_t k_count = sx.dims[sx.rank - (p->attrs.transpose_x ? 2 : 1)];
    size_t batches = rn_tensor_elements(&run->values[c]) / m_count / n_count;
    bool one_w = rn_tensor_elements(&run->values[w]) == n_count * k_count;
    for (size_t b = 0; b < batches; b++)
        for (size_t m = 0; m < m_count; m++)
            for (size_t n = 0; n < n_count; n++) {
                double up = pc[(b * m_count + m) * n_count + n];
                db[n] += up;
                for (size_t k = 0; k < k_count; k++) {
                    size_t ix =
                        b * m_count * k_count + at(m, k, m_count, k_count, p->attrs.transpose_x);
                    size_t iw = (one_w ? 0 : b * n_count * k_count) +
                                at(n, k, n_count, k_count, p->attrs.transpose_w);
                    dx[ix] += up * pw[iw];
                    dw[iw] += up * px[ix];
                }
            }
}

static void check_close(const test_run *run, rn_value value, const double *expected) {
    const float *is = test_run_data(run, value);
    for (uint64_t i = 0; i < rn_tensor_elements(&run->values[value]); i++)
        assert_close(expected[i], is[i], 1e-5);
}

static void check_gradients(const problem *p) {
    rn_graph *g = make_graph();
    rn_value x = f32_input(g, "x", p->x), w = rn_graph_weight(g, "w", RN_DTYPE_F32, p->w);
    uint64_t n = p->w.dims[p->w.rank - (p->attrs.transpose_w ? 1 : 2)];
    rn_value bias = rn_graph_weight(g, "bias", RN_DTYPE_F32, RN_SHAPE(n));
    rn_value y = rn_op_matmul_as(g, x, w, bias, p->attrs), gradients[3];
    rn_value c = f32_input(g, "c", rn_graph_value(g, y)->shape);
    rn_value loss = rn_op_sum(g, rn_op_mul(g, y, c), (1u << p->x.rank) - 1, false);
    assert_ok(rn_graph_gradient(g, loss, (rn_value[]){x, w, bias}, 3, gradients));
    test_run run;
    test_run_open(&run, g, 4);
    fill_value(&run, x, 1);
    fill_value(&run, w, 2);
    fill_value(&run, bias, 3);
    fill_value(&run, c, 4);
    test_run_all(&run);
    double dx[512] = {0}, dw[512] = {0}, db[16] = {0};
    expect_gradients(&run, p, x, w, c, dx, dw, db);
    check_close(&run, gradients[0], dx);
    check_close(&run, gradients[1], dw);
    check_close(&run, gradients[2], db);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void gradients_are_the_products_of_the_others(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        bool tx = form & 1, tw = form & 2;
        rn_matmul_attrs a = {.transpose_x = tx, .transpose_w = tw};
        rn_shape w2 = tw ? RN_SHAPE(7, 5) : RN_SHAPE(5, 7);
        rn_shape w3 = tw ? RN_SHAPE(2, 7, 5) : RN_SHAPE(2, 5, 7);
        rn_shape w1 = tw ? RN_SHAPE(1, 7, 5) : RN_SHAPE(1, 5, 7);
        rn_shape x3 = tx ? RN_SHAPE(2, 7, 3) : RN_SHAPE(2, 3, 7);
        check_gradients(&(problem){tx ? RN_SHAPE(7, 3) : RN_SHAPE(3, 7), w2, a});
        check_gradients(&(problem){x3, w2, a});
        check_gradients(&(problem){x3, w3, a});
        check_gradients(&(problem){x3, w1, a});
        check_gradients(&(problem){tx ? RN_SHAPE(RN_ROWS, 7, 3) : RN_SHAPE(RN_ROWS, 3, 7), w2, a});
    }
    check_gradients(&(problem){RN_SHAPE(RN_ROWS, 7), RN_SHAPE(5, 7), {false, false}});
}

static void a_gradient_flows_through_frozen_quantised_weights(void **state) {
    (void)state;
    static weight w;
    make_weight(RN_DTYPE_Q4_0, 3, &w);
    rn_graph *g = make_graph();
    rn_value x = f32_input(g, "x", RN_SHAPE(2, COLS)), dx = RN_NO_VALUE;
    rn_value frozen = rn_graph_weight(g, "w", RN_DTYPE_Q4_0, RN_SHAPE(ROWS, COLS));
    rn_value loss = rn_op_sum(g, rn_op_matmul(g, x, frozen, RN_NO_VALUE), 3, false);
    assert_ok(rn_graph_gradient(g, loss, &x, 1, &dx));
    test_run run;
    test_run_open(&run, g, 1);
    fill_value(&run, x, 1);
    memcpy(test_run_data(&run, frozen), w.tensor.data, rn_tensor_bytes(&w.tensor));
    test_run_all(&run);
    double expected[2 * COLS] = {0};
    for (int i = 0; i < 2 * COLS; i++)
        for (int n = 0; n < ROWS; n++)
            expected[i] += w.restored[n * COLS + i % COLS];
    check_close(&run, dx, expected);
    test_run_close(&run);
    rn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_multiplies_rows_by_columns),
        cmocka_unit_test(an_axis_of_one_in_w_serves_all_batches),
        cmocka_unit_test(sums_go_in_order_by_fused_steps),
        cmocka_unit_test(other_weights_are_widened),
        cmocka_unit_test(quantised_weights_round_their_activations_in_the_usual_form),
        cmocka_unit_test(quantised_weights_are_widened_in_any_other_form),
        cmocka_unit_test(quantised_weights_are_widened_where_activations_stay_plain),
        cmocka_unit_test(packed_weights_are_not_for_the_reference),
        cmocka_unit_test(misfits_are_refused_with_a_reason),
        cmocka_unit_test(rows_may_be_rows_batches_or_the_inner_axis),
        cmocka_unit_test(the_cost_is_two_operations_a_product),
        cmocka_unit_test(gradients_are_the_products_of_the_others),
        cmocka_unit_test(a_gradient_flows_through_frozen_quantised_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
