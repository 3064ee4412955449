// Attention: against softmax in double, its tiles to the bit, and its gradient against slopes.
#include "op_run.h"

#include "graph/attention_row.h"
#include "graph/op/grads.h"

typedef struct problem {
    size_t b, t, s, h, hk, d;
    rn_attention_attrs attrs;
    int mask; // 0: none, 2: (T, S), 3: (B, T, S)
} problem;

enum { MOST = 1 << 15 };

typedef struct arrays {
    float q[MOST], k[MOST], v[MOST], mask[MOST], y[MOST], logsumexp[MOST];
} arrays;

static rn_shape shape_q(const problem *p) {
    return RN_SHAPE(p->b, p->t, p->h, p->d);
}
static rn_shape shape_k(const problem *p) {
    return RN_SHAPE(p->b, p->s, p->hk, p->d);
}
static size_t count_q(const problem *p) {
    return p->b * p->t * p->h * p->d;
}
static size_t count_k(const problem *p) {
    return p->b * p->s * p->hk * p->d;
}
static rn_tensor mask_tensor(const problem *p, arrays *a) {
    if (p->mask == 0) return no_tensor();
    return f32_tensor(a->mask, p->mask == 2 ? RN_SHAPE(p->t, p->s) : RN_SHAPE(p->b, p->t, p->s));
}

static arrays *make_arrays(const problem *p) {
    static arrays a;
    assert_true(count_q(p) <= MOST && count_k(p) <= MOST && p->b * p->t * p->s <= MOST);
    fill(a.q, count_q(p), 1);
    fill(a.k, count_k(p), 2);
    fill(a.v, count_k(p), 3);
    fill(a.mask, p->b * p->t * p->s, 4);
    for (size_t i = 0; i < count_q(p); i++)
        a.q[i] *= 4; // so that the softmax is far from flat
    return &a;
}

static bool sees(const problem *p, size_t t, size_t s) {
    long at = (long)t + (long)p->s - (long)p->t, key = (long)s;
    if ((p->attrs.causal || p->attrs.window) && key > at) return false;
    return p->attrs.window == 0 || key > at - (long)p->attrs.window;
}

// One query in double: its output, and the logsumexp.
static double expect(const problem *p, const arrays *a, size_t b, size_t t, size_t h, double *y) {
    double scale = p->attrs.scale != 0 ? p->attrs.scale : 1 / sqrt((double)p->d);
    double scores[512], top = -INFINITY, sum = 0;
    size_t head = h / (p->h / p->hk);
    for (size_t s = 0; s < p->s; s++) {
        scores[s] = 0;
        for (size_t d = 0; d < p->d; d++)
            scores[s] += (double)a->q[((b * p->t + t) * p->h + h) * p->d + d] *
                         a->k[((b * p->s + s) * p->hk + head) * p->d + d];
        scores[s] *= scale;
        if (p->mask) scores[s] += a->mask[((p->mask == 3 ? b : 0) * p->t + t) * p->s + s];
        if (!sees(p, t, s)) scores[s] = -INFINITY;
        top = fmax(top, scores[s]);
    }
    for (size_t d = 0; d < p->d; d++)
        y[d] = 0;
    if (top == -INFINITY) return -INFINITY;
    for (size_t s = 0; s < p->s; s++)
        sum += exp(scores[s] - top);
    for (size_t s = 0; s < p->s; s++)
        for (size_t d = 0; d < p->d; d++)
            y[d] += exp(scores[s] - top) / sum * a->v[((b * p->s + s) * p->hk + head) * p->d + d];
    return top + log(sum);
}

static void run_attention(const problem *p, arrays *a) {
    rn_tensor in[] = {f32_tensor(a->q, shape_q(p)), f32_tensor(a->k, shape_k(p)),
                      f32_tensor(a->v, shape_k(p)), mask_tensor(p, a)};
    rn_tensor out[] = {f32_tensor(a->y, shape_q(p)),
                       f32_tensor(a->logsumexp, RN_SHAPE(p->b, p->h, p->t))};
    assert_ok(run_op(RN_OP_ATTENTION, in, out, NULL, &p->attrs));
}

