// recurrent_args.h — what the kernels of recurrent states are told (graph/recurrent.h). Read by C
// and by CUDA C.
#ifndef RN_CUDA_KERNELS_RECURRENT_ARGS_H
#define RN_CUDA_KERNELS_RECURRENT_ARGS_H

#include "args.h"

enum { RN_DELTA_THREADS = 128 };

// Rows of a run, in order; what is in them is not known to the host.
typedef struct rn_rows_args {
    const int32_t *sequence, *position; // (rows)
    uint64_t rows, sequences;
} rn_rows_args;

// A thread a channel.
typedef struct rn_short_conv_args {
    rn_rows_args run;
    const float *x, *weight; // (rows, channels), (channels, slots + 1)
    float *state, *y;        // (sequences, slots, channels), (rows, channels); y may be x
    uint64_t channels;
    uint32_t slots;
} rn_short_conv_args;

// Blocks (heads, columns / RN_DELTA_THREADS), a thread a column of a head's state; 2 * key_dim
// floats of shared memory.
typedef struct rn_delta_args {
    rn_rows_args run;
    const float *qkv, *a, *b, *rate, *bias; // (rows, width), (rows, heads), (heads)
    float *state, *y; // (sequences, heads, key_dim, value_dim), (rows, heads, value_dim)
    uint64_t width;
    uint32_t heads, key_heads, key_dim, value_dim, keys_in_turn;
    float eps, q_scale; // sqrt(key_dim), which q is divided by
} rn_delta_args;

#endif
