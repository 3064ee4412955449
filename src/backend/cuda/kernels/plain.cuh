// plain.cuh — one element of a weight as files have it, as f32: tensor/widen.c, ggml_blocks.c,
// ggml_superblocks.c, scaled_blocks.c and graph/plain_matrix.c once more, an element at a time. The order of the
// float operations is part of the formats: results have the host's bits.
//
// Where a type costs memory bandwidth, kernels have a path of their own; this one is for all.
#ifndef RN_CUDA_KERNELS_PLAIN_CUH
#define RN_CUDA_KERNELS_PLAIN_CUH

#include <cuda_fp16.h>

#include "codebooks.cuh"
#include "half_io.cuh"
#include "rows_args.h"
#include "tensor/dynamic_map.h"

// ---- small floats -------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t rn_load_two(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8; // blocks lie at any address
}

__device__ __forceinline__ float rn_widen_e4m3(uint32_t byte) {
    uint32_t sign = (byte & 0x80) << 24, rest = byte & 0x7f, bits;
    if (rest == 0x7f)
        bits = 0x7fc00000;
    else if (rest >= 8)
        bits = (rest << 20) + (120u << 23);
    else
        bits = __float_as_uint((float)rest * 0x1p-9f);
    return __uint_as_float(sign | bits);
}

__device__ __forceinline__ float rn_widen_e8m0(uint32_t exponent) {
    if (exponent == 0xff) return __uint_as_float(0x7fc00000);
    return __uint_as_float(exponent == 0 ? 0x00400000 : exponent << 23);
}

// ---- blocks of one scale ------------------------------------------------------------------------

__device__ const int8_t rn_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                             1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of fp4 (e2m1); the scales are halved to match.
__device__ const int8_t rn_fp4_doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                              0, -1, -2, -3, -4, -6, -8, -12};

__device__ __forceinline__ float rn_half_at(const uint8_t *at) {
    return rn_widen_f16(rn_load_two(at));
}

// Element e of 2 `half` nibbles: the first half in the low ones, the second in the high ones.
__device__ __forceinline__ int rn_nibble(const uint8_t *nibbles, uint32_t e, uint32_t half) {
    return e < half ? nibbles[e] & 15 : nibbles[e - half] >> 4;
}

// 4 bytes of fifth bits, then 16 of nibbles.
__device__ __forceinline__ int rn_five_bits(const uint8_t *bits, uint32_t e) {
    return rn_nibble(bits + 4, e, 16) | (bits[e / 8] >> e % 8 & 1) << 4;
}

