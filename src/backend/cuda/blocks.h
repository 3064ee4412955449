// blocks.h — the live blocks by address: what a free that brings only a pointer needs to know.
//
// An open-addressing table, never more than half full. Not locked: the owner does that.
#ifndef RN_BACKEND_CUDA_BLOCKS_H
#define RN_BACKEND_CUDA_BLOCKS_H

#include <ration/pool.h>
#include "base/alloc.h"

// A stream on which a block is used beside its own, until an event there has passed.
typedef struct rn_cuda_use {
    struct rn_cuda_use *next;
    void *stream, *event;
} rn_cuda_use;

typedef struct rn_cuda_block {
    rn_pool_block block; // address 0: an empty slot
    void *pool;          // the owner's
    rn_cuda_use *uses;
    bool used_unknown; // on a stream for which there was no rn_cuda_use: wait for all of them
} rn_cuda_block;

typedef struct rn_cuda_blocks {
    const rn_allocator *from;
    rn_cuda_block *slots; // (capacity), a power of two or 0
    size_t capacity, count;
} rn_cuda_blocks;

void rn_cuda_blocks_free(rn_cuda_blocks *blocks);
// RN_NO_MEMORY or the budget's refusal: nothing changed. The address is not in the table.
RN_MUST_USE rn_status rn_cuda_blocks_add(rn_cuda_blocks *blocks, rn_cuda_block block);
// NULL where it is not; valid until the next change.
rn_cuda_block *rn_cuda_blocks_find(const rn_cuda_blocks *blocks, uint64_t address);
void rn_cuda_blocks_remove(rn_cuda_blocks *blocks, rn_cuda_block *found);

#endif
