// spans_body.h — the loops of spans.h in the words of vector.h. The including file defines SPANS,
// the table's name, and is compiled for one instruction level.
#include "backend/cpu/spans.h"
#include "backend/cpu/vector.h"
#include "graph/blocks8.h"

// ---- elementwise --------------------------------------------------------------------------------

// Whole vectors, then the rest in one padded vector: every element goes through the same code.
#define MAP(name, expression)                                                                      \
    static void name(const float *px, float *py, uint64_t n, float a, float b) {                   \
        uint64_t i = 0;                                                                            \
        (void)a, (void)b;                                                                          \
        for (; i + LANES <= n; i += LANES) {                                                       \
            vf x = vload(px + i);                                                                  \
            vstore(py + i, expression);                                                            \
        }                                                                                          \
        if (i == n) return;                                                                        \
        vf x = vload_part(px + i, n - i, 1.0f);                                                    \
        vstore_part(py + i, expression, n - i);                                                    \
    }

#define JOIN(name, expression)                                                                     \
    static void name(const float *px, const float *pz, float *py, uint64_t n, float a, float b) {  \
        uint64_t i = 0;                                                                            \
        (void)a, (void)b;                                                                          \
        for (; i + LANES <= n; i += LANES) {                                                       \
            vf x = vload(px + i), z = vload(pz + i);                                               \
            vstore(py + i, expression);                                                            \
        }                                                                                          \
        if (i == n) return;                                                                        \
        vf x = vload_part(px + i, n - i, 1.0f), z = vload_part(pz + i, n - i, 1.0f);               \
        vstore_part(py + i, expression, n - i);                                                    \
    }

// z is one element.
#define JOIN_ONE(name, expression)                                                                 \
    static void name(const float *px, const float *pz, float *py, uint64_t n, float a, float b) {  \
        uint64_t i = 0;                                                                            \
        vf z = vset(*pz);                                                                          \
        (void)a, (void)b;                                                                          \
        for (; i + LANES <= n; i += LANES) {                                                       \
            vf x = vload(px + i);                                                                  \
            vstore(py + i, expression);                                                            \
        }                                                                                          \
        if (i == n) return;                                                                        \
        vf x = vload_part(px + i, n - i, 1.0f);                                                    \
        vstore_part(py + i, expression, n - i);                                                    \
    }

static inline vf vsqrt(vf x) {
    float lanes[LANES];
    vstore(lanes, x);
    for (int i = 0; i < LANES; i++)
        lanes[i] = sqrtf(lanes[i]);
    return vload(lanes);
}

static inline vf vrelu(vf x) {
    return vpick(x < 0.0f, vset(0.0f), x); // NaN stays NaN
}
static inline vf vrelu_slope(vf x) {
    return vpick(x > 0.0f, vset(1.0f), vset(0.0f));
}
static inline vf vsigmoid_slope(vf x) {
    vf s = vsigmoid(x);
    return s * (1.0f - s);
}
static inline vf vsilu(vf x) {
    return x * vsigmoid(x);
}
static inline vf vsilu_slope(vf x) {
    vf s = vsigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}
