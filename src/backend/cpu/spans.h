// spans.h — the inner loops of elementwise and row-wise kernels, one table for each instruction
// level (all levels give the same bits, but for `product` at the portable one). Kernels
// (elementwise.c, rows.c, ...) cut tensors into spans and rows and call these. Outputs may
// overwrite inputs of the same length.
#ifndef RN_BACKEND_CPU_SPANS_H
#define RN_BACKEND_CPU_SPANS_H

#include "graph/attention_row.h"

struct rn_step8;
typedef void rn_map_span(const float *x, float *y, uint64_t n, float a, float b);
typedef void rn_join_span(const float *x, const float *z, float *y, uint64_t n, float a, float b);

typedef struct rn_adamw_step {
    float keep, take1, beta2, take2, pace, spread, eps;
} rn_adamw_step;

// Three small matrices; steps in elements, b's and c's columns are neighbours.
typedef struct rn_small {
    const float *a; // (m, k)
    uint64_t a_row, a_col;
    const float *b; // (k, n)
    uint64_t b_row;
    float *c; // (m, n)
    uint64_t c_row;
} rn_small;

// What one query sees of a tile of 64 keys.
typedef struct rn_key_row {
    uint32_t first, end; // of the tile: keys [first, end)
    float scale;
    float cap;         // of scores, before the mask; 0: none
    const float *mask; // (64), of which [first, end) is read; or NULL
} rn_key_row;

enum { RN_CONV_BLOCK = 64 }; // channels

// What a row does to all columns of a head's state.
typedef struct rn_delta_step {
    const float *q, *k; // (key_dim)
    float q_scale, k_scale, decay, beta;
    uint64_t key_dim;
} rn_delta_step;

// Outputs of a line of pixels, each channel by itself: y = the sum of x[r][t] w[r][t] over `rows`
// and, within them, `taps`, in this order; + bias; within two ends.
typedef struct rn_depthwise {
    const float *const *x, *const *w; // (rows): where the first tap is, of the first output
    uint64_t rows, taps;
    uint64_t x_tap, w_tap, x_step, y_step; // floats from tap to tap, from output to output
    const float *bias;                     // (n) or NULL
    const rn_clamp_attrs *clamp;           // or NULL
    float *y;                              // (pixels, n)
    uint64_t n, pixels;
} rn_depthwise;

