// The vector loops: how far each function is from the true one, over every exponent of f32; that
// all instruction levels give the same bits; and that nothing beyond a span is read or written.
#include "support.h"
#include "backend/cpu/spans.h"
#include "backend/cpu/vector.h"
#include "guarded.h"

#include "base/cpu.h"

#include <math.h>

enum { MOST = 40 }; // elements of a span in the tests of tails

static const rn_spans *const levels[] = {&rn_spans_portable, &rn_spans_avx2, &rn_spans_avx512};

// How many of the levels this processor has.
static int level_count(void) {
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
    return (int)rn_cpu_level_get() + 1;
}

// ---- accuracy -----------------------------------------------------------------------------------

// The distance of two neighbours in f32 around x; 2^-149 below the normal range.
static double unit_of(double x) {
    int exponent = 0;
    frexp(x, &exponent);
    return ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

static double sigmoid_of(double x) {
    return 1 / (1 + exp(-x));
}
static double silu_of(double x) {
    return x / (1 + exp(-x));
}
static double silu_slope_of(double x) {
    double s = sigmoid_of(x);
    return s * (1 + x * sigmoid_of(-x));
}
static double gelu_of(double x) {
    return 0.5 * x * erfc(-x * M_SQRT1_2);
}
static double gelu_slope_of(double x) {
    return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
}
static double gelu_inner_of(double x) {
    return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}
static double gelu_tanh_of(double x) {
    return x * sigmoid_of(2 * gelu_inner_of(x));
}
static double gelu_tanh_slope_of(double x) {
    double s = sigmoid_of(2 * gelu_inner_of(x)), c = sigmoid_of(-2 * gelu_inner_of(x));
    return s + 2 * x * s * c * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
static double rsqrt_of(double x) {
    return 1 / sqrt(x);
}

static void run_erf(const float *x, float *y, uint64_t n, float a, float b) {
    (void)a, (void)b;
    for (uint64_t i = 0; i < n; i += LANES)
        vstore(y + i, verf(vload(x + i)));
}

static void run_exp_normal(const float *x, float *y, uint64_t n, float a, float b) {
    (void)a, (void)b;
    rn_spans_portable.exp_scaled(x, 0, 1, y, n);
}

// z is 1, so that y is the slope itself.
#define SLOPE(name)                                                                                \
    static void run_##name(const float *x, float *y, uint64_t n, float a, float b) {               \
        float one[LANES];                                                                          \
        vstore(one, vset(1));                                                                      \
        for (uint64_t i = 0; i < n; i += LANES)                                                    \
            rn_spans_portable.name(x + i, one, y + i, LANES, a, b);                                \
    }
SLOPE(silu_grad)
SLOPE(gelu_grad)
SLOPE(gelu_tanh_grad)

// error <= units * (distance of neighbours at the result) + slack * 2^-24 * max(1, |x|) + least.
// `slack` is where terms of the size of x (or 1) cancel; `least` is about where f32 ends.
typedef struct curve {
    const char *name;
    rn_map_span *run;
    double (*exact)(double);
    float low, high; // beyond them only the signs of infinity are looked at
    double units, slack, least;
} curve;

static double allowed(const curve *c, float x, double exact) {
    return c->units * unit_of(exact) + c->slack * 0x1p-24 * fmax(1, fabs((double)x)) + c->least;
}

enum { CHUNK = 4096, STRIDE = 1021 }; // of all bit patterns every STRIDE-th is tried

static void check_curve(const curve *c) {
    float x[CHUNK], y[CHUNK];
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) {
        uint32_t n = 0;
        for (; n < CHUNK && bits <= UINT32_MAX; bits += STRIDE) {
            uint32_t pattern = (uint32_t)bits;
            memcpy(&x[n], &pattern, sizeof pattern);
            if (x[n] >= c->low && x[n] <= c->high) n++;
        }
        for (uint32_t i = n; i < CHUNK; i++)
            x[i] = c->low;
        c->run(x, y, CHUNK, 0, 0);
        for (uint32_t i = 0; i < n; i++) {
            double exact = c->exact(x[i]);
            float rounded = (float)exact;
            if (isinf(rounded) || isinf(y[i])) { // at the edge either is right
                assert_true(fabs(exact) > 0.999999 * 3.40282347e38);
                continue;
            }
            if (!(fabs(y[i] - exact) <= allowed(c, x[i], exact)))
                fail_msg("%s(%.9g) is %.9g, not %.9g", c->name, (double)x[i], (double)y[i], exact);
        }
    }
}

