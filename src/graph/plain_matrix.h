// plain_matrix.h — a weight of any dtype, as files have it, read row by row as f32.
#ifndef RN_GRAPH_PLAIN_MATRIX_H
#define RN_GRAPH_PLAIN_MATRIX_H

#include "graph/op.h"

typedef struct rn_plain_matrix {
    rn_dtype dtype;
    uint64_t rows, cols; // cols: the last axis
    uint64_t row_bytes;  // of `data`; means nothing for int4, nf4 and nf4_dq
    const uint8_t *data;
    const float *scale;    // int8 (rows), int4 (groups), nf4 (blocks); else NULL
    const float *shift;    // int4 (groups), nf4_dq (nested_count + 1); else NULL
    const uint8_t *codes;  // nf4_dq (blocks): of its scales; else NULL
    uint64_t nested_count; // nf4_dq
} rn_plain_matrix;

// Whether there is a meaning as numbers: a readable dtype that is no integer, or int8, int4, nf4,
// nf4_dq.
bool rn_plain_readable(rn_dtype dtype);
// Whether some rows are one run of bytes, so that a stack of matrices can be one weight: no scales
// stand behind all of them.
bool rn_plain_in_one_piece(rn_dtype dtype);
// RN_UNSUPPORTED where the tensor is packed for some device: reference loops read plain bytes.
RN_MUST_USE rn_status rn_plain_matrix_of(const rn_tensor *tensor, rn_plain_matrix *out);
// Row `row`: its own memory where it is f32 already, else `scratch`, filled.
const float *rn_plain_row(const rn_plain_matrix *matrix, uint64_t row, float *scratch /* (cols) */);

// Columns [col, col + count) of a row of nf4 or nf4_dq.
void rn_plain_nf4_columns(const rn_plain_matrix *matrix, uint64_t row, uint64_t col, uint64_t count,
                          float *out);

#endif
