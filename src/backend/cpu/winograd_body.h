// winograd_body.h — the transforms of winograd.h in the words of vector.h. The including file
// defines WINOGRAD, the table's name, and is compiled for one instruction level.
#include "backend/cpu/vector.h"
#include "backend/cpu/winograd.h"

enum { OUT = RN_WINOGRAD_OUT, IN = RN_WINOGRAD_IN, TAPS = 3 };

#define INLINE static inline __attribute__((always_inline))

#define ROOT_HALF 0.70710678118654752f
#define ROOT_TWO  1.41421356237309505f

// B' d.
INLINE void transform_pixels(const vf d[IN], vf out[IN]) {
    vf even = vfma(vset(-2.0f), d[2], d[4]), odd = vfma(vset(-2.0f), d[1], d[3]);
    vf even_b = vfma(vset(-0.5f), d[2], d[4]), odd_b = vfma(vset(-0.5f), d[1], d[3]);
    out[0] = vfma(vset(-2.5f), d[2], d[0] + d[4]);
    out[1] = vfma(vset(ROOT_HALF), odd, even);
    out[2] = vfma(vset(-ROOT_HALF), odd, even);
    out[3] = vfma(vset(ROOT_TWO), odd_b, even_b);
    out[4] = vfma(vset(-ROOT_TWO), odd_b, even_b);
    out[5] = vfma(vset(-2.5f), d[3], d[1] + d[5]);
}

// G w.
INLINE void transform_taps(const vf w[TAPS], vf out[IN]) {
    vf near = (w[0] + w[2] * 0.5f) * (-2.0f / 3), near_odd = w[1] * (-2.0f / 3 * ROOT_HALF);
    vf far = (w[0] + w[2] * 2.0f) * (1.0f / 6), far_odd = w[1] * (ROOT_TWO / 6);
    out[0] = w[0];
    out[1] = near + near_odd;
    out[2] = near - near_odd;
    out[3] = far + far_odd;
    out[4] = far - far_odd;
    out[5] = w[2];
}

// A' m.
INLINE void transform_sums(const vf m[IN], vf out[OUT]) {
    vf near = m[1] + m[2], near_odd = m[1] - m[2], far = m[3] + m[4], far_odd = m[3] - m[4];
    out[0] = m[0] + near + far;
    out[1] = vfma(vset(ROOT_TWO), far_odd, near_odd * ROOT_HALF);
    out[2] = vfma(vset(2.0f), far, near * 0.5f);
    out[3] = vfma(vset(2 * ROOT_TWO), far_odd, vfma(vset(ROOT_HALF / 2), near_odd, m[5]));
}

static void input(const float *const *x, size_t n, float *to, size_t plane) {
    for (size_t i = 0; i < n; i += LANES) {
        vf half[IN][IN]; // transformed from top to bottom: (column, element)
#pragma GCC unroll 6
        for (int col = 0; col < IN; col++) {
            vf d[IN];
#pragma GCC unroll 6
            for (int row = 0; row < IN; row++)
                d[row] = vload(x[row * IN + col] + i);
            transform_pixels(d, half[col]);
        }
#pragma GCC unroll 6
        for (int row = 0; row < IN; row++) {
            vf d[IN], out[IN];
#pragma GCC unroll 6
            for (int col = 0; col < IN; col++)
                d[col] = half[col][row];
            transform_pixels(d, out);
#pragma GCC unroll 6
            for (int col = 0; col < IN; col++)
                vstore(to + (size_t)(row * IN + col) * plane + i, out[col]);
        }
    }
}

static void weight(const float *w, size_t step, size_t n, float *to, size_t plane) {
    for (size_t i = 0; i < n; i += LANES) {
        vf half[TAPS][IN];
#pragma GCC unroll 3
        for (int col = 0; col < TAPS; col++) {
            vf taps[TAPS];
#pragma GCC unroll 3
            for (int row = 0; row < TAPS; row++)
                taps[row] = vload(w + (size_t)(row * TAPS + col) * step + i);
            transform_taps(taps, half[col]);
        }
#pragma GCC unroll 6
        for (int row = 0; row < IN; row++) {
            vf out[IN];
            transform_taps((vf[TAPS]){half[0][row], half[1][row], half[2][row]}, out);
#pragma GCC unroll 6
            for (int col = 0; col < IN; col++)
                vstore(to + (size_t)(row * IN + col) * plane + i, out[col]);
        }
    }
}

INLINE vf finish(vf y, const float *bias, const rn_clamp_attrs *clamp) {
    if (bias) y += vload(bias);
    return clamp ? vclamp(y, clamp->low, clamp->high) : y;
}

static void output(const float *from, size_t plane, size_t n, const float *bias,
                   const rn_clamp_attrs *clamp, const rn_winograd_square *s) {
    for (size_t i = 0; i < n; i += LANES) {
        vf half[IN][OUT];
#pragma GCC unroll 6
        for (int col = 0; col < IN; col++) {
            vf m[IN];
#pragma GCC unroll 6
            for (int row = 0; row < IN; row++)
                m[row] = vload(from + (size_t)(row * IN + col) * plane + i);
            transform_sums(m, half[col]);
        }
        for (size_t row = 0; row < s->rows; row++) {
            vf m[IN], y[OUT];
#pragma GCC unroll 6
            for (int col = 0; col < IN; col++)
                m[col] = half[col][row];
            transform_sums(m, y);
            for (size_t col = 0; col < s->cols; col++)
                vstore(s->y + row * s->row + col * s->pixel + i,
                       finish(y[col], bias ? bias + i : NULL, clamp));
        }
    }
}

extern const rn_winograd_set WINOGRAD;
const rn_winograd_set WINOGRAD = {input, weight, output};
