// ggml_superblocks.c — ggml's blocks of 256: parts of 16 or 32 elements whose scales are themselves
// small integers under one f16 scale of the whole.
//
//     q2_k  scales 16 | 2-bit values 64 | scale f16 | offset f16
//     q3_k  third bits 32 | 2-bit values 64 | 6-bit scales 12 | scale f16
//     q4_k  scale f16 | offset f16 | 6-bit scales and offsets 12 | nibbles 128
//     q5_k  scale f16 | offset f16 | 6-bit scales and offsets 12 | fifth bits 32 | nibbles 128
//     q6_k  nibbles 128 | upper 2 bits 64 | signed scales 16 | scale f16
//
// A 2-bit value of part p (of 16 elements) lies in byte p/8*32 + p%2*16 + e, at bit p%8/2*2: the
// four values of a byte are 32 elements apart. The loops below are that rule, part by part. The
// order of the float operations is part of the format: results must equal ggml's to the last bit.
#include "tensor/ggml_blocks.h"

#include "tensor/small_float.h"

static float half_at(const uint8_t *block) {
    return rn_f16_widen(rn_load_u16(block));
}

void rn_ggml_widen_q2_k(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 84, target += 256) {
        float scale = half_at(block + 80), offset = half_at(block + 82);
        for (int part = 0; part < 16; part++) {
            const uint8_t *pairs = block + 16 + part / 8 * 32 + part % 2 * 16;
            int shift = part % 8 / 2 * 2;
            float part_scale = scale * (float)(block[part] & 15);
            float part_offset = offset * (float)(block[part] >> 4);
            for (int e = 0; e < 16; e++)
                target[part * 16 + e] = part_scale * (float)(pairs[e] >> shift & 3) - part_offset;
        }
    }
}

// Twelve bytes hold sixteen 6-bit scales: nibbles in the first eight, upper bits in the last four.
static int q3_k_scale(const uint8_t *scales, int part) {
    int low = scales[part % 8] >> part / 8 * 4 & 15;
    int high = scales[8 + part % 4] >> part / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

void rn_ggml_widen_q3_k(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 110, target += 256) {
        float scale = half_at(block + 108);
        for (int part = 0; part < 16; part++) {
            const uint8_t *third = block + part % 2 * 16;
            const uint8_t *pairs = block + 32 + part / 8 * 32 + part % 2 * 16;
            int shift = part % 8 / 2 * 2;
            float part_scale = scale * (float)q3_k_scale(block + 96, part);
            for (int e = 0; e < 16; e++) {
                int value = (pairs[e] >> shift & 3) | (third[e] >> part / 2 & 1) << 2;
                target[part * 16 + e] = part_scale * (float)(value - 4);
            }
        }
    }
}

// Twelve bytes hold eight 6-bit scales and eight 6-bit offsets; the upper two bits of the later
// four lie in the earlier bytes.
static void unpack_scale(const uint8_t *bytes, int part, int *out_scale, int *out_offset) {
    if (part < 4) {
        *out_scale = bytes[part] & 63;
        *out_offset = bytes[part + 4] & 63;
    } else {
        *out_scale = (bytes[part + 4] & 15) | bytes[part - 4] >> 6 << 4;
        *out_offset = bytes[part + 4] >> 4 | bytes[part] >> 6 << 4;
    }
}

void rn_ggml_widen_q4_k(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 144, target += 256) {
        float scale = half_at(block), offset = half_at(block + 2);
        for (int part = 0; part < 8; part++) {
            const uint8_t *nibbles = block + 16 + part / 2 * 32;
            int s, o, shift = part % 2 * 4;
            unpack_scale(block + 4, part, &s, &o);
            float part_scale = scale * (float)s, part_offset = offset * (float)o;
            for (int e = 0; e < 32; e++)
                target[part * 32 + e] =
                    part_scale * (float)(nibbles[e] >> shift & 15) - part_offset;
        }
    }
}

