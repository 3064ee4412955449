// widen.c — any readable type to f32: one function a type in one table, where NULL means
// unreadable.
//
// The narrow floats go through convert.h's kernels and ggml's blocks through ggml_blocks.h; what is
// left here are the wide types, where a plain loop is fast enough.
#include <ration/tensor.h>

#include "tensor/convert.h"
#include "tensor/ggml_blocks.h"
#include "tensor/scaled_blocks.h"
#include "tensor/small_float.h"

static void widen_f32(const void *source, float *target, uint64_t count) {
    memcpy(target, source, count * sizeof *target);
}

static void widen_f16(const void *source, float *target, uint64_t count) {
    rn_convert_kernels_get()->widen_f16(source, target, count);
}

static void widen_bf16(const void *source, float *target, uint64_t count) {
    rn_convert_kernels_get()->widen_bf16(source, target, count);
}

static void widen_e4m3(const void *source, float *target, uint64_t count) {
    rn_convert_kernels_get()->widen_e4m3(source, target, count);
}

static void widen_e5m2(const void *source, float *target, uint64_t count) {
    rn_convert_kernels_get()->widen_e5m2(source, target, count);
}

static void widen_i8(const void *source, float *target, uint64_t count) {
    rn_convert_kernels_get()->widen_i8(source, target, count);
}

static void widen_e8m0(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    for (uint64_t i = 0; i < count; i++)
        target[i] = rn_e8m0_widen(from[i]);
}

static void widen_u8(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    for (uint64_t i = 0; i < count; i++)
        target[i] = from[i];
}

static void widen_bool(const void *source, float *target, uint64_t count) {
    const uint8_t *from = source;
    for (uint64_t i = 0; i < count; i++)
        target[i] = from[i] != 0;
}

// The types that C itself converts, loaded without alignment.
#define WIDEN(name, type)                                                                          \
    static void name(const void *source, float *target, uint64_t count) {                          \
        const uint8_t *from = source;                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            type value;                                                                            \
            memcpy(&value, from + i * sizeof value, sizeof value);                                 \
            target[i] = (float)value;                                                              \
        }                                                                                          \
    }
WIDEN(widen_f64, double)
WIDEN(widen_i64, int64_t)
WIDEN(widen_i32, int32_t)
WIDEN(widen_i16, int16_t)
WIDEN(widen_u64, uint64_t)
WIDEN(widen_u32, uint32_t)
WIDEN(widen_u16, uint16_t)

// Each takes a number of blocks.
static rn_widen_kernel *const widen[RN_DTYPE_COUNT] = {
    [RN_DTYPE_F64] = widen_f64,
    [RN_DTYPE_F32] = widen_f32,
    [RN_DTYPE_F16] = widen_f16,
    [RN_DTYPE_BF16] = widen_bf16,
    [RN_DTYPE_F8_E4M3] = widen_e4m3,
    [RN_DTYPE_F8_E5M2] = widen_e5m2,
    [RN_DTYPE_F8_E8M0] = widen_e8m0,
    [RN_DTYPE_I64] = widen_i64,
    [RN_DTYPE_I32] = widen_i32,
    [RN_DTYPE_I16] = widen_i16,
    [RN_DTYPE_I8] = widen_i8,
    [RN_DTYPE_U64] = widen_u64,
    [RN_DTYPE_U32] = widen_u32,
    [RN_DTYPE_U16] = widen_u16,
    [RN_DTYPE_U8] = widen_u8,
    [RN_DTYPE_BOOL] = widen_bool,
    [RN_DTYPE_Q4_0] = rn_ggml_widen_q4_0,
    [RN_DTYPE_Q4_1] = rn_ggml_widen_q4_1,
    [RN_DTYPE_Q5_0] = rn_ggml_widen_q5_0,
    [RN_DTYPE_Q5_1] = rn_ggml_widen_q5_1,
    [RN_DTYPE_Q8_0] = rn_ggml_widen_q8_0,
    [RN_DTYPE_Q8_1] = rn_ggml_widen_q8_1,
    [RN_DTYPE_Q2_K] = rn_ggml_widen_q2_k,
    [RN_DTYPE_Q3_K] = rn_ggml_widen_q3_k,
    [RN_DTYPE_Q4_K] = rn_ggml_widen_q4_k,
    [RN_DTYPE_Q5_K] = rn_ggml_widen_q5_k,
    [RN_DTYPE_Q6_K] = rn_ggml_widen_q6_k,
    [RN_DTYPE_Q8_K] = rn_ggml_widen_q8_k,
    [RN_DTYPE_IQ1_S] = rn_ggml_widen_iq1_s,
    [RN_DTYPE_IQ1_M] = rn_ggml_widen_iq1_m,
    [RN_DTYPE_IQ2_XXS] = rn_ggml_widen_iq2_xxs,
    [RN_DTYPE_IQ2_XS] = rn_ggml_widen_iq2_xs,
    [RN_DTYPE_IQ2_S] = rn_ggml_widen_iq2_s,
    [RN_DTYPE_IQ3_XXS] = rn_ggml_widen_iq3_xxs,
    [RN_DTYPE_IQ3_S] = rn_ggml_widen_iq3_s,
    [RN_DTYPE_IQ4_NL] = rn_ggml_widen_iq4_nl,
    [RN_DTYPE_IQ4_XS] = rn_ggml_widen_iq4_xs,
    [RN_DTYPE_TQ1_0] = rn_ggml_widen_tq1_0,
    [RN_DTYPE_TQ2_0] = rn_ggml_widen_tq2_0,
    [RN_DTYPE_MXFP4] = rn_ggml_widen_mxfp4,
    [RN_DTYPE_NVFP4] = rn_ggml_widen_nvfp4,
    [RN_DTYPE_Q1_0] = rn_ggml_widen_q1_0,
    [RN_DTYPE_Q2_0] = rn_ggml_widen_q2_0,
    [RN_DTYPE_F8_B128] = rn_widen_f8_b128,
    [RN_DTYPE_F8_B32] = rn_widen_f8_b32,
    [RN_DTYPE_FP4_B64] = rn_widen_fp4_b64,
    [RN_DTYPE_U4_B32] = rn_widen_u4_b32,
};

rn_status rn_dtype_to_f32(rn_dtype dtype, const void *source, float *target, uint64_t elements) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    if ((unsigned)dtype >= RN_DTYPE_COUNT || !widen[dtype])
        return rn_fail(RN_UNSUPPORTED, "elements of type %s cannot be read as numbers", info->name);
    if (elements % info->block_elements != 0)
        return rn_fail(RN_INVALID, "%llu elements of type %s are not whole blocks of %u",
                       (unsigned long long)elements, info->name, info->block_elements);
    if (elements > 0) widen[dtype](source, target, elements / info->block_elements);
    return RN_OK;
}
