// dtype.c — the one table of element types, and the lookups over it.
//
// Everything that a file format or a person can say about a type is a column here, so that no other
// file switches over names. Rows that rn_dtype_to_f32 cannot read are still named and sized: such
// tensors can be listed, planned and copied.
#include <ration/tensor.h>

#include "base/checked.h"
#include "base/str.h"

//     name  safetensors  ggml  block elements, bytes  is_float  readable
static const rn_dtype_info infos[RN_DTYPE_COUNT] = {
    [RN_DTYPE_NONE] = {"none", NULL, -1, 1, 0, false, false},
    [RN_DTYPE_F64] = {"f64", "F64", 28, 1, 8, true, true},
    [RN_DTYPE_F32] = {"f32", "F32", 0, 1, 4, true, true},
    [RN_DTYPE_F16] = {"f16", "F16", 1, 1, 2, true, true},
    [RN_DTYPE_BF16] = {"bf16", "BF16", 30, 1, 2, true, true},
    [RN_DTYPE_F8_E4M3] = {"f8_e4m3", "F8_E4M3", -1, 1, 1, true, true},
    [RN_DTYPE_F8_E5M2] = {"f8_e5m2", "F8_E5M2", -1, 1, 1, true, true},
    [RN_DTYPE_F8_E8M0] = {"f8_e8m0", "F8_E8M0", -1, 1, 1, false, true},
    [RN_DTYPE_F8_E4M3FNUZ] = {"f8_e4m3fnuz", "F8_E4M3FNUZ", -1, 1, 1, false, false},
    [RN_DTYPE_F8_E5M2FNUZ] = {"f8_e5m2fnuz", "F8_E5M2FNUZ", -1, 1, 1, false, false},
    [RN_DTYPE_F6_E2M3] = {"f6_e2m3", "F6_E2M3", -1, 4, 3, false, false},
    [RN_DTYPE_F6_E3M2] = {"f6_e3m2", "F6_E3M2", -1, 4, 3, false, false},
    [RN_DTYPE_F4] = {"f4", "F4", -1, 2, 1, false, false},
    [RN_DTYPE_C64] = {"c64", "C64", -1, 1, 8, false, false},
    [RN_DTYPE_I64] = {"i64", "I64", 27, 1, 8, false, true},
    [RN_DTYPE_I32] = {"i32", "I32", 26, 1, 4, false, true},
    [RN_DTYPE_I16] = {"i16", "I16", 25, 1, 2, false, true},
    [RN_DTYPE_I8] = {"i8", "I8", 24, 1, 1, false, true},
    [RN_DTYPE_U64] = {"u64", "U64", -1, 1, 8, false, true},
    [RN_DTYPE_U32] = {"u32", "U32", -1, 1, 4, false, true},
    [RN_DTYPE_U16] = {"u16", "U16", -1, 1, 2, false, true},
    [RN_DTYPE_U8] = {"u8", "U8", -1, 1, 1, false, true},
    [RN_DTYPE_BOOL] = {"bool", "BOOL", -1, 1, 1, false, true},
    [RN_DTYPE_Q4_0] = {"q4_0", NULL, 2, 32, 18, false, true},
    [RN_DTYPE_Q4_1] = {"q4_1", NULL, 3, 32, 20, false, true},
    [RN_DTYPE_Q5_0] = {"q5_0", NULL, 6, 32, 22, false, true},
    [RN_DTYPE_Q5_1] = {"q5_1", NULL, 7, 32, 24, false, true},
    [RN_DTYPE_Q8_0] = {"q8_0", NULL, 8, 32, 34, false, true},
    [RN_DTYPE_Q8_1] = {"q8_1", NULL, 9, 32, 36, false, true},
    [RN_DTYPE_Q2_K] = {"q2_k", NULL, 10, 256, 84, false, true},
    [RN_DTYPE_Q3_K] = {"q3_k", NULL, 11, 256, 110, false, true},
    [RN_DTYPE_Q4_K] = {"q4_k", NULL, 12, 256, 144, false, true},
    [RN_DTYPE_Q5_K] = {"q5_k", NULL, 13, 256, 176, false, true},
    [RN_DTYPE_Q6_K] = {"q6_k", NULL, 14, 256, 210, false, true},
    [RN_DTYPE_Q8_K] = {"q8_k", NULL, 15, 256, 292, false, true},
    [RN_DTYPE_IQ2_XXS] = {"iq2_xxs", NULL, 16, 256, 66, false, true},
    [RN_DTYPE_IQ2_XS] = {"iq2_xs", NULL, 17, 256, 74, false, true},
    [RN_DTYPE_IQ3_XXS] = {"iq3_xxs", NULL, 18, 256, 98, false, true},
    [RN_DTYPE_IQ1_S] = {"iq1_s", NULL, 19, 256, 50, false, true},
    [RN_DTYPE_IQ4_NL] = {"iq4_nl", NULL, 20, 32, 18, false, true},
    [RN_DTYPE_IQ3_S] = {"iq3_s", NULL, 21, 256, 110, false, true},
    [RN_DTYPE_IQ2_S] = {"iq2_s", NULL, 22, 256, 82, false, true},
    [RN_DTYPE_IQ4_XS] = {"iq4_xs", NULL, 23, 256, 136, false, true},
    [RN_DTYPE_IQ1_M] = {"iq1_m", NULL, 29, 256, 56, false, true},
    [RN_DTYPE_TQ1_0] = {"tq1_0", NULL, 34, 256, 54, false, true},
    [RN_DTYPE_TQ2_0] = {"tq2_0", NULL, 35, 256, 66, false, true},
    [RN_DTYPE_MXFP4] = {"mxfp4", NULL, 39, 32, 17, false, true},
    [RN_DTYPE_NVFP4] = {"nvfp4", NULL, 40, 64, 36, false, true},
    [RN_DTYPE_Q1_0] = {"q1_0", NULL, 41, 128, 18, false, true},
    [RN_DTYPE_Q2_0] = {"q2_0", NULL, 42, 64, 18, false, true},
    [RN_DTYPE_INT8] = {"int8", NULL, -1, 1, 1, false, false},
    [RN_DTYPE_INT4] = {"int4", NULL, -1, 2, 1, false, false},
    [RN_DTYPE_NF4] = {"nf4", NULL, -1, 2, 1, false, false},
    [RN_DTYPE_NF4_DQ] = {"nf4_dq", NULL, -1, 2, 1, false, false},
    [RN_DTYPE_F8_B128] = {"f8_b128", NULL, -1, 128, 132, false, true},
    [RN_DTYPE_F8_B32] = {"f8_b32", NULL, -1, 32, 36, false, true},
    [RN_DTYPE_FP4_B64] = {"fp4_b64", NULL, -1, 64, 40, false, true},
    [RN_DTYPE_U4_B32] = {"u4_b32", NULL, -1, 32, 21, false, true},
};