__device__ __forceinline__ float rn_mxfp4_scale(uint32_t exponent) {
    return __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

__device__ __forceinline__ float rn_nvfp4_scale(uint32_t byte) {
    uint32_t rest = byte & 0x7f;
    if (byte == 0x7f) return 0;
    return rest >= 8 ? __uint_as_float((rest << 20) + (119u << 23)) : (float)rest * 0x1p-10f;
}

// q * scale + low, two roundings.
__device__ __forceinline__ float rn_affine(int q, float scale, float low) {
    return __fadd_rn(__fmul_rn((float)q, scale), low);
}

// ---- blocks of 256 ------------------------------------------------------------------------------

// Six bits of scale and of offset of part 0..7, in twelve bytes (q4_k, q5_k).
__device__ __forceinline__ void rn_k_scales(const uint8_t *bytes, uint32_t part, int *scale,
                                            int *offset) {
    if (part < 4) {
        *scale = bytes[part] & 63;
        *offset = bytes[part + 4] & 63;
    } else {
        *scale = (bytes[part + 4] & 15) | bytes[part - 4] >> 6 << 4;
        *offset = bytes[part + 4] >> 4 | bytes[part] >> 6 << 4;
    }
}

__device__ __forceinline__ float rn_k_value(const uint8_t *block, uint32_t part, int q) {
    int s, o;
    rn_k_scales(block + 4, part, &s, &o);
    return __fsub_rn(__fmul_rn(__fmul_rn(rn_half_at(block), (float)s), (float)q),
                     __fmul_rn(rn_half_at(block + 2), (float)o));
}

__device__ __forceinline__ float rn_q2_k_at(const uint8_t *block, uint32_t e) {
    uint32_t part = e / 16;
    int q = block[16 + part / 8 * 32 + part % 2 * 16 + e % 16] >> part % 8 / 2 * 2 & 3;
    float scale = __fmul_rn(rn_half_at(block + 80), (float)(block[part] & 15));
    float offset = __fmul_rn(rn_half_at(block + 82), (float)(block[part] >> 4));
    return __fsub_rn(__fmul_rn(scale, (float)q), offset);
}

__device__ __forceinline__ float rn_q3_k_at(const uint8_t *block, uint32_t e) {
    uint32_t part = e / 16, at = part % 2 * 16 + e % 16;
    int low = block[96 + part % 8] >> part / 8 * 4 & 15;
    int high = block[96 + 8 + part % 4] >> part / 4 * 2 & 3;
    int q = block[32 + part / 8 * 32 + at] >> part % 8 / 2 * 2 & 3;
    q |= (block[at] >> part / 2 & 1) << 2;
    return __fmul_rn(__fmul_rn(rn_half_at(block + 108), (float)((low | high << 4) - 32)),
                     (float)(q - 4));
}

__device__ __forceinline__ float rn_q4_k_at(const uint8_t *block, uint32_t e) {
    uint32_t part = e / 32;
    return rn_k_value(block, part, block[16 + part / 2 * 32 + e % 32] >> part % 2 * 4 & 15);
}

__device__ __forceinline__ float rn_q5_k_at(const uint8_t *block, uint32_t e) {
    uint32_t part = e / 32;
    int q = block[48 + part / 2 * 32 + e % 32] >> part % 2 * 4 & 15;
    return rn_k_value(block, part, q | (block[16 + e % 32] >> part & 1) << 4);
}

__device__ __forceinline__ float rn_q6_k_at(const uint8_t *block, uint32_t e) {
    uint32_t part = e / 16, half = part / 8, quarter = part % 8 / 2, at = e % 32;
    int low = block[half * 64 + quarter % 2 * 32 + at] >> quarter / 2 * 4 & 15;
    int high = block[128 + half * 32 + at] >> quarter * 2 & 3;
    float scale = __fmul_rn(rn_half_at(block + 208), (float)(int8_t)block[192 + part]);
    return __fmul_rn(scale, (float)((low | high << 4) - 32));
}

__device__ __forceinline__ float rn_q8_k_at(const uint8_t *block, uint32_t e) {
    uint32_t bits = rn_load_two(block) | rn_load_two(block + 2) << 16;
    return __fmul_rn(__uint_as_float(bits), (float)(int8_t)block[4 + e]);
}

__device__ __forceinline__ float rn_iq4_xs_at(const uint8_t *block, uint32_t e) {
    uint32_t part = e / 32;
    int low = block[4 + part / 2] >> part % 2 * 4 & 15;
    int high = rn_load_two(block + 2) >> part * 2 & 3;
    float scale = __fmul_rn(rn_half_at(block), (float)((low | high << 4) - 32));
    return __fmul_rn(scale, (float)rn_iq4_values[rn_nibble(block + 8 + part * 16, e % 32, 16)]);
}

// Ternary digit `digit` of a byte that is a fraction of 256: five a byte in the first 48 bytes (32,
// then 16), four in the last four.
__device__ __forceinline__ float rn_tq1_0_at(const uint8_t *block, uint32_t e) {
    uint32_t at = e % 32, digit = e / 32;
    if (e >= 240)
        at = 48 + (e - 240) % 4, digit = (e - 240) / 4;
    else if (e >= 160)
        at = 32 + (e - 160) % 16, digit = (e - 160) / 16;
    uint32_t fraction = block[at];
    for (uint32_t i = 0; i < digit; i++)
        fraction = fraction * 3 & 0xff;
    return __fmul_rn((float)((int)(fraction * 3 >> 8) - 1), rn_half_at(block + 52));
}

__device__ __forceinline__ float rn_tq2_0_at(const uint8_t *block, uint32_t e) {
    uint32_t part = e / 32;
    int q = block[part / 4 * 32 + e % 32] >> part % 4 * 2 & 3;
    return __fmul_rn((float)(q - 1), rn_half_at(block + 64));
}

// ---- ration's own blocks ------------------------------------------------------------------------

__device__ __forceinline__ float rn_float_at(const uint8_t *at) {
    return __uint_as_float(rn_load_two(at) | rn_load_two(at + 2) << 16);
}

__device__ __forceinline__ float rn_f8_at(const uint8_t *block, uint32_t e) {
    return __fmul_rn(rn_widen_e4m3(block[4 + e]), rn_float_at(block));
}

__device__ __forceinline__ float rn_nvfp4_at(const uint8_t *block, uint32_t e) {
    int q = rn_nibble(block + 4 + e / 16 * 8, e % 16, 8);
    return __fmul_rn((float)rn_fp4_doubled[q], rn_nvfp4_scale(block[e / 16]));
}

__device__ __forceinline__ float rn_u4_at(const uint8_t *block, uint32_t e) {
    return __fmul_rn((float)(rn_nibble(block + 5, e, 16) - block[4]), rn_float_at(block));
}

// ---- the element --------------------------------------------------------------------------------

__device__ const float rn_nf4_values[16] = {-1.0f,
                                            -0.6961928009986877f,
                                            -0.5250730514526367f,
                                            -0.39491748809814453f,
                                            -0.28444138169288635f,
                                            -0.18477343022823334f,
                                            -0.09105003625154495f,
                                            0.0f,
                                            0.07958029955625534f,
                                            0.16093020141124725f,
                                            0.24611230194568634f,
                                            0.33791524171829224f,
                                            0.44070982933044434f,
                                            0.5626170039176941f,
                                            0.7229568362236023f,
                                            1.0f};

__device__ const float rn_dynamic_map[256] = {RN_DYNAMIC_MAP_SIGNED};

// What the codes of block `block` are multiplied by (rn_dequant_nf4_absmax).
__device__ __forceinline__ float rn_nf4_absmax(const rn_plain_args &w, uint64_t block) {
    if (!w.codes) return w.scale[block];
    return __fadd_rn(__fmul_rn(rn_dynamic_map[w.codes[block]], w.shift[block / 256]),
                     w.shift[w.nested_count]);
}

// Element i of elements without scales behind them.
__device__ __forceinline__ float rn_plain_value(uint32_t type, const uint8_t *data, uint64_t i) {
    uint32_t e32 = i % 32, e64 = i % 64, e256 = i % 256; // elements of blocks
    switch (type) {
    case RN_PLAIN_F64:
        return (float)((const double *)data)[i];
    case RN_PLAIN_F32:
        return ((const float *)data)[i];
    case RN_PLAIN_F16:
        return rn_widen_f16(((const uint16_t *)data)[i]);
    case RN_PLAIN_BF16:
        return rn_widen_bf16(((const uint16_t *)data)[i]);
    case RN_PLAIN_E4M3:
        return rn_widen_e4m3(data[i]);
    case RN_PLAIN_E5M2:
        return rn_widen_f16((uint32_t)data[i] << 8);
    case RN_PLAIN_E8M0:
        return rn_widen_e8m0(data[i]);
    case RN_PLAIN_I64:
        return (float)((const int64_t *)data)[i];
    case RN_PLAIN_I32:
        return (float)((const int32_t *)data)[i];
    case RN_PLAIN_I16:
        return (float)((const int16_t *)data)[i];
    case RN_PLAIN_I8:
        return (float)((const int8_t *)data)[i];
    case RN_PLAIN_U64:
        return (float)((const uint64_t *)data)[i];
    case RN_PLAIN_U32:
        return (float)((const uint32_t *)data)[i];
    case RN_PLAIN_U16:
        return (float)((const uint16_t *)data)[i];
    case RN_PLAIN_U8:
        return (float)data[i];
    case RN_PLAIN_BOOL:
        return data[i] != 0;
    case RN_PLAIN_Q1_0: {
        const uint8_t *block = data + i / 128 * 18;
        float scale = rn_half_at(block);
        return block[2 + i % 128 / 8] >> i % 8 & 1 ? scale : -scale;
    }
    case RN_PLAIN_Q2_0: {
        const uint8_t *block = data + i / 64 * 18;
        return __fmul_rn((float)((block[2 + e64 / 4] >> e64 % 4 * 2 & 3) - 1), rn_half_at(block));
    }
    case RN_PLAIN_Q4_0: {
        const uint8_t *block = data + i / 32 * 18;
        return __fmul_rn((float)(rn_nibble(block + 2, e32, 16) - 8), rn_half_at(block));
    }
    case RN_PLAIN_Q4_1: {
        const uint8_t *block = data + i / 32 * 20;
        return rn_affine(rn_nibble(block + 4, e32, 16), rn_half_at(block), rn_half_at(block + 2));
    }
    case RN_PLAIN_Q5_0: {
        const uint8_t *block = data + i / 32 * 22;
        return __fmul_rn((float)(rn_five_bits(block + 2, e32) - 16), rn_half_at(block));
    }
    case RN_PLAIN_Q5_1: {
        const uint8_t *block = data + i / 32 * 24;
        return rn_affine(rn_five_bits(block + 4, e32), rn_half_at(block), rn_half_at(block + 2));
    }
    case RN_PLAIN_Q8_0: {
        const uint8_t *block = data + i / 32 * 34;
        return __fmul_rn((float)(int8_t)block[2 + e32], rn_half_at(block));
    }
    case RN_PLAIN_Q8_1: {
        const uint8_t *block = data + i / 32 * 36;
        return __fmul_rn((float)(int8_t)block[4 + e32], rn_half_at(block));
    }
    case RN_PLAIN_IQ4_NL: {
        const uint8_t *block = data + i / 32 * 18;
        return __fmul_rn((float)rn_iq4_values[rn_nibble(block + 2, e32, 16)], rn_half_at(block));
    }
    case RN_PLAIN_MXFP4: {
        const uint8_t *block = data + i / 32 * 17;
        return __fmul_rn((float)rn_fp4_doubled[rn_nibble(block + 1, e32, 16)],
                         rn_mxfp4_scale(block[0]));
    }
    case RN_PLAIN_NVFP4:
        return rn_nvfp4_at(data + i / 64 * 36, e64);
    case RN_PLAIN_Q2_K:
        return rn_q2_k_at(data + i / 256 * 84, e256);
    case RN_PLAIN_Q3_K:
        return rn_q3_k_at(data + i / 256 * 110, e256);
    case RN_PLAIN_Q4_K:
        return rn_q4_k_at(data + i / 256 * 144, e256);
    case RN_PLAIN_Q5_K:
        return rn_q5_k_at(data + i / 256 * 176, e256);
    case RN_PLAIN_Q6_K:
        return rn_q6_k_at(data + i / 256 * 210, e256);
    case RN_PLAIN_Q8_K:
        return rn_q8_k_at(data + i / 256 * 292, e256);
    case RN_PLAIN_IQ4_XS:
        return rn_iq4_xs_at(data + i / 256 * 136, e256);
    case RN_PLAIN_TQ1_0:
        return rn_tq1_0_at(data + i / 256 * 54, e256);
    case RN_PLAIN_TQ2_0:
        return rn_tq2_0_at(data + i / 256 * 66, e256);
    case RN_PLAIN_IQ1_S:
    case RN_PLAIN_IQ1_M:
    case RN_PLAIN_IQ2_XXS:
    case RN_PLAIN_IQ2_XS:
    case RN_PLAIN_IQ2_S:
    case RN_PLAIN_IQ3_XXS:
    case RN_PLAIN_IQ3_S:
        return rn_codebook_at(type, data, i);
    case RN_PLAIN_F8_B128:
        return rn_f8_at(data + i / 128 * 132, i % 128);
    case RN_PLAIN_F8_B32:
        return rn_f8_at(data + i / 32 * 36, e32);
    case RN_PLAIN_FP4_B64: {
        const uint8_t *block = data + i / 64 * 40;
        return __fmul_rn(rn_nvfp4_at(block + 4, e64), rn_float_at(block));
    }
    case RN_PLAIN_U4_B32:
        return rn_u4_at(data + i / 32 * 21, e32);
    }
    return __uint_as_float(0x7fc00000); // no such type: never a plausible number
}

// Element i of the flat tensor, which lies in row `row`.
__device__ __forceinline__ float rn_plain_at(const rn_plain_args &w, uint64_t i, uint64_t row) {
    switch (w.type) {
    case RN_PLAIN_INT8:
        return __fmul_rn(w.scale[row], (float)(int8_t)w.data[i]);
    case RN_PLAIN_INT4: {
        uint64_t g = i / w.group, e = i - g * w.group;
        uint32_t byte = w.data[(g < w.half ? g : g - w.half) * w.group + e];
        int q = g < w.half ? byte & 15 : byte >> 4;
        return __fsub_rn(__fmul_rn(w.scale[g], (float)q), w.shift[g]);
    }
    case RN_PLAIN_NF4:
        return __fmul_rn(rn_nf4_values[w.data[i / 2] >> (i % 2 ? 0 : 4) & 15],
                         rn_nf4_absmax(w, i / 64));
    default:
        return rn_plain_value(w.type, w.data, i);
    }
}

#endif
