// group_norm_args.h — what the kernels of group norm and batch norm are told. Read by C and by CUDA
// C.
//
// Images (N, pixels, C), whose channels stand in groups. Pixels are cut into chunks by the shape
// alone; sums of a chunk are in f32, those over chunks in double, in order.
#ifndef RN_CUDA_KERNELS_GROUP_NORM_ARGS_H
#define RN_CUDA_KERNELS_GROUP_NORM_ARGS_H

#include "rows_args.h"

enum { RN_GROUP_CHANNELS = 4096 }; // at most

typedef struct rn_group_norm_args {
    const void *x;             // (N, pixels, C)
    const void *weight, *bias; // (C) or NULL
    const float *mean, *rstd;  // (N, groups): of apply
    float *partial;            // (N, chunks, groups, 3): sums of x - first, of their squares; first
    float *statistics;         // (2, N, groups): mean and rstd, of total
    void *y;                   // (N, pixels, C)
    float *out_mean, *out_rstd; // (N, groups) or NULL
    uint64_t pixels;
    uint32_t images, channels, groups, chunks;
    uint32_t x_type, y_type, weight_type, bias_type;
    uint32_t silu;
    float eps;
} rn_group_norm_args;

typedef struct rn_group_norm_grad_args {
    const void *x, *dy;        // (N, pixels, C)
    const void *weight, *bias; // (C) or NULL
    const float *mean, *rstd;  // (N, groups)
    float *partial;            // (N, chunks, C, 2): sums of dz and dz u
    float *sums;               // (N, groups, 2): means of g and of g u
    void *dx;                  // (N, pixels, C) or NULL
    void *d_weight, *d_bias;   // (C) or NULL
    uint64_t pixels;
    uint32_t images, channels, groups, chunks;
    uint32_t x_type, dy_type, dx_type, weight_type, bias_type, d_weight_type, d_bias_type;
    uint32_t silu;
    uint32_t constant; // 1: mean and rstd do not depend on x (batch norm that does not learn)
} rn_group_norm_grad_args;

// Batch norm: y = (x - mean) rstd weight + bias of each channel, with running statistics, or with
// those of `partial` (rn_group_norm_measure of one image whose groups are channels), which then
// change the running ones.
typedef struct rn_batchnorm_args {
    const void *x;                          // (rows, channels)
    const float *weight, *bias;             // (channels)
    const float *partial;                   // (chunks, channels, 3) or NULL
    float *running_mean, *running_variance; // (channels)
    float *statistics;                      // (2, channels): mean and rstd, for y
    void *y;
    float *out_mean, *out_rstd; // (channels) or NULL
    uint64_t rows;
    uint32_t channels, chunks, x_type, y_type;
    float eps, momentum;
} rn_batchnorm_args;

#endif
