// memory.h — a device's blocks behind one range of reserved addresses.
//
// A block is mapped as a whole, in granules of the device (2 MiB), and unmapped as a whole, which
// gives its memory back. Addresses cost nothing, so several times the device's memory is reserved
// and no block ever lacks a hole. One compare says whether an address is the device's. Where the
// device cannot map memory, blocks are allocated, and the range is the span of all there ever were.
#ifndef RN_BACKEND_CUDA_MEMORY_H
#define RN_BACKEND_CUDA_MEMORY_H

#include "backend/cuda/driver.h"
#include "base/alloc.h"
#include "memory/offsets.h"

#include <pthread.h>

typedef struct rn_cuda_memory {
    const rn_cuda_device *device;
    size_t granule_bytes;
    bool is_mapped;
    _Atomic uint64_t base, span_bytes; // the range
    rn_offsets *addresses;             // its ranges are those that nothing backs; under lock
    pthread_mutex_t lock;
} rn_cuda_memory;

// `device` must outlive it. Inside the device's context, like all of this. To be closed, also where
// it failed.
RN_MUST_USE rn_status rn_cuda_memory_open(const rn_cuda_device *device, const rn_allocator *from,
                                          rn_cuda_memory *out);
// No block is left.
void rn_cuda_memory_close(rn_cuda_memory *memory);

// What `bytes` take on the device; UINT64_MAX where that is beyond all numbers.
uint64_t rn_cuda_memory_round(const rn_cuda_memory *memory, uint64_t bytes);
// `bytes` in whole granules. RN_NO_MEMORY with what the driver says is free.
RN_MUST_USE rn_status rn_cuda_memory_take(rn_cuda_memory *memory, uint64_t bytes,
                                          rn_cu_address *out);
// Waits for the device first.
void rn_cuda_memory_release(rn_cuda_memory *memory, rn_cu_address block, uint64_t bytes);

static inline bool rn_cuda_memory_holds(const rn_cuda_memory *memory, const void *address) {
    uint64_t base = atomic_load_explicit(&memory->base, memory_order_acquire);
    return (uintptr_t)address - base <
           atomic_load_explicit(&memory->span_bytes, memory_order_relaxed);
}

#endif
