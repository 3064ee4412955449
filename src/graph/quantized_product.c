// quantized_product.c — one function a dtype reads a block of 32 columns; one function a kind of
// sum adds it. The formats are drawn in tensor/ggml_blocks.c and tensor/ggml_superblocks.c.
#include "graph/quantized_product.h"

#include "base/checked.h"
#include "tensor/ggml_blocks.h"
#include "tensor/kinds.h"
#include "tensor/row_kinds.h"
#include "tensor/small_float.h"

#include <math.h>
#include <string.h>

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

// ---- blocks of 32 and a few more ----------------------------------------------------------------
//
// Each takes the row's bytes and the number of a block of 32 columns.

static float half_at(const uint8_t *bytes) {
    return rn_f16_widen(rn_load_u16(bytes));
}

static void read_int8(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    memcpy(out->w, row + b * BLOCK, BLOCK);
}

static void read_q8_0(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    memcpy(out->w, row + b * 34 + 2, BLOCK);
    out->scale = half_at(row + b * 34);
}

// 16 bytes: low nibbles are the first columns. values[nibble], or where NULL nibble - offset.
static void read_nibbles(const uint8_t *nibbles, const int8_t *values, int offset, int8_t *w) {
    for (int i = 0; i < 16; i++) {
        int low = nibbles[i] & 15, high = nibbles[i] >> 4;
        w[i] = (int8_t)(values ? values[low] : low - offset);
        w[i + 16] = (int8_t)(values ? values[high] : high - offset);
    }
}

// q5_0, q5_1: bit i of the four bytes is the fifth of column i.
static void add_fifth_bits(const uint8_t *bits, int8_t *w) {
    for (int i = 0; i < BLOCK; i++)
        w[i] = (int8_t)(w[i] + ((bits[i / 8] >> i % 8 & 1) << 4));
}

static void read_q4_0(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    read_nibbles(row + b * 18 + 2, NULL, 8, out->w);
    out->scale = half_at(row + b * 18);
}

static void read_q4_1(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    read_nibbles(row + b * 20 + 4, NULL, 0, out->w);
    out->scale = half_at(row + b * 20);
    out->min = -half_at(row + b * 20 + 2);
}

static void read_q5_0(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    read_nibbles(row + b * 22 + 6, NULL, 16, out->w);
    add_fifth_bits(row + b * 22 + 2, out->w);
    out->scale = half_at(row + b * 22);
}

static void read_q5_1(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    read_nibbles(row + b * 24 + 8, NULL, 0, out->w);
    add_fifth_bits(row + b * 24 + 4, out->w);
    out->scale = half_at(row + b * 24);
    out->min = -half_at(row + b * 24 + 2);
}

static void read_iq4_nl(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    read_nibbles(row + b * 18 + 2, rn_ggml_iq4_values, 0, out->w);
    out->scale = half_at(row + b * 18);
}

static void read_mxfp4(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    read_nibbles(row + b * 17 + 1, rn_ggml_fp4_values, 0, out->w);
    out->scale = rn_mxfp4_scale(row[b * 17]);
}

// Parts of 16 columns in 8 bytes, low nibbles first; four of them a block, their scales in front.
static void read_nvfp4(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *block = row + b / 2 * 36;
    out->scale = 1;
    for (uint64_t half = 0; half < 2; half++) {
        uint64_t part = b % 2 * 2 + half;
        const uint8_t *nibbles = block + 4 + part * 8;
        out->part_scale[half] = rn_nvfp4_scale(block[part]);
        for (int i = 0; i < 16; i++)
            out->w[half * 16 + (uint64_t)i] = rn_ggml_fp4_values[nibbles[i % 8] >> i / 8 * 4 & 15];
    }
}

static void read_q1_0(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *block = row + b / 4 * 18, *bits = block + 2 + b % 4 * 4;
    for (int i = 0; i < BLOCK; i++)
        out->w[i] = (int8_t)((bits[i / 8] >> i % 8 & 1) * 2 - 1);
    out->scale = half_at(block);
}

static void read_q2_0(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *block = row + b / 2 * 18, *pairs = block + 2 + b % 2 * 8;
    for (int i = 0; i < BLOCK; i++)
        out->w[i] = (int8_t)((pairs[i / 4] >> i % 4 * 2 & 3) - 1);
    out->scale = half_at(block);
}

// ---- superblocks of 256 -------------------------------------------------------------------------

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

