// attention_args.h — what rn_varlen_* are told, and the plain kernels' shared memory. Read by C and
// by CUDA C.
#ifndef RN_CUDA_KERNELS_ATTENTION_ARGS_H
#define RN_CUDA_KERNELS_ATTENTION_ARGS_H

#include <stdint.h>

// Shared memory of the plain kernels: queries, one tile of keys or values, powers.
enum { RN_PLAIN_SLOTS = 32, RN_PLAIN_THREADS = 256, RN_PLAIN_TILE = 64 };
#define RN_PLAIN_BYTES(head_dim)                                                                   \
    (4 * (RN_PLAIN_SLOTS * (head_dim) + RN_PLAIN_TILE * ((head_dim) + 1) +                         \
          RN_PLAIN_SLOTS * RN_PLAIN_TILE))

typedef struct rn_varlen_args {
    const float *q;      // (rows, H, D)
    const float *k, *v;  // (rows, HK, D)
    const int32_t *span; // (rows, 2)
    const float *bias;   // (H, 2 * reach + 1) or NULL
    float *out;          // (rows, H, D)
    uint32_t rows, heads, kv_heads, head_dim, reach;
    uint32_t causal, window;
    float scale, cap; // cap 0: none
} rn_varlen_args;

#endif