void rn_ggml_widen_q5_k(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 176, target += 256) {
        float scale = half_at(block), offset = half_at(block + 2);
        const uint8_t *fifth = block + 16;
        for (int part = 0; part < 8; part++) {
            const uint8_t *nibbles = block + 48 + part / 2 * 32;
            int s, o, shift = part % 2 * 4;
            unpack_scale(block + 4, part, &s, &o);
            float part_scale = scale * (float)s, part_offset = offset * (float)o;
            for (int e = 0; e < 32; e++) {
                int value = (nibbles[e] >> shift & 15) | (fifth[e] >> part & 1) << 4;
                target[part * 32 + e] = part_scale * (float)value - part_offset;
            }
        }
    }
}

void rn_ggml_widen_q6_k(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 210, target += 256) {
        float scale = half_at(block + 208);
        for (int part = 0; part < 16; part++) {
            int half = part / 8, quarter = part % 8 / 2, e0 = part % 2 * 16;
            const uint8_t *nibbles = block + half * 64 + quarter % 2 * 32 + e0;
            const uint8_t *upper = block + 128 + half * 32 + e0;
            float part_scale = scale * (float)(int8_t)block[192 + part];
            for (int e = 0; e < 16; e++) {
                int low = nibbles[e] >> quarter / 2 * 4 & 15, high = upper[e] >> quarter * 2 & 3;
                target[part * 16 + e] = part_scale * (float)((low | high << 4) - 32);
            }
        }
    }
}

// f32 scale, 256 signed bytes, and sums that only dot products use.
void rn_ggml_widen_q8_k(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 292, target += 256) {
        float scale;
        memcpy(&scale, block, sizeof scale);
        for (int e = 0; e < 256; e++)
            target[e] = scale * (float)(int8_t)block[4 + e];
    }
}

// scale f16 | upper scale bits u16 | lower scale bits 4 | nibbles 128, each an index of iq4's
// values
void rn_ggml_widen_iq4_xs(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 136, target += 256) {
        float scale = half_at(block);
        unsigned upper = rn_load_u16(block + 2);
        for (int part = 0; part < 8; part++) {
            int low = block[4 + part / 2] >> part % 2 * 4 & 15;
            int high = (int)(upper >> part * 2 & 3);
            float part_scale = scale * (float)((low | high << 4) - 32);
            const uint8_t *nibbles = block + 8 + part * 16;
            for (int e = 0; e < 16; e++) {
                target[part * 32 + e] = part_scale * (float)rn_ggml_iq4_values[nibbles[e] & 15];
                target[part * 32 + 16 + e] =
                    part_scale * (float)rn_ggml_iq4_values[nibbles[e] >> 4];
            }
        }
    }
}

// `digits` ternary digits of each of `bytes` bytes; a byte is a fraction of 256, so that digit n is
// the whole part of 3 * fraction(3^n * byte). Returns the end of what it wrote.
static float *widen_trits(const uint8_t *from, int bytes, int digits, float scale, float *target) {
    uint8_t power = 1;
    for (int n = 0; n < digits; n++, power = (uint8_t)(power * 3))
        for (int b = 0; b < bytes; b++) {
            uint8_t fraction = (uint8_t)(from[b] * power);
            *target++ = (float)((fraction * 3 >> 8) - 1) * scale;
        }
    return target;
}

// 5 ternary digits in each of 48 bytes, 4 in each of the next 4, scale f16
void rn_ggml_widen_tq1_0(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 54) {
        float scale = half_at(block + 52);
        target = widen_trits(block, 32, 5, scale, target);
        target = widen_trits(block + 32, 16, 5, scale, target);
        target = widen_trits(block + 48, 4, 4, scale, target);
    }
}

// 2-bit values 64 | scale f16; 32 bytes hold 128 elements, those of one byte 32 apart
void rn_ggml_widen_tq2_0(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 66, target += 256) {
        float scale = half_at(block + 64);
        for (int part = 0; part < 8; part++)
            for (int e = 0; e < 32; e++) {
                int value = block[part / 4 * 32 + e] >> part % 4 * 2 & 3;
                target[part * 32 + e] = (float)(value - 1) * scale;
            }
    }
}
