// quantized_product.c — one function a dtype; the formats are drawn in tensor/ggml_superblocks.c.
#include "graph/quantized_product.h"

#include "base/checked.h"
#include "tensor/kinds.h"
#include "tensor/small_float.h"

#include <math.h>

enum { BLOCK = RN_QUANTIZED_BLOCK };

// ---- activations --------------------------------------------------------------------------------

uint64_t rn_quantized_row_bytes(uint64_t cols) {
    uint64_t blocks = rn_div_up(cols, BLOCK);
    return rn_round_up(blocks * (BLOCK + sizeof(float)), 64);
}

rn_quantized_row rn_quantized_row_at(void *memory, uint64_t cols) {
    uint8_t *bytes = memory;
    uint64_t q_bytes = rn_div_up(cols, BLOCK) * BLOCK; // a multiple of a float's alignment
    return (rn_quantized_row){(int8_t *)bytes, (float *)(void *)(bytes + q_bytes)};
}

// The largest |x|, or a NaN where there is one: as bits, the order of integers is that of sizes.
static float find_absmax(const float *x, uint64_t count) {
    uint32_t top = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = rn_float_bits(x[i]) & 0x7fffffff;
        top = bits > top ? bits : top;
    }
    return rn_float_from_bits(top);
}

static void quantize_block(const float *x, uint64_t count, int8_t *q, float *out_scale) {
    float scale = find_absmax(x, count) / 127, inverse = 1 / scale;
    if (isinf(inverse)) scale = inverse = 0;
    for (uint64_t i = 0; i < BLOCK; i++) {
        float scaled = i < count ? x[i] * inverse : 0;
        q[i] = isfinite(scaled) ? (int8_t)nearbyintf(scaled) : 0;
    }
    *out_scale = scale;
}

void rn_quantize_row(const float *x, uint64_t cols, rn_quantized_row out) {
    for (uint64_t b = 0; b * BLOCK < cols; b++)
        quantize_block(x + b * BLOCK, rn_min_u64(BLOCK, cols - b * BLOCK), out.q + b * BLOCK,
                       &out.scale[b]);
}

// ---- products -----------------------------------------------------------------------------------

static int32_t dot(const int8_t *x, const int8_t *w, uint64_t count) {
    int32_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += x[i] * w[i];
    return sum;
}

static float half_at(const uint8_t *bytes) {
    return rn_f16_widen(rn_load_u16(bytes));
}

static float product_int8(rn_quantized_row x, const uint8_t *bytes, float row_scale,
                          uint64_t cols) {
    const int8_t *w = (const int8_t *)bytes;
    float acc = 0;
    for (uint64_t b = 0; b * BLOCK < cols; b++) {
        uint64_t count = rn_min_u64(BLOCK, cols - b * BLOCK);
        int32_t sum = dot(x.q + b * BLOCK, w + b * BLOCK, count);
        acc = fmaf(x.scale[b], (float)sum, acc);
    }
    return acc * row_scale;
}

static float product_q8_0(rn_quantized_row x, const uint8_t *w, float row_scale, uint64_t cols) {
    (void)row_scale;
    float acc = 0;
    for (uint64_t b = 0; b < cols / BLOCK; b++, w += 34) {
        int32_t sum = dot(x.q + b * BLOCK, (const int8_t *)w + 2, BLOCK);
        acc = fmaf(x.scale[b] * half_at(w), (float)sum, acc);
    }
    return acc;
}

static float product_q4_0(rn_quantized_row x, const uint8_t *w, float row_scale, uint64_t cols) {
    (void)row_scale;
    float acc = 0;
    for (uint64_t b = 0; b < cols / BLOCK; b++, w += 18) {
        const int8_t *q = x.q + b * BLOCK;
        int32_t sum = 0;
        for (int i = 0; i < 16; i++)
            sum += q[i] * ((w[2 + i] & 15) - 8) + q[i + 16] * ((w[2 + i] >> 4) - 8);
        acc = fmaf(x.scale[b] * half_at(w), (float)sum, acc);
    }
    return acc;
}

// Twelve bytes hold eight 6-bit scales and eight 6-bit mins; the upper two bits of the later four
// lie in the earlier bytes.
static void unpack_scale(const uint8_t *bytes, int part, int *out_scale, int *out_min) {
    if (part < 4) {
        *out_scale = bytes[part] & 63;
        *out_min = bytes[part + 4] & 63;
    } else {
        *out_scale = (bytes[part + 4] & 15) | bytes[part - 4] >> 6 << 4;
        *out_min = bytes[part + 4] >> 4 | bytes[part] >> 6 << 4;
    }
}

