// stride.cuh — a thread's share of a row, several loads in flight at once: a row has one block, so
// what it takes is the time of its loads one after the other.
#ifndef RN_CUDA_KERNELS_STRIDE_CUH
#define RN_CUDA_KERNELS_STRIDE_CUH

#include <stdint.h>

// take(x[i], i) for i = first, first + step, ... below `end`, in this order. What `take` writes may
// be x[i] itself. All numbers are below 2^31.
template <int Deep, class T, class Take>
__device__ __forceinline__ void rn_stride(const T *x, uint32_t first, uint32_t step, uint32_t end,
                                          Take take) {
    uint32_t i = first;
    for (; i + (Deep - 1) * step < end; i += Deep * step) {
        T v[Deep];
#pragma unroll
        for (int j = 0; j < Deep; j++)
            v[j] = x[i + j * step];
#pragma unroll
        for (int j = 0; j < Deep; j++)
            take(v[j], i + j * step);
    }
    for (; i < end; i += step)
        take(x[i], i);
}

#endif
