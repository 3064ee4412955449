// ggml_encode.h — rows of f32 as ggml's blocks: the bytes that llama.cpp's quantiser makes.
//
//     rn_ggml_encode_rows(RN_DTYPE_Q4_K, rows, row_count, cols, NULL, blocks);
//
// Without importances a block depends on its own values alone. With them (an importance matrix's
// mean square of what each column is multiplied with) the search weighs its errors, and some kinds
// look at the whole row. Pure, any thread; every level of base/cpu.h gives the same bytes. NaN or
// infinity in a block makes all that is restored of it NaN or infinity.
#ifndef RN_TENSOR_GGML_ENCODE_H
#define RN_TENSOR_GGML_ENCODE_H

#include <ration/tensor.h>

// A row of `blocks` blocks.
typedef void rn_ggml_encoder(const float *row /* (cols) */,
                             const float *importance /* (cols), or NULL */, uint64_t blocks,
                             uint8_t *out);

typedef struct rn_ggml_encoders {
    rn_ggml_encoder *q4_0; // with importances only: without, quant_kernels.h
    rn_ggml_encoder *q4_1, *q5_0, *q5_1, *iq4_nl, *iq4_xs, *mxfp4;
    rn_ggml_encoder *q2_k, *q3_k, *q4_k, *q5_k, *q6_k;
} rn_ggml_encoders;

extern const rn_ggml_encoders rn_ggml_encoders_portable;
extern const rn_ggml_encoders rn_ggml_encoders_avx2;   // x86-64 builds only
extern const rn_ggml_encoders rn_ggml_encoders_avx512; // x86-64 builds only

// NULL: ration does not write this kind. q8_0 has no use for importances and is not among them.
rn_ggml_encoder *rn_ggml_encoder_of(rn_dtype dtype);
// RN_UNSUPPORTED where there is no encoder; RN_INVALID where rows are not whole blocks.
RN_MUST_USE rn_status rn_ggml_encode_rows(rn_dtype dtype, const float *rows /* (row_count, cols) */,
                                          uint64_t row_count, uint64_t cols,
                                          const float *importance /* (cols) */, void *out);

#endif
