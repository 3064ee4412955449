// args.h — what kernels are told: one struct a kernel, passed by value. Read by C and by CUDA C.
//
// ## Products
//
// A product y (rows, N) = x (rows, K) wᵀ has one meaning on this device, however many rows there
// are and whichever kernel makes it, so that a row's bits depend on nothing but the row:
//
//     x is rounded to the weight's 16-bit type (bf16 for BF16, f16 for all others, kept within
//     f16's range), the weight is widened to it; columns go in steps of 16 by the matrix units, a
//     *segment* of 512 columns is summed in f32 in the order of its steps, beginning with zero, and
//     segments are added in order, beginning with the first:  ((s0 + s1) + s2) + ...
//     then, one rounding each: * row scale (I8), + bias, activation(gate) * up, + residual.
//
// Weights lie in tiles (tensor/tiles.h). Activations for more than one row are *packed*, in 16
// bits:
//
//     P[K / 64][T / 8][8][8][8]      (k chunk, 8 tokens, 8 k, token, k)     T: rows in whole eights
//
// A block of 8 tokens by 8 k is 128 bytes: one core matrix of wgmma (leading dimension 128 bytes
// along k, 1024 along tokens, no swizzle), and the lanes' B fragment of mma m16n8k16: lane l reads
// word l of it. Tokens behind the last and columns behind K (to K in whole 128s) are zero.
#ifndef RN_CUDA_KERNELS_ARGS_H
#define RN_CUDA_KERNELS_ARGS_H

#include <stdint.h>

enum {
    RN_PRODUCT_SEGMENT = 512, // columns
    RN_PRODUCT_MOST = 3,      // weights of one product
    RN_PACK_CHUNK = 64,       // columns
    RN_NORM_THREADS = 256,    // that sum a row's squares: thread i adds x[i], x[i + 256], ... in
                              // order, lanes by xor 16, 8, 4, 2, 1, then warps in order
};

typedef struct rn_product_weight {
    const uint8_t *tiles;
    const float *row_scales; // I8: (N); else NULL
    const float *bias;       // (N) or NULL
    float *out;              // (rows, N)
    uint32_t rows;           // N
    uint32_t form;           // rn_tile_form
} rn_product_weight;

// One launch multiplies the same x with 1 to 3 weights of one form. gated: two weights of equal
// size, weights[0].out = activation(w0 x) * (w1 x). residual: added to weights[0]'s result; may be
// the same memory as out.
typedef struct rn_product_args {
    rn_product_weight weights[RN_PRODUCT_MOST];
    const float *residual; // (rows, N of weights[0]) or NULL
    const float *x;        // (rows, K); used where rows == 1
    const float *norm;     // (K): x is normed (RMS) first; or NULL; used where rows == 1
    const void *packed;    // activations, used where rows > 1
    uint32_t count;        // of weights
    uint32_t rows, cols;   // tokens, K
    uint32_t form;         // of all weights
    uint32_t gated;        // 0 or 1
    uint32_t activation;   // rn_activation, where gated
    uint32_t steady_norm;  // 0 or 1: no kernel of this run makes the norm
    float eps;
} rn_product_args;

// x (rows, cols), normed where `norm` is given, to `packed` in 16 bits.
typedef struct rn_pack_args {
    const float *x, *norm;
    void *packed;
    uint32_t rows, cols;
    uint32_t is_bf16;
    float eps;
} rn_pack_args;

// ## Attention over pages
//
// KV is (pages, 2, HK, page_tokens, D), f16, f32 or q8_0. A row sees the keys of its sequence at
// positions <= its own, and, with a window, > its own - window. Keys are taken in *chunks* of 256
// by absolute position; within a chunk the softmax is kept as (max, sum, value) over tiles of 64
// keys in order, and chunks are merged in order: this is the meaning, for one row or many.
enum { RN_ATTEND_CHUNK = 256, RN_ATTEND_TILE = 64, RN_ROPE_MOST = 256 };

typedef struct rn_rope_table {
    double turns[RN_ROPE_MOST / 2]; // of pair i a position: angle = 2 pi * position * turns
    float factor;                   // of cos and sin (YARN's attention factor; else 1)
    uint32_t dims;                  // that are turned; 0: no rotation
    uint32_t neighbours;            // pairs (2i, 2i+1); else (i, i + dims / 2)
    uint32_t inverse;
} rn_rope_table;

typedef struct rn_attend_args {
    const float *q;          // (rows, H, D)
    const float *k, *v;      // (rows, HK, D): of these rows
    void *kv;                // one layer's pages
    const int32_t *sequence; // (rows); -1: a row of nobody
    const int32_t *position; // (rows)
    const int32_t *pages;    // (sequences, table_pages)
    float *out;              // (rows, H, D)
    float *partial;          // workspace: chunks on their way (find_partial); NULL: a row has one
    uint32_t rows, heads, kv_heads, head_dim;
    uint32_t page_tokens, table_pages, sequences, page_count;
    uint32_t kv_type; // 0 f32, 1 f16, 2 q8_0
    uint32_t window;  // 0: none
    uint32_t chunks;  // that a row can have at most: ceil(table_pages * page_tokens / 256)
    float scale;
    float cap; // of scores, by the plain kernels only; 0: none
    rn_rope_table rope;
} rn_attend_args;

#endif
