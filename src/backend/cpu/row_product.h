// row_product.h — products with the kinds of tensor/row_kinds.h: y = x wᵀ + bias, x (..., K) f32,
// w (N, K) as its file has it.
//
// Some columns of eight rows of w at a time are decoded to bytes and scales, in the nearest cache,
// and multiplied with every rounded row of x from there. One row of x takes codebook kinds as they
// are (row_one_vector.h). All levels give the bits of
// graph/quantized_product.h: sums within a block are whole numbers, and blocks are added in order.
#ifndef RN_BACKEND_CPU_ROW_PRODUCT_H
#define RN_BACKEND_CPU_ROW_PRODUCT_H

#include "graph/op.h"
#include "graph/quantized_product.h"
#include "tensor/row_kinds.h"

RN_MUST_USE rn_status rn_cpu_row_matmul(const rn_call *call);
uint64_t rn_cpu_row_matmul_workspace(const rn_call *call);

// ---- kernels ------------------------------------------------------------------------------------

#define RN_ROW_LANES 8 // rows of w that are multiplied together

// Some columns of eight decoded rows.
typedef struct rn_row_tile {
    int8_t *q;     // (8, blocks, 32)
    float *scales; // (blocks, 2, 8): of the first half of a block, eight rows; of the second
    uint64_t blocks;
} rn_row_tile;

typedef struct rn_row_kernels {
    // As rn_row_kind_read.
    void (*read)(rn_dtype dtype, const uint8_t *row, uint64_t first, uint64_t count,
                 rn_row_blocks out);
    // Adds the products of one row of x, from block `first` on, with eight rows to `sums`.
    void (*multiply)(const rn_row_tile *tile, rn_quantized_row x, uint64_t first,
                     float sums[RN_ROW_LANES]);
} rn_row_kernels;

// The products of one row of x with eight rows of w, which are row_bytes from their successors
// eight rows on: those are fetched ahead.
typedef void rn_row_one(const uint8_t *const rows[RN_ROW_LANES], uint64_t row_bytes,
                        uint64_t blocks, rn_quantized_row x, float sums[RN_ROW_LANES]);

extern rn_row_one *const rn_row_one_avx2[RN_DTYPE_COUNT]; // codebook kinds; x86-64 builds only
extern rn_row_one *const rn_row_one_vnni[RN_DTYPE_COUNT];

extern const rn_row_kernels rn_row_portable;
extern const rn_row_kernels rn_row_avx2; // x86-64 builds only

#endif