// The bounds are what was measured with every 61st bit pattern, rounded up.
static void functions_are_near_the_true_ones(void **state) {
    (void)state;
    const rn_spans *s = &rn_spans_portable;
    const float most = 3.40282347e38f;
    const curve curves[] = {
        {"exp", s->exp, exp, -most, most, 1.0, 0, 0},
        {"exp for sums", run_exp_normal, exp, -most, 88, 1.0, 0, 0x1.02p-126},
        {"tanh", s->tanh, tanh, -most, most, 1.3, 0, 0},
        {"erf", run_erf, erf, -most, most, 1.2, 0, 0},
        {"sqrt", s->sqrt, sqrt, 0, most, 0.5, 0, 0},
        {"rsqrt", s->rsqrt, rsqrt_of, 0x1p-149f, most, 1.5, 0, 0},
        {"sigmoid", s->sigmoid, sigmoid_of, -most, most, 2.4, 0, 0x1p-128},
        {"silu", s->silu, silu_of, -most, most, 2.7, 0, 0x1p-121},
        {"silu's slope", run_silu_grad, silu_slope_of, -1e4f, 1e4f, 0, 2, 0},
        {"gelu", s->gelu, gelu_of, -most, most, 0, 2, 0},
        {"gelu's slope", run_gelu_grad, gelu_slope_of, -1e4f, 1e4f, 0, 2.5, 0},
        {"gelu_tanh", s->gelu_tanh, gelu_tanh_of, -1e4f, 1e4f, 0, 2, 0},
        {"gelu_tanh's slope", run_gelu_tanh_grad, gelu_tanh_slope_of, -1e4f, 1e4f, 0, 2.5, 0},
    };
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        check_curve(&curves[i]);
}

static float at(rn_map_span *fn, float x) {
    float y = 0;
    fn(&x, &y, 1, 0, 0);
    return y;
}

static void infinities_and_nans_come_out_as_in_libm(void **state) {
    (void)state;
    const rn_spans *s = &rn_spans_portable;
    rn_map_span *const all[] = {s->neg,  s->exp,     s->sqrt, s->rsqrt, s->relu,
                                s->tanh, s->sigmoid, s->silu, s->gelu,  s->gelu_tanh};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_true(isnan(at(all[i], NAN)));
    assert_true(isnan(verf(vset(NAN))[0]));
    assert_true(at(s->exp, INFINITY) == INFINITY && at(s->exp, -INFINITY) == 0);
    assert_true(at(s->exp, 88.7228394f) == INFINITY && at(s->exp, 88.7228317f) < INFINITY);
    assert_true(at(s->exp, -103.97f) == 0x1p-149f && at(s->exp, -103.98f) == 0);
    assert_true(at(s->tanh, INFINITY) == 1 && at(s->tanh, -INFINITY) == -1);
    assert_true(at(s->sigmoid, INFINITY) == 1 && at(s->sigmoid, -INFINITY) == 0);
    assert_true(at(s->silu, INFINITY) == INFINITY && at(s->gelu, INFINITY) == INFINITY);
    assert_true(at(s->relu, INFINITY) == INFINITY && at(s->relu, -INFINITY) == 0);
    assert_true(isnan(at(s->sqrt, -1)) && at(s->sqrt, INFINITY) == INFINITY);
    assert_true(at(s->rsqrt, INFINITY) == 0 && at(s->rsqrt, 0) == INFINITY);
    assert_true(signbit(at(s->tanh, -0.0f)) && signbit(at(s->neg, 0)));
    assert_true(at(s->tanh, -0x1p-149f) == -0x1p-149f && at(s->exp, 0x1p-149f) == 1);
}

