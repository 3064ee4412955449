// quantized_product.h — what the product of an f32 row with a quantised weight row means. CPU
// kernels give these bits, whatever their order of work.
//
// For the kinds of tensor/kinds.h and tensor/row_kinds.h the activations are rounded first, in
// blocks of 32 along the row (a last, shorter block is filled with zeros):
//
//     d = max|x| / 127       q = round to nearest even(x * (1 / d))       in f32
//
// Where 1 / d is infinite (all zero, or nothing above 127 / FLT_MAX) d and q are 0. Where the block
// holds NaN or infinity d does too, q is 0, and so the product is NaN: never a plausible number.
//
// Sums within a block are exact integers, the blocks are added in order, with one rounding for each
// operation that is written here:
//
//     int8             acc = fmaf(d, isum, acc); at last acc * row scale
//     q8_0 q4_0 q5_0   acc = fmaf(d * s, isum, acc)              s the block's scale, widened
//     iq4_nl mxfp4 tq1_0 tq2_0 q1_0 q2_0
//     iq4_xs           the same, s = dw * sc                     sc the part's 6-bit scale
//     q4_1 q5_1        acc = fmaf(d * s, isum, acc)
//                      acc = fmaf(d * low, xsum, acc)            xsum the sum of the block's q
//     q4_k q5_k        acc = fmaf(d * (dw * sc), isum, acc)      sc, m the part's 6-bit scale, min
//                      acc = fmaf(-(d * (dmin * m)), xsum, acc)
//     q6_k q3_k        acc = fmaf(d * dw, sc0 * isum0 + sc1 * isum1, acc)    two parts of 16 a
//     block nvfp4            acc = fmaf(d, fmaf(s1, isum1, s0 * isum0), acc)       the same q2_k
//     acc = fmaf(d * dw, sc0 * isum0 + sc1 * isum1, acc)
//                      acc = fmaf(-(d * dmin), m0 * xsum0 + m1 * xsum1, acc)
//
//     iq1 iq2 iq3      acc = fmaf(d, fmaf(s1, isum1, s0 * isum0), acc)       tensor/row_kinds.h
//     u4_b32 fp4_b64
//
// Numbers of mxfp4 and nvfp4 are counted twice, so that they are whole, and their scales half.
#ifndef RN_GRAPH_QUANTIZED_PRODUCT_H
#define RN_GRAPH_QUANTIZED_PRODUCT_H

#include <ration/tensor.h>

#define RN_QUANTIZED_BLOCK 32

// Whether products with weights of this dtype round their activations.
bool rn_product_is_quantized(rn_dtype dtype);

// A rounded row: q in whole blocks, then the scales.
typedef struct rn_quantized_row {
    int8_t *q;    // (blocks, 32)
    float *scale; // (blocks)
} rn_quantized_row;

// Bytes of memory for a row of `cols`, a multiple of 64; and the row laid out in it.
uint64_t rn_quantized_row_bytes(uint64_t cols);
rn_quantized_row rn_quantized_row_at(void *memory, uint64_t cols);
void rn_quantize_row(const float *x /* (cols) */, uint64_t cols, rn_quantized_row out);

// ---- products -----------------------------------------------------------------------------------

// 32 columns of a weight row: whole numbers, and what their kind multiplies sums with.
typedef struct rn_quantized_block {
    int8_t w[RN_QUANTIZED_BLOCK];
    float scale; // all but int8's
    float min;   // factor of xsum, subtracted: q4_k and its like, q2_k
    float part_scale[2];
    int32_t part_min[2]; // q2_k
} rn_quantized_block;

// Block `b` (columns 32 b ..) of a row as it lies in a file; columns behind the last are 0.
void rn_quantized_block_read(rn_dtype dtype, const void *weight, uint64_t cols, uint64_t b,
                             rn_quantized_block *out);
// acc + what the block adds to it, beside 32 rounded activations q of scale d.
float rn_quantized_block_add(rn_dtype dtype, const rn_quantized_block *block, const int8_t *q,
                             float d, float acc);

// The product with one weight row as it lies in a file. row_scale is int8's; the others ignore it.
// `cols` is in whole blocks of the dtype.
float rn_quantized_product(rn_dtype dtype, rn_quantized_row x, const void *weight, float row_scale,
                           uint64_t cols);

#endif
