// row_kinds.h — quantised kinds whose products read rows as files have them, 32 columns at a time:
// ggml's codebook kinds, whose panels would be gathers, u4_b32 and fp4_b64.
//
// 32 columns are signed bytes, and an f32 scale for each half of them: number = scale * q.
// A product with such a weight rounds its activations to int8, as with the kinds of tensor/kinds.h:
// graph/quantized_product.h has its meaning. Any thread, no alignment.
#ifndef RN_TENSOR_ROW_KINDS_H
#define RN_TENSOR_ROW_KINDS_H

#include <ration/tensor.h>

#define RN_ROW_BLOCK 32

// A run of blocks, decoded.
typedef struct rn_row_blocks {
    int8_t *q;             // (blocks, 32)
    float *first, *second; // (blocks, step): [0] are scales, of columns 0 to 15 and 16 to 31
    uint64_t step;
} rn_row_blocks;

bool rn_row_kind(rn_dtype dtype);
// Blocks [first, first + count) of a row.
void rn_row_kind_read(rn_dtype dtype, const uint8_t *row, uint64_t first, uint64_t count,
                      rn_row_blocks out);

#endif
