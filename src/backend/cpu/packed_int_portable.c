// packed_int_portable.c — rounded products in plain C: one row of x by one panel, straight from the
// panel, lane by lane.
#include "backend/cpu/packed_ints.h"

#include "graph/quantized_product.h"
#include "tensor/small_float.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

// ---- weights ------------------------------------------------------------------------------------

// Byte `at` of word d of a lane.
static int byte_at(const uint8_t *unit, int d, int lane, int at) {
    return unit[64 * d + 4 * lane + at];
}

static float half_at(const uint8_t *halves, int lane) {
    return rn_f16_widen(rn_load_u16(halves + 2 * lane));
}

static int weight_q6_k(const uint8_t *unit, int part, int lane, int e) {
    int half = part / 4, quarter = part % 4, g = e / 4;
    int low = byte_at(unit, half * 16 + quarter % 2 * 8 + g, lane, e % 4);
    int high = byte_at(unit, 32 + half * 8 + g, lane, e % 4);
    return ((low >> quarter / 2 * 4 & 15) | (high >> quarter * 2 & 3) << 4) - 32;
}

// Column e of block `part` of a unit.
static int weight(rn_int_form form, const uint8_t *unit, int part, int lane, int e) {
    switch (form) {
    case RN_INT_INT8:
        return byte_at(unit, e / 4, lane, e % 4) - 128;
    case RN_INT_Q8_0:
        return byte_at(unit + 32, e / 4, lane, e % 4) - 128;
    case RN_INT_Q4_0:
        return (byte_at(unit + 32, e % 16 / 4, lane, e % 4) >> e / 16 * 4 & 15) - 8;
    case RN_INT_Q4_K:
        return byte_at(unit, 4 + part / 2 * 8 + e / 4, lane, e % 4) >> part % 2 * 4 & 15;
    case RN_INT_Q5_K:
        return (byte_at(unit, 12 + part / 2 * 8 + e / 4, lane, e % 4) >> part % 2 * 4 & 15) |
               (byte_at(unit, 4 + e / 4, lane, e % 4) >> part & 1) << 4;
    default:
        return weight_q6_k(unit, part, lane, e);
    }
}

// The twelve bytes of q4_k and q5_k hold eight 6-bit scales and eight 6-bit mins; the upper two
// bits of the later four lie in the earlier bytes. Words 1 to 3 of a lane.
static void unpack_scale(const uint8_t *unit, int part, int lane, int *out_scale, int *out_min) {
    int at = part % 4, scale = byte_at(unit, 1, lane, at), min = byte_at(unit, 2, lane, at);
    int low = byte_at(unit, 3, lane, at);
    *out_scale = part < 4 ? scale & 63 : (low & 15) | scale >> 6 << 4;
    *out_min = part < 4 ? min & 63 : low >> 4 | min >> 6 << 4;
}

// ---- products -----------------------------------------------------------------------------------

static int dot(rn_int_form form, const uint8_t *unit, int part, int lane, const int8_t *q,
               int first, int end) {
    int sum = 0;
    for (int e = first; e < end; e++)
        sum += q[e] * weight(form, unit, part, lane, e);
    return sum;
}

// `sums` is what follows the block's scale in the strip: MINNED's is the sum of q.
static float add_block(rn_int_form form, const uint8_t *unit, int part, int lane, const int8_t *q,
                       float d, float sums, float acc) {
    const rn_int_kind kind = rn_int_kind_of(form);
    if (kind == RN_INT_PARTED) {
        int at = part % 2 * 2, word = 48 + part / 2;
        int sum =
            (int8_t)byte_at(unit, word, lane, at) * dot(form, unit, part, lane, q, 0, 16) +
            (int8_t)byte_at(unit, word, lane, at + 1) * dot(form, unit, part, lane, q, 16, 32);
        return fmaf(d * half_at(unit + 3328, lane), (float)sum, acc);
    }
    float sum = (float)dot(form, unit, part, lane, q, 0, 32);
    if (kind == RN_INT_PLAIN) return fmaf(d, sum, acc);
    if (kind != RN_INT_MINNED) return fmaf(d * half_at(unit, lane), sum, acc);
    int scale, min;
    float super = rn_f16_widen(rn_load_u16(unit + 4 * lane));
    float super_min = rn_f16_widen(rn_load_u16(unit + 4 * lane + 2));
    unpack_scale(unit, part, lane, &scale, &min);
    acc = fmaf(d * (super * (float)scale), sum, acc);
    return fmaf(-(d * (super_min * (float)min)), sums, acc);
}