static void check(problem p) {
    arrays *a = make_arrays(&p);
    run_attention(&p, a);
    for (size_t i = 0; i < p.b * p.t * p.h; i++) {
        double y[64];
        size_t b = i / p.h / p.t, t = i / p.h % p.t, h = i % p.h;
        double total = expect(&p, a, b, t, h, y);
        float is = a->logsumexp[(b * p.h + h) * p.t + t];
        if (isinf(total))
            assert_true(is == -INFINITY);
        else
            assert_close(total, is, 1e-6);
        for (size_t d = 0; d < p.d; d++)
            assert_close(y[d], a->y[i * p.d + d], 2e-6);
    }
}

static void it_is_softmax_of_the_scores_times_the_values(void **state) {
    (void)state;
    check((problem){2, 3, 5, 2, 2, 8, {.causal = false}, 0});
    check((problem){2, 5, 5, 4, 2, 8, {.causal = true}, 0});
    check((problem){1, 4, 150, 6, 2, 16, {.scale = 0.3f}, 0});   // three tiles
    check((problem){1, 130, 130, 1, 1, 4, {.causal = true}, 0}); // diagonal across tiles
    check((problem){1, 3, 200, 2, 1, 8, {.causal = true}, 0});   // the last 3 of 200
    check((problem){1, 130, 130, 2, 1, 4, {.causal = true, .window = 70}, 0});
    check((problem){1, 9, 9, 1, 1, 4, {.window = 3}, 0});
    check((problem){2, 3, 70, 2, 1, 4, {.causal = false}, 2});
    check((problem){2, 3, 70, 2, 1, 4, {.causal = true}, 3});
}

static void queries_without_keys_give_zero(void **state) {
    (void)state;
    problem p = {1, 5, 3, 1, 1, 4, {.causal = true}, 0}; // queries 0 and 1 stand before key 0
    check(p);
    arrays *a = make_arrays(&p);
    run_attention(&p, a);
    for (int i = 0; i < 8; i++)
        assert_true(a->y[i] == 0);
    p = (problem){1, 2, 3, 1, 1, 4, {.causal = false}, 2};
    a = make_arrays(&p);
    for (int s = 0; s < 3; s++)
        a->mask[s] = -INFINITY; // all keys of query 0 are masked
    run_attention(&p, a);
    for (int i = 0; i < 4; i++)
        assert_true(a->y[i] == 0 && isfinite(a->y[4 + i]));
    assert_true(a->logsumexp[0] == -INFINITY);
}

static void a_nan_in_a_score_shows(void **state) {
    (void)state;
    problem p = {1, 1, 70, 1, 1, 4, {.causal = false}, 0};
    arrays *a = make_arrays(&p);
    a->k[69 * 4] = NAN;
    run_attention(&p, a);
    assert_true(isnan(a->y[0]) && isnan(a->logsumexp[0]));
}

// The fixed meaning, written out: tiles of 64, one maximum a tile, everything in order.
static void tiles_are_fixed_to_the_bit(void **state) {
    (void)state;
    enum { S = 150, D = 8 };
    problem p = {1, 1, S, 1, 1, D, {.causal = true, .window = 100}, 0}; // keys 50 .. 149
    arrays *a = make_arrays(&p);
    run_attention(&p, a);
    float top = -INFINITY, sum = 0, acc[D] = {0}, scale = (float)(1 / sqrt((double)D));
    static const int bounds[] = {50, 64, 128, 150};
    for (int tile = 0; tile < 3; tile++) {
        float scores[64], next = top;
        for (int s = bounds[tile]; s < bounds[tile + 1]; s++) {
            float score = 0;
            for (int d = 0; d < D; d++)
                score = fmaf(a->q[d], a->k[s * D + d], score);
            scores[s - bounds[tile]] = score * scale;
            next = fmaxf(next, score * scale);
        }
        float shrink = expf(top - next);
        sum *= shrink;
        for (int d = 0; d < D; d++)
            acc[d] *= shrink;
        for (int s = bounds[tile]; s < bounds[tile + 1]; s++) {
            float weight = expf(scores[s - bounds[tile]] - next);
            sum += weight;
            for (int d = 0; d < D; d++)
                acc[d] = fmaf(weight, a->v[s * D + d], acc[d]);
        }
        top = next;
    }
    for (int d = 0; d < D; d++)
        assert_true(a->y[d] == acc[d] / sum);
    assert_true(a->logsumexp[0] == top + logf(sum));
}

