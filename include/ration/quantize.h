// quantize.h — a matrix of f32 in memory, in fewer bits and back.
//
//     uint64_t bytes;
//     RN_TRY(rn_quantize_bytes(RN_DTYPE_INT8, rows, cols, &bytes));
//     RN_TRY(rn_quantize(RN_DTYPE_INT8, values, rows, cols, data, bytes));
//     RN_TRY(rn_dequantize(RN_DTYPE_INT8, data, bytes, rows, cols, values));
//
// The numbers are those of `ration convert`: int8 and int4 as optimum-quanto has them (qint8,
// qint4), nf4 and nf4_dq (double quantisation) as bitsandbytes has them; beside them the plain
// types and ggml's blocks that rn_dtype_from_f32 takes. Forms of several parts lie in one block:
// the data, then the scales, then the shifts, each part on a boundary of 64 bytes. A memory source
// of a session (rn_weight_source.find) gives weights in this form.
#ifndef RATION_QUANTIZE_H
#define RATION_QUANTIZE_H

#include <ration/tensor.h>

RN_BEGIN_DECLS

// Bytes of a (rows, cols) matrix. RN_INVALID: it is empty, not in whole blocks, or too large.
RN_API RN_MUST_USE rn_status rn_quantize_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols,
                                               uint64_t *out_bytes);
// `out` (bytes, as rn_quantize_bytes says; aligned to 4 bytes) must not overlap `values`.
// RN_UNSUPPORTED: nothing is converted to this type. Any thread.
RN_API RN_MUST_USE rn_status rn_quantize(rn_dtype to, const float *values /* (rows, cols) */,
                                         uint64_t rows, uint64_t cols, void *out, uint64_t bytes);
// What products with such a matrix take it for. RN_UNSUPPORTED: this type is not read.
RN_API RN_MUST_USE rn_status rn_dequantize(rn_dtype from, const void *data, uint64_t bytes,
                                           uint64_t rows, uint64_t cols,
                                           float *out_values /* (rows, cols) */);

RN_END_DECLS

#endif
