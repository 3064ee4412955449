// unaccounted.h — the line (cuda:N, outside) of the ledger: what this process holds on a GPU
// without having allocated it. Context, kernels' code, local memory and the driver's buffers are
// measured; what blocks are rounded up by is counted.
//
// It is the process's, so it is kept for each GPU, however many rn_devices there are of it.
#ifndef RN_BACKEND_CUDA_UNACCOUNTED_H
#define RN_BACKEND_CUDA_UNACCOUNTED_H

#include "backend/cuda/driver.h"

// Before the context is taken: remembers what is in use without it, if NVML says so.
RN_MUST_USE rn_status rn_cuda_unaccounted_begin(const rn_cuda_driver *driver, int ordinal,
                                                rn_cu_device device);
// In the context, with nothing loaded yet: the same by the driver, where NVML did not say.
void rn_cuda_unaccounted_entered(const rn_cuda_device *device, int ordinal);
// After the context was released. After the last one nothing is outside.
void rn_cuda_unaccounted_end(int ordinal);

// Inside the context. RN_DEVICE.
RN_MUST_USE rn_status rn_cuda_unaccounted_measure(const rn_cuda_device *device, int ordinal,
                                                  uint64_t *out_bytes);
// Measured and rounding.
uint64_t rn_cuda_unaccounted_bytes(int ordinal);

// What the block that ends at `address` is rounded up by: asked of the budget and counted.
// RN_OVER_BUDGET.
RN_MUST_USE rn_status rn_cuda_unaccounted_reserve(int ordinal, uint64_t bytes);
void rn_cuda_unaccounted_count(int ordinal, uint64_t address, uint64_t bytes);   // completes it
void rn_cuda_unaccounted_unreserve(int ordinal, uint64_t bytes);                 // or undoes it
void rn_cuda_unaccounted_release(int ordinal, uint64_t address, uint64_t bytes); // later

#endif
