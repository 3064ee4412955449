// source.h — device memory as a pool's source, for the work of one stream.
//
// Where the device can map memory, a source is a range of addresses that is reserved once and
// backed part by part: flat memory, which grows and shrinks in place. Elsewhere it is separate
// chunks. Every byte is asked of the budget and charged to (device, other).
#ifndef RN_BACKEND_CUDA_SOURCE_H
#define RN_BACKEND_CUDA_SOURCE_H

#include <ration/pool.h>
#include "backend/cuda/driver.h"
#include "base/alloc.h"
#include "memory/offsets.h"

#include <pthread.h>

// Nothing is released before the stream's work is done: what the pool calls free may still be read
// by a kernel that was launched before the free.
typedef struct rn_cuda_source {
    rn_cuda_device *device;
    rn_cu_stream stream;
    rn_account account;
    rn_cu_address base;    // of the reserved addresses
    uint64_t span_bytes;   // of them; 0: separate chunks
    rn_offsets *addresses; // its ranges are the reserved addresses that nothing backs; under lock
    pthread_mutex_t lock;
} rn_cuda_source;

// `device` and `out` must outlive the pool, and `out` must not move. To be closed once the pool is
// destroyed.
RN_MUST_USE rn_status rn_cuda_source_open(rn_cuda_device *device, rn_cu_stream stream,
                                          const rn_allocator *from, rn_cuda_source *out);
void rn_cuda_source_close(rn_cuda_source *source);
rn_pool_source rn_cuda_source_functions(rn_cuda_source *source);

#endif
