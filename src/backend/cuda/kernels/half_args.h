// half_args.h — what the kernels of products in 16 bits are told. Read by C and by CUDA C.
#ifndef RN_CUDA_KERNELS_HALF_ARGS_H
#define RN_CUDA_KERNELS_HALF_ARGS_H

#include "rows_args.h"

// to_half_*: columns first_col .. first_col + cols of the rows first_row .. first_row + rows of a
// weight, rounded to `type` (RN_PLAIN_BF16 or RN_PLAIN_F16), as a dense matrix.
typedef struct rn_to_half_args {
    rn_plain_args w;
    void *out; // (rows, cols)
    uint64_t first_row, first_col, rows, cols;
    uint32_t type;
} rn_to_half_args;

// matmul_half_*: y[m][n] = sum over k of X[m][k] W[k][n] (+ bias[n]) (+ addend[m][n]), one chain of
// sums in f32 a 16 by 8 tile of the matrix units. X[m][k] is x[m x_row + k x_col], W[k][n] is
// w[n w_row + k w_col]; one of each pair is 1.
typedef struct rn_half_args {
    const void *x, *w;  // of 16 bits
    const void *bias;   // (n) of y's type, or NULL
    const void *addend; // (batch, m, n) of y's type, or NULL; may be y
    void *y;            // (batch, m, n) of y_type
    uint64_t batch, m, n, k;
    uint64_t x_row, x_col, w_row, w_col, y_row;
    uint64_t x_dims[RN_WALK_RANK], w_dims[RN_WALK_RANK]; // leading axes; one of 1 in w serves all
    uint32_t leading;                                    // how many; 0: one w for all
    uint32_t y_type;                                     // RN_PLAIN_F32, BF16, F16
} rn_half_args;

enum { RN_HALF_TILE = 128 }; // rows and columns of y that a block of RN_ROWS_THREADS has

#endif
