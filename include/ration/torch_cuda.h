// torch_cuda.h — our pool as PyTorch's CUDA allocator, with the limits and statistics that its
// pluggable allocators lack.
//
//     a = torch.cuda.memory.CUDAPluggableAllocator("libration.so", "rn_torch_cuda_malloc",
//                                                  "rn_torch_cuda_free")
//     torch.cuda.memory.change_current_allocator(a)     # python/ration/cuda.py does all of this
//
// Memory is held in one pool for each device and stream. A block that is freed may be used again at
// once by its own stream, whose work is in order; it becomes another stream's only when it has been
// released to the device, after its stream was waited for. Where the device can map memory, pools
// are flat and release any part (2 MiB; 16 MiB on a device of 140 GiB); elsewhere they release
// whole chunks.
//
// What is reserved is charged to the ledger's line (cuda:N, other); what is handed out appears in a
// recording as parts of it. Functions may be called from any thread. `device` is CUDA's number,
// `stream` a cudaStream_t.
//
// CUDA graphs are refused: a graph's memory would have to be kept from everybody else for as long
// as the graph lives, which these pools cannot do.
#ifndef RATION_TORCH_CUDA_H
#define RATION_TORCH_CUDA_H

#include <ration/status.h>

#include <sys/types.h>

RN_BEGIN_DECLS

// ---- what PyTorch calls ---------------------------------------------------------------

// Out of memory, or above the limit: every pool of the device releases what is free, and the
// request is tried once more. If it fails again, torch.OutOfMemoryError is raised where PyTorch is
// loaded (an exception leaves this function), because PyTorch does not look at what it gets;
// elsewhere NULL is returned and rn_last_error says why. size <= 0 gives NULL.
RN_API void *rn_torch_cuda_malloc(ssize_t size, int device, void *stream);
// A block that was used on other streams (record_stream) stays taken until they have come past
// this moment. Pointers that are not ours, and NULL, are ignored.
RN_API void rn_torch_cuda_free(void *p, ssize_t size, int device, void *stream);
// Looks for the driver, so that its absence shows early (rn_last_error).
RN_API void rn_torch_cuda_init(int device_count);
// empty_cache: what is free goes back to the devices. Waits for streams.
RN_API void rn_torch_cuda_reset(void);
// A limit as a part of the device's memory.
RN_API void rn_torch_cuda_memory_fraction(double fraction, int device);
// The driver's allocation that `p` lies in; p itself and 0 where the driver does not know.
RN_API void *rn_torch_cuda_base_alloc(void *p, size_t *out_bytes);
RN_API void rn_torch_cuda_record_stream(void *p, void *stream);
// begin_allocate_to_pool, with which the capture of a graph and torch.cuda.use_mem_pool begin:
// raises RuntimeError. Without it PyTorch would go on, and others would get the graph's memory. The
// pool's id is a pair, passed like two numbers; `filter` is a std::function. None is looked at.
RN_API void rn_torch_cuda_begin_pool(int device, uint64_t id, uint64_t id_of_user, void *filter);

// ---- what it lacks --------------------------------------------------------------------

typedef struct rn_torch_cuda_stats {
    uint64_t allocated_bytes; // as asked, not yet freed
    uint64_t reserved_bytes;  // held from the device
    uint64_t peak_allocated_bytes, peak_reserved_bytes;
    uint64_t alloc_count, free_count; // so far
    uint64_t pending_bytes;           // freed, but other streams still use them
    uint64_t oom_count;               // requests that were refused in the end
    uint64_t limit_bytes;             // UINT64_MAX: none
} rn_torch_cuda_stats;

// Reserved bytes of the device stay within it: the hard limit of the ledger's cuda:N. 0: none.
// RN_INVALID.
RN_API RN_MUST_USE rn_status rn_torch_cuda_set_limit(int device, uint64_t bytes);
// Zeros for a device that was not used yet. RN_INVALID: no such number.
RN_API RN_MUST_USE rn_status rn_torch_cuda_get_stats(int device, rn_torch_cuda_stats *out);
// Peaks begin anew from what is held now.
RN_API RN_MUST_USE rn_status rn_torch_cuda_reset_peak(int device);

RN_END_DECLS

#endif