static void multiply(const rn_int_job *job, rn_int_form form) {
    const uint64_t strip_bytes = rn_strip_block_bytes(rn_int_kind_of(form));
    const uint64_t parts = rn_int_unit_blocks(form);
    for (int lane = 0; lane < (int)job->cols; lane++) {
        const uint8_t *x = job->x;
        float acc = 0;
        for (uint64_t b = 0; b < job->blocks; b++, x += strip_bytes) {
            const uint8_t *unit = job->weights + b / parts * rn_int_unit_bytes(form);
            float d, sums;
            memcpy(&d, x + RN_INT_BLOCK, sizeof d);
            memcpy(&sums, x + RN_INT_BLOCK + 4, sizeof sums);
            acc = add_block(form, unit, (int)(b % parts), lane, (const int8_t *)x, d, sums, acc);
        }
        if (job->row_scale) acc *= job->row_scale[lane];
        job->y[lane] = job->bias ? acc + job->bias[lane] : acc;
    }
}

#define KERNEL(name, form)                                                                         \
    static void name(const rn_int_job *job) {                                                      \
        multiply(job, form);                                                                       \
    }
#define KERNEL_ROW(DTYPE, name, ...) KERNEL(name, RN_INT_##DTYPE)
RN_ROUNDED_KINDS(KERNEL_ROW)

// ---- panels of f32 ------------------------------------------------------------------------------

static float widen_one(rn_int_form form, const uint8_t *unit, const float *row_scale, int part,
                       int lane, int e) {
    float q = (float)weight(form, unit, part, lane, e);
    int scale, min, at = part % 2 * 2 + e / 16;
    switch (rn_int_kind_of(form)) {
    case RN_INT_PLAIN:
        return row_scale[lane] * q;
    case RN_INT_MINNED:
        unpack_scale(unit, part, lane, &scale, &min);
        return half_at(unit, 2 * lane) * (float)scale * q -
               half_at(unit, 2 * lane + 1) * (float)min;
    case RN_INT_PARTED:
        scale = (int8_t)byte_at(unit, 48 + part / 2, lane, at);
        return half_at(unit + 3328, lane) * (float)scale * q;
    default:
        return half_at(unit, lane) * q;
    }
}

static void widen(rn_int_form form, const uint8_t *units, const float *row_scale, uint64_t k,
                  uint64_t depth, float *to) {
    const uint64_t parts = rn_int_unit_blocks(form);
    for (uint64_t i = 0; i < depth; i++) {
        uint64_t block = (k + i) / RN_INT_BLOCK;
        const uint8_t *unit = units + block / parts * rn_int_unit_bytes(form);
        for (int lane = 0; lane < LANES; lane++)
            to[i * LANES + (uint64_t)lane] = widen_one(form, unit, row_scale, (int)(block % parts),
                                                       lane, (int)((k + i) % RN_INT_BLOCK));
    }
}

// ---- rounding activations -----------------------------------------------------------------------

static void quantize(const float *x, uint64_t x_row, uint32_t rows, uint64_t cols, rn_int_kind kind,
                     int offset, uint8_t *strip) {
    (void)x_row, (void)rows, (void)offset; // strips of one row, weights as they are
    for (uint64_t k = 0; k < cols; k += RN_INT_BLOCK, strip += rn_strip_block_bytes(kind)) {
        int8_t q[RN_INT_BLOCK];
        float d, sum = 0;
        uint64_t count = cols - k < RN_INT_BLOCK ? cols - k : RN_INT_BLOCK;
        rn_quantize_row(x + k, count, (rn_quantized_row){q, &d});
        for (int i = 0; i < RN_INT_BLOCK; i++)
            sum += q[i];
        memcpy(strip, q, sizeof q);
        memcpy(strip + RN_INT_BLOCK, &d, sizeof d);
        memcpy(strip + RN_INT_BLOCK + 4, &sum, sizeof sum);
    }
}

#define ALWAYS(DTYPE, ...)       [RN_INT_##DTYPE] = UINT32_MAX,
#define DIRECT(DTYPE, name, ...) [RN_INT_##DTYPE] = name,

const rn_int_kernels rn_int_portable = {
    .rows = 1,
    .panels = 1,
    .strip_rows = 1,
    .direct_rows = {RN_ROUNDED_KINDS(ALWAYS)},
    .direct = {RN_ROUNDED_KINDS(DIRECT)},
    .widen = widen,
    .quantize = quantize,
};