// ---- the same bits at every level, for every length ---------------------------------------------

static uint32_t seed = 1;

static uint32_t draw(uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

// Mostly numbers of size 1; every now and then one from the edges.
static float draw_float(void) {
    static const float edges[] = {0,     -0.0f,  INFINITY,  -INFINITY, NAN,
                                  1e30f, -1e30f, 0x1p-149f, -90,       90};
    uint32_t n = draw(24);
    return n < 10 ? edges[n] : (float)draw(8001) / 1000 - 4;
}

static float draw_plain(void) {
    return (float)draw(4001) / 1000 - 2;
}

// A span of exactly n floats between fences.
static test_guard make(uint32_t n, float (*fill)(void)) {
    test_guard g = test_guard_make(n * sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        float x = fill();
        memcpy(g.data + i * sizeof x, &x, sizeof x);
    }
    return g;
}

static float *floats(const test_guard *g) {
    return (float *)(void *)g->data;
}

// Any NaN equals any other: which one comes out of two is the compiler's choice.
static void check_same(const float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!isnan(a[i]) || !isnan(b[i])) assert_memory_equal(&a[i], &b[i], sizeof *a);
}

static void release(test_guard *guards, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (guards[i].data) assert_true(test_guard_intact(&guards[i]));
        test_guard_free(&guards[i]);
    }
}

