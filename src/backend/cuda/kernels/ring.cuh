// ring.cuh — tiles that one warpgroup brings into shared memory while others multiply: copies of 16
// bytes that a barrier counts when they have come, and registers that go from one warpgroup to
// another. sm_90 and later.
#ifndef RN_CUDA_KERNELS_RING_CUH
#define RN_CUDA_KERNELS_RING_CUH

#include "bulk.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// 16 bytes; zeros where `given` is false.
__device__ __forceinline__ void rn_ring_copy(uint32_t target, const void *source, bool given) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
                 "r"(given ? 16 : 0)
                 : "memory");
}

// An arrival of this thread at the barrier, as soon as all of its copies have come.
__device__ __forceinline__ void rn_ring_arrive(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Registers of a thread, from here on; all warps of the warpgroup come here.
template <int COUNT> __device__ __forceinline__ void rn_registers_less() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void rn_registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif
#endif
