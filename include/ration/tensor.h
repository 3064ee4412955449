// tensor.h — what a tensor's elements are. Values only; nothing here allocates.
#ifndef RATION_TENSOR_H
#define RATION_TENSOR_H

#include <ration/text.h>

RN_BEGIN_DECLS

// Every element type that ration can name. Those from RN_DTYPE_Q4_0 on are ggml's blocks; int8,
// int4, nf4 and nf4_dq are quantised forms that a file stores as several tensors (data, scale,
// ...); those with _b are ration's own blocks, which quantised checkpoints become when they are
// read.
typedef enum rn_dtype {
    RN_DTYPE_NONE = 0,
    RN_DTYPE_F64,
    RN_DTYPE_F32,
    RN_DTYPE_F16,
    RN_DTYPE_BF16,
    RN_DTYPE_F8_E4M3,
    RN_DTYPE_F8_E5M2,
    RN_DTYPE_F8_E8M0,
    RN_DTYPE_F8_E4M3FNUZ,
    RN_DTYPE_F8_E5M2FNUZ,
    RN_DTYPE_F6_E2M3,
    RN_DTYPE_F6_E3M2,
    RN_DTYPE_F4,
    RN_DTYPE_C64,
    RN_DTYPE_I64,
    RN_DTYPE_I32,
    RN_DTYPE_I16,
    RN_DTYPE_I8,
    RN_DTYPE_U64,
    RN_DTYPE_U32,
    RN_DTYPE_U16,
    RN_DTYPE_U8,
    RN_DTYPE_BOOL,
    RN_DTYPE_Q4_0,
    RN_DTYPE_Q4_1,
    RN_DTYPE_Q5_0,
    RN_DTYPE_Q5_1,
    RN_DTYPE_Q8_0,
    RN_DTYPE_Q8_1,
    RN_DTYPE_Q2_K,
    RN_DTYPE_Q3_K,
    RN_DTYPE_Q4_K,
    RN_DTYPE_Q5_K,
    RN_DTYPE_Q6_K,
    RN_DTYPE_Q8_K,
    RN_DTYPE_IQ2_XXS,
    RN_DTYPE_IQ2_XS,
    RN_DTYPE_IQ3_XXS,
    RN_DTYPE_IQ1_S,
    RN_DTYPE_IQ4_NL,
    RN_DTYPE_IQ3_S,
    RN_DTYPE_IQ2_S,
    RN_DTYPE_IQ4_XS,
    RN_DTYPE_IQ1_M,
    RN_DTYPE_TQ1_0,
    RN_DTYPE_TQ2_0,
    RN_DTYPE_MXFP4,
    RN_DTYPE_NVFP4,
    RN_DTYPE_Q1_0,
    RN_DTYPE_Q2_0,
    RN_DTYPE_INT8,    // row-wise symmetric int8: one f32 scale a row
    RN_DTYPE_INT4,    // affine int4 in groups of 128: scale and shift a group
    RN_DTYPE_NF4,     // 4-bit normal float in blocks of 64: f32 absmax a block
    RN_DTYPE_F8_B128, // e4m3 in blocks of 128: f32 scale a block
    RN_DTYPE_FP4_B64, // nvfp4 in blocks of 64: f32 scale a block beside its own
    RN_DTYPE_U4_B32,  // affine 4 bits in blocks of 32: f32 scale and whole zero a block
    RN_DTYPE_F8_B32,  // as f8_b128 in blocks of 32, for rows that are no multiple of 128
    RN_DTYPE_NF4_DQ,  // nf4 with double quantisation: absmax as 8-bit codes in blocks of 256
    RN_DTYPE_COUNT
} rn_dtype;

typedef struct rn_dtype_info {
    const char *name;        // as ration prints and parses it: "bf16", "q4_0"
    const char *safetensors; // the name in a safetensors header, or NULL
    int ggml;                // ggml's type number, or -1
    uint16_t block_elements; // elements in one block; 1 for plain types
    uint16_t block_bytes;    // bytes of one block; of the data tensor alone for forms of several
    bool is_float;           // plain floating point: what convert may change
    bool readable;           // rn_dtype_to_f32 works
} rn_dtype_info;

// Never NULL; RN_DTYPE_NONE's row for anything out of range.
RN_API const rn_dtype_info *rn_dtype_get(rn_dtype dtype);
// Case-insensitive, accepts "fp8", "f8_e4m3", "half", "float32" and the like. "int8" and "int4" are
// the quantised forms; the plain integer is "i8". RN_DTYPE_NONE if unknown.
RN_API rn_dtype rn_dtype_parse(rn_str name);
RN_API rn_dtype rn_dtype_from_safetensors(rn_str name);
RN_API rn_dtype rn_dtype_from_ggml(uint32_t type);

// Bytes of `elements` elements, in whole blocks. False where it overflows or is not whole, and for
// RN_DTYPE_NONE.
RN_API bool rn_dtype_bytes(rn_dtype dtype, uint64_t elements, uint64_t *out_bytes);

// Widens `elements` elements to f32 (f64 and wide integers round to nearest even; bool gives 0 or
// 1; NaN stays NaN). The source needs no alignment; source and target must not overlap. RN_INVALID
// where it is not a whole number of blocks, RN_UNSUPPORTED where the table says unreadable. Any
// thread.
RN_API RN_MUST_USE rn_status rn_dtype_to_f32(rn_dtype dtype, const void *source, float *target,
                                             uint64_t elements);
// Narrows f32 to a plain type or to one of ggml's blocks (q8_0, q4_0, q4_1, q5_0, q5_1, q2_k to
// q6_k, iq4_nl, iq4_xs, mxfp4: llama.cpp's bytes); RN_UNSUPPORTED for any other. Rounds to nearest
// even. Too large becomes infinity in f16 and bf16, the largest finite value in fp8, the nearest
// end in integers. NaN stays NaN (integers: 0), infinity stays infinity (fp8 e4m3 has none: NaN).
// The target needs no alignment.
RN_API RN_MUST_USE rn_status rn_dtype_from_f32(rn_dtype dtype, const float *source, void *target,
                                               uint64_t elements);

// From any readable type to any type that rn_dtype_from_f32 takes. Integers, bool and f64 convert
// among each other exactly where the target can hold the value and saturate where it cannot;
// everything else goes through f32. A whole number of blocks of both. Source and target must not
// overlap.
RN_API RN_MUST_USE rn_status rn_dtype_convert(rn_dtype from, const void *source, rn_dtype to,
                                              void *target, uint64_t elements);

RN_END_DECLS

#endif