static inline vf vgelu(vf x) {
    return 0.5f * x * (1.0f + verf(x * 0.70710678f));
}
static inline vf vgelu_slope(vf x) {
    vf cumulative = 0.5f * (1.0f + verf(x * 0.70710678f));
    return cumulative + x * (0.39894228f * vexp(-0.5f * x * x));
}
static inline vf vgelu_inner(vf x) {
    return vtanh(0.79788456f * (x + 0.044715f * x * x * x));
}
static inline vf vgelu_tanh(vf x) {
    return 0.5f * x * (1.0f + vgelu_inner(x));
}
static inline vf vgelu_tanh_slope(vf x) {
    vf t = vgelu_inner(x), slope = 0.79788456f * (1.0f + 3.0f * 0.044715f * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope;
}
// Within 0 and 1; NaN is 1 and then times x NaN again, as the op's own loop has it.
static inline vf vunit(vf x) {
    vf most = vpick(x < 1.0f, x, vset(1.0f));
    return vpick(most > 0.0f, most, vset(0.0f));
}

MAP(map_neg, -x)
MAP(map_exp, vexp(x))
MAP(map_sqrt, vsqrt(x))
MAP(map_rsqrt, 1.0f / vsqrt(x))
MAP(map_scale, x *a + b)
MAP(map_clamp, vclamp(x, a, b))
MAP(map_relu, vrelu(x))
MAP(map_sigmoid, vsigmoid(x))
MAP(map_tanh, vtanh(x))
MAP(map_silu, vsilu(x))
MAP(map_gelu, vgelu(x))
MAP(map_gelu_tanh, vgelu_tanh(x))
MAP(map_abs, vabs(x))
MAP(map_erf, verf(x))
MAP(map_hard_sigmoid, vunit(x *a + b))
MAP(map_hard_swish, x *vunit(x / 6.0f + 0.5f))
MAP(map_leaky_relu, vpick(x < 0.0f, x *a, x))

JOIN(join_add, x + z)
JOIN(join_sub, x - z)
JOIN(join_mul, x *z)
JOIN(join_div, x / z)
JOIN_ONE(one_add, x + z)
JOIN_ONE(one_sub, x - z)
JOIN_ONE(one_mul, x *z)
JOIN_ONE(one_div, x / z)
JOIN(join_relu_grad, vpick(x > 0.0f, z, vset(0.0f)))
JOIN(join_clamp_grad, vpick((x >= a) & (x <= b), z, vset(0.0f)))
JOIN(join_silu_grad, z *vsilu_slope(x))
JOIN(join_gelu_grad, z *vgelu_slope(x))
JOIN(join_gelu_tanh_grad, z *vgelu_tanh_slope(x))
JOIN(gated_silu, vsilu(x) * z)
JOIN(gated_gelu, vgelu(x) * z)
JOIN(gated_gelu_tanh, vgelu_tanh(x) * z)
JOIN(gated_relu, vrelu(x) * z)
JOIN(gated_sigmoid, vsigmoid(x) * z)

// The vector at i, or what is left of the span with `fill` behind it.
static inline vf take(const float *x, uint64_t i, uint64_t n, float fill) {
    return i + LANES <= n ? vload(x + i) : vload_part(x + i, n - i, fill);
}
static inline void put(float *y, uint64_t i, uint64_t n, vf value) {
    if (i + LANES <= n)
        vstore(y + i, value);
    else
        vstore_part(y + i, value, n - i);
}

// Both are computed before either is asked for: they share most of the work.
#define GATED_GRAD(name, value, slope)                                                             \
    static void name(const float *gate, const float *up, const float *dy, float *dgate,            \
                     float *dup, uint64_t n) {                                                     \
        for (uint64_t i = 0; i < n; i += LANES) {                                                  \
            vf x = take(gate, i, n, 1.0f), d = take(dy, i, n, 1.0f);                               \
            vf to_gate = d * take(up, i, n, 1.0f) * slope(x), to_up = d * value(x);                \
            if (dgate) put(dgate, i, n, to_gate);                                                  \
            if (dup) put(dup, i, n, to_up);                                                        \
        }                                                                                          \
    }
GATED_GRAD(gated_grad_silu, vsilu, vsilu_slope)
GATED_GRAD(gated_grad_gelu, vgelu, vgelu_slope)
GATED_GRAD(gated_grad_gelu_tanh, vgelu_tanh, vgelu_tanh_slope)
GATED_GRAD(gated_grad_relu, vrelu, vrelu_slope)
GATED_GRAD(gated_grad_sigmoid, vsigmoid, vsigmoid_slope)

static void adamw_vector(vf *w, vf g, vf *m, vf *v, const rn_adamw_step *s) {
    *m = *m + s->take1 * (g - *m);
    *v = *v * s->beta2 + s->take2 * (g * g);
    *w = *w * s->keep - s->pace * *m / (vsqrt(*v) / s->spread + s->eps);
}

static void adamw(float *w, const float *g, float *m, float *v, uint64_t n,
                  const rn_adamw_step *s) {
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf vw = vload(w + i), vm = vload(m + i), vv = vload(v + i);
        adamw_vector(&vw, vload(g + i), &vm, &vv, s);
        vstore(w + i, vw), vstore(m + i, vm), vstore(v + i, vv);
    }
    if (i == n) return;
    uint64_t rest = n - i;
    vf vw = vload_part(w + i, rest, 0), vm = vload_part(m + i, rest, 0);
    vf vv = vload_part(v + i, rest, 0);
    adamw_vector(&vw, vload_part(g + i, rest, 0), &vm, &vv, s);
    vstore_part(w + i, vw, rest), vstore_part(m + i, vm, rest), vstore_part(v + i, vv, rest);
}