// q4_k and q5_k, which has a fifth bit of each number in front of the nibbles: bit `part` of byte i
// is element i's. `upper` NULL: there is none.
static void read_minned(const uint8_t *super, const uint8_t *nibbles, const uint8_t *upper,
                        int part, rn_quantized_block *out) {
    int scale = 0, min = 0;
    for (int i = 0; i < BLOCK; i++) {
        int low = nibbles[part / 2 * 32 + i] >> part % 2 * 4 & 15;
        out->w[i] = (int8_t)(upper ? low | (upper[i] >> part & 1) << 4 : low);
    }
    unpack_scale(super + 4, part, &scale, &min);
    out->scale = half_at(super) * (float)scale;
    out->min = half_at(super + 2) * (float)min;
}

static void read_q4_k(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *super = row + b / 8 * 144;
    read_minned(super, super + 16, NULL, (int)(b % 8), out);
}

static void read_q5_k(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *super = row + b / 8 * 176;
    read_minned(super, super + 48, super + 16, (int)(b % 8), out);
}

static void read_q6_k(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *super = row + b / 8 * 210;
    int part = (int)(b % 8), half = part / 4, quarter = part % 4;
    const uint8_t *nibbles = super + half * 64 + quarter % 2 * 32, *upper = super + 128 + half * 32;
    for (int i = 0; i < BLOCK; i++) {
        int low = nibbles[i] >> quarter / 2 * 4 & 15, high = upper[i] >> quarter * 2 & 3;
        out->w[i] = (int8_t)((low | high << 4) - 32);
    }
    out->scale = half_at(super + 208);
    for (int i = 0; i < 2; i++)
        out->part_scale[i] = (float)(int8_t)super[192 + part * 2 + i];
}

// 2-bit numbers of q2_k, q3_k and tq2_0: those of a byte are 32 columns apart.
static void read_pairs(const uint8_t *pairs, int part, int offset, int8_t *w) {
    for (int i = 0; i < BLOCK; i++)
        w[i] = (int8_t)((pairs[part / 4 * 32 + i] >> part % 4 * 2 & 3) - offset);
}

static void read_q2_k(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *super = row + b / 8 * 84;
    int part = (int)(b % 8);
    read_pairs(super + 16, part, 0, out->w);
    out->scale = half_at(super + 80);
    out->min = half_at(super + 82);
    for (int i = 0; i < 2; i++) {
        out->part_scale[i] = (float)(super[part * 2 + i] & 15);
        out->part_min[i] = super[part * 2 + i] >> 4;
    }
}

// Twelve bytes hold sixteen 6-bit scales: nibbles in the first eight, upper bits in the last four.
static void read_q3_k(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *super = row + b / 8 * 110, *scales = super + 96;
    int part = (int)(b % 8);
    read_pairs(super + 32, part, 4, out->w);
    for (int i = 0; i < BLOCK; i++)
        out->w[i] = (int8_t)(out->w[i] + ((super[i] >> part & 1) << 2));
    out->scale = half_at(super + 108);
    for (int i = 0; i < 2; i++) {
        int k = part * 2 + i, low = scales[k % 8] >> k / 8 * 4 & 15;
        out->part_scale[i] = (float)((low | (scales[8 + k % 4] >> k / 4 * 2 & 3) << 4) - 32);
    }
}

static void read_iq4_xs(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *super = row + b / 8 * 136;
    int part = (int)(b % 8), low = super[4 + part / 2] >> part % 2 * 4 & 15;
    int high = rn_load_u16(super + 2) >> part * 2 & 3;
    read_nibbles(super + 8 + part * 16, rn_ggml_iq4_values, 0, out->w);
    out->scale = half_at(super) * (float)((low | high << 4) - 32);
}

static void read_tq2_0(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *super = row + b / 8 * 66;
    read_pairs(super, (int)(b % 8), 1, out->w);
    out->scale = half_at(super + 64);
}

// Five ternary digits a byte: a digit of all of 32 bytes in turn, then of 16; of the last four
// bytes four digits.
static int tq1_0_digit(const uint8_t *super, int e) {
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    int byte = 48 + e % 4, digit = (e - 240) / 4;
    if (e < 160)
        byte = e % 32, digit = e / 32;
    else if (e < 240)
        byte = 32 + e % 16, digit = (e - 160) / 16;
    return (uint8_t)(super[byte] * powers[digit]) * 3 >> 8;
}

static void read_tq1_0(const uint8_t *row, uint64_t b, rn_quantized_block *out) {
    const uint8_t *super = row + b / 8 * 54;
    for (int i = 0; i < BLOCK; i++)
        out->w[i] = (int8_t)(tq1_0_digit(super, (int)(b % 8) * BLOCK + i) - 1);
    out->scale = half_at(super + 52);
}

// ---- sums ---------------------------------------------------------------------------------------

