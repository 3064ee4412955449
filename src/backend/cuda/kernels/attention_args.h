// attention_args.h — what rn_attention_* and rn_varlen_* are told. Read by C and by CUDA C.
#ifndef RN_CUDA_KERNELS_ATTENTION_ARGS_H
#define RN_CUDA_KERNELS_ATTENTION_ARGS_H

#include <stdint.h>

// Shared memory of the plain kernels: queries, one tile of keys or values, powers.
enum { RN_PLAIN_SLOTS = 32, RN_PLAIN_THREADS = 256, RN_PLAIN_TILE = 64 };
#define RN_PLAIN_BYTES(head_dim)                                                                   \
    (4 * (RN_PLAIN_SLOTS * (head_dim) + RN_PLAIN_TILE * ((head_dim) + 1) +                         \
          RN_PLAIN_SLOTS * RN_PLAIN_TILE))

typedef struct rn_attention_args {
    const float *q;                                           // (B, T, H, D)
    const float *k;                                           // (B, S, HK, D)
    const float *v;                                           // (B, S, HK, D)
    const float *mask;                                        // (T, S), (B, T, S) or NULL
    const int32_t *documents;                                 // (B, T): their first keys, or NULL
    float *out;                                               // (B, T, H, D)
    float *logsumexp;                                         // (B, H, T) or NULL
    uint32_t batch, queries, keys, heads, kv_heads, head_dim; // B, T, S, H, HK, D
    uint32_t mask_of_batch;                                   // 1: the mask is (B, T, S)
    uint32_t causal, window;
    float scale;
} rn_attention_args;

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