// ---- rows ---------------------------------------------------------------------------------------

// Four at a time: a maximum waits for the one before it.
static float largest(const float *x, uint64_t n) {
    vf most[4] = {vset(-INFINITY), vset(-INFINITY), vset(-INFINITY), vset(-INFINITY)};
    uint64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int k = 0; k < 4; k++)
            most[k] = vmax(vload(x + i + k * LANES), most[k]);
    for (; i < n; i += LANES)
        most[0] = vmax(take(x, i, n, -INFINITY), most[0]);
    return vlargest(vmax(vmax(most[0], most[1]), vmax(most[2], most[3])));
}

static float least(const float *x, uint64_t n) {
    vf most[4] = {vset(-INFINITY), vset(-INFINITY), vset(-INFINITY), vset(-INFINITY)};
    uint64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int k = 0; k < 4; k++)
            most[k] = vmax(-vload(x + i + k * LANES), most[k]);
    for (; i < n; i += LANES)
        most[0] = vmax(-take(x, i, n, INFINITY), most[0]);
    return -vlargest(vmax(vmax(most[0], most[1]), vmax(most[2], most[3])));
}

// Each vector of a row, at i, goes to part p of the sums.
#define EACH_PART(n, ...)                                                                          \
    do {                                                                                           \
        uint64_t i = 0;                                                                            \
        while (i + SUMS <= (n))                                                                    \
            for (int p = 0; p < PARTS; p++, i += LANES)                                            \
                __VA_ARGS__                                                                        \
        for (int p = 0; i < (n); p++, i += LANES)                                                  \
            __VA_ARGS__                                                                            \
    } while (0)

static float dot(const float *x, const float *y, uint64_t n) {
    vsums sum = {0};
    EACH_PART(n, { sum.part[p] += take(x, i, n, 0) * take(y, i, n, 0); });
    return vsum(sum);
}

static float sum_row(const float *x, uint64_t n) {
    vsums sum = {0};
    EACH_PART(n, { sum.part[p] += take(x, i, n, 0); });
    return vsum(sum);
}

enum { WIDE = 16 };

static double add_wide(const double *lanes) {
    double sum = 0;
    for (int j = 0; j < WIDE; j++)
        sum += lanes[j];
    return sum;
}

static double sum_wide(const float *x, uint64_t n) {
    double lanes[WIDE] = {0};
    uint64_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        for (int j = 0; j < WIDE; j++)
            lanes[j] += x[i + (uint64_t)j];
    for (uint64_t j = 0; i + j < n; j++)
        lanes[j] += x[i + j];
    return add_wide(lanes);
}

static double squares_wide(const float *x, uint64_t n) {
    double lanes[WIDE] = {0};
    uint64_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        for (int j = 0; j < WIDE; j++)
            lanes[j] += (double)x[i + (uint64_t)j] * x[i + (uint64_t)j];
    for (uint64_t j = 0; i + j < n; j++)
        lanes[j] += (double)x[i + j] * x[i + j];
    return add_wide(lanes);
}

static float exp_sum(const float *x, float shift, float *y, uint64_t n) {
    vsums sum = {0};
    EACH_PART(n, {
        vf e = vexp_normal(take(x, i, n, -INFINITY) - shift);
        put(y, i, n, e);
        sum.part[p] += e;
    });
    return vsum(sum);
}

static float exp_total(const float *x, float shift, uint64_t n) {
    vsums sum = {0};
    EACH_PART(n, { sum.part[p] += vexp_normal(take(x, i, n, -INFINITY) - shift); });
    return vsum(sum);
}

static void exp_scaled(const float *x, float shift, float factor, float *y, uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES)
        put(y, i, n, vexp_normal(take(x, i, n, shift) - shift) * factor);
}

static void normalize(const float *x, const float *weight, const float *bias, float mean,
                      float rstd, float *y, uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES) {
        vf u = (take(x, i, n, 0) - mean) * rstd;
        if (weight) u = u * take(weight, i, n, 0);
        if (bias) u = u + take(bias, i, n, 0);
        put(y, i, n, u);
    }
}

static float squares(const float *x, float mean, uint64_t n) {
    vsums sum = {0};
    EACH_PART(n, {
        vf u = take(x, i, n, mean) - mean;
        sum.part[p] += u * u;
    });
    return vsum(sum);
}

