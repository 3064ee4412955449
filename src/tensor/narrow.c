// narrow.c — f32 to the plain types and to ggml's blocks: one function a type in one table, where
// NULL means "not offered"; blocks that take a search are ggml_encode.h's.
//
// Integers round to nearest even and saturate; NaN gives 0. The ends are compared as floats: the
// upper end of a 32- or 64-bit type is not a float, so the comparison is with the power of two
// above it.
#include <ration/tensor.h>

#include "tensor/convert.h"
#include "tensor/ggml_blocks.h"
#include "tensor/ggml_encode.h"

#include <math.h>
#include <string.h>

static void narrow_f64(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    for (uint64_t i = 0; i < count; i++) {
        double value = source[i];
        memcpy(to + i * sizeof value, &value, sizeof value);
    }
}

static void narrow_f32(const float *source, void *target, uint64_t count) {
    memcpy(target, source, count * sizeof *source);
}

static void narrow_f16(const float *source, void *target, uint64_t count) {
    rn_convert_kernels_get()->narrow_f16(source, target, count);
}

static void narrow_bf16(const float *source, void *target, uint64_t count) {
    rn_convert_kernels_get()->narrow_bf16(source, target, count);
}

static void narrow_e4m3(const float *source, void *target, uint64_t count) {
    rn_convert_kernels_get()->narrow_e4m3(source, target, count);
}

static void narrow_e5m2(const float *source, void *target, uint64_t count) {
    rn_convert_kernels_get()->narrow_e5m2(source, target, count);
}

static void narrow_bool(const float *source, void *target, uint64_t count) {
    uint8_t *to = target;
    for (uint64_t i = 0; i < count; i++)
        to[i] = source[i] != 0;
}

// `above` is the power of two just above `highest`; `lowest` is a float.
#define NARROW(name, type, lowest, highest, above)                                                 \
    static void name(const float *source, void *target, uint64_t count) {                          \
        uint8_t *to = target;                                                                      \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            float whole = rintf(source[i]);                                                        \
            type value = 0;                                                                        \
            if (whole >= (above))                                                                  \
                value = (highest);                                                                 \
            else if (whole >= (float)(lowest))                                                     \
                value = (type)whole;                                                               \
            else if (whole < (float)(lowest))                                                      \
                value = (lowest);                                                                  \
            memcpy(to + i * sizeof value, &value, sizeof value);                                   \
        }                                                                                          \
    }
NARROW(narrow_i64, int64_t, INT64_MIN, INT64_MAX, 0x1p63f)
NARROW(narrow_i32, int32_t, INT32_MIN, INT32_MAX, 0x1p31f)
NARROW(narrow_i16, int16_t, INT16_MIN, INT16_MAX, 0x1p15f)
NARROW(narrow_i8, int8_t, INT8_MIN, INT8_MAX, 0x1p7f)
NARROW(narrow_u64, uint64_t, 0, UINT64_MAX, 0x1p64f)
NARROW(narrow_u32, uint32_t, 0, UINT32_MAX, 0x1p32f)
NARROW(narrow_u16, uint16_t, 0, UINT16_MAX, 0x1p16f)
NARROW(narrow_u8, uint8_t, 0, UINT8_MAX, 0x1p8f)

// Each takes a number of blocks.
static rn_narrow_kernel *const narrow[RN_DTYPE_COUNT] = {
    [RN_DTYPE_F64] = narrow_f64,           [RN_DTYPE_F32] = narrow_f32,
    [RN_DTYPE_F16] = narrow_f16,           [RN_DTYPE_BF16] = narrow_bf16,
    [RN_DTYPE_F8_E4M3] = narrow_e4m3,      [RN_DTYPE_F8_E5M2] = narrow_e5m2,
    [RN_DTYPE_I64] = narrow_i64,           [RN_DTYPE_I32] = narrow_i32,
    [RN_DTYPE_I16] = narrow_i16,           [RN_DTYPE_I8] = narrow_i8,
    [RN_DTYPE_U64] = narrow_u64,           [RN_DTYPE_U32] = narrow_u32,
    [RN_DTYPE_U16] = narrow_u16,           [RN_DTYPE_U8] = narrow_u8,
    [RN_DTYPE_BOOL] = narrow_bool,         [RN_DTYPE_Q8_0] = rn_ggml_narrow_q8_0,
    [RN_DTYPE_Q4_0] = rn_ggml_narrow_q4_0,
};

rn_status rn_dtype_from_f32(rn_dtype dtype, const float *source, void *target, uint64_t elements) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    rn_ggml_encoder *encode = rn_ggml_encoder_of(dtype);
    if ((unsigned)dtype >= RN_DTYPE_COUNT || (!narrow[dtype] && !encode))
        return rn_fail(RN_UNSUPPORTED, "numbers cannot be written as elements of type %s",
                       info->name);
    if (elements % info->block_elements != 0)
        return rn_fail(RN_INVALID, "%llu elements of type %s are not whole blocks of %u",
                       (unsigned long long)elements, info->name, info->block_elements);
    uint64_t blocks = elements / info->block_elements;
    if (blocks > 0 && narrow[dtype])
        narrow[dtype](source, target, blocks);
    else if (blocks > 0)
        encode(source, NULL, blocks, target);
    return RN_OK;
}
