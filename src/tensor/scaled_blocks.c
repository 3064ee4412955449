// scaled_blocks.c — widening ration's own blocks.
#include "tensor/scaled_blocks.h"

#include "tensor/ggml_blocks.h"

#include <string.h>

static float float_at(const uint8_t *bytes) {
    float value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void multiply(float *values, int count, float scale) {
    for (int i = 0; i < count; i++)
        values[i] *= scale;
}

static void widen_f8(const uint8_t *block, float *target, uint64_t blocks, int count) {
    const rn_convert_kernels *kernels = rn_convert_kernels_get();
    for (; blocks > 0; blocks--, block += 4 + count, target += count) {
        kernels->widen_e4m3(block + 4, target, (uint64_t)count);
        multiply(target, count, float_at(block));
    }
}

void rn_widen_f8_b128(const void *source, float *target, uint64_t blocks) {
    widen_f8(source, target, blocks, 128);
}

void rn_widen_f8_b32(const void *source, float *target, uint64_t blocks) {
    widen_f8(source, target, blocks, 32);
}

void rn_widen_fp4_b64(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 40, target += 64) {
        rn_ggml_widen_nvfp4(block + 4, target, 1);
        multiply(target, 64, float_at(block));
    }
}

void rn_widen_u4_b32(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 21, target += 32) {
        float scale = float_at(block);
        int zero = block[4];
        for (int j = 0; j < 16; j++) {
            target[j] = (float)((block[5 + j] & 15) - zero) * scale;
            target[j + 16] = (float)((block[5 + j] >> 4) - zero) * scale;
        }
    }
}
