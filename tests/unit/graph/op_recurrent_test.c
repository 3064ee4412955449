// Recurrent states: rows in chunks, beside others or alone have the same bits; position 0 begins
// anew; hostile rows are refused.
#include "op_run.h"

enum { SEQUENCES = 3, ROWS = 9, C = 5, TAPS = 4, H = 2, DK = 4, DV = 3 };
enum { WIDTH = 2 * DK + H * DV, STATE = H * DK * DV, CONV_STATE = (TAPS - 1) * C };

typedef struct states {
    float conv[SEQUENCES * CONV_STATE], delta[SEQUENCES * STATE];
} states;

static float x[ROWS * C], w[C * TAPS], qkv[ROWS * WIDTH], a[ROWS * H], b[ROWS * H];
static float rate[H] = {-0.5f, -2}, bias[H] = {0.25f, -1};

static void fill_waves(float *at, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++)
        at[i] = sinf((float)(seed + 1) * 3.7f + (float)i * 1.3f);
}

static void fill_all(void) {
    fill_waves(x, ROWS * C, 1);
    fill_waves(w, C * TAPS, 2);
    fill_waves(qkv, ROWS * WIDTH, 3);
    fill_waves(a, ROWS * H, 4);
    fill_waves(b, ROWS * H, 5);
}

// Once: what changes a state cannot be repeated.
#define run_once(op, in, out, attrs)                                                               \
    run_call((rn_call){(op), (attrs), (in), (out), sizeof(in) / sizeof *(in),                      \
                       sizeof(out) / sizeof *(out), NULL, NULL, 0, NULL, 1, 0},                    \
             1)

// Rows [first, first + rows) of the inputs above.
static rn_status convolve(states *s, int32_t *sequence, int32_t *position, size_t first,
                          uint64_t rows, float *y /* (rows, C) */) {
    rn_tensor state = f32_tensor(s->conv, RN_SHAPE(SEQUENCES, TAPS - 1, C));
    rn_tensor in[] = {f32_tensor(x + first * C, RN_SHAPE(rows, C)),
                      f32_tensor(w, RN_SHAPE(C, TAPS)), state, i32_tensor(sequence, RN_SHAPE(rows)),
                      i32_tensor(position, RN_SHAPE(rows))};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(rows, C)), state};
    return run_once(RN_OP_SHORT_CONV, in, out, NULL);
}

static rn_status follow(states *s, int32_t *sequence, int32_t *position, size_t first,
                        uint64_t rows, float *y /* (rows, H * DV) */) {
    static const rn_delta_rule_attrs attrs = {.key_heads = 1, .eps = 1e-6f};
    rn_tensor state = f32_tensor(s->delta, RN_SHAPE(SEQUENCES, H, DK, DV));
    rn_tensor in[] = {f32_tensor(qkv + first * WIDTH, RN_SHAPE(rows, WIDTH)),
                      f32_tensor(a + first * H, RN_SHAPE(rows, H)),
                      f32_tensor(b + first * H, RN_SHAPE(rows, H)),
                      f32_tensor(rate, RN_SHAPE(H)),
                      f32_tensor(bias, RN_SHAPE(H)),
                      state,
                      i32_tensor(sequence, RN_SHAPE(rows)),
                      i32_tensor(position, RN_SHAPE(rows))};
    rn_tensor out[] = {f32_tensor(y, RN_SHAPE(rows, H * DV)), state};
    return run_once(RN_OP_DELTA_RULE, in, out, &attrs);
}

static void a_convolution_is_its_sum(void **state) {
    (void)state;
    int32_t sequence[ROWS] = {0}, position[ROWS];
    float y[ROWS * C];
    states s;
    memset(&s, 0xff, sizeof s); // NaN: position 0 reads nothing
    fill_all();
    for (int32_t i = 0; i < ROWS; i++)
        position[i] = i;
    assert_ok(convolve(&s, sequence, position, 0, ROWS, y));
    for (int p = 0; p < ROWS; p++)
        for (int c = 0; c < C; c++) {
            double sum = 0;
            for (int t = 0; t < TAPS; t++)
                if (p - TAPS + 1 + t >= 0)
                    sum += (double)w[c * TAPS + t] * (double)x[(p - TAPS + 1 + t) * C + c];
            assert_float_equal((float)sum, y[p * C + c], 1e-6f);
        }
}