// Superblocks of q4_k and q5_k, which has a fifth bit of each number in front of the nibbles: bit
// `part` of byte i is element i's. `upper` NULL: there is none.
static int32_t dot_nibbles(const int8_t *q, const uint8_t *nibbles, const uint8_t *upper,
                           int part) {
    int32_t sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        int low = nibbles[part / 2 * 32 + i] >> part % 2 * 4 & 15;
        sum += q[i] * (upper ? low | (upper[i] >> part & 1) << 4 : low);
    }
    return sum;
}

static float product_minned(rn_quantized_row x, const uint8_t *w, uint64_t super_bytes,
                            uint64_t cols) {
    float acc = 0;
    for (uint64_t b = 0; b < cols / BLOCK; b++) {
        const uint8_t *super = w + b / 8 * super_bytes, *upper = super + 16;
        const uint8_t *nibbles = super + super_bytes - 128;
        const int8_t *q = x.q + b * BLOCK;
        int part = (int)(b % 8), scale = 0, min = 0;
        int32_t sum = dot_nibbles(q, nibbles, upper < nibbles ? upper : NULL, part), x_sum = 0;
        for (int i = 0; i < BLOCK; i++)
            x_sum += q[i];
        unpack_scale(super + 4, part, &scale, &min);
        acc = fmaf(x.scale[b] * (half_at(super) * (float)scale), (float)sum, acc);
        acc = fmaf(-(x.scale[b] * (half_at(super + 2) * (float)min)), (float)x_sum, acc);
    }
    return acc;
}

static float product_q4_k(rn_quantized_row x, const uint8_t *w, float row_scale, uint64_t cols) {
    (void)row_scale;
    return product_minned(x, w, 144, cols);
}

static float product_q5_k(rn_quantized_row x, const uint8_t *w, float row_scale, uint64_t cols) {
    (void)row_scale;
    return product_minned(x, w, 176, cols);
}

// The sum of part `part` (16 elements) of a superblock.
static int32_t dot_q6_k(const int8_t *q, const uint8_t *super, int part) {
    int half = part / 8, quarter = part % 8 / 2, first = part % 2 * 16;
    const uint8_t *nibbles = super + half * 64 + quarter % 2 * 32 + first;
    const uint8_t *upper = super + 128 + half * 32 + first;
    int32_t sum = 0;
    for (int i = 0; i < 16; i++) {
        int low = nibbles[i] >> quarter / 2 * 4 & 15, high = upper[i] >> quarter * 2 & 3;
        sum += q[i] * ((low | high << 4) - 32);
    }
    return sum;
}

static float product_q6_k(rn_quantized_row x, const uint8_t *w, float row_scale, uint64_t cols) {
    (void)row_scale;
    float acc = 0;
    for (uint64_t b = 0; b < cols / BLOCK; b++) {
        const uint8_t *super = w + b / 8 * 210;
        const int8_t *scales = (const int8_t *)super + 192, *q = x.q + b * BLOCK;
        int part = (int)(b % 8) * 2;
        int32_t sum = scales[part] * dot_q6_k(q, super, part) +
                      scales[part + 1] * dot_q6_k(q + 16, super, part + 1);
        acc = fmaf(x.scale[b] * half_at(super + 208), (float)sum, acc);
    }
    return acc;
}

// ---- kinds --------------------------------------------------------------------------------------

bool rn_product_is_quantized(rn_dtype dtype) {
#define ROUNDS(DTYPE, ...) [RN_DTYPE_##DTYPE] = true,
    static const bool rounds[RN_DTYPE_COUNT] = {RN_ROUNDED_KINDS(ROUNDS)};
#undef ROUNDS
    return (unsigned)dtype < RN_DTYPE_COUNT && rounds[dtype];
}

float rn_quantized_product(rn_dtype dtype, rn_quantized_row x, const void *weight, float row_scale,
                           uint64_t cols) {
    switch (dtype) {
#define PRODUCT(DTYPE, name, ...)                                                                  \
    case RN_DTYPE_##DTYPE:                                                                         \
        return product_##name(x, weight, row_scale, cols);
        RN_ROUNDED_KINDS(PRODUCT)
#undef PRODUCT
    default:
        return NAN; // callers ask rn_product_is_quantized first
    }
}
