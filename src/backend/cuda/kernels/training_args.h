// training_args.h — what the kernels of losses, optimisers, random numbers and gradients of lookups
// are told. Read by C and by CUDA C. Types are rn_plain_type: f32, bf16 or f16.
#ifndef RN_CUDA_KERNELS_TRAINING_ARGS_H
#define RN_CUDA_KERNELS_TRAINING_ARGS_H

#include "rows_args.h"

// ---- losses.cu ----------------------------------------------------------------------------------

// cross_entropy: a block a row makes logsumexp and row_loss; cross_entropy_total, one block, adds
// them in order. cross_entropy_grad: a block a row. A target that is no class gives NaN.
typedef struct rn_cross_entropy_args {
    const void *logits;     // (rows, width)
    const int32_t *targets; // (rows)
    float *logsumexp;       // (rows); NULL: unread
    double *row_loss;       // (rows)
    float *loss, *count;    // (); count NULL: unread
    // The gradient's.
    const float *row_logsumexp;    // (rows)
    const float *counted, *d_loss; // ()
    void *d_logits;                // (rows, width); may be logits
    uint64_t rows;
    double factor; // where it has one: instead of 1 / count
    uint32_t has_factor;
    int32_t ignore;
    uint32_t width;
    uint32_t type, d_type;
} rn_cross_entropy_args;

// mse: `parts` blocks of `part` elements each, then mse_total. mse_grad: d a.
typedef struct rn_mse_args {
    const void *a, *b;   // (n)
    float *loss;         // ()
    double *partial;     // (parts)
    const float *d_loss; // ()
    void *d_a;           // (n); may be a
    uint64_t n, part;
    uint32_t parts;
    uint32_t a_type, b_type, d_type;
} rn_mse_args;

// ---- optimizers.cu ------------------------------------------------------------------------------

// What is the same for all elements was computed in double. Weights and states are updated where
// they lie; what is bf16 of them is rounded stochastically (graph/stochastic.h).
typedef struct rn_update_args {
    const void *g;   // (n)
    void *w, *m, *v; // (n); m: also the velocity and the state of an average. NULL: there is none
    float *m_scale, *v_scale; // (n / 256, rounded up) of 8-bit states
    const float *guard;       // (): where it is not finite, nothing changes; or NULL
    uint64_t n, seed;
    uint32_t stream, step;
    uint32_t g_type, w_type, state_type;
    float keep, beta1, take1, beta2, take2, pace; // AdamW, Lion
    float eps, spread;                            // AdamW; of 8 bits: eps is the floor
    float decay, momentum;                        // SGD
} rn_update_args;

// optimizers8.cu: threads of a block, blocks of a multiprocessor; no more of them are launched.
enum { RN_UPDATE8_THREADS = 512, RN_UPDATE8_BLOCKS = 2 };

// adafactor.cu. A matrix (rows, cols) has a number a row and one a column; what is none, of which
// `rows` times `cols` are the elements, has a number an element in `row`.
typedef struct rn_adafactor_totals {
    float root, pace, rest;
} rn_adafactor_totals;
typedef struct rn_adafactor_args {
    rn_update_args base; // g, w, n, guard, types, noise
    float *row, *column; // column NULL: no matrix
    double *partial;     // (parts, cols) of columns, then (measured, 2)
    rn_adafactor_totals *totals;
    uint64_t rows, cols, part, parts; // `parts` of `part` rows
    double keep, rate, decay;
    uint32_t measured; // blocks of adafactor_measure
} rn_adafactor_args;

// ---- random.cu ----------------------------------------------------------------------------------

// Element i takes word i % 4 of block i / 4 of the stream (graph/philox.h).
typedef struct rn_random_args {
    const void *x; // dropout: (n)
    void *y;       // (n)
    uint64_t n, seed;
    uint32_t stream;
    float low, high; // dropout: probability, what is kept; normal: mean, deviation
    uint32_t x_type, y_type;
} rn_random_args;

// ---- embedding.cu -------------------------------------------------------------------------------

// embedding_order: order[i] is the i-th place when places are sorted by id, equal ids as they come.
// embedding_grad: the block of an id's first place adds dy over all of them, in their order.
typedef struct rn_embedding_grad_args {
    const int32_t *ids; // (count)
    const void *dy;     // (count, cols)
    void *d_table;      // (rows, cols), zero before
    uint32_t *order;    // (count)
    uint64_t count, rows;
    uint32_t cols;
    uint32_t dy_type, d_type;
} rn_embedding_grad_args;

// ---- adapted_norm.cu ----------------------------------------------------------------------------

#define RN_ADAPTED_ROWS 16  // of a block
#define RN_ADAPTED_RANK 256 // up to this, shared memory has the rows of up

// y[n] = the norm of row n of w + scale * up down.
typedef struct rn_adapted_norm_args {
    rn_plain_args w;        // (rows, cols)
    const float *down, *up; // (rank, cols), (rows, rank)
    float *y;               // (rows)
    uint32_t rank;
    float scale;
} rn_adapted_norm_args;

// ---- reduce.cu ----------------------------------------------------------------------------------

// dy goes to the first of the largest of each group, 0 elsewhere; a warp a group.
typedef struct rn_max_grad_args {
    const void *x, *dy;       // dy: (groups)
    void *dx;                 // may be x
    rn_walk_args kept, group; // [0] of both is used
    uint64_t groups, elements;
    uint32_t x_type, dy_type, dx_type;
} rn_max_grad_args;

#endif
