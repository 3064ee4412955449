// bulk.cuh — copies in bulk from global to shared memory, the barriers that count their bytes, and
// blocks that work together in a cluster. sm_90 and later.
#ifndef RN_CUDA_KERNELS_BULK_CUH
#define RN_CUDA_KERNELS_BULK_CUH

#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t rn_shared_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

// ---- barriers -----------------------------------------------------------------------------------

__device__ __forceinline__ void rn_barrier_begin(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Barriers that were begun are seen by the cluster and by copies; a barrier of threads follows.
__device__ __forceinline__ void rn_barriers_publish() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void rn_barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// An arrival; the phase ends when `bytes` bytes have come, too.
__device__ __forceinline__ void rn_barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void rn_barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}\n"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

// The same for what other blocks of the cluster have handed over (rn_hand_over).
__device__ __forceinline__ void rn_barrier_wait_far(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}\n"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

// ---- copies -------------------------------------------------------------------------------------

// `bytes` (a multiple of 16, as both addresses) to this block.
__device__ __forceinline__ void rn_bulk_copy(uint32_t target, const void *source, uint32_t bytes,
                                             uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(target),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}

// The same to all blocks of the cluster whose rank's bit is set: at the same place of each, and to
// its barrier.
__device__ __forceinline__ void rn_bulk_spread(uint32_t target, const void *source, uint32_t bytes,
                                               uint32_t barrier, uint16_t blocks) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(target),
                 "l"(source), "r"(bytes), "r"(barrier), "h"(blocks)
                 : "memory");
}

// Copies that follow see what kernels before have written.
__device__ __forceinline__ void rn_bulk_fence() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

// ---- clusters -----------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t rn_cluster_x() {
    uint32_t x;
    asm volatile("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
    return x;
}

__device__ __forceinline__ uint32_t rn_cluster_y() {
    uint32_t y;
    asm volatile("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(y));
    return y;
}

// Where another block of the cluster has what this one has at `address`.
__device__ __forceinline__ uint32_t rn_cluster_map(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// 16 bytes to another block of the cluster, counted by a barrier of that block; both mapped.
__device__ __forceinline__ void rn_hand_over(uint32_t target, const float *v /* (4) */,
                                             uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(target),
                 "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier)
                 : "memory");
}

// Says that what was read may be overwritten. It publishes nothing that was written: a release to
// the cluster would cost a fence of the whole device.
__device__ __forceinline__ void rn_barrier_arrive_far(uint32_t mapped) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mapped) : "memory");
}

// All threads of all blocks come here; without order of what they wrote, but for barriers that were
// published.
__device__ __forceinline__ void rn_cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void rn_cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#endif
#endif