// Other spellings that people and frameworks use.
static const struct {
    const char *name;
    rn_dtype dtype;
} aliases[] = {
    {"double", RN_DTYPE_F64},
    {"float64", RN_DTYPE_F64},
    {"fp64", RN_DTYPE_F64},
    {"float", RN_DTYPE_F32},
    {"float32", RN_DTYPE_F32},
    {"fp32", RN_DTYPE_F32},
    {"half", RN_DTYPE_F16},
    {"float16", RN_DTYPE_F16},
    {"fp16", RN_DTYPE_F16},
    {"bfloat16", RN_DTYPE_BF16},
    {"f8", RN_DTYPE_F8_E4M3},
    {"fp8", RN_DTYPE_F8_E4M3},
    {"fp8_e4m3", RN_DTYPE_F8_E4M3},
    {"e4m3", RN_DTYPE_F8_E4M3},
    {"f8_e4m3fn", RN_DTYPE_F8_E4M3},
    {"fp8_e4m3fn", RN_DTYPE_F8_E4M3},
    {"float8_e4m3fn", RN_DTYPE_F8_E4M3},
    {"fp8_e5m2", RN_DTYPE_F8_E5M2},
    {"e5m2", RN_DTYPE_F8_E5M2},
    {"float8_e5m2", RN_DTYPE_F8_E5M2},
    {"e8m0", RN_DTYPE_F8_E8M0},
    {"float8_e8m0fnu", RN_DTYPE_F8_E8M0},
    {"float8_e4m3fnuz", RN_DTYPE_F8_E4M3FNUZ},
    {"float8_e5m2fnuz", RN_DTYPE_F8_E5M2FNUZ},
    {"fp4", RN_DTYPE_F4},
    {"complex64", RN_DTYPE_C64},
    {"int64", RN_DTYPE_I64},
    {"int32", RN_DTYPE_I32},
    {"int16", RN_DTYPE_I16},
    {"uint64", RN_DTYPE_U64},
    {"uint32", RN_DTYPE_U32},
    {"uint16", RN_DTYPE_U16},
    {"uint8", RN_DTYPE_U8},
    {"qint8", RN_DTYPE_INT8},
    {"qint4", RN_DTYPE_INT4},
};

const rn_dtype_info *rn_dtype_get(rn_dtype dtype) {
    return &infos[(unsigned)dtype < RN_DTYPE_COUNT ? dtype : RN_DTYPE_NONE];
}

rn_dtype rn_dtype_parse(rn_str name) {
    for (int i = RN_DTYPE_NONE + 1; i < RN_DTYPE_COUNT; i++)
        if (rn_str_equal_ignoring_case(name, rn_str_from(infos[i].name))) return (rn_dtype)i;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (rn_str_equal_ignoring_case(name, rn_str_from(aliases[i].name))) return aliases[i].dtype;
    return RN_DTYPE_NONE;
}

rn_dtype rn_dtype_from_safetensors(rn_str name) {
    for (int i = RN_DTYPE_NONE + 1; i < RN_DTYPE_COUNT; i++)
        if (infos[i].safetensors && rn_str_equal(name, rn_str_from(infos[i].safetensors)))
            return (rn_dtype)i;
    return RN_DTYPE_NONE;
}

rn_dtype rn_dtype_from_ggml(uint32_t type) {
    for (int i = RN_DTYPE_NONE + 1; i < RN_DTYPE_COUNT; i++)
        if (infos[i].ggml >= 0 && (uint32_t)infos[i].ggml == type) return (rn_dtype)i;
    return RN_DTYPE_NONE;
}

bool rn_dtype_bytes(rn_dtype dtype, uint64_t elements, uint64_t *out_bytes) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    if (info->block_bytes == 0 || elements % info->block_elements != 0) return false;
    return rn_mul_u64(elements / info->block_elements, info->block_bytes, out_bytes);
}