// A function of the table, by its place in it.
typedef struct entry {
    const char *name;
    size_t at;
} entry;
#define ENTRY(name)                                                                                \
    { #name, offsetof(rn_spans, name) }

static void get(const entry *e, int level, void *out_function) {
    memcpy(out_function, (const char *)levels[level] + e->at, sizeof(void (*)(void)));
}

static void maps_have_the_same_bits_at_every_level(void **state) {
    (void)state;
    static const entry maps[] = {ENTRY(neg),   ENTRY(exp),   ENTRY(sqrt), ENTRY(rsqrt),
                                 ENTRY(scale), ENTRY(clamp), ENTRY(relu), ENTRY(sigmoid),
                                 ENTRY(tanh),  ENTRY(silu),  ENTRY(gelu), ENTRY(gelu_tanh)};
    for (size_t f = 0; f < sizeof maps / sizeof *maps; f++)
        for (uint32_t n = 1; n <= MOST; n++) {
            test_guard g[3] = {make(n, draw_float), test_guard_make(n * sizeof(float))};
            for (uint32_t i = 0; i < n; i++) { // each element alone, at the portable level
                rn_map_span *fn;
                get(&maps[f], 0, &fn);
                fn(floats(&g[0]) + i, floats(&g[1]) + i, 1, -0.5f, 1.5f);
            }
            for (int level = 0; level < level_count(); level++) {
                rn_map_span *fn;
                get(&maps[f], level, &fn);
                g[2] = test_guard_make(n * sizeof(float));
                fn(floats(&g[0]), floats(&g[2]), n, -0.5f, 1.5f);
                check_same(floats(&g[1]), floats(&g[2]), n);
                release(&g[2], 1);
            }
            release(g, 2);
        }
}

static const entry joins[] = {
    ENTRY(add),
    ENTRY(sub),
    ENTRY(mul),
    ENTRY(div),
    ENTRY(add_one),
    ENTRY(sub_one),
    ENTRY(mul_one),
    ENTRY(div_one),
    ENTRY(relu_grad),
    ENTRY(clamp_grad),
    ENTRY(silu_grad),
    ENTRY(gelu_grad),
    ENTRY(gelu_tanh_grad),
    ENTRY(gated[RN_ACTIVATION_SILU]),
    ENTRY(gated[RN_ACTIVATION_GELU]),
    ENTRY(gated[RN_ACTIVATION_GELU_TANH]),
    ENTRY(gated[RN_ACTIVATION_RELU]),
    ENTRY(gated[RN_ACTIVATION_SIGMOID]),
};

static void joins_have_the_same_bits_at_every_level(void **state) {
    (void)state;
    for (size_t f = 0; f < sizeof joins / sizeof *joins; f++)
        for (uint32_t n = 1; n <= MOST; n++) {
            bool one = strstr(joins[f].name, "_one");
            test_guard g[4] = {make(n, draw_float), make(one ? 1 : n, draw_float),
                               test_guard_make(n * sizeof(float))};
            for (uint32_t i = 0; i < n; i++) {
                rn_join_span *fn;
                get(&joins[f], 0, &fn);
                fn(floats(&g[0]) + i, floats(&g[1]) + (one ? 0 : i), floats(&g[2]) + i, 1, -0.5f,
                   1.5f);
            }
            for (int level = 0; level < level_count(); level++) {
                rn_join_span *fn;
                get(&joins[f], level, &fn);
                g[3] = test_guard_make(n * sizeof(float));
                fn(floats(&g[0]), floats(&g[1]), floats(&g[3]), n, -0.5f, 1.5f);
                check_same(floats(&g[2]), floats(&g[3]), n);
                release(&g[3], 1);
            }
            release(g, 3);
        }
}

// gate, up, dy -> dgate, dup; either may be missing.
static void run_gated_grad(int level, int activation, uint32_t n, const test_guard *in,
                           float *dgate, float *dup) {
    levels[level]->gated_grad[activation](floats(&in[0]), floats(&in[1]), floats(&in[2]), dgate,
                                          dup, n);
}

static void gated_gradients_have_the_same_bits_at_every_level(void **state) {
    (void)state;
    for (int activation = 0; activation < RN_ACTIVATION_COUNT; activation++)
        for (uint32_t n = 1; n <= MOST; n++) {
            test_guard in[3] = {make(n, draw_float), make(n, draw_float), make(n, draw_float)};
            float must[2][MOST];
            run_gated_grad(0, activation, n, in, must[0], must[1]);
            for (int level = 0; level < level_count(); level++) {
                test_guard out[2] = {make(n, draw_plain), make(n, draw_plain)};
                run_gated_grad(level, activation, n, in, floats(&out[0]), NULL);
                run_gated_grad(level, activation, n, in, NULL, floats(&out[1]));
                check_same(must[0], floats(&out[0]), n);
                check_same(must[1], floats(&out[1]), n);
                release(out, 2);
            }
            release(in, 3);
        }
}

static void adamw_has_the_same_bits_at_every_level(void **state) {
    (void)state;
    const rn_adamw_step step = {.keep = 0.999f,
                                .take1 = 0.1f,
                                .beta2 = 0.999f,
                                .take2 = 0.001f,
                                .pace = 1e-2f,
                                .spread = 0.0316f,
                                .eps = 1e-8f};
    for (uint32_t n = 1; n <= MOST; n++) {
        float must[4][MOST], from[4][MOST];
        for (int i = 0; i < 4 * MOST; i++)
            (&from[0][0])[i] = i < 3 * MOST ? draw_plain() : fabsf(draw_plain());
        memcpy(must, from, sizeof must);
        for (uint32_t i = 0; i < n; i++) // each element alone
            rn_spans_portable.adamw(must[0] + i, must[1] + i, must[2] + i, must[3] + i, 1, &step);
        for (int level = 0; level < level_count(); level++) {
            test_guard g[4];
            for (int i = 0; i < 4; i++) {
                g[i] = test_guard_make(n * sizeof(float));
                memcpy(g[i].data, from[i], n * sizeof(float));
            }
            levels[level]->adamw(floats(&g[0]), floats(&g[1]), floats(&g[2]), floats(&g[3]), n,
                                 &step);
            for (int i = 0; i < 4; i++)
                check_same(must[i], floats(&g[i]), n);
            release(g, 4);
        }
    }
}

// ---- rows ---------------------------------------------------------------------------------------

// Everything that is made of a row, one after the other.
enum { TOTALS = 11 };

static void run_row(const rn_spans *s, const test_guard *in, uint32_t n, float *sums,
                    test_guard *out) {
    const float *x = floats(&in[0]), *y = floats(&in[1]), *w = floats(&in[2]);
    sums[0] = s->largest(x, n);
    sums[1] = s->dot(x, y, n);
    sums[2] = s->sum(x, n);
    sums[3] = s->exp_sum(x, 0.5f, floats(&out[0]), n);
    sums[4] = s->exp_total(x, 0.5f, n);
    sums[5] = s->squares(x, 0.25f, n);
    s->norm_sums(x, y, w, 0.25f, 1.5f, n, &sums[6], &sums[7]);
    s->norm_sums(x, y, NULL, 0.25f, 1.5f, n, &sums[6], &sums[8]);
    sums[9] = (float)s->sum_wide(x, n);
    sums[10] = (float)s->squares_wide(x, n);
    s->exp_scaled(x, 0.5f, 3, floats(&out[1]), n);
    s->normalize(x, w, y, 0.25f, 1.5f, floats(&out[2]), n);
    s->normalize(x, NULL, NULL, 0.25f, 1.5f, floats(&out[3]), n);
    s->norm_dx(x, y, w, 0.25f, 1.5f, 0.1f, 0.2f, floats(&out[4]), n);
    s->norm_dx(x, y, NULL, 0, 1.5f, 0, 0.2f, floats(&out[5]), n);
    s->softmax_grad(x, y, 0.3f, floats(&out[6]), n);
    s->affine(x, w, y, floats(&out[7]), 1, n);
    s->channel_dx(x, y, w, w, y, floats(&out[8]), n);
    s->max_of((const float *[]){x, y, w}, 3, floats(&out[9]), n);
    memcpy(out[10].data, y, n * sizeof(float));
    s->add_into(x, floats(&out[10]), n);
    memcpy(out[11].data, x, n * sizeof(float));
    s->turn_halves(x, y, w, floats(&out[11]), n / 2);
    memcpy(out[12].data, x, n * sizeof(float));
    s->turn_neighbours(floats(&out[12]), y, w, floats(&out[12]), n / 2 * 2);
}

enum { ROWS_OUT = 13 };

static void compare_rows(uint32_t n, float (*fill)(void)) {
    test_guard in[3] = {make(n, fill), make(n, fill), make(n, fill)}, must[ROWS_OUT];
    float sums[TOTALS];
    for (int i = 0; i < ROWS_OUT; i++)
        must[i] = test_guard_make(n * sizeof(float));
    run_row(&rn_spans_portable, in, n, sums, must);
    for (int level = 1; level < level_count(); level++) {
        test_guard out[ROWS_OUT];
        float again[TOTALS];
        for (int i = 0; i < ROWS_OUT; i++)
            out[i] = test_guard_make(n * sizeof(float));
        run_row(levels[level], in, n, again, out);
        check_same(sums, again, TOTALS);
        for (int i = 0; i < ROWS_OUT; i++)
            check_same(floats(&must[i]), floats(&out[i]), n);
        release(out, ROWS_OUT);
    }
    release(must, ROWS_OUT);
    release(in, 3);
}

static void rows_have_the_same_bits_at_every_level(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= MOST; n++) {
        compare_rows(n, draw_plain);
        compare_rows(n, draw_float);
    }
    compare_rows(1000, draw_plain);
}

