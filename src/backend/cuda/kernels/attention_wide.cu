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
        for (uint32_t i = threadIdx.x; i < a.keys; i += RN_ROWS_THREADS) {
            float x = s[i] * a.scale;
            if (!(x <= top)) sum *= __expf(top - x), top = x; // NaN stays
            sum += __expf(x - top);
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
        for (uint32_t i = threadIdx.x; i < a.keys; i += RN_ROWS_THREADS)
            rn_store_one(a.type, a.out, row * a.keys + i, __expf(s[i] * a.scale - top) * inverse);
        if (threadIdx.x == 0 && a.logsumexp) a.logsumexp[row] = top + logf(sum);
    }
}