// By hand, in double: one head of the first two rows.
static void the_delta_rule_is_its_formula(void **state) {
    (void)state;
    int32_t sequence[2] = {1, 1}, position[2] = {0, 1};
    double S[DK][DV] = {{0}};
    float y[2 * H * DV];
    states s;
    memset(&s, 0xff, sizeof s);
    fill_all();
    assert_ok(follow(&s, sequence, position, 0, 2, y));
    for (int row = 0; row < 2; row++) {
        const float *q = qkv + row * WIDTH, *k = q + DK, *v = q + 2 * DK + DV; // of head 1
        double qq = 1e-6, kk = 1e-6, gate = (double)a[row * H + 1] + (double)bias[1];
        for (int i = 0; i < DK; i++) {
            qq += (double)q[i] * (double)q[i];
            kk += (double)k[i] * (double)k[i];
        }
        double decay = exp((double)rate[1] * log1p(exp(gate)));
        double beta = 1 / (1 + exp(-(double)b[row * H + 1]));
        for (int j = 0; j < DV; j++) {
            double known = 0, out = 0;
            for (int i = 0; i < DK; i++)
                known += decay * S[i][j] * (double)k[i] / sqrt(kk);
            for (int i = 0; i < DK; i++) {
                S[i][j] = decay * S[i][j] + (double)k[i] / sqrt(kk) * beta * ((double)v[j] - known);
                out += S[i][j] * (double)q[i] / sqrt(qq) / sqrt(DK);
            }
            assert_float_equal((float)out, y[(row * H + 1) * DV + j], 1e-6f);
        }
    }
}

// Sequence 2 reads rows 0 to 5 while sequence 0 reads rows 6 to 8, or each alone in pieces.
static void chunks_and_company_change_no_bit(void **state) {
    (void)state;
    int32_t sequence[ROWS] = {2, 2, 2, 2, 2, 2, 0, 0, 0},
            position[ROWS] = {0, 1, 2, 3, 4, 5, 0, 1, 2};
    float y[ROWS * C], z[ROWS * H * DV], y2[ROWS * C], z2[ROWS * H * DV];
    states s = {0}, t;
    memset(&t, 0xff, sizeof t);
    memcpy(&t.conv[CONV_STATE], &s.conv[CONV_STATE], CONV_STATE * sizeof(float)); // sequence 1
    memcpy(&t.delta[STATE], &s.delta[STATE], STATE * sizeof(float));
    fill_all();
    assert_ok(convolve(&s, sequence, position, 0, ROWS, y));
    assert_ok(follow(&s, sequence, position, 0, ROWS, z));
    static const struct { size_t first, rows; } pieces[] = {{6, 1}, {0, 4}, {4, 1}, {7, 2}, {5, 1}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t at = pieces[i].first;
        assert_ok(convolve(&t, sequence + at, position + at, at, pieces[i].rows, y2 + at * C));
        assert_ok(follow(&t, sequence + at, position + at, at, pieces[i].rows, z2 + at * H * DV));
    }
    assert_memory_equal(y, y2, sizeof y);
    assert_memory_equal(z, z2, sizeof z);
    assert_memory_equal(s.delta, t.delta, sizeof s.delta);
}

static void rows_of_no_sequence_do_nothing(void **state) {
    (void)state;
    int32_t sequence[2] = {-1, -1}, position[2] = {0, 7};
    float y[2 * C], z[2 * H * DV], zeros[2 * H * DV + 2 * C] = {0};
    states s, before;
    fill_all();
    memset(&s, 1, sizeof s);
    before = s;
    assert_ok(convolve(&s, sequence, position, 0, 2, y));
    assert_ok(follow(&s, sequence, position, 0, 2, z));
    assert_memory_equal(&before, &s, sizeof s);
    assert_memory_equal(zeros, y, sizeof y);
    assert_memory_equal(zeros, z, sizeof z);
}