static void near(double must, float is, double size, uint32_t n) {
    assert_true(fabs(is - must) <= 0x1p-24 * (n + 4) * size);
}

static void sums_of_rows_are_sums(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= MOST; n++) {
        test_guard in[3] = {make(n, draw_plain), make(n, draw_plain), make(n, draw_plain)};
        test_guard out[ROWS_OUT];
        const float *x = floats(&in[0]), *y = floats(&in[1]), *w = floats(&in[2]);
        float sums[TOTALS];
        double most = -INFINITY, dot = 0, sum = 0, exps = 0, squares = 0, g = 0, gu = 0;
        for (uint32_t i = 0; i < n; i++) {
            double u = ((double)x[i] - 0.25) * 1.5;
            most = fmax(most, x[i]);
            dot += (double)x[i] * y[i];
            sum += x[i];
            exps += exp(x[i] - 0.5);
            squares += ((double)x[i] - 0.25) * ((double)x[i] - 0.25);
            g += y[i];
            gu += (double)y[i] * w[i] * u;
        }
        for (int i = 0; i < ROWS_OUT; i++)
            out[i] = test_guard_make(n * sizeof(float));
        run_row(levels[level_count() - 1], in, n, sums, out);
        assert_true(sums[0] == (float)most);
        near(dot, sums[1], 4 * n, n);
        near(sum, sums[2], 2 * n, n);
        near(sum, sums[9], 2 * n, 0);
        near(exps, sums[3], 5 * n, n);
        near(exps, sums[4], 5 * n, n);
        near(squares, sums[5], 6 * n, n);
        near(g, sums[6], 2 * n, n);
        near(gu, sums[7], 15 * n, n);
        release(out, ROWS_OUT);
        release(in, 3);
    }
}