static void norm_sums(const float *x, const float *dy, const float *weight, float mean, float rstd,
                      uint64_t n, float *out_g, float *out_gu) {
    vsums sum = {0}, both = {0};
    EACH_PART(n, {
        vf g = take(dy, i, n, 0);
        if (weight) g = g * take(weight, i, n, 0);
        sum.part[p] += g;
        both.part[p] += g * ((take(x, i, n, mean) - mean) * rstd);
    });
    *out_g = vsum(sum);
    *out_gu = vsum(both);
}

static void norm_dx(const float *x, const float *dy, const float *weight, float mean, float rstd,
                    float shift, float slope, float *dx, uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES) {
        vf g = take(dy, i, n, 0), u = (take(x, i, n, mean) - mean) * rstd;
        if (weight) g = g * take(weight, i, n, 0);
        put(dx, i, n, rstd * (g - shift - u * slope));
    }
}

static void norm_add(const float *x, const float *dy, float mean, float rstd, double *dweight,
                     double *dbias, uint64_t n) {
    for (uint64_t i = 0; dweight && i < n; i++)
        dweight[i] += dy[i] * ((x[i] - mean) * rstd);
    for (uint64_t i = 0; dbias && i < n; i++)
        dbias[i] += dy[i];
}

static void softmax_grad(const float *y, const float *dy, float inner, float *dx, uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES)
        put(dx, i, n, take(y, i, n, 0) * (take(dy, i, n, 0) - inner));
}

// ---- rotations ----------------------------------------------------------------------------------

static void turn_halves(const float *x, const float *cosines, const float *sines, float *y,
                        uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES) {
        vf u = take(x, i, n, 0), v = take(x + n, i, n, 0);
        put(y, i, n, u * take(cosines, i, n, 0) + v * take(sines, i, n, 0));
        put(y + n, i, n, v * take(cosines + n, i, n, 0) + u * take(sines + n, i, n, 0));
    }
}

static void turn_neighbours(const float *x, const float *cosines, const float *sines, float *y,
                            uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES) {
        vf u = take(x, i, n, 0), v = SHUFFLE(u, NEIGHBOUR);
        put(y, i, n, u * take(cosines, i, n, 0) + v * take(sines, i, n, 0));
    }
}

// ---- channels -----------------------------------------------------------------------------------

// A few channels of all rows, then the next: their numbers stay in registers.
static void affine(const float *x, const float *scale, const float *shift, float *y, uint64_t rows,
                   uint64_t n) {
    uint64_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        vf a[4], b[4];
        for (int k = 0; k < 4; k++)
            a[k] = vload(scale + j + k * LANES), b[k] = vload(shift + j + k * LANES);
        for (uint64_t at = j; at < rows * n; at += n)
            for (int k = 0; k < 4; k++)
                vstore(y + at + k * LANES, vload(x + at + k * LANES) * a[k] + b[k]);
    }
    for (; j < n; j += LANES) {
        vf a = take(scale, j, n, 0), b = take(shift, j, n, 0);
        for (uint64_t row = 0; row < rows; row++)
            put(y + row * n, j, n, take(x + row * n, j, n, 0) * a + b);
    }
}

static void channel_sums(const float *x, double *sum, double *square, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        sum[i] += x[i];
        square[i] += (double)x[i] * x[i];
    }
}

static void channel_dots(const float *x, const float *dy, double *sum, double *dots, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        sum[i] += dy[i];
        dots[i] += (double)dy[i] * x[i];
    }
}

static void channel_dx(const float *x, const float *dy, const float *a, const float *b,
                       const float *c, float *dx, uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES)
        put(dx, i, n,
            take(dy, i, n, 0) * take(a, i, n, 0) +
                (take(x, i, n, 0) * take(b, i, n, 0) + take(c, i, n, 0)));
}

static void max_of(const float *const *x, uint64_t count, float *y, uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES) {
        vf most = take(x[0], i, n, 0);
        for (uint64_t k = 1; k < count; k++)
            most = vmax(take(x[k], i, n, 0), most);
        put(y, i, n, most);
    }
}

