// rows_args.h — what the kernels of elementwise ops, norms, moves, tables, reductions and plain
// products are told. Read by C and by CUDA C; args.h has the rest.
//
// All of them are launched with blocks of RN_ROWS_THREADS threads unless it is said otherwise, and
// stride over the whole with whatever grid they get: the grid changes no bit.
#ifndef RN_CUDA_KERNELS_ROWS_ARGS_H
#define RN_CUDA_KERNELS_ROWS_ARGS_H

#include "args.h"

enum {
    RN_ROWS_THREADS = 256,
    RN_WALK_RANK = 8,
    RN_ROPE_PAIRS = RN_ROPE_MOST / 2,
    RN_ROPE_PARTS = 4
};

// ---- places -------------------------------------------------------------------------------------

// Elements in the order of a shape, and where they lie in two tensors, as graph/op/walk.h has it: a
// row of `count`, `step` apart, and the axes outside it, innermost first.
typedef struct rn_walk_args {
    uint64_t count, step[2];
    uint64_t dims[RN_WALK_RANK], strides[2][RN_WALK_RANK];
    uint32_t rank;
} rn_walk_args;

// ---- elementwise.cu -----------------------------------------------------------------------------

typedef enum rn_map_fn {
    RN_MAP_NEG,
    RN_MAP_EXP,
    RN_MAP_LOG,
    RN_MAP_SQRT,
    RN_MAP_RSQRT,
    RN_MAP_POW,   // x^p
    RN_MAP_CLAMP, // to [p, q]
    RN_MAP_SCALE, // x p + q
    RN_MAP_RELU,
    RN_MAP_SIGMOID,
    RN_MAP_TANH,
    RN_MAP_SILU,
    RN_MAP_GELU,
    RN_MAP_GELU_TANH
} rn_map_fn;

// Types are rn_plain_type: f32, bf16 or f16 in any mix. map, pair, gated and pair_walk take f32
// alone.
typedef struct rn_map_args {
    const void *x; // (n)
    void *y;       // (n); may be x
    uint64_t n;
    float p, q;
    uint32_t fn; // rn_map_fn
    uint32_t x_type, y_type;
} rn_map_args;

typedef enum rn_pair_fn {
    RN_PAIR_ADD,
    RN_PAIR_SUB,
    RN_PAIR_MUL,
    RN_PAIR_DIV,
    RN_PAIR_GATED, // activation(a) b
    // a is the function's input, b is dy
    RN_PAIR_RELU_GRAD, // or its output
    RN_PAIR_SILU_GRAD,
    RN_PAIR_GELU_GRAD,
    RN_PAIR_GELU_TANH_GRAD,
    RN_PAIR_CLAMP_GRAD // within [p, q]
} rn_pair_fn;

typedef struct rn_pair_args {
    const void *a, *b;
    void *y; // (n); may be an input of the same shape
    uint64_t n;
    rn_walk_args walk;   // pair_walk: where a and b are read
    uint32_t fn;         // rn_pair_fn
    uint32_t width;      // pair_walk: elements that are worked on at once: rows are in whole ones
                         // and all is aligned to them. 1, 4 (f32) or 8 (the others)
    uint32_t activation; // gated
    float p, q;
    uint32_t a_type, b_type, y_type;
} rn_pair_args;

// slot[into] = slot[into] + (... + (slot[into + adds - 1] + g)), each sum rounded to the slots'
// type (graph/op/tree_sum.h).
typedef struct rn_tree_sum_args {
    const void *g; // (n)
    void *sum;     // (n): slot 0
    void *parts;   // (slots - 1, n): the others
    uint64_t n;
    uint32_t into, adds;
    uint32_t g_type, type;
} rn_tree_sum_args;

// d gate = dy up slope(gate), d up = dy activation(gate).
typedef struct rn_gated_grad_args {
    const void *gate, *up, *dy; // (n)
    void *d_gate, *d_up;        // (n) or NULL: unwanted; may be any of the inputs
    uint64_t n;
    uint32_t activation;
    uint32_t gate_type, up_type, dy_type, d_gate_type, d_up_type;
} rn_gated_grad_args;

// ---- norms.cu -----------------------------------------------------------------------------------

// Softmax and norms along rows. One block a row; the number of threads depends on the width alone.
// softmax, layernorm, rmsnorm and rope take f32 alone; norms_any.cu has them for f32, bf16 and f16
// in any mix, by blocks of RN_ROWS_THREADS of which `lanes` have a row.
typedef struct rn_norm_args {
    const void *x;             // (rows, width)
    const void *weight, *bias; // (width) or NULL
    void *y;                   // (rows, width); may be x
    float *mean, *rstd;        // (rows) or NULL
    uint64_t rows;
    uint32_t width;
    float eps;
    uint32_t lanes; // 32 or 256
    uint32_t x_type, weight_type, bias_type, y_type;
} rn_norm_args;

