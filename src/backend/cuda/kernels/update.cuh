// update.cuh — what the steps of optimisers share: stochastic rounding, roots and quotients.
//
// Roots and quotients are those of __fsqrt_rn and __fdiv_rn without their branches, which keep a
// thread from having several of them on the way: numbers outside the ranges that are named have
// other last bits.
#ifndef RN_CUDA_KERNELS_UPDATE_CUH
#define RN_CUDA_KERNELS_UPDATE_CUH

#include "begin.cuh"
#include "half_io.cuh"
#include "training_args.h"

__device__ __forceinline__ bool rn_is_skipped(const rn_update_args &a) {
    return a.guard && !isfinite(*a.guard);
}

// ---- arithmetic ---------------------------------------------------------------------------------

// Of x within 2^-100 .. infinity, without the latter.
__device__ __forceinline__ float rn_root(float x) {
    float inverse;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    float root = __fmul_rn(x, inverse);
    return __fmaf_rn(__fmaf_rn(-root, root, x), __fmul_rn(inverse, 0.5f), root);
}

// The same from 0 on, infinity and NaN, too.
__device__ __forceinline__ float rn_root_any(float x) {
    bool tiny = x < 0x1p-100f;
    float root = rn_root(tiny ? __fmul_rn(x, 0x1p64f) : x);
    root = tiny ? __fmul_rn(root, 0x1p-32f) : root;
    return x > 0 && x < INFINITY ? root : x;
}

// x / y by y's inverse, rounded to nearest: two corrections, for the first product may be off by
// more than a unit in the last place.
__device__ __forceinline__ float rn_quotient_by(float x, float y, float inverse) {
    float q = __fmul_rn(x, inverse);
    q = __fmaf_rn(__fmaf_rn(-y, q, x), inverse, q);
    return __fmaf_rn(__fmaf_rn(-y, q, x), inverse, q);
}

// Of y within 2^-60 .. 2^100; x / y is 0 or no less than 2^-60.
__device__ __forceinline__ float rn_quotient(float x, float y) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(y));
    inverse = __fmaf_rn(__fmaf_rn(-y, inverse, 1.0f), inverse, inverse);
    return rn_quotient_by(x, y, inverse);
}

// ---- stochastic rounding ------------------------------------------------------------------------

// Philox4x32-10 of (counter, stream, step): graph/stochastic.h.
__device__ __forceinline__ uint4 rn_noise_block(const rn_update_args &a, uint64_t counter) {
    uint32_t k0 = (uint32_t)a.seed, k1 = (uint32_t)(a.seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = a.stream, c3 = a.step;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53 * c0, q = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(q >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)q;
        c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    return make_uint4(c0, c1, c2, c3);
}

struct rn_noise_eight {
    uint32_t words[8];
};

// Of elements 8 i .. 8 i + 7; nothing is drawn where nothing is bf16.
__device__ __forceinline__ rn_noise_eight rn_draw(const rn_update_args &a, uint64_t i,
                                                  bool is_used) {
    rn_noise_eight out = {{0, 0, 0, 0, 0, 0, 0, 0}};
    if (!is_used) return out;
    uint4 low = rn_noise_block(a, 2 * i), high = rn_noise_block(a, 2 * i + 1);
    out = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
    return out;
}

enum { RN_NOISE_WEIGHT, RN_NOISE_FIRST, RN_NOISE_SECOND };
__device__ __forceinline__ uint32_t rn_noise_bits(uint32_t word, int which) {
    if (which == RN_NOISE_WEIGHT) return word & 0xFFFF;
    return which == RN_NOISE_FIRST ? word >> 16 : (word * 0x9E3779B1u) >> 16;
}

__device__ __forceinline__ uint32_t rn_round_bf16(float value, uint32_t bits16) {
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7F800000u) == 0x7F800000u)
        return (bits >> 16) | ((bits & 0x007FFFFFu) ? 0x40 : 0);
    return (bits + bits16) >> 16;
}

// Elements i .. i + count - 1.
__device__ __forceinline__ void rn_put(uint32_t type, void *data, uint64_t i, uint32_t count,
                                       bool aligned, const rn_eight &x,
                                       const rn_noise_eight &noise, int which) {
    if (type != RN_PLAIN_BF16) {
        rn_store_up_to_eight(type, data, i, count, aligned, x);
        return;
    }
    uint32_t narrow[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        narrow[j] = rn_round_bf16(x.v[j], rn_noise_bits(noise.words[j], which));
    uint16_t *to = (uint16_t *)data + i;
    if (aligned && count == 8) {
        *(uint4 *)to = make_uint4(narrow[0] | narrow[1] << 16, narrow[2] | narrow[3] << 16,
                                  narrow[4] | narrow[5] << 16, narrow[6] | narrow[7] << 16);
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (j < (int)count) to[j] = (uint16_t)narrow[j];
}

#endif
