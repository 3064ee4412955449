// pack.cu — f32 rows, normed where wanted, to packed 16-bit activations (args.h).
//
// Normed, a block has one token: it sums the squares in the order of norm.cuh, then makes the row.
// Plain, all blocks share all. Tokens and columns behind the last become zeros. x is read past the
// L1, which may hold what was there before the kernel before (product_finish.cuh).
#include "args.h"
#include "begin.cuh"
#include "forms.cuh"
#include "norm.cuh"

enum { RN_PACK_DEEP = 16 }; // loads of a thread that are in flight at once

// The order of sums is rn_norm_sum's; only more loads are begun before the first is used.
__device__ __forceinline__ float sum_squares(const float *x /* (cols) */, uint32_t cols,
                                             float *warps) {
    float sum = 0;
    uint32_t at = threadIdx.x;
    for (; at + (RN_PACK_DEEP - 1) * RN_NORM_THREADS < cols; at += RN_PACK_DEEP * RN_NORM_THREADS) {
        float v[RN_PACK_DEEP];
#pragma unroll
        for (int i = 0; i < RN_PACK_DEEP; i++)
            v[i] = __ldcg(x + at + i * RN_NORM_THREADS);
#pragma unroll
        for (int i = 0; i < RN_PACK_DEEP; i++)
            sum = __fmaf_rn(v[i], v[i], sum);
    }
#pragma unroll 4
    for (; at < cols; at += RN_NORM_THREADS) {
        float v = __ldcg(x + at);
        sum = __fmaf_rn(v, v, sum);
    }
    return rn_norm_total(sum, warps);
}

// Columns at .. at + 3 of a row; zeros behind the last.
__device__ __forceinline__ float4 read_four(const float *row, uint32_t at, uint32_t cols,
                                            bool wide) {
    if (wide && at + 4 <= cols) return __ldcg((const float4 *)(row + at));
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = at + i < cols ? __ldcg(row + at + i) : 0.0f;
    return make_float4(v[0], v[1], v[2], v[3]);
}

template <bool BF16> __device__ __forceinline__ uint2 round_four(float4 v) {
    return make_uint2(rn_round_16<BF16>(v.x) | (uint32_t)rn_round_16<BF16>(v.y) << 16,
                      rn_round_16<BF16>(v.z) | (uint32_t)rn_round_16<BF16>(v.w) << 16);
}

// To its half of a core matrix's row.
__device__ __forceinline__ void put_four(const rn_pack_args &a, uint32_t token, uint32_t at,
                                         float4 v) {
    uint64_t core = ((uint64_t)(at / 64) * ((a.rows + 7) / 8) + token / 8) * 8 + at % 64 / 8;
    uint8_t *target = (uint8_t *)a.packed + core * 128 + token % 8 * 16 + at % 8 * 2;
    *(uint2 *)target = a.is_bf16 ? round_four<true>(v) : round_four<false>(v);
}

// A block a token.
__device__ __forceinline__ void pack_normed(const rn_pack_args &a, float *warps) {
    uint32_t token = blockIdx.x, cols = (a.cols + 127) / 128 * 128;
    bool alive = token < a.rows, wide = a.cols % 4 == 0 && rn_is_aligned(a.x, 16);
    bool wide_norm = rn_is_aligned(a.norm, 16);
    const float *x = a.x + (uint64_t)token * a.cols; // (cols)
    float scale = 1.0f;
    if (alive) scale = rn_norm_scale(sum_squares(x, a.cols, warps), a.cols, a.eps);
#pragma unroll 4
    for (uint32_t at = 4 * threadIdx.x; at < cols; at += 4 * RN_NORM_THREADS) {
        float4 v = make_float4(0, 0, 0, 0);
        if (alive) {
            float4 weight = read_four(a.norm, at, a.cols, wide_norm);
            v = read_four(x, at, a.cols, wide);
            v.x = rn_norm_apply(v.x, scale, weight.x), v.y = rn_norm_apply(v.y, scale, weight.y);
            v.z = rn_norm_apply(v.z, scale, weight.z), v.w = rn_norm_apply(v.w, scale, weight.w);
        }
        put_four(a, token, at, v);
    }
}

// All warps of the grid share strips of four tokens by 32 columns: whole lines are read and whole
// sectors written.
__device__ __forceinline__ void pack_plain(const rn_pack_args &a) {
    uint32_t lane = threadIdx.x % 32, strips = (a.cols + 127) / 128 * 4;
    uint32_t all = (a.rows + 7) / 8 * 2 * strips, step = gridDim.x * (RN_NORM_THREADS / 32);
    bool wide = a.cols % 4 == 0 && rn_is_aligned(a.x, 16);
#pragma unroll 4
    for (uint32_t i = (blockIdx.x * RN_NORM_THREADS + threadIdx.x) / 32; i < all; i += step) {
        uint32_t token = i / strips * 4 + lane / 8, at = i % strips * 32 + lane % 8 * 4;
        float4 v = make_float4(0, 0, 0, 0);
        if (token < a.rows) v = read_four(a.x + (uint64_t)token * a.cols, at, a.cols, wide);
        put_four(a, token, at, v);
    }
}

// Grid: a block a token, in whole eights; RN_NORM_THREADS threads.
extern "C" __global__ void __launch_bounds__(RN_NORM_THREADS)
    rn_pack(const __grid_constant__ rn_pack_args a) {
    __shared__ float warps[RN_NORM_THREADS / 32];
    rn_begin();
    if (a.norm)
        pack_normed(a, warps);
    else
        pack_plain(a);
}