// One vector of channels along all pixels; a constant number of taps keeps their weights in
// registers.
// `some` neighbouring outputs of LANES channels. Where it is known how many taps a row has and by
// how many pixels an output steps on, a pixel is read once for all outputs that see it.
static inline __attribute__((always_inline)) void
depthwise_lanes(const rn_depthwise *d, uint64_t i, uint64_t pixel, int some, int taps, int stride) {
    vf sum[4] = {{0}};
    for (uint64_t r = 0; r < d->rows; r++) {
        const float *x = d->x[r] + pixel * d->x_step + i, *w = d->w[r] + i;
        vf k[7];
#pragma GCC unroll 7
        for (int t = 0; t < taps; t++)
            k[t] = vload(w + (uint64_t)t * d->w_tap);
#pragma GCC unroll 13
        for (int at = 0; at < (some - 1) * stride + taps; at++) {
            vf v = vload(x + (uint64_t)at * d->x_tap);
#pragma GCC unroll 4
            for (int p = 0; p < some; p++)
                if (at >= p * stride && at - p * stride < taps)
                    sum[p] = vfma(v, k[at - p * stride], sum[p]);
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < some; p++) {
        vf y = d->bias ? sum[p] + vload(d->bias + i) : sum[p];
        if (d->clamp) y = vclamp(y, d->clamp->low, d->clamp->high);
        vstore(d->y + (pixel + (uint64_t)p) * d->y_step + i, y);
    }
}

// One output of at most LANES channels, any taps.
static inline void depthwise_part(const rn_depthwise *d, uint64_t i, uint64_t pixel,
                                  uint64_t lanes) {
    vf sum = {0};
    for (uint64_t r = 0; r < d->rows; r++)
        for (uint64_t t = 0; t < d->taps; t++) {
            const float *x = d->x[r] + pixel * d->x_step + t * d->x_tap + i;
            const float *w = d->w[r] + t * d->w_tap + i;
            sum = lanes == LANES ? vfma(vload(x), vload(w), sum)
                                 : vfma(vload_part(x, lanes, 0), vload_part(w, lanes, 0), sum);
        }
    if (d->bias) sum += vload_part(d->bias + i, lanes, 0);
    if (d->clamp) sum = vclamp(sum, d->clamp->low, d->clamp->high);
    vstore_part(d->y + pixel * d->y_step + i, sum, lanes);
}

// Four outputs at a time; returns how many there were.
static inline __attribute__((always_inline)) uint64_t depthwise_fours(const rn_depthwise *d,
                                                                      int taps, int stride) {
    uint64_t pixel = 0, whole = d->n / LANES * LANES;
    for (; pixel + 4 <= d->pixels; pixel += 4) {
        for (uint64_t i = 0; i < whole; i += LANES)
            depthwise_lanes(d, i, pixel, 4, taps, stride);
        for (uint64_t p = 0; whole < d->n && p < 4; p++)
            depthwise_part(d, whole, pixel + p, d->n - whole);
    }
    return pixel;
}

static void depthwise(const rn_depthwise *d) {
    uint64_t pixel = 0, stride = d->x_tap && d->x_step % d->x_tap == 0 ? d->x_step / d->x_tap : 0;
    if (stride == 1 && d->taps == 3) pixel = depthwise_fours(d, 3, 1);
    if (stride == 1 && d->taps == 5) pixel = depthwise_fours(d, 5, 1);
    if (stride == 1 && d->taps == 7) pixel = depthwise_fours(d, 7, 1);
    if (stride == 2 && d->taps == 3) pixel = depthwise_fours(d, 3, 2);
    if (stride == 2 && d->taps == 5) pixel = depthwise_fours(d, 5, 2);
    for (; pixel < d->pixels; pixel++)
        for (uint64_t i = 0; i < d->n; i += LANES)
            depthwise_part(d, i, pixel, d->n - i < LANES ? d->n - i : LANES);
}

// 1.5 * 2^23 added and taken away rounds to even what is below 2^22; more is beyond 8 bits anyway.
static inline vi vquantize(vf x, float scale, float zero, float low, float high) {
    vf q = vclamp(x / scale, -65536.0f, 65536.0f);
    vf r = q + 12582912.0f - 12582912.0f + zero;
    return __builtin_convertvector(vclamp(vpick(r == r, r, vset(0.0f)), low, high), vi);
}

// By way of some whole numbers, which the compiler narrows well.
static void quantize(const float *x, void *y, uint64_t n, float scale, float zero, bool is_signed) {
    enum { SOME = 64 };
    float low = is_signed ? -128.0f : 0.0f, high = low + 255.0f;
    uint8_t *to = y; // the low byte is the same for both
    int32_t whole[SOME];
    uint64_t i = 0;
    for (; i + SOME <= n; i += SOME) {
        for (uint64_t j = 0; j < SOME; j += LANES) {
            vi q = vquantize(vload(x + i + j), scale, zero, low, high);
            memcpy(whole + j, &q, sizeof q);
        }
        for (uint64_t j = 0; j < SOME; j++)
            to[i + j] = (uint8_t)whole[j];
    }
    for (; i < n; i += LANES) {
        uint64_t left = n - i < LANES ? n - i : LANES;
        vi q = vquantize(vload_part(x + i, left, 0), scale, zero, low, high);
        for (uint64_t j = 0; j < left; j++)
            to[i + j] = (uint8_t)q[j];
    }
}

static void dequantize(const void *x, float *y, uint64_t n, float scale, float zero,
                       bool is_signed) {
    const uint8_t *plain = x;
    const int8_t *with_sign = x;
    if (is_signed)
        for (uint64_t i = 0; i < n; i++)
            y[i] = ((float)with_sign[i] - zero) * scale;
    else
        for (uint64_t i = 0; i < n; i++)
            y[i] = ((float)plain[i] - zero) * scale;
}

static void add_into(const float *x, float *y, uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES)
        put(y, i, n, take(y, i, n, 0) + take(x, i, n, 0));
}