static void the_largest_of_nothing_is_minus_infinity(void **state) {
    (void)state;
    for (int level = 0; level < level_count(); level++) {
        const float nan = NAN;
        assert_true(levels[level]->largest(NULL, 0) == -INFINITY);
        assert_true(isnan(levels[level]->largest(&nan, 1)));
        assert_true(levels[level]->sum(NULL, 0) == 0);
    }
}

// Sums in double over rows, channel by channel.
static void run_channels(const rn_spans *s, const test_guard *in, uint32_t n, double *sums) {
    memset(sums, 0, 6 * n * sizeof *sums);
    for (int row = 0; row < 3; row++) {
        s->norm_add(floats(&in[0]), floats(&in[1]), 0.25f, 1.5f, sums, sums + n, n);
        s->norm_add(floats(&in[0]), floats(&in[1]), 0, 1.5f, sums, NULL, n);
        s->norm_add(floats(&in[0]), floats(&in[1]), 0, 1.5f, NULL, sums + n, n);
        s->channel_sums(floats(&in[0]), sums + 2 * n, sums + 3 * n, n);
        s->channel_dots(floats(&in[0]), floats(&in[1]), sums + 4 * n, sums + 5 * n, n);
    }
}

static void channel_sums_have_the_same_bits_at_every_level(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= MOST; n++) {
        test_guard in[2] = {make(n, draw_plain), make(n, draw_plain)};
        double must[6 * MOST];
        run_channels(&rn_spans_portable, in, n, must);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(must[2 * n + i] == 3 * (double)floats(&in[0])[i]);
            assert_true(must[4 * n + i] == 3 * (double)floats(&in[1])[i]);
        }
        for (int level = 1; level < level_count(); level++) {
            test_guard sums = test_guard_make(6 * n * sizeof(double));
            run_channels(levels[level], in, n, (double *)(void *)sums.data);
            assert_memory_equal(must, sums.data, 6 * n * sizeof(double));
            release(&sums, 1);
        }
        release(in, 2);
    }
}

