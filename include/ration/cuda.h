// cuda.h — NVIDIA GPUs: the device, what its memory holds, and memory for programs of their own.
//
//     rn_device *gpu;
//     if (rn_cuda_device_create(0, 0, &gpu) != RN_OK) ...   // says why: no driver, no kernels, ...
//     rn_gpu_memory_info info;
//     RN_TRY(rn_cuda_memory_info(gpu, &info));
//
// The driver is found when it is first needed; nothing of CUDA's has to be there to build or to
// start. Kernels are part of the library where it was built with nvcc (`make cuda`).
#ifndef RATION_CUDA_H
#define RATION_CUDA_H

#include <ration/device.h>

RN_BEGIN_DECLS

// GPU number `ordinal`, with so many threads of the host to pack weights (0: all). Takes the
// device's primary context and loads all kernels. RN_UNSUPPORTED: no driver, one that is too old, a
// library without kernels, a GPU before compute capability 8.0. RN_NOT_FOUND: there are fewer
// GPUs. RN_NO_MEMORY, RN_OVER_BUDGET, RN_DEVICE. rn_device_destroy gives everything back.
RN_API RN_MUST_USE rn_status rn_cuda_device_create(int ordinal, uint32_t threads, rn_device **out);

// ---- what the device's memory holds -------------------------------------------------------------

typedef struct rn_gpu_memory_info {
    uint64_t total_bytes, free_bytes; // as the driver says now
    uint64_t used_bytes, peak_bytes;  // this process's, by the ledger; outside included
    uint64_t unaccounted_bytes;       // of them: context, kernels, the driver's own; rounding up
    uint64_t others_bytes;            // what is neither free nor this process's
} rn_gpu_memory_info;

// `device` is one of rn_cuda_device_create here and below. RN_DEVICE.
RN_API RN_MUST_USE rn_status rn_cuda_memory_info(rn_device *device, rn_gpu_memory_info *out);
// What this process holds on the GPU beside what it allocated: in whole 2 MiB, charged to the
// ledger's (cuda:N, outside). Measured when the device is created, with every kernel loaded.
RN_API uint64_t rn_cuda_device_unaccounted(rn_device *device);
// Measures it again. NVML's number for this process where it has one; else what the GPU's memory
// has lost since before the context was made, in which others' memory counts if it changed
// meanwhile; without NVML only since after the context was made. RN_DEVICE.
RN_API RN_MUST_USE rn_status rn_cuda_device_measure(rn_device *device, uint64_t *out_bytes);

// ---- memory for programs of their own -----------------------------------------------------------

// Device memory out of a pool that grows and shrinks in place. Charged to (cuda:N, other) as the
// pool takes it. Zero bytes give NULL. RN_OVER_BUDGET, RN_NO_MEMORY, RN_DEVICE.
RN_API RN_MUST_USE rn_status rn_cuda_allocate(rn_device *device, size_t bytes, void **out);
// NULL-safe; what is not the pool's is ignored. No queue may be using it any more.
RN_API void rn_cuda_deallocate(rn_device *device, void *block);
// Bytes that were allocated and not deallocated, as asked; the most there were at once.
RN_API uint64_t rn_cuda_current_bytes(rn_device *device);
RN_API uint64_t rn_cuda_peak_bytes(rn_device *device);
// Gives what the pool holds and nobody uses back to the GPU; returns the bytes.
RN_API uint64_t rn_cuda_clear_caches(rn_device *device);

// ---- pinned host memory -------------------------------------------------------------------------

// The most that all devices together may pin: 0 means the default, half of the machine's memory or
// of the cgroup's limit, whichever is smaller. What is pinned already stays.
RN_API void rn_cuda_set_pinned_limit(uint64_t bytes);
RN_API uint64_t rn_cuda_pinned_limit(void);
RN_API uint64_t rn_cuda_pinned_bytes(void);

RN_END_DECLS

#endif
