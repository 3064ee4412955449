// ggml_blocks.h — reading ggml's quantised blocks, bit for bit as its reference code does, and
// writing two of them. Callers outside of src/tensor use rn_dtype_to_f32 and rn_dtype_from_f32; the
// values are for products, too.
//
// All of them count in whole blocks; no alignment needed, no overlap, any thread.
#ifndef RN_TENSOR_GGML_BLOCKS_H
#define RN_TENSOR_GGML_BLOCKS_H

#include "tensor/convert.h"

// ggml_blocks.c: one scale for 16 to 128 elements
rn_widen_kernel rn_ggml_widen_q1_0, rn_ggml_widen_q2_0, rn_ggml_widen_q4_0, rn_ggml_widen_q4_1,
    rn_ggml_widen_q5_0, rn_ggml_widen_q5_1, rn_ggml_widen_q8_0, rn_ggml_widen_q8_1,
    rn_ggml_widen_iq4_nl, rn_ggml_widen_mxfp4, rn_ggml_widen_nvfp4;
rn_narrow_kernel rn_ggml_narrow_q8_0, rn_ggml_narrow_q4_0;

// ggml_superblocks.c: 256 elements, most with quantised scales of their parts
rn_widen_kernel rn_ggml_widen_q2_k, rn_ggml_widen_q3_k, rn_ggml_widen_q4_k, rn_ggml_widen_q5_k,
    rn_ggml_widen_q6_k, rn_ggml_widen_q8_k, rn_ggml_widen_iq4_xs, rn_ggml_widen_tq1_0,
    rn_ggml_widen_tq2_0;

// ggml_codebooks.c: 256 elements, indices of tables
rn_widen_kernel rn_ggml_widen_iq1_s, rn_ggml_widen_iq1_m, rn_ggml_widen_iq2_xxs,
    rn_ggml_widen_iq2_xs, rn_ggml_widen_iq2_s, rn_ggml_widen_iq3_xxs, rn_ggml_widen_iq3_s;

// The sixteen values of iq4_nl and iq4_xs; and twice those of fp4 (e2m1), so that they are whole
// numbers: the scales of mxfp4 and nvfp4 (small_float.h) are halved to match.
extern const int8_t rn_ggml_iq4_values[16], rn_ggml_fp4_values[16];

#endif
