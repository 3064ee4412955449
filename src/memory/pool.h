// pool.h — the pool's inner doors: bookkeeping charged to an allocator, and two more sources.
#ifndef RN_MEMORY_POOL_H
#define RN_MEMORY_POOL_H

#include <ration/pool.h>
#include "base/alloc.h"

#include <stdatomic.h>

// rn_pool_create with the pool's own structures taken from `from`, which must outlive it.
RN_MUST_USE rn_status rn_pool_create_in(const rn_allocator *from, rn_pool_source source,
                                        const rn_pool_options *options, rn_pool **out_pool);

// Chunks that are blocks of any allocator, which must outlive the pool: separate, released whole.
// Granules up to 4 KiB.
rn_pool_source rn_pool_source_allocator(const rn_allocator *from);

// A device that hands out addresses with nothing behind them, up to a limit. Chunks never touch and
// addresses are never used twice, so a use after release is a number that nobody else has. Fails
// like an allocation (RN_FAULT_ALLOC). Zeros are a good start.
typedef struct rn_fake_device {
    uint64_t limit_bytes; // 0 = none
    _Atomic uint64_t used_bytes;
    _Atomic uint64_t next_address; // above the base
    _Atomic uint64_t grow_count;
} rn_fake_device;

// `device` must outlive the pool. Granules up to 2 MiB.
rn_pool_source rn_pool_source_fake(rn_fake_device *device);

#endif
