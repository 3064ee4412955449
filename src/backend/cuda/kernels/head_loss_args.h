// head_loss_args.h — what the kernels of linear_cross_entropy are told. Read by C and by CUDA C.
#ifndef RN_CUDA_KERNELS_HEAD_LOSS_ARGS_H
#define RN_CUDA_KERNELS_HEAD_LOSS_ARGS_H

#include "rows_args.h"

enum { RN_HEAD_THREADS = 512, RN_HEAD_SUM_THREADS = 1024 };

// head_begin, one block of RN_HEAD_SUM_THREADS: *weight = factor, or 1 / the targets that count.
// head_end, the same: *loss = the sum of all rows' losses, times *weight.
typedef struct rn_head_sum_args {
    const int32_t *targets; // (rows)
    const float *losses;    // (rows)
    float *weight, *loss;   // ()
    uint64_t rows;
    float factor;
    int32_t ignore;
    uint32_t is_mean;
} rn_head_sum_args;

// head_loss, a block of RN_HEAD_THREADS a row: the row's loss; and, where `differentiates`, d
// logits in the place of logits, times *weight. A row that does not count has loss 0 and gradients
// 0; one whose target is no class NaN.
typedef struct rn_head_loss_args {
    void *logits;           // (rows, classes) of `type`
    const int32_t *targets; // (rows)
    const float *weight;    // ()
    float *losses;          // (rows)
    uint64_t rows, classes;
    uint32_t type; // RN_PLAIN_F32, BF16, F16
    int32_t ignore;
    uint32_t differentiates;
    uint32_t is_aligned; // each row lies at a multiple of 16 bytes
} rn_head_loss_args;

#endif