// ---- one query and a tile of keys ---------------------------------------------------------------

enum { TILE = RN_ATTENTION_TILE };

// Lanes of [first, end), from lane `at` of the tile on.
static inline vi in_range(const rn_key_row *row, int at) {
    vi lane = vlane() + at;
    return (lane >= (int32_t)row->first) & (lane < (int32_t)row->end);
}

// The mask's lanes that count, 0 elsewhere; what is not visible may not be there.
static inline vf take_mask(const rn_key_row *row, int at) {
    int from = (int)row->first - at, to = (int)row->end - at;
    if (from <= 0 && to >= LANES) return vload(row->mask + at);
    float lanes[LANES] = {0};
    for (int i = from > 0 ? from : 0; i < to && i < LANES; i++)
        lanes[i] = row->mask[at + i];
    return vload(lanes);
}

// Score * scale + mask.
static inline vf take_score(const float *scores, const rn_key_row *row, int at) {
    vf x = vload(scores + at) * row->scale;
    return row->mask ? x + take_mask(row, at) : x;
}

// Scaled and capped, in place: what is left of the row is its mask.
static rn_key_row cap_scores(float *scores, const rn_key_row *row) {
    rn_key_row rest = *row;
    for (int at = 0; at < TILE; at += LANES)
        vstore(scores + at, vtanh(vload(scores + at) * row->scale / row->cap) * row->cap);
    rest.scale = 1;
    return rest;
}

static float soften(float *scores, const rn_key_row *row, float *top, float *out_shrink) {
    rn_key_row capped;
    if (row->cap != 0) {
        capped = cap_scores(scores, row);
        row = &capped;
    }
    vf x[TILE / LANES], most = vset(*top);
    vsums sum = {0};
    float old = *top;
    for (int v = 0; v < TILE / LANES; v++) {
        vf score = take_score(scores, row, v * LANES);
        x[v] = vpick(in_range(row, v * LANES), score, vset(-INFINITY));
        most = vmax(x[v], most);
    }
    *top = vlargest(most);
    *out_shrink = 1;
    if (*top == -INFINITY) return 0;
    *out_shrink = vexp_normal(vset(old - *top))[0];
    for (int v = 0; v < TILE / LANES; v++) {
        vf e = vexp_normal(x[v] - *top);
        vstore(scores + v * LANES, e);
        sum.part[v % PARTS] += e;
    }
    return vsum(sum);
}

static void slope(float *p, float *ds, const rn_key_row *row, float logsumexp, float delta) {
    for (int at = 0; at < TILE; at += LANES) {
        vi seen = in_range(row, at);
        vf e = vexp_normal(take_score(p, row, at) - logsumexp);
        vf d = e * (vload(ds + at) - delta) * row->scale;
        vstore(p + at, vpick(seen, e, vset(0)));
        vstore(ds + at, vpick(seen, d, vset(0)));
    }
}

// ---- small products -----------------------------------------------------------------------------

