// wide_args.h — what the softmax of attention of wide heads is told. Read by C and by CUDA C.
#ifndef RN_CUDA_KERNELS_WIDE_ARGS_H
#define RN_CUDA_KERNELS_WIDE_ARGS_H

#include <stdint.h>

typedef struct rn_wide_args {
    const float *scores; // (rows, keys)
    void *out;           // (rows, keys) of `type`: f32, bf16 or f16
    float *logsumexp;    // (rows) or NULL
    uint64_t rows;
    uint32_t keys, type;
    float scale;
} rn_wide_args;

// Gradients. power: p = exp(scores scale - logsumexp). slope: ds = p (d - sum over dims of dy y)
// scale, where d are dy's products with values.
typedef struct rn_wide_grad_args {
    const float *scores;    // (rows, keys), or d
    const float *logsumexp; // (rows)
    const void *y, *dy;     // (rows, dims)
    void *p, *ds;           // (rows, keys) of `type`
    uint64_t rows;
    uint32_t keys, dims, type, y_type, dy_type;
    float scale;
} rn_wide_grad_args;

#endif