static void the_logsumexp_may_be_left_out(void **state) {
    (void)state;
    problem p = {1, 2, 3, 2, 1, 4, {.causal = false}, 0};
    arrays *a = make_arrays(&p);
    float with[16];
    run_attention(&p, a);
    memcpy(with, a->y, sizeof with);
    rn_tensor in[] = {f32_tensor(a->q, shape_q(&p)), f32_tensor(a->k, shape_k(&p)),
                      f32_tensor(a->v, shape_k(&p)), no_tensor()};
    rn_tensor out[] = {f32_tensor(a->y, shape_q(&p)), f32_tensor(NULL, RN_SHAPE(1, 2, 2))};
    assert_ok(run_op(RN_OP_ATTENTION, in, out, NULL, &p.attrs));
    assert_memory_equal(with, a->y, sizeof with);
}

// ---- gradients ----------------------------------------------------------------------------------

static double loss(const problem *p, const arrays *a, const float *dy) {
    double sum = 0, y[64];
    for (size_t i = 0; i < p->b * p->t * p->h; i++) {
        expect(p, a, i / p->h / p->t, i / p->h % p->t, i % p->h, y);
        for (size_t d = 0; d < p->d; d++)
            sum += y[d] * dy[i * p->d + d];
    }
    return sum;
}

// Each element of one of the inputs is moved both ways; the naive loss in double gives the slope.
static void check_slopes(const problem *p, arrays *a, float *of, size_t count, const float *dy,
                         const float *gradient) {
    const float step = 0x1p-10f;
    for (size_t i = 0; i < count; i++) {
        float kept = of[i], up = kept + step, down = kept - step;
        of[i] = up;
        double above = loss(p, a, dy);
        of[i] = down;
        double below = loss(p, a, dy);
        of[i] = kept;
        assert_close((above - below) / ((double)up - down), gradient[i], 2e-5);
    }
}

static void check_gradient(problem p) {
    arrays *a = make_arrays(&p);
    static float dy[MOST], dq[MOST], dk[MOST], dv[MOST], alone[MOST];
    fill(dy, count_q(&p), 7);
    run_attention(&p, a);
    rn_shape q = shape_q(&p), k = shape_k(&p);
    rn_tensor in[] = {f32_tensor(a->q, q), f32_tensor(a->k, k),
                      f32_tensor(a->v, k), mask_tensor(&p, a),
                      f32_tensor(a->y, q), f32_tensor(a->logsumexp, RN_SHAPE(p.b, p.h, p.t)),
                      f32_tensor(dy, q)};
    rn_tensor out[] = {f32_tensor(dq, q), f32_tensor(dk, k), f32_tensor(dv, k)};
    assert_ok(run_op(RN_OP_ATTENTION_GRAD, in, out, NULL, &p.attrs));
    check_slopes(&p, a, a->q, count_q(&p), dy, dq);
    check_slopes(&p, a, a->k, count_k(&p), dy, dk);
    check_slopes(&p, a, a->v, count_k(&p), dy, dv);
    rn_tensor only_k[] = {f32_tensor(NULL, q), f32_tensor(alone, k), f32_tensor(NULL, k)};
    assert_ok(run_op(RN_OP_ATTENTION_GRAD, in, only_k, NULL, &p.attrs));
    assert_memory_equal(dk, alone, count_k(&p) * sizeof(float));
}

static void gradients_are_slopes(void **state) {
    (void)state;
    check_gradient((problem){2, 3, 5, 2, 1, 4, {.causal = false}, 0});
    check_gradient((problem){1, 4, 4, 4, 2, 4, {.causal = true, .scale = 0.7f}, 2});
    check_gradient((problem){1, 5, 3, 2, 2, 4, {.causal = true}, 0}); // two queries see nothing
    check_gradient((problem){1, 2, 70, 1, 1, 4, {.window = 66}, 3});
}

