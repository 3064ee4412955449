// vector.h — as many floats at a time as a register holds, in the compiler's own vectors: one text
// for every instruction level, compiled once for each (spans_portable.c, spans_avx2.c,
// spans_avx512.c).
//
// Every level gives the same bits: an element's result does not depend on the width, sums run in
// 32 lanes at every width and are added pairwise at the end, and nothing is fused
// (-ffp-contract=off). Only vfma differs, between portable and the others.
#ifndef RN_BACKEND_CPU_VECTOR_H
#define RN_BACKEND_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__FMA__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { SUMS = 32, PARTS = SUMS / LANES };

typedef float vf __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t vi __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef struct vsums {
    vf part[PARTS];
} vsums;

static inline vf vload(const float *p) {
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline void vstore(float *p, vf x) {
    memcpy(p, &x, sizeof x);
}
static inline vf vset(float x) {
    return x - (vf){0}; // a scalar beside a vector is spread over it
}
static inline vi vlane(void) {
    vi lane = {0};
    for (int i = 0; i < LANES; i++)
        lane[i] = i;
    return lane;
}
static inline vf vpick(vi mask, vf yes, vf no) {
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}
// The first n lanes from p, `fill` in the others.
static inline vf vload_part(const float *p, uint64_t n, float fill) {
#if defined(__AVX512F__)
    return (vf)_mm512_mask_loadu_ps((__m512)vset(fill), (__mmask16)((1u << n) - 1), p);
#elif defined(__AVX2__)
    vi mask = vlane() < (int32_t)n;
    return vpick(mask, (vf)_mm256_maskload_ps(p, (__m256i)mask), vset(fill));
#else
    vf x = vset(fill);
    memcpy(&x, p, n * sizeof(float));
    return x;
#endif
}
static inline void vstore_part(float *p, vf x, uint64_t n) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(p, (__m256i)(vlane() < (int32_t)n), (__m256)x);
#else
    memcpy(p, &x, n * sizeof(float));
#endif
}
// NaN wins.
static inline vf vmax(vf a, vf b) {
    return vpick((a > b) | (a != a), a, b);
}
// NaN goes through.
static inline vf vclamp(vf x, float low, float high) {
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)vset(high), _mm512_max_ps((__m512)vset(low), (__m512)x));
#elif defined(__AVX2__)
    return (vf)_mm256_min_ps((__m256)vset(high), _mm256_max_ps((__m256)vset(low), (__m256)x));
#else
    return vpick(x < low, vset(low), vpick(x > high, vset(high), x));
#endif
}
static inline vf vabs(vf x) {
    return (vf)((vi)x & 0x7fffffff);
}
static inline vf vcopysign(vf size, vf sign) {
    return (vf)(((vi)size & 0x7fffffff) | ((vi)sign & (int32_t)0x80000000));
}

// a b + c, rounded once where the level can.
static inline vf vfma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

// ---- all lanes in one ---------------------------------------------------------------------------

// SHUFFLE(x, AT): lane i of the result is lane AT(i) of x, a constant.
#define EIGHT_OF(AT, i)                                                                            \
    AT((i)), AT((i) + 1), AT((i) + 2), AT((i) + 3), AT((i) + 4), AT((i) + 5), AT((i) + 6),         \
        AT((i) + 7)
#if defined(__AVX512F__)
#define SHUFFLE(x, AT) __builtin_shufflevector(x, x, EIGHT_OF(AT, 0), EIGHT_OF(AT, 8))
#elif defined(__AVX2__)
#define SHUFFLE(x, AT) __builtin_shufflevector(x, x, EIGHT_OF(AT, 0))
#else
#define SHUFFLE(x, AT) __builtin_shufflevector(x, x, AT(0), AT(1), AT(2), AT(3))
#endif
#define FURTHER_1(i) (((i) + 1) % LANES)
#define FURTHER_2(i) (((i) + 2) % LANES)
#define FURTHER_4(i) (((i) + 4) % LANES)
#define FURTHER_8(i) (((i) + 8) % LANES)
#define NEIGHBOUR(i) ((i) ^ 1)