typedef struct rn_rope_args {
    const void *x;           // (tokens, heads, head_dim)
    void *y;                 // may be x
    const int32_t *position; // (tokens), or (tokens, sections)
    const float *divisors;   // (dims / 2) of the frequencies, or NULL
    uint64_t tokens;
    uint32_t sections;                   // of positions; 0: one for all pairs
    uint32_t section_end[RN_ROPE_PARTS]; // pairs of the sections up to each
    uint32_t heads, head_dim, dims;
    uint32_t neighbours, inverse;
    uint32_t eights; // rope_any: heads and their halves are in whole eights and all is aligned
    uint32_t x_type, y_type;
    double factor;
    double frequency[RN_ROPE_PAIRS]; // (dims / 2)
} rn_rope_args;

// ---- norms_grad.cu ------------------------------------------------------------------------------

// The gradients of softmax: x is y there, and of norms. Rows are cut into `parts` of `part` rows
// each; the sums of a part, for d weight and behind it for d bias, lie in `partial` until
// norm_total adds them. Parts follow from the shape alone.
typedef struct rn_norm_grad_args {
    const void *x, *dy;       // (rows, width)
    const void *weight;       // (width) or NULL
    const float *mean, *rstd; // (rows); no mean: the RMS norm
    void *dx;                 // (rows, width) or NULL; may be x or dy
    void *d_weight, *d_bias;  // (width) or NULL
    float *partial;           // (parts, 1 or 2, width) or NULL: no sums are wanted
    uint64_t rows, part, parts;
    uint32_t width;
    uint32_t lanes; // of a row: 32, 256, 512 or 1024
    uint32_t x_type, dy_type, weight_type, dx_type, d_weight_type, d_bias_type;
} rn_norm_grad_args;

// ---- plain weights: plain.cuh -------------------------------------------------------------------

// The types that can be read as they lie in files.
typedef enum rn_plain_type {
    RN_PLAIN_NONE,
    RN_PLAIN_F64,
    RN_PLAIN_F32,
    RN_PLAIN_F16,
    RN_PLAIN_BF16,
    RN_PLAIN_E4M3,
    RN_PLAIN_E5M2,
    RN_PLAIN_E8M0,
    RN_PLAIN_I64,
    RN_PLAIN_I32,
    RN_PLAIN_I16,
    RN_PLAIN_I8,
    RN_PLAIN_U64,
    RN_PLAIN_U32,
    RN_PLAIN_U16,
    RN_PLAIN_U8,
    RN_PLAIN_BOOL,
    RN_PLAIN_Q1_0,
    RN_PLAIN_Q2_0,
    RN_PLAIN_Q4_0,
    RN_PLAIN_Q4_1,
    RN_PLAIN_Q5_0,
    RN_PLAIN_Q5_1,
    RN_PLAIN_Q8_0,
    RN_PLAIN_Q8_1,
    RN_PLAIN_IQ4_NL,
    RN_PLAIN_MXFP4,
    RN_PLAIN_NVFP4,
    RN_PLAIN_Q2_K,
    RN_PLAIN_Q3_K,
    RN_PLAIN_Q4_K,
    RN_PLAIN_Q5_K,
    RN_PLAIN_Q6_K,
    RN_PLAIN_Q8_K,
    RN_PLAIN_IQ4_XS,
    RN_PLAIN_TQ1_0,
    RN_PLAIN_TQ2_0,
    RN_PLAIN_IQ1_S,
    RN_PLAIN_IQ1_M,
    RN_PLAIN_IQ2_XXS,
    RN_PLAIN_IQ2_XS,
    RN_PLAIN_IQ2_S,
    RN_PLAIN_IQ3_XXS,
    RN_PLAIN_IQ3_S,
    RN_PLAIN_F8_B128,
    RN_PLAIN_F8_B32,
    RN_PLAIN_FP4_B64,
    RN_PLAIN_U4_B32,
    RN_PLAIN_INT8,
    RN_PLAIN_INT4,
    RN_PLAIN_NF4
} rn_plain_type;

typedef struct rn_plain_args {
    const uint8_t *data;
    const float *scale, *shift; // int8 (rows), int4 (groups), nf4 (blocks of 64); else NULL
    const uint8_t *codes;       // nf4_dq: of its scales, whose own are shift[nested_count + 1]
    uint64_t nested_count;
    uint64_t rows, cols;
    uint64_t group, half; // int4: values of a group; half of the groups, rounded up
    uint32_t type;        // rn_plain_type
} rn_plain_args;

