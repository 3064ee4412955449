// attention_wide.cu — softmax of whole rows of scores, scaled, for attention of wide heads: a block
// a row, which reads its scores twice.
#include "begin.cuh"
#include "half_io.cuh"
#include "wide_args.h"

namespace {

// Of all threads: the largest of `top` and the sums that belong to it.
__device__ __forceinline__ void merge(float &top, float &sum, float other_top, float other_sum) {
    float high = fmaxf(top, other_top);
    if (high == -INFINITY) return;
    sum = sum * __expf(top - high) + other_sum * __expf(other_top - high);
    top = high;
}

} // namespace

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_attention_wide(const __grid_constant__ rn_wide_args a) {
    __shared__ float tops[RN_ROWS_THREADS / 32], sums[RN_ROWS_THREADS / 32];
    rn_begin();
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float *s = a.scores + row * a.keys;
        float top = -INFINITY, sum = 0;
        bool fours = a.keys % 4 == 0;
        if (fours)
#pragma unroll 4
            for (uint32_t i = threadIdx.x; i < a.keys / 4; i += RN_ROWS_THREADS) {
                float4 v = ((const float4 *)s)[i];
                float x0 = v.x * a.scale, x1 = v.y * a.scale, x2 = v.z * a.scale,
                      x3 = v.w * a.scale, high = fmaxf(fmaxf(x0, x1), fmaxf(x2, x3));
                if (high > top) sum *= __expf(top - high), top = high;
                if (top > -INFINITY) // NaN comes through the sum
                    sum +=
                        __expf(x0 - top) + __expf(x1 - top) + __expf(x2 - top) + __expf(x3 - top);
            }
        else
            for (uint32_t i = threadIdx.x; i < a.keys; i += RN_ROWS_THREADS) {
                float x = s[i] * a.scale;
                if (x > top) sum *= __expf(top - x), top = x;
                if (top > -INFINITY) sum += __expf(x - top);
            }
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            float other_top = __shfl_xor_sync(~0u, top, step);
            float other_sum = __shfl_xor_sync(~0u, sum, step);
            merge(top, sum, other_top, other_sum);
        }
        __syncthreads();
        if (lane == 0) tops[warp] = top, sums[warp] = sum;
        __syncthreads();
        top = tops[0], sum = sums[0];
        for (uint32_t i = 1; i < RN_ROWS_THREADS / 32; i++)
            merge(top, sum, tops[i], sums[i]);
        float inverse = 1 / sum;
        if (fours && a.type != RN_PLAIN_F32)
#pragma unroll 4
            for (uint32_t i = threadIdx.x; i < a.keys / 4; i += RN_ROWS_THREADS) {
                float4 v = ((const float4 *)s)[i];
                ((uint2 *)((uint16_t *)a.out + row * a.keys))[i] =
                    make_uint2(rn_narrow_two(a.type, __expf(v.x * a.scale - top) * inverse,
                                             __expf(v.y * a.scale - top) * inverse),
                               rn_narrow_two(a.type, __expf(v.z * a.scale - top) * inverse,
                                             __expf(v.w * a.scale - top) * inverse));
            }
        else
            for (uint32_t i = threadIdx.x; i < a.keys; i += RN_ROWS_THREADS)
                rn_store_one(a.type, a.out, row * a.keys + i,
                             __expf(s[i] * a.scale - top) * inverse);
        if (threadIdx.x == 0 && a.logsumexp) a.logsumexp[row] = top + logf(sum);
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_attention_wide_power(const __grid_constant__ rn_wide_grad_args a) {
    rn_begin();
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        float base = a.logsumexp[row];
        for (uint32_t i = threadIdx.x; i < a.keys; i += RN_ROWS_THREADS) {
            uint64_t at = row * a.keys + i;
            rn_store_one(a.type, a.p, at, __expf(a.scores[at] * a.scale - base));
        }
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_attention_wide_slope(const __grid_constant__ rn_wide_grad_args a) {
    __shared__ float sums[RN_ROWS_THREADS / 32];
    rn_begin();
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        float delta = 0;
        for (uint32_t i = threadIdx.x; i < a.dims; i += RN_ROWS_THREADS)
            delta += rn_load_one(a.y_type, a.y, row * a.dims + i) *
                     rn_load_one(a.dy_type, a.dy, row * a.dims + i);
#pragma unroll
        for (int step = 1; step < 32; step *= 2)
            delta += __shfl_xor_sync(~0u, delta, step);
        __syncthreads();
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = delta;
        __syncthreads();
        delta = 0;
        for (uint32_t i = 0; i < RN_ROWS_THREADS / 32; i++)
            delta += sums[i];
        for (uint32_t i = threadIdx.x; i < a.keys; i += RN_ROWS_THREADS) {
            uint64_t at = row * a.keys + i;
            float p = rn_load_one(a.type, a.p, at);
            rn_store_one(a.type, a.ds, at, p * (a.scores[at] - delta) * a.scale);
        }
    }
}
