// cuda.h — a GPU as a device: what this folder's files share of it.
#ifndef RN_BACKEND_CUDA_CUDA_H
#define RN_BACKEND_CUDA_CUDA_H

#include <ration/cuda.h>

#include "backend/cuda/blocks.h"
#include "backend/cuda/lt.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/module.h"
#include "backend/cuda/pinned.h"
#include "backend/cuda/source.h"
#include "device/registry.h"

extern const rn_backend rn_cuda_backend;
extern const rn_error_table rn_cuda_errors;

enum { RN_CUDA_SPARE_STREAMS = 2 };

typedef struct rn_gpu {
    rn_device base;
    int ordinal;
    rn_cuda_device cuda;
    rn_cuda_traits traits;
    bool has_words;        // streams can wait for and write words of pinned memory
    bool starts_early;     // launches may begin before the one before them has ended ...
    bool records_early;    // ... also in recordings
    rn_cuda_module module; // the kernels
    rn_lt lt;              // cuBLASLt
    rn_cuda_memory memory; // blocks of device->alloc
    rn_cuda_words words;   // of fences
    pthread_mutex_t links; // guards what queues know of each other (queue.h), and the streams
    rn_cu_stream streams[RN_CUDA_SPARE_STREAMS]; // that no queue uses; NULL: none
    // rn_cuda_allocate
    rn_cuda_source source;
    rn_pool *pool;
    rn_cuda_blocks live; // under live_lock
    pthread_mutex_t live_lock;
} rn_gpu;

static inline rn_gpu *rn_gpu_of(rn_device *device) {
    return (rn_gpu *)((char *)device - offsetof(rn_gpu, base));
}
// Whether an address is the device's: inside of its reserved ranges.
static inline bool rn_gpu_holds(const rn_gpu *gpu, const void *address) {
    return rn_cuda_memory_holds(&gpu->memory, address) ||
           (uintptr_t)address - gpu->source.base < gpu->source.span_bytes;
}

// ---- allocate.c: the pool behind rn_cuda_allocate -----------------------------------------------
RN_MUST_USE rn_status rn_gpu_pool_open(rn_gpu *gpu);
void rn_gpu_pool_close(rn_gpu *gpu);

// ---- rates.c ------------------------------------------------------------------------------------
// Sets the rates of caps by the device's clocks; measured ones come later (rn_device_use_rates).
void rn_gpu_guess_rates(const rn_gpu *gpu, rn_device_caps *caps);

#endif