static int32_t dot(const int8_t *x, const int8_t *w, int count) {
    int32_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += x[i] * w[i];
    return sum;
}

static int32_t sum_of(const int8_t *x, int count) {
    int32_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += x[i];
    return sum;
}

static float add_PLAIN(const rn_quantized_block *w, const int8_t *q, float d, float acc) {
    return fmaf(d, (float)dot(q, w->w, BLOCK), acc);
}

static float add_SCALED(const rn_quantized_block *w, const int8_t *q, float d, float acc) {
    return fmaf(d * w->scale, (float)dot(q, w->w, BLOCK), acc);
}

static float add_BYTES(const rn_quantized_block *w, const int8_t *q, float d, float acc) {
    return add_SCALED(w, q, d, acc);
}

static float add_MINNED(const rn_quantized_block *w, const int8_t *q, float d, float acc) {
    acc = add_SCALED(w, q, d, acc);
    return fmaf(-(d * w->min), (float)sum_of(q, BLOCK), acc);
}

// Whole scales make a whole sum below 2^24, so that nothing in it is rounded.
static float add_PARTED(const rn_quantized_block *w, const int8_t *q, float d, float acc) {
    float first = w->part_scale[0] * (float)dot(q, w->w, 16);
    float sum = fmaf(w->part_scale[1], (float)dot(q + 16, w->w + 16, 16), first);
    return fmaf(d * w->scale, sum, acc);
}

static float add_PARTED_MINNED(const rn_quantized_block *w, const int8_t *q, float d, float acc) {
    int32_t mins = w->part_min[0] * sum_of(q, 16) + w->part_min[1] * sum_of(q + 16, 16);
    acc = add_PARTED(w, q, d, acc);
    return fmaf(-(d * w->min), (float)mins, acc);
}

// ---- kinds --------------------------------------------------------------------------------------

typedef struct kind {
    void (*read)(const uint8_t *row, uint64_t b, rn_quantized_block *out);
    float (*add)(const rn_quantized_block *w, const int8_t *q, float d, float acc);
} kind;

#define KIND(DTYPE, name, sum, ...) [RN_DTYPE_##DTYPE] = {read_##name, add_##sum},
static const kind kinds[RN_DTYPE_COUNT] = {RN_ROUNDED_KINDS(KIND)};
#undef KIND

bool rn_product_is_quantized(rn_dtype dtype) {
    return (unsigned)dtype < RN_DTYPE_COUNT && (kinds[dtype].read || rn_row_kind(dtype));
}

void rn_quantized_block_read(rn_dtype dtype, const void *weight, uint64_t cols, uint64_t b,
                             rn_quantized_block *out) {
    uint64_t left = cols - b * BLOCK;
    *out = (rn_quantized_block){0};
    if (left >= BLOCK)
        kinds[dtype].read(weight, b, out);
    else // int8 alone has rows that are not in whole blocks
        memcpy(out->w, (const uint8_t *)weight + b * BLOCK, left);
}

float rn_quantized_block_add(rn_dtype dtype, const rn_quantized_block *block, const int8_t *q,
                             float d, float acc) {
    return kinds[dtype].add(block, q, d, acc);
}

// The kinds of tensor/row_kinds.h.
static float product_of_rows(rn_dtype dtype, rn_quantized_row x, const uint8_t *row,
                             uint64_t cols) {
    float acc = 0;
    for (uint64_t b = 0; b < cols / BLOCK; b++) {
        int8_t w[BLOCK];
        float scales[2];
        const int8_t *q = x.q + b * BLOCK;
        rn_row_kind_read(dtype, row, b, 1, (rn_row_blocks){w, &scales[0], &scales[1], 1});
        float first = scales[0] * (float)dot(q, w, 16);
        acc = fmaf(x.scale[b], fmaf(scales[1], (float)dot(q + 16, w + 16, 16), first), acc);
    }
    return acc;
}

float rn_quantized_product(rn_dtype dtype, rn_quantized_row x, const void *weight, float row_scale,
                           uint64_t cols) {
    float acc = 0;
    if (!rn_product_is_quantized(dtype)) return NAN; // callers ask first
    if (rn_row_kind(dtype)) return product_of_rows(dtype, x, weight, cols);
    for (uint64_t b = 0; b * BLOCK < cols; b++) {
        rn_quantized_block block;
        rn_quantized_block_read(dtype, weight, cols, b, &block);
        acc = kinds[dtype].add(&block, x.q + b * BLOCK, x.scale[b], acc);
    }
    return dtype == RN_DTYPE_INT8 ? acc * row_scale : acc;
}