// As many sums as registers hold: rows of c by vectors of its columns.
#if defined(__AVX512F__)
enum { BLOCK_ROWS = 6, BLOCK_VECTORS = 4 };
#else
enum { BLOCK_ROWS = 6, BLOCK_VECTORS = 2 };
#endif

static inline __attribute__((always_inline)) void product_block(const rn_small *s, uint64_t i,
                                                                uint64_t j, uint64_t k, bool add,
                                                                int rows, int vectors) {
    const float *a = s->a + i * s->a_row, *b = s->b + j;
    float *c = s->c + i * s->c_row + j;
    vf sum[BLOCK_ROWS][BLOCK_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = add ? vload(c + (uint64_t)r * s->c_row + v * LANES) : vset(0);
    for (uint64_t at = 0; at < k; at++, a += s->a_col, b += s->b_row)
        for (int r = 0; r < rows; r++) {
            vf x = vset(a[(uint64_t)r * s->a_row]);
            for (int v = 0; v < vectors; v++)
                sum[r][v] = vfma(x, vload(b + v * LANES), sum[r][v]);
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            vstore(c + (uint64_t)r * s->c_row + v * LANES, sum[r][v]);
}

// The columns that do not fill a vector: the same sums, one row at a time.
static void product_rest(const rn_small *s, uint64_t i, uint64_t j, uint64_t k, bool add,
                         uint64_t columns) {
    const float *a = s->a + i * s->a_row, *b = s->b + j;
    float *c = s->c + i * s->c_row + j;
    vf sum = add ? vload_part(c, columns, 0) : vset(0);
    for (uint64_t at = 0; at < k; at++, a += s->a_col, b += s->b_row)
        sum = vfma(vset(*a), vload_part(b, columns, 0), sum);
    vstore_part(c, sum, columns);
}

static void product(const rn_small *s, uint64_t m, uint64_t n, uint64_t k, bool add) {
    enum { STRIP = BLOCK_VECTORS * LANES };
    uint64_t i = 0, j = 0;
    for (; j + STRIP <= n; j += STRIP) {
        for (i = 0; i + BLOCK_ROWS <= m; i += BLOCK_ROWS)
            product_block(s, i, j, k, add, BLOCK_ROWS, BLOCK_VECTORS);
        for (; i < m; i++)
            product_block(s, i, j, k, add, 1, BLOCK_VECTORS);
    }
    for (; j + LANES <= n; j += LANES) {
        for (i = 0; i + BLOCK_ROWS <= m; i += BLOCK_ROWS)
            product_block(s, i, j, k, add, BLOCK_ROWS, 1);
        for (; i < m; i++)
            product_block(s, i, j, k, add, 1, 1);
    }
    for (i = 0; j < n && i < m; i++)
        product_rest(s, i, j, k, add, n - j);
}

// ---- recurrent states ---------------------------------------------------------------------------

static inline vf load_some(const float *p, uint64_t n) {
    return n == LANES ? vload(p) : vload_part(p, n, 0);
}
static inline void store_some(float *p, vf x, uint64_t n) {
    if (n == LANES)
        vstore(p, x);
    else
        vstore_part(p, x, n);
}

static void convolve(const float *const *rows, const float *taps, uint32_t count, float *slot,
                     float *y, uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES) {
        uint64_t part = n - i < LANES ? n - i : LANES;
        vf sum = vset(0), x = vset(0);
        for (uint32_t t = 0; t < count; t++) {
            if (!rows[t]) continue;
            x = load_some(rows[t] + i, part);
            sum += load_some(taps + t * RN_CONV_BLOCK + i, part) * x;
        }
        store_some(y + i, sum, part);
        store_some(slot + i, x, part);
    }
}

// `width` vectors of columns at once: as many sums as the additions' latency hides.
static inline void delta_columns(float *state, uint64_t stride, const rn_delta_step *step,
                                 const float *v, float *y, int width) {
    vf known[4], change[4], out[4];
    for (int w = 0; w < width; w++)
        known[w] = out[w] = vset(0);
    for (uint64_t i = 0; i < step->key_dim; i++) {
        vf k = vset(step->k[i] * step->k_scale);
        for (int w = 0; w < width; w++)
            known[w] += step->decay * vload(state + i * stride + w * LANES) * k;
    }
    for (int w = 0; w < width; w++)
        change[w] = step->beta * (vload(v + w * LANES) - known[w]);
    for (uint64_t i = 0; i < step->key_dim; i++) {
        vf k = vset(step->k[i] * step->k_scale), q = vset(step->q[i] * step->q_scale);
        for (int w = 0; w < width; w++) {
            float *at = state + i * stride + w * LANES;
            vf s = step->decay * vload(at) + k * change[w];
            vstore(at, s);
            out[w] += s * q;
        }
    }
    for (int w = 0; w < width; w++)
        vstore(y + w * LANES, out[w]);
}

static void delta_column(float *state, uint64_t stride, const rn_delta_step *step, float v,
                         float *y) {
    float known = 0, out = 0;
    for (uint64_t i = 0; i < step->key_dim; i++)
        known += step->decay * state[i * stride] * (step->k[i] * step->k_scale);
    float change = step->beta * (v - known);
    for (uint64_t i = 0; i < step->key_dim; i++) {
        float *s = &state[i * stride];
        *s = step->decay * *s + step->k[i] * step->k_scale * change;
        out += *s * (step->q[i] * step->q_scale);
    }
    *y = out;
}

static void delta_step(float *state, uint64_t stride, const rn_delta_step *step, const float *v,
                       float *y, uint64_t n) {
    uint64_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        delta_columns(state + j, stride, step, v + j, y + j, 4);
    for (; j + LANES <= n; j += LANES)
        delta_columns(state + j, stride, step, v + j, y + j, 1);
    for (; j < n; j++)
        delta_column(state + j, stride, step, v[j], y + j);
}

const rn_spans SPANS = {
    .neg = map_neg,
    .exp = map_exp,
    .sqrt = map_sqrt,
    .rsqrt = map_rsqrt,
    .scale = map_scale,
    .clamp = map_clamp,
    .relu = map_relu,
    .sigmoid = map_sigmoid,
    .tanh = map_tanh,
    .silu = map_silu,
    .gelu = map_gelu,
    .gelu_tanh = map_gelu_tanh,
    .abs = map_abs,
    .erf = map_erf,
    .hard_sigmoid = map_hard_sigmoid,
    .hard_swish = map_hard_swish,
    .leaky_relu = map_leaky_relu,
    .add = join_add,
    .sub = join_sub,
    .mul = join_mul,
    .div = join_div,
    .add_one = one_add,
    .sub_one = one_sub,
    .mul_one = one_mul,
    .div_one = one_div,
    .relu_grad = join_relu_grad,
    .clamp_grad = join_clamp_grad,
    .silu_grad = join_silu_grad,
    .gelu_grad = join_gelu_grad,
    .gelu_tanh_grad = join_gelu_tanh_grad,
    .gated = {[RN_ACTIVATION_SILU] = gated_silu,
              [RN_ACTIVATION_GELU] = gated_gelu,
              [RN_ACTIVATION_GELU_TANH] = gated_gelu_tanh,
              [RN_ACTIVATION_RELU] = gated_relu,
              [RN_ACTIVATION_SIGMOID] = gated_sigmoid},
    .gated_grad = {[RN_ACTIVATION_SILU] = gated_grad_silu,
                   [RN_ACTIVATION_GELU] = gated_grad_gelu,
                   [RN_ACTIVATION_GELU_TANH] = gated_grad_gelu_tanh,
                   [RN_ACTIVATION_RELU] = gated_grad_relu,
                   [RN_ACTIVATION_SIGMOID] = gated_grad_sigmoid},
    .adamw = adamw,
    .adamw8 = rn_adamw8_block,
    .lion8 = rn_lion8_block,
    .largest = largest,
    .least = least,
    .dot = dot,
    .sum = sum_row,
    .sum_wide = sum_wide,
    .squares_wide = squares_wide,
    .exp_sum = exp_sum,
    .exp_total = exp_total,
    .exp_scaled = exp_scaled,
    .normalize = normalize,
    .squares = squares,
    .norm_sums = norm_sums,
    .norm_dx = norm_dx,
    .norm_add = norm_add,
    .softmax_grad = softmax_grad,
    .turn_halves = turn_halves,
    .turn_neighbours = turn_neighbours,
    .affine = affine,
    .channel_sums = channel_sums,
    .channel_dots = channel_dots,
    .channel_dx = channel_dx,
    .max_of = max_of,
    .add_into = add_into,
    .depthwise = depthwise,
    .quantize = quantize,
    .dequantize = dequantize,
    .soften = soften,
    .slope = slope,
    .product = product,
    .convolve = convolve,
    .delta_step = delta_step,
};
