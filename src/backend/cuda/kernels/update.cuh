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

// Of elements 8 i .. 8 i + 7. What the compiler cannot look into is not computed once more where it
// is used.
__device__ __forceinline__ rn_noise_eight rn_draw(const rn_update_args &a, uint64_t i) {
    uint4 low = rn_noise_block(a, 2 * i), high = rn_noise_block(a, 2 * i + 1);
    rn_noise_eight out = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
#pragma unroll
    for (int j = 0; j < 8; j++)
        asm volatile("" : "+r"(out.words[j]));
    return out;
}

// Of element i.
__device__ __forceinline__ uint32_t rn_draw_one(const rn_update_args &a, uint64_t i) {
    uint4 four = rn_noise_block(a, i / 4);
    uint32_t pair[2] = {i & 1 ? four.y : four.x, i & 1 ? four.w : four.z};
    return pair[i >> 1 & 1];
}

enum { RN_NOISE_WEIGHT, RN_NOISE_FIRST, RN_NOISE_SECOND };
__device__ __forceinline__ uint32_t rn_noise_bits(uint32_t word, int which) {
    if (which == RN_NOISE_WEIGHT) return word & 0xFFFF;
    return which == RN_NOISE_FIRST ? word >> 16 : (word * 0x9E3779B1u) >> 16;
}

// The bf16 is the upper half. Infinity and NaN stay: a NaN that was computed has all its bits.
__device__ __forceinline__ uint32_t rn_round_up_bf16(float value, uint32_t word, int which) {
    return __float_as_uint(value) + (fabsf(value) < INFINITY ? rn_noise_bits(word, which) : 0);
}

// Elements i .. i + 7, at a multiple of 16 bytes.
__device__ __forceinline__ void rn_put_eight(uint32_t type, void *data, uint64_t i,
                                             const rn_eight &x, const rn_noise_eight &noise,
                                             int which) {
    if (type != RN_PLAIN_BF16) {
        rn_store_eight(type, data, i, x);
        return;
    }
    uint32_t pairs[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        pairs[j] =
            __byte_perm(rn_round_up_bf16(x.v[2 * j], noise.words[2 * j], which),
                        rn_round_up_bf16(x.v[2 * j + 1], noise.words[2 * j + 1], which), 0x7632);
    *(uint4 *)((uint16_t *)data + i) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ __forceinline__ void rn_put_one(uint32_t type, void *data, uint64_t i, float x,
                                           uint32_t word, int which) {
    if (type == RN_PLAIN_BF16)
        ((uint16_t *)data)[i] = (uint16_t)(rn_round_up_bf16(x, word, which) >> 16);
    else
        rn_store_one(type, data, i, x);
}

#endif
