// elements.h — what the rows over elements share: grids, walks, plain weights.
#ifndef RN_BACKEND_CUDA_ELEMENTS_H
#define RN_BACKEND_CUDA_ELEMENTS_H

#include "backend/cuda/kernels/rows_args.h"
#include "backend/cuda/launch.h"
#include "graph/op/walk.h"

// A grid of blocks of RN_ROWS_THREADS for `threads` threads' work: enough to fill the device, no
// more, for kernels stride over what is left. At least one block.
rn_cuda_grid rn_cuda_spread(const rn_call *call, uint64_t threads);
// A thread for each: for kernels whose threads need too many registers to fill the device at once.
rn_cuda_grid rn_cuda_cover(uint64_t threads);
// The same for kernels that give each row a block.
rn_cuda_grid rn_cuda_row_grid(uint64_t rows, uint32_t threads);

// Elements of a walk, which fits where its tensor fits.
uint64_t rn_cuda_walk_elements(const rn_walk *walk);
rn_walk_args rn_cuda_walk(const rn_walk *walk);

// The type of a value between ops: f32, bf16 or f16; RN_PLAIN_NONE for one that was left out.
// RN_UNSUPPORTED, with the op's name, for any other.
RN_MUST_USE rn_status rn_cuda_value_type(const rn_call *call, const rn_tensor *tensor,
                                         uint32_t *out);
// Whether all inputs and outputs are f32 or were left out.
bool rn_cuda_all_f32(const rn_call *call);
// The same of bf16.
bool rn_cuda_all_bf16(const rn_call *call);
// Refuses what is kept in f32 whatever the values are: statistics, losses, states.
RN_MUST_USE rn_status rn_cuda_want_f32(const rn_call *call, const rn_tensor *tensor,
                                       const char *what);

// As kernels number types; RN_PLAIN_NONE where they cannot read it.
rn_plain_type rn_cuda_plain_type(rn_dtype dtype);
// A weight of any readable type as its file has it. RN_UNSUPPORTED for another layout or type.
RN_MUST_USE rn_status rn_cuda_plain(const rn_tensor *tensor, rn_plain_args *out);

static inline bool rn_cuda_is_aligned(const void *address, uint64_t bytes) {
    return (uintptr_t)address % bytes == 0;
}

#endif
