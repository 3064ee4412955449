// tensor_map.h — tensors as the copy engine is told of them (kernels/tensor_map.cuh).
#ifndef RN_BACKEND_CUDA_TENSOR_MAP_H
#define RN_BACKEND_CUDA_TENSOR_MAP_H

#include "backend/cuda/kernels/map_args.h"
#include "graph/op.h"

enum { RN_BOX_RANK = 5 };

// A dense or strided tensor of 16-bit numbers, axes innermost first, and the box that a copy
// brings.
typedef struct rn_boxed {
    const void *data; // at a multiple of 16 bytes
    rn_dtype dtype;   // bf16 or f16
    uint32_t rank;
    uint64_t dims[RN_BOX_RANK];
    uint64_t strides[RN_BOX_RANK]; // elements; of the innermost axis 1; the others multiples of 8
    uint32_t box[RN_BOX_RANK];     // at most 256 a side, steps included; 64 of the innermost axis
    uint32_t steps[RN_BOX_RANK];   // every so many-th element; 1: all
} rn_boxed;

// A row of a box is 128 bytes, swizzled as panels are (kernels/panel.cuh). RN_UNSUPPORTED: the
// driver is too old.
RN_MUST_USE rn_status rn_tensor_map_draw(const rn_call *call, const rn_boxed *boxed,
                                         rn_tensor_map *out);

#endif