typedef struct rn_spans {
    // y = f(x)
    rn_map_span *neg, *exp, *sqrt, *rsqrt, *scale, *clamp;
    rn_map_span *relu, *sigmoid, *tanh, *silu, *gelu, *gelu_tanh;
    rn_map_span *abs, *erf, *hard_sigmoid, *hard_swish, *leaky_relu;
    // y = f(x, z); "_one": z is one element for all
    rn_join_span *add, *sub, *mul, *div, *add_one, *sub_one, *mul_one, *div_one;
    // y = z f'(x)
    rn_join_span *relu_grad, *clamp_grad, *silu_grad, *gelu_grad, *gelu_tanh_grad;
    // y = activation(x) z, by activation
    rn_join_span *gated[RN_ACTIVATION_COUNT];
    void (*gated_grad[RN_ACTIVATION_COUNT])(const float *gate, const float *up, const float *dy,
                                            float *dgate, float *dup, uint64_t n);
    void (*adamw)(float *w, const float *g, float *m, float *v, uint64_t n, const rn_adamw_step *s);
    // graph/blocks8.h: w (n) with one block of codes for each state, and its scale
    void (*adamw8)(float *w, const float *g, uint8_t *m, float *m_scale, uint8_t *v, float *v_scale,
                   uint32_t n, const struct rn_step8 *s);
    void (*lion8)(float *w, const float *g, uint8_t *m, float *m_scale, uint32_t n,
                  const struct rn_step8 *s);

    // ---- rows of n ------------------------------------------------------------------------------
    float (*largest)(const float *x, uint64_t n); // -infinity where n is 0; NaN wins
    float (*least)(const float *x, uint64_t n);   // infinity where n is 0; NaN wins
    float (*dot)(const float *x, const float *y, uint64_t n);
    float (*sum)(const float *x, uint64_t n);
    // the sum, and that of the squares, in 16 lanes of double
    double (*sum_wide)(const float *x, uint64_t n);
    double (*squares_wide)(const float *x, uint64_t n);
    // y = e^(x - shift), 0 below the normal range; x - shift is at most 88. Returns the sum
    float (*exp_sum)(const float *x, float shift, float *y, uint64_t n);
    // the same without y
    float (*exp_total)(const float *x, float shift, uint64_t n);
    // y = e^(x - shift) factor
    void (*exp_scaled)(const float *x, float shift, float factor, float *y, uint64_t n);
    // y = (x - mean) rstd weight + bias; weight and bias may be NULL
    void (*normalize)(const float *x, const float *weight, const float *bias, float mean,
                      float rstd, float *y, uint64_t n);
    // sum of (x - mean)^2
    float (*squares)(const float *x, float mean, uint64_t n);
    // sums of g and of g u, with g = dy weight and u = (x - mean) rstd
    void (*norm_sums)(const float *x, const float *dy, const float *weight, float mean, float rstd,
                      uint64_t n, float *out_g, float *out_gu);
    // dx = rstd (g - shift - u slope)
    void (*norm_dx)(const float *x, const float *dy, const float *weight, float mean, float rstd,
                    float shift, float slope, float *dx, uint64_t n);
    // sums += dy u and dy, in double; either may be NULL
    void (*norm_add)(const float *x, const float *dy, float mean, float rstd, double *dweight,
                     double *dbias, uint64_t n);
    // dx = y (dy - dot)
    void (*softmax_grad)(const float *y, const float *dy, float dot, float *dx, uint64_t n);

    // ---- rotations (rope.c): y = x cosines + (x with its pairs swapped) sines
    // -------------------- pairs (i, i + n): all arrays are (2 n)
    void (*turn_halves)(const float *x, const float *cosines, const float *sines, float *y,
                        uint64_t n);
    // pairs (2 i, 2 i + 1): all arrays are (n), n even
    void (*turn_neighbours)(const float *x, const float *cosines, const float *sines, float *y,
                            uint64_t n);

    // ---- channels: x (rows, n), one number a channel ------------------------------------------
    // y = x scale + shift, for all rows
    void (*affine)(const float *x, const float *scale, const float *shift, float *y, uint64_t rows,
                   uint64_t n);
    // sums += x and x^2 / sums += dy and dy x
    void (*channel_sums)(const float *x, double *sum, double *squares, uint64_t n);
    void (*channel_dots)(const float *x, const float *dy, double *sum, double *dots, uint64_t n);
    // dx = dy a + x b + c
    void (*channel_dx)(const float *x, const float *dy, const float *a, const float *b,
                       const float *c, float *dx, uint64_t n);
    // y = the largest of `count` rows x (at least 1); NaN wins
    void (*max_of)(const float *const *x, uint64_t count, float *y, uint64_t n);
    void (*add_into)(const float *x, float *y, uint64_t n); // y += x
    void (*depthwise)(const rn_depthwise *d);
    // y = round(x / scale) + zero within 8 bits, and (x - zero) scale; NaN is 0
    void (*quantize)(const float *x, void *y, uint64_t n, float scale, float zero, bool is_signed);
    void (*dequantize)(const void *x, float *y, uint64_t n, float scale, float zero,
                       bool is_signed);

    // ---- one query and a tile of keys -----------------------------------------------------------
    // scores (64) -> e^(score scale + mask - top), of which [first, end) count. Raises the top;
    // shrink is e^(old top - top). Returns the sum. Where there is nothing to see, or -infinity
    // only, the scores are left alone, the sum is 0 and the top stays -infinity.
    float (*soften)(float *scores, const rn_key_row *row, float *top, float *out_shrink);
    // p (64): scores -> e^(score scale + mask - logsumexp); ds (64): d -> p (d - delta) scale; both
    // 0 outside of [first, end)
    void (*slope)(float *p, float *ds, const rn_key_row *row, float logsumexp, float delta);

    // ---- small products -------------------------------------------------------------------------
    // c = a b, or += with `add`: a sum over k in order, by fused multiply-adds from 0 or from c.
    void (*product)(const rn_small *s, uint64_t m, uint64_t n, uint64_t k, bool add);

    // ---- recurrent states (recurrent.c) ---------------------------------------------------------
    // y = the sum over t of taps[t] rows[t], in this order, without those of row NULL; then slot =
    // the last row, which y may be. taps are (count, RN_CONV_BLOCK)
    void (*convolve)(const float *const *rows, const float *taps, uint32_t count, float *slot,
                     float *y, uint64_t n);
    // n columns of a head's state (key_dim, stride), after a row: graph/op/delta_rule.c
    void (*delta_step)(float *state, uint64_t stride, const rn_delta_step *step, const float *v,
                       float *y, uint64_t n);
} rn_spans;

extern const rn_spans rn_spans_portable, rn_spans_avx2, rn_spans_avx512;
// The table for rn_cpu_level_get().
const rn_spans *rn_spans_get(void);

#endif
