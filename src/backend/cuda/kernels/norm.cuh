// norm.cuh — the RMS norm as this device means it, so that every kernel that norms a row (rmsnorm,
// pack, the few-row product) gives it the same bits:
//
//     sum     thread i of 256 adds x[i] x[i], x[i + 256] x[i + 256], ... in order by fmaf from
//     zero;
//             lanes by xor 16, 8, 4, 2, 1; warps in order, beginning with the first
//     scale   1 / sqrt(sum / cols + eps), one rounding each
//     y       (x * scale) * weight, one rounding each
#ifndef RN_CUDA_KERNELS_NORM_CUH
#define RN_CUDA_KERNELS_NORM_CUH

#include "args.h"
#include "stride.cuh"

// A thread's part is `sum`; all RN_NORM_THREADS threads call it and all get the row's sum. `warps`
// may be used again after the caller's next barrier.
__device__ __forceinline__ float rn_norm_total(float sum, float *warps /* shared, (8) */) {
    for (int step = 16; step > 0; step /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = warps[0];
    for (int i = 1; i < RN_NORM_THREADS / 32; i++)
        total = __fadd_rn(total, warps[i]);
    return total;
}

__device__ __forceinline__ float rn_norm_sum(const float *x /* (cols) */, uint32_t cols,
                                             float *warps /* shared, (8) */) {
    float sum = 0;
    rn_stride<8>(x, threadIdx.x, RN_NORM_THREADS, cols,
                 [&](float v, uint32_t) { sum = __fmaf_rn(v, v, sum); });
    return rn_norm_total(sum, warps);
}

__device__ __forceinline__ float rn_norm_scale(float sum, uint32_t cols, float eps) {
    return __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)cols), eps)));
}

__device__ __forceinline__ float rn_norm_apply(float x, float scale, float weight) {
    return __fmul_rn(__fmul_rn(x, scale), weight);
}

#endif
