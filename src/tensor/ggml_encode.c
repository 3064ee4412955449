// ggml_encode.c — the portable encoders, and the choice between the levels.
#include "tensor/ggml_encode.h"

#include "base/cpu.h"

#define ENCODERS rn_ggml_encoders_portable
#include "tensor/ggml_encoders.h"

static const rn_ggml_encoders *encoders(void) {
#if defined(__x86_64__)
    switch (rn_cpu_level_get()) {
    case RN_CPU_AVX512:
        return &rn_ggml_encoders_avx512;
    case RN_CPU_AVX2:
        return &rn_ggml_encoders_avx2;
    default:
        break;
    }
#endif
    return &rn_ggml_encoders_portable;
}

rn_ggml_encoder *rn_ggml_encoder_of(rn_dtype dtype) {
    const rn_ggml_encoders *e = encoders();
    switch (dtype) {
    case RN_DTYPE_Q4_0:
        return e->q4_0;
    case RN_DTYPE_Q4_1:
        return e->q4_1;
    case RN_DTYPE_Q5_0:
        return e->q5_0;
    case RN_DTYPE_Q5_1:
        return e->q5_1;
    case RN_DTYPE_IQ4_NL:
        return e->iq4_nl;
    case RN_DTYPE_IQ4_XS:
        return e->iq4_xs;
    case RN_DTYPE_MXFP4:
        return e->mxfp4;
    case RN_DTYPE_Q2_K:
        return e->q2_k;
    case RN_DTYPE_Q3_K:
        return e->q3_k;
    case RN_DTYPE_Q4_K:
        return e->q4_k;
    case RN_DTYPE_Q5_K:
        return e->q5_k;
    case RN_DTYPE_Q6_K:
        return e->q6_k;
    default:
        return NULL;
    }
}

rn_status rn_ggml_encode_rows(rn_dtype dtype, const float *rows, uint64_t row_count, uint64_t cols,
                              const float *importance, void *out) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    rn_ggml_encoder *encode = rn_ggml_encoder_of(dtype);
    if (!encode) return rn_dtype_from_f32(dtype, rows, out, row_count * cols);
    if (cols % info->block_elements)
        return rn_fail(RN_INVALID, "rows of %llu are not whole blocks of %s",
                       (unsigned long long)cols, info->name);
    uint64_t blocks = cols / info->block_elements;
    for (uint64_t r = 0; r < row_count; r++)
        encode(rows + r * cols, importance, blocks,
               (uint8_t *)out + r * blocks * info->block_bytes);
    return RN_OK;
}
