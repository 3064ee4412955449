// resize_args.h — what the kernel of resize is told. Read by C and by CUDA C.
#ifndef RN_CUDA_KERNELS_RESIZE_ARGS_H
#define RN_CUDA_KERNELS_RESIZE_ARGS_H

#include "rows_args.h"

// x (outer, length, inner) to y (outer, made, inner). The enums are the op's (ration/graph.h).
typedef struct rn_resize_args {
    const void *x;
    void *y;
    uint64_t outer, inner, length, made;
    double scale, from, to, fill, cubic;
    uint32_t function, coordinates, nearest;
    uint32_t exclude_outside, antialias;
    uint32_t type;  // of mixed values: RN_PLAIN_F32, RN_PLAIN_BF16, RN_PLAIN_F16
    uint32_t width; // of a moved element: bytes; 0: elements are mixed
} rn_resize_args;

#endif
