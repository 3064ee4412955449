// small_float.h — the narrow floating-point types, one value at a time. These few lines are the
// definition; the vector kernels must give the same bits.
//
//     f16   s eeeee mmmmmmmmmm    bf16  s eeeeeeee mmmmmmm
//     e4m3  s eeee mmm            e5m2  s eeeee mm
//
// Widening is exact. Narrowing rounds to nearest even: where the result is normal by adding half a
// unit (less one, plus the last kept bit) to the bits; where it is denormal by adding a power of
// two whose unit is the target's smallest step, so that the adder does the rounding. e4m3 is the
// "fn" kind: no infinity, NaN is 0x7f. A finite value beyond +-448 becomes +-448 (PyTorch's cast
// gives NaN there); infinity becomes NaN. e5m2 saturates finite values at +-57344 and keeps
// infinity.
#ifndef RN_TENSOR_SMALL_FLOAT_H
#define RN_TENSOR_SMALL_FLOAT_H

#include <stdint.h>
#include <string.h>

#define RN_F32_INF_BITS 0x7f800000u

static inline uint32_t rn_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float rn_float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Elements lie anywhere in a file, so they are loaded and stored without alignment.
static inline uint16_t rn_load_u16(const void *from) {
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}
static inline void rn_store_u16(void *to, uint16_t value) {
    memcpy(to, &value, sizeof value);
}

static inline float rn_f16_widen(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff, bits;
    if (rest > 0x7c00)
        bits = rest << 13 | 0x7fc00000; // NaN keeps its payload and becomes quiet
    else if (rest == 0x7c00)
        bits = RN_F32_INF_BITS;
    else if (rest >= 0x400)
        bits = (rest << 13) + (112u << 23);
    else
        bits = rn_float_bits((float)rest * 0x1p-24f);
    return rn_float_from_bits(sign | bits);
}

static inline uint16_t rn_f16_narrow(float value) {
    uint32_t bits = rn_float_bits(value), rest = bits & 0x7fffffff, half;
    if (rest > RN_F32_INF_BITS)
        half = 0x7e00 | (rest >> 13 & 0x3ff);
    else if (rest >= 0x477ff000) // 65520 and above round to infinity
        half = 0x7c00;
    else if (rest < 0x38800000) // below 2^-14: a multiple of 2^-24, the unit of 0.5
        half = rn_float_bits(rn_float_from_bits(rest) + 0.5f) - 0x3f000000;
    else
        half = ((rest + 0xfff + (rest >> 13 & 1)) >> 13) - (112u << 10);
    return (uint16_t)((bits >> 16 & 0x8000) | half);
}

static inline float rn_bf16_widen(uint16_t brain) {
    return rn_float_from_bits((uint32_t)brain << 16);
}

static inline uint16_t rn_bf16_narrow(float value) {
    uint32_t bits = rn_float_bits(value);
    if ((bits & 0x7fffffff) > RN_F32_INF_BITS) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float rn_e4m3_widen(uint8_t byte) {
    uint32_t sign = (uint32_t)(byte & 0x80) << 24, rest = byte & 0x7f, bits;
    if (rest == 0x7f)
        bits = 0x7fc00000;
    else if (rest >= 8)
        bits = (rest << 20) + (120u << 23);
    else
        bits = rn_float_bits((float)rest * 0x1p-9f);
    return rn_float_from_bits(sign | bits);
}

static inline uint8_t rn_e4m3_narrow(float value) {
    uint32_t bits = rn_float_bits(value), rest = bits & 0x7fffffff, byte;
    if (rest >= RN_F32_INF_BITS)
        byte = 0x7f;
    else if (rest >= 0x43e00000) // 448
        byte = 0x7e;
    else if (rest < 0x3c800000) // below 2^-6: a multiple of 2^-9, the unit of 2^14
        byte = rn_float_bits(rn_float_from_bits(rest) + 0x1p14f) - 0x46800000;
    else
        byte = ((rest + 0x7ffff + (rest >> 20 & 1)) >> 20) - (120u << 3);
    return (uint8_t)((bits >> 24 & 0x80) | byte);
}

static inline float rn_e5m2_widen(uint8_t byte) {
    return rn_f16_widen((uint16_t)(byte << 8));
}

static inline uint8_t rn_e5m2_narrow(float value) {
    uint32_t bits = rn_float_bits(value), rest = bits & 0x7fffffff, byte;
    if (rest > RN_F32_INF_BITS)
        byte = 0x7f;
    else if (rest == RN_F32_INF_BITS)
        byte = 0x7c;
    else if (rest >= 0x47600000) // 57344
        byte = 0x7b;
    else if (rest < 0x38800000) // below 2^-14: a multiple of 2^-16, the unit of 2^7
        byte = rn_float_bits(rn_float_from_bits(rest) + 0x1p7f) - 0x43000000;
    else
        byte = ((rest + 0xfffff + (rest >> 21 & 1)) >> 21) - (112u << 2);
    return (uint8_t)((bits >> 24 & 0x80) | byte);
}

// A power of two: 0 is 2^-127, 0xff is NaN.
static inline float rn_e8m0_widen(uint8_t exponent) {
    if (exponent == 0xff) return rn_float_from_bits(0x7fc00000);
    return rn_float_from_bits(exponent == 0 ? 0x00400000 : (uint32_t)exponent << 23);
}

// ggml's scale of an mxfp4 block, 2^(exponent - 128): half of e8m0, and 0xff is not NaN here.
static inline float rn_mxfp4_scale(uint8_t exponent) {
    if (exponent < 2) return rn_float_from_bits(0x00200000u << exponent);
    return rn_float_from_bits((uint32_t)(exponent - 1) << 23);
}

// ggml's scale of a part of an nvfp4 block: half of e4m3 without its sign; the NaN pattern means
// zero.
static inline float rn_nvfp4_scale(uint8_t byte) {
    uint32_t rest = byte & 0x7f;
    if (byte == 0x7f) return 0;
    return rest >= 8 ? rn_float_from_bits((rest << 20) + (119u << 23)) : (float)rest * 0x1p-10f;
}

#endif