// ---- embedding.cu -------------------------------------------------------------------------------

// y[i] = table[ids[i]]. An id that is no row gives a row of NaN: never a plausible number.
typedef struct rn_embedding_args {
    rn_plain_args table;
    const int32_t *ids; // (count)
    void *y;            // (count, cols)
    uint64_t count;
    uint32_t fours;  // columns are in whole fours and all is aligned to them
    uint32_t y_type; // f32, bf16 or f16
} rn_embedding_args;

// ---- move.cu ------------------------------------------------------------------------------------

// Units of 1, 2, 4, 8 or 16 bytes from [0] to [1] of the walk.
typedef struct rn_move_args {
    const uint8_t *from;
    uint8_t *to;
    uint64_t n; // units
    rn_walk_args walk;
    uint32_t unit; // bytes
} rn_move_args;

// Matrices turned round, tile by tile: axis a lies together in `from`, axis b in `to`. The walk is
// over the matrices: where each begins in both.
typedef struct rn_transpose_args {
    const uint8_t *from;
    uint8_t *to;
    uint64_t a, b;
    uint64_t from_stride, to_stride; // of b in `from`, of a in `to`
    uint64_t matrices;
    rn_walk_args walk;
    uint32_t unit; // 1, 2, 4 or 8 bytes
} rn_transpose_args;

// `bytes` bytes of a pattern of 8, from its beginning.
typedef struct rn_fill_args {
    uint8_t *to;
    uint64_t bytes, pattern;
} rn_fill_args;

// Cast between plain types; dequantize (to = F32) from any type but int8, int4 and nf4.
typedef struct rn_cast_args {
    const uint8_t *x; // (n)
    uint8_t *y;       // (n)
    uint64_t n;
    uint32_t from, to; // rn_plain_type
} rn_cast_args;

// f32 to q8_0 or q4_0: one warp a block of 32.
typedef struct rn_quantize_args {
    const float *x;  // (blocks, 32)
    uint8_t *y;      // (blocks)
    uint64_t blocks; // of 32 elements
    uint32_t to;     // rn_plain_type
} rn_quantize_args;

// ---- port.cu ------------------------------------------------------------------------------------

// Both are aligned to 16 bytes. Blocks of any number of threads, in all one for each 16 bytes and
// for each byte behind the last whole 16.
typedef struct rn_port_args {
    const void *from;
    void *to;
    uint32_t bytes;
    uint32_t from_host; // or to it
} rn_port_args;

// ---- reduce.cu ----------------------------------------------------------------------------------

typedef enum rn_fold { RN_FOLD_SUM, RN_FOLD_MAX, RN_FOLD_SQUARES } rn_fold;

// y[o] = fold over a group of elements, in double, divided by `divisor`. The place of an element is
// kept(o) + group(g). A group is cut into `parts` of `part` elements (the last may be shorter);
// with more than one they meet in `partial`, in order. All of this follows from the group's size
// alone.
typedef struct rn_reduce_args {
    const void *x;
    void *y;                    // (outputs)
    double *partial;            // (outputs, parts), or NULL: one part, which writes y
    rn_walk_args kept, group;   // [0] of both is used
    uint64_t outputs, elements; // elements: of a group
    uint64_t part;
    uint32_t parts;
    uint32_t fold; // rn_fold
    double divisor;
    uint32_t x_type, y_type; // f32, bf16 or f16; x of f32 has kernels of its own
} rn_reduce_args;

typedef struct rn_argmax_args {
    const float *x; // (rows, width)
    int32_t *y;     // (rows)
    uint64_t rows;
    uint32_t width;
} rn_argmax_args;

// ---- matmul_plain.cu ----------------------------------------------------------------------------

// y (batch, M, N) = X W + bias with X (M, K) and W (K, N), W's type any plain one. X[m][k] is
// x[m x_row + k x_col]; W[k][n] is w's element n K + k, or k N + n where `transposed`. A sum is
// made by fmaf in the order of k, from zero; the bias is added at the end: the bits of the
// reference.
typedef struct rn_matmul_args {
    const float *x;
    rn_plain_args w;   // of all batches
    const float *bias; // (N) or NULL
    float *y;
    uint64_t batch, m, n, k;
    uint64_t x_row, x_col;
    uint64_t x_dims[RN_WALK_RANK], w_dims[RN_WALK_RANK]; // leading axes; one of 1 in w serves all
    uint32_t leading;                                    // how many; 0: one w for all
    uint32_t transposed;
    uint32_t adds; // to what y has
} rn_matmul_args;

#endif
