// ggml_blocks.c — ggml's simple blocks: one scale (and for some one offset) for a run of elements.
//
// In a block of 32 with 4-bit values, byte j holds element j in its low nibble and element j + 16
// in its high one:
//
//     q4_0  scale f16 | 16 bytes                     value = (q - 8) * scale
//     q4_1  scale f16 | low f16 | 16 bytes           value = q * scale + low
//     q5_x  as q4_x with 4 bytes of fifth bits before the nibbles, bit e for element e
//     q8_0  scale f16 | 32 signed bytes              value = q * scale
//
// The order of the float operations is part of the format: results must equal ggml's to the last
// bit.
#include "tensor/ggml_blocks.h"

#include "tensor/quant_kernels.h"
#include "tensor/small_float.h"

const int8_t rn_ggml_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};

const int8_t rn_ggml_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static float half_at(const uint8_t *block) {
    return rn_f16_widen(rn_load_u16(block));
}

void rn_ggml_widen_q1_0(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 18, target += 128) {
        float scale = half_at(block);
        for (int j = 0; j < 128; j++)
            target[j] = block[2 + j / 8] >> j % 8 & 1 ? scale : -scale;
    }
}

void rn_ggml_widen_q2_0(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 18, target += 64) {
        float scale = half_at(block);
        for (int j = 0; j < 64; j++)
            target[j] = (float)((block[2 + j / 4] >> j % 4 * 2 & 3) - 1) * scale;
    }
}

void rn_ggml_widen_q4_0(const void *source, float *target, uint64_t blocks) {
    rn_quant_kernels_get()->widen_q4_0(source, target, blocks);
}

void rn_ggml_widen_q4_1(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 20, target += 32) {
        float scale = half_at(block), low = half_at(block + 2);
        const uint8_t *nibbles = block + 4;
        for (int j = 0; j < 16; j++) {
            target[j] = (float)(nibbles[j] & 15) * scale + low;
            target[j + 16] = (float)(nibbles[j] >> 4) * scale + low;
        }
    }
}

// Element j and j + 16 of 32 five-bit values: 4 bytes of fifth bits, then 16 of nibbles.
static int five_bits(const uint8_t *bits, int j, int upper) {
    int fifth = bits[upper * 2 + j / 8] >> j % 8 & 1;
    return (bits[4 + j] >> upper * 4 & 15) | fifth << 4;
}

void rn_ggml_widen_q5_0(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 22, target += 32) {
        float scale = half_at(block);
        for (int j = 0; j < 16; j++) {
            target[j] = (float)(five_bits(block + 2, j, 0) - 16) * scale;
            target[j + 16] = (float)(five_bits(block + 2, j, 1) - 16) * scale;
        }
    }
}

void rn_ggml_widen_q5_1(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 24, target += 32) {
        float scale = half_at(block), low = half_at(block + 2);
        for (int j = 0; j < 16; j++) {
            target[j] = (float)five_bits(block + 4, j, 0) * scale + low;
            target[j + 16] = (float)five_bits(block + 4, j, 1) * scale + low;
        }
    }
}

void rn_ggml_widen_q8_0(const void *source, float *target, uint64_t blocks) {
    rn_quant_kernels_get()->widen_q8_0(source, target, blocks);
}

// q8_0 with a sum, which only dot products use, between the scale and the values.
void rn_ggml_widen_q8_1(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 36, target += 32) {
        float scale = half_at(block);
        for (int j = 0; j < 32; j++)
            target[j] = (float)(int8_t)block[4 + j] * scale;
    }
}

static void widen_nibbles(const uint8_t *nibbles, int half, const int8_t values[16], float scale,
                          float *target) {
    for (int j = 0; j < half; j++) {
        target[j] = (float)values[nibbles[j] & 15] * scale;
        target[j + half] = (float)values[nibbles[j] >> 4] * scale;
    }
}

void rn_ggml_widen_iq4_nl(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 18, target += 32)
        widen_nibbles(block + 2, 16, rn_ggml_iq4_values, half_at(block), target);
}

void rn_ggml_widen_mxfp4(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 17, target += 32)
        widen_nibbles(block + 1, 16, rn_ggml_fp4_values, rn_mxfp4_scale(block[0]), target);
}

void rn_ggml_widen_nvfp4(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 36, target += 64)
        for (int part = 0; part < 4; part++)
            widen_nibbles(block + 4 + part * 8, 8, rn_ggml_fp4_values, rn_nvfp4_scale(block[part]),
                          target + part * 16);
}

void rn_ggml_narrow_q8_0(const float *source, void *target, uint64_t blocks) {
    rn_quant_kernels_get()->narrow_q8_0(source, target, blocks);
}

void rn_ggml_narrow_q4_0(const float *source, void *target, uint64_t blocks) {
    rn_quant_kernels_get()->narrow_q4_0(source, target, blocks);
}