static void the_graph_asks_for_them(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value q = rn_graph_input(g, "q", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 3, 2, 4)), gradients[2];
    rn_value k = rn_graph_input(g, "k", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 5, 1, 4));
    rn_value v = rn_graph_input(g, "v", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 5, 1, 4));
    rn_value y = rn_op_attention(g, q, k, v, RN_NO_VALUE, (rn_attention_attrs){0});
    assert_ok(rn_graph_gradient(g, rn_op_sum_squares(g, y), (rn_value[]){q, v}, 2, gradients));
    assert_string_equal("(rows, 3, 2, 4)",
                        rn_shape_format(rn_graph_value(g, gradients[0])->shape).text);
    assert_string_equal("(rows, 5, 1, 4)",
                        rn_shape_format(rn_graph_value(g, gradients[1])->shape).text);
    test_run run;
    test_run_open(&run, g, 2);
    fill(test_run_data(&run, q), 48, 1);
    fill(test_run_data(&run, k), 40, 2);
    fill(test_run_data(&run, v), 40, 3);
    test_run_all(&run);
    // y is linear in v and the loss is |y|^2
    assert_close(2 * inner(test_run_data(&run, y), test_run_data(&run, y), 48),
                 inner(test_run_data(&run, v), test_run_data(&run, gradients[1]), 40), 1e-5);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void a_mask_gets_no_gradient(void **state) {
    (void)state;
    rn_graph *g = make_graph();
    rn_value q = rn_graph_input(g, "q", RN_DTYPE_F32, RN_SHAPE(1, 3, 2, 4)), gradient;
    rn_value mask = rn_graph_input(g, "mask", RN_DTYPE_F32, RN_SHAPE(3, 3));
    rn_value y = rn_op_attention(g, q, q, q, mask, (rn_attention_attrs){0});
    assert_fails(RN_UNSUPPORTED,
                 rn_graph_gradient(g, rn_op_sum_squares(g, y), &mask, 1, &gradient));
    assert_non_null(strstr(rn_last_error()->message, "attention.0: "));
    assert_non_null(strstr(rn_last_error()->message, "mask"));
    rn_graph_destroy(g);
}

static rn_graph *with_attention(rn_shape q, rn_shape k, rn_shape v, rn_shape mask) {
    rn_graph *g = make_graph();
    rn_op_attention(g, rn_graph_input(g, "q", RN_DTYPE_F32, q),
                    rn_graph_input(g, "k", RN_DTYPE_F32, k),
                    rn_graph_input(g, "v", RN_DTYPE_F32, v),
                    rn_graph_input(g, "mask", RN_DTYPE_F32, mask), (rn_attention_attrs){0});
    return g;
}

static void misfits_are_refused_with_a_reason(void **state) {
    (void)state;
    rn_shape q = RN_SHAPE(1, 3, 4, 8), k = RN_SHAPE(1, 5, 2, 8), mask = RN_SHAPE(3, 5);
    assert_refused(with_attention(RN_SHAPE(3, 4, 8), k, k, mask), "attention.0",
                   "q is (B, T, H, D)");
    assert_refused(with_attention(q, k, RN_SHAPE(1, 6, 2, 8), mask), "k and v must be alike");
    assert_refused(with_attention(q, RN_SHAPE(1, 5, 2, 4), RN_SHAPE(1, 5, 2, 4), mask),
                   "with the B and D of q");
    assert_refused(with_attention(q, RN_SHAPE(1, 5, 3, 8), RN_SHAPE(1, 5, 3, 8), mask),
                   "4 heads cannot share 3 key heads evenly");
    assert_refused(with_attention(q, k, k, RN_SHAPE(5, 3)), "the mask must be (T, S)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_softmax_of_the_scores_times_the_values),
        cmocka_unit_test(queries_without_keys_give_zero),
        cmocka_unit_test(a_nan_in_a_score_shows),
        cmocka_unit_test(tiles_are_fixed_to_the_bit),
        cmocka_unit_test(the_logsumexp_may_be_left_out),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(the_graph_asks_for_them),
        cmocka_unit_test(a_mask_gets_no_gradient),
        cmocka_unit_test(misfits_are_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