// Rows side by side, each as alone.
static void rows_of_channels_are_scaled_alike(void **state) {
    (void)state;
    enum { ROWS = 3 };
    for (int level = 0; level < level_count(); level++)
        for (uint32_t n = 1; n <= 2 * MOST; n++) {
            test_guard in[3] = {make(ROWS * n, draw_plain), make(n, draw_plain),
                                make(n, draw_plain)};
            test_guard out = test_guard_make(ROWS * n * sizeof(float));
            levels[level]->affine(floats(&in[0]), floats(&in[1]), floats(&in[2]), floats(&out),
                                  ROWS, n);
            for (uint32_t i = 0; i < ROWS * n; i++) {
                float y = floats(&in[0])[i] * floats(&in[1])[i % n] + floats(&in[2])[i % n];
                assert_memory_equal(&y, &floats(&out)[i], sizeof y);
            }
            release(in, 3);
            release(&out, 1);
        }
}

// ---- small products -----------------------------------------------------------------------------

typedef struct shape {
    uint32_t m, n, k;
    bool across; // a is stored (k, m)
    bool add;
} shape;

// The chain over k, with multiply-adds that round once where the level has them.
static float chain(const shape *of, bool fused, const float *a, const float *b, float c, uint32_t i,
                   uint32_t j) {
    float sum = of->add ? c : 0;
    for (uint32_t k = 0; k < of->k; k++) {
        float x = of->across ? a[k * of->m + i] : a[i * of->k + k], y = b[k * of->n + j];
        sum = fused ? fmaf(x, y, sum) : x * y + sum;
    }
    return sum;
}

static void check_product(const shape *of, int level) {
    uint32_t gap = 3; // between the rows of c
    test_guard a = make(of->m * of->k, draw_plain), b = make(of->k * of->n, draw_plain);
    test_guard c = make((of->m - 1) * (of->n + gap) + of->n, draw_plain);
    float before[64 * 72];
    memcpy(before, c.data, c.bytes);
    rn_small small = {.a = floats(&a),
                      .a_row = of->across ? 1 : of->k,
                      .a_col = of->across ? of->m : 1,
                      .b = floats(&b),
                      .b_row = of->n,
                      .c = floats(&c),
                      .c_row = of->n + gap};
    levels[level]->product(&small, of->m, of->n, of->k, of->add);
    for (uint32_t i = 0; i < of->m; i++)
        for (uint32_t j = 0; j < of->n + gap && (i + 1 < of->m || j < of->n); j++) {
            uint32_t at = i * (of->n + gap) + j;
            float must = before[at];
            if (j < of->n) must = chain(of, level > 0, floats(&a), floats(&b), must, i, j);
            assert_memory_equal(&must, &floats(&c)[at], sizeof must);
        }
    release((test_guard[]){a, b, c}, 3);
}

static void small_products_are_chains_over_k(void **state) {
    (void)state;
    for (int level = 0; level < level_count(); level++)
        for (uint32_t n = 0; n < 200; n++) {
            shape of = {1 + draw(20), 1 + n % 69, draw(20), n & 1, n & 2};
            check_product(&of, level);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_near_the_true_ones),
        cmocka_unit_test(infinities_and_nans_come_out_as_in_libm),
        cmocka_unit_test(maps_have_the_same_bits_at_every_level),
        cmocka_unit_test(joins_have_the_same_bits_at_every_level),
        cmocka_unit_test(gated_gradients_have_the_same_bits_at_every_level),
        cmocka_unit_test(adamw_has_the_same_bits_at_every_level),
        cmocka_unit_test(rows_have_the_same_bits_at_every_level),
        cmocka_unit_test(sums_of_rows_are_sums),
        cmocka_unit_test(the_largest_of_nothing_is_minus_infinity),
        cmocka_unit_test(channel_sums_have_the_same_bits_at_every_level),
        cmocka_unit_test(rows_of_channels_are_scaled_alike),
        cmocka_unit_test(small_products_are_chains_over_k),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