// Pairwise: 16 + 16, 8 + 8, 4 + 4, 2 + 2, 1 + 1.
static inline float vsum(vsums s) {
    for (int width = PARTS / 2; width; width /= 2)
        for (int i = 0; i < width; i++)
            s.part[i] += s.part[i + width];
    vf x = s.part[0];
#if defined(__AVX2__)
#if defined(__AVX512F__)
    x += SHUFFLE(x, FURTHER_8);
#endif
    x += SHUFFLE(x, FURTHER_4);
#endif
    x += SHUFFLE(x, FURTHER_2);
    return x[0] + x[1];
}

static inline float vlargest(vf x) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
    x = vmax(x, SHUFFLE(x, FURTHER_8));
#endif
    x = vmax(x, SHUFFLE(x, FURTHER_4));
#endif
    x = vmax(x, SHUFFLE(x, FURTHER_2));
    x = vmax(x, SHUFFLE(x, FURTHER_1));
    return x[0];
}

// ---- functions ----------------------------------------------------------------------------------

// x = n ln 2 + r with |r| <= ln 2 / 2 and a whole n; e^r by a polynomial.
static inline vf vexp_parts(vf x, vi *out_n) {
    vf shifted = x * 1.44269504f + 12582912.0f; // 1.5 * 2^23: rounds to whole numbers
    vf n = shifted - 12582912.0f;
    vf r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vf p = vset(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    *out_n = __builtin_convertvector(n, vi);
    return p * (r * r) + r + 1.0f;
}

// e^x. 2^n is multiplied in two halves, so that results below the normal range come out right.
// Overflows to infinity; NaN goes through all of it.
static inline vf vexp(vf x) {
    vf kept = vpick(x > 89.0f, vset(89.0f), vpick(x < -104.0f, vset(-104.0f), x));
    vi n;
    vf p = vexp_parts(kept, &n);
    vi half = n >> 1;
    return p * (vf)((half + 127) << 23) * (vf)((n - half + 127) << 23);
}

// The same for x of at most 88, as in a softmax; below 1.01 * 2^-126 it is 0: numbers under the
// normal range take the processor a hundred times as long and add nothing to a sum that has a 1 in
// it.
static inline vf vexp_normal(vf x) {
    vi n, none = x < -87.33f;
    vf p = vexp_parts(vpick(none, vset(0), x), &n);
    return vpick(none, vset(0), p * (vf)((n + 127) << 23));
}

static inline vf vsigmoid(vf x) {
    return 1.0f / (1.0f + vexp(-x));
}

// Near 0 by a polynomial, elsewhere 1 - 2 / (e^2x + 1); the sign is put back at the end.
static inline vf vtanh(vf x) {
    vf t = vabs(x), z = x * x;
    vf far = 1.0f - 2.0f / (vexp(t + t) + 1.0f);
    vf p = vset(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return vcopysign(vpick(t > 0.625f, far, p * z * t + t), x);
}

// The error function: near 0 by a polynomial in x^2, elsewhere 1 - e^polynomial.
static inline vf verf(vf x) {
    vf t = vabs(x), s = x * x;
    vf r = -1.72853470e-5f * t + 3.83197126e-4f, u = -3.88396438e-3f * t + 2.42546219e-2f;
    r = r * s + u;
    r = r * t - 1.06777877e-1f;
    r = r * t - 6.34846687e-1f;
    r = r * t - 1.28717512e-1f;
    r = r * t - t;
    vf p = vset(-5.96761703e-4f);
    p = p * s + 4.99119423e-3f;
    p = p * s - 2.67681349e-2f;
    p = p * s + 1.12819925e-1f;
    p = p * s - 3.76125336e-1f;
    p = p * s + 1.28379166e-1f;
    return vcopysign(vpick(t > 0.927734375f, 1.0f - vexp_normal(r), p * t + t), x);
}

#endif
