// flash_args.h — what the kernels of attention in training are told. Read by C and by CUDA C.
#ifndef RN_CUDA_KERNELS_FLASH_ARGS_H
#define RN_CUDA_KERNELS_FLASH_ARGS_H

#include <stdint.h>

enum {
    RN_FLASH_THREADS = 384, // two warpgroups that multiply, 64 rows each, and one that brings tiles
    RN_FLASH_ROWS = 128,    // queries of a block, or keys where it makes their gradients
    RN_FLASH_TILE = 64,     // queries of a tile that such a block is brought
    RN_FLASH_PAD = 128,     // base and delta are for whole so many queries
};

// Types are RN_PLAIN_F32, RN_PLAIN_BF16 or RN_PLAIN_F16 (rows_args.h). The matrix units take q, k,
// v and dy of one 16-bit type, at 16-byte addresses, a D of whole eights, and a scale above 0.
typedef struct rn_flash_args {
    const void *q;            // (B, T, H, D)
    const void *k, *v;        // (B, S, HK, D)
    const float *mask;        // (T, S), (B, T, S) or NULL: added to scores; plain kernels only
    const int32_t *documents; // (B, T): their first keys, or NULL
    const void *y, *dy;       // (B, T, H, D)
    const float *logsumexp;   // (B, H, T)
    void *out;                // (B, T, H, D): y, or dq; NULL: not wanted
    void *dk, *dv;            // (B, S, HK, D) or NULL
    float *out_logsumexp;     // (B, H, T) or NULL
    // Workspace of a gradient, by rn_flash_prepare:
    float *base;    // (B, H, padded): the logsumexp as a power of two; inf: the query adds nothing
    float *delta;   // (B, H, padded): sum over d of dy * y
    int32_t *reach; // (B, padded / RN_FLASH_TILE, 2): lowest and highest first key of a tile's
                    // documents; of queries that there are
    uint32_t batch, queries, keys, heads, kv_heads, head_dim; // B, T, S, H, HK, D
    uint32_t padded;                                          // T, in whole RN_FLASH_PAD
    uint32_t mask_of_batch;                                   // 1: the mask is (B, T, S)
    uint32_t causal, window;
    uint32_t q_type, k_type, v_type, y_type, dy_type, out_type, dk_type, dv_type;
    float scale;
} rn_flash_args;

#endif