static void hostile_rows_are_refused_and_nothing_is_written(void **state) {
    (void)state;
    static const struct {
        int32_t sequence[2], position[2];
        const char *words;
    } cases[] = {
        {{0, SEQUENCES}, {0, 0}, "row 1: sequence 3 is not in 0 .. 2"},
        {{-2, 0}, {0, 0}, "row 0: sequence -2"},
        {{0, 1}, {0, -1}, "row 1: position -1 is below 0"},
        {{0, 0}, {4, 6}, "row 1: position 6 of sequence 0 comes behind 4"},
        {{0, 0}, {4, 4}, "row 1: position 4 of sequence 0 comes behind 4"},
    };
    float y[2 * C], z[2 * H * DV];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t sequence[2], position[2];
        states s = {0}, before = {0};
        memcpy(sequence, cases[i].sequence, sizeof sequence);
        memcpy(position, cases[i].position, sizeof position);
        assert_fails(RN_INVALID, convolve(&s, sequence, position, 0, 2, y));
        assert_non_null(strstr(rn_last_error()->message, cases[i].words));
        assert_fails(RN_INVALID, follow(&s, sequence, position, 0, 2, z));
        assert_non_null(strstr(rn_last_error()->message, cases[i].words));
        assert_memory_equal(&before, &s, sizeof s);
    }
}

static rn_graph *with_conv(rn_shape weight, rn_shape state) {
    rn_graph *g = make_graph();
    rn_op_short_conv(g, rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 8)),
                     rn_graph_weight(g, "w", RN_DTYPE_F32, weight),
                     rn_graph_state(g, "s", RN_DTYPE_F32, state, RN_PURPOSE_STATE),
                     rn_graph_input(g, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS)),
                     rn_graph_input(g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS)));
    return g;
}

static rn_graph *with_delta(rn_shape qkv_shape, rn_shape state, uint32_t key_heads) {
    rn_graph *g = make_graph();
    rn_value gates = rn_graph_input(g, "gates", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 4));
    rn_value rates = rn_graph_weight(g, "rates", RN_DTYPE_F32, RN_SHAPE(4));
    rn_op_delta_rule(g, rn_graph_input(g, "qkv", RN_DTYPE_F32, qkv_shape), gates, gates, rates,
                     rates, rn_graph_state(g, "s", RN_DTYPE_F32, state, RN_PURPOSE_STATE),
                     rn_graph_input(g, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS)),
                     rn_graph_input(g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS)),
                     (rn_delta_rule_attrs){.key_heads = key_heads});
    return g;
}

static void misfits_are_refused_with_a_reason(void **state) {
    (void)state;
    rn_graph *g = with_conv(RN_SHAPE(8, 1, 3), RN_SHAPE(4, 2, 8));
    assert_ok(rn_graph_finish(g));
    rn_graph_destroy(g);
    assert_refused(with_conv(RN_SHAPE(8, 2, 3), RN_SHAPE(4, 2, 8)), "the weight must be (C, K)");
    assert_refused(with_conv(RN_SHAPE(8, 1), RN_SHAPE(4, 1, 8)), "K at least 2");
    assert_refused(with_conv(RN_SHAPE(8, 4), RN_SHAPE(4, 2, 8)), "(sequences, K - 1, C)");
    g = with_delta(RN_SHAPE(RN_ROWS, 2 * 2 * 6 + 4 * 5), RN_SHAPE(3, 4, 6, 5), 2);
    assert_ok(rn_graph_finish(g));
    rn_graph_destroy(g);
    assert_refused(with_delta(RN_SHAPE(RN_ROWS, 44), RN_SHAPE(3, 4, 6, 5), 3), "do not divide");
    assert_refused(with_delta(RN_SHAPE(RN_ROWS, 45), RN_SHAPE(3, 4, 6, 5), 2), "qkv must be");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolution_is_its_sum),
        cmocka_unit_test(the_delta_rule_is_its_formula),
        cmocka_unit_test(chunks_and_company_change_no_bit),
        cmocka_unit_test(rows_of_no_sequence_do_nothing),
        cmocka_unit_test(hostile_rows_are_refused_and_nothing_is_written),
        cmocka_unit_test(misfits_are_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
