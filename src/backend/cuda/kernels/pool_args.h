// pool_args.h — what the kernels of pools are told. Read by C and by CUDA C.
#ifndef RN_CUDA_KERNELS_POOL_ARGS_H
#define RN_CUDA_KERNELS_POOL_ARGS_H

#include "rows_args.h"

// Images (N, H, W, C); windows (N, OH, OW, C).
typedef struct rn_pool_args {
    const void *x;  // of a gradient by max_pool, and forward
    const void *dy; // (N, OH, OW, C) of a gradient
    void *out;      // windows, or of a gradient the image
    uint32_t n, h, w, c, out_h, out_w;
    uint32_t size_h, size_w, stride_h, stride_w, pad_top, pad_left;
    uint32_t is_max;
    uint32_t x_type, dy_type, out_type;
} rn_pool_args;

#endif
