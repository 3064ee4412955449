// quant_portable.c — the definition of every quantised form, in plain C. Divisions and reciprocals
// stand exactly where the reference libraries have them: another order of operations would give
// other bits.
#include "tensor/quant_kernels.h"

const float rn_nf4_bounds[16] = {
    -0x1.b239bp-1f,  -0x1.38a4ep-1f,  -0x1.d709p-2f,  -0x1.5bd4ecp-2f, -0x1.e079d8p-3f,
    -0x1.1a7178p-3f, -0x1.74f0e2p-5f, 0x1.45f5fep-5f, 0x1.ec90c4p-4f,  0x1.a0cfcp-3f,
    0x1.2b05a8p-2f,  0x1.8ea7f2p-2f,  0x1.00da08p-1f, 0x1.491b5ep-1f,  0x1.b913b4p-1f,
};

// ---- int8 ---------------------------------------------------------------------------------------

static void int8_rows(const float *rows, uint64_t row_count, uint64_t cols, int8_t *out_q,
                      float *out_scale) {
    for (uint64_t r = 0; r < row_count; r++, rows += cols, out_q += cols) {
        float scale = rn_float_from_bits(rn_absmax_bits(rows, cols)) / 127.0f;
        for (uint64_t i = 0; i < cols; i++)
            out_q[i] = (int8_t)rn_round_within(rows[i] / scale, -128, 127);
        out_scale[r] = scale;
    }
}

static void int8_restore(const int8_t *q, const float *scale, uint64_t row_count, uint64_t cols,
                         float *out_rows) {
    for (uint64_t r = 0; r < row_count; r++, q += cols, out_rows += cols)
        for (uint64_t i = 0; i < cols; i++)
            out_rows[i] = scale[r] * (float)q[i];
}

// ---- int4 ---------------------------------------------------------------------------------------

// The ends of a group; both NaN where any value is.
static void find_range(const float *values, uint64_t count, float *out_low, float *out_high) {
    int32_t low = INT32_MAX, high = INT32_MIN;
    for (uint64_t i = 0; i < count; i++) {
        int32_t key = rn_order_key((int32_t)rn_float_bits(values[i]));
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    *out_low = rn_float_from_bits((uint32_t)rn_order_key(low));
    *out_high = rn_float_from_bits((uint32_t)rn_order_key(high));
    if (isnan(*out_low) || isnan(*out_high)) *out_low = *out_high = NAN;
}

static void int4_groups(const float *groups, uint64_t group_count, uint64_t group, uint8_t *out_q,
                        float *out_scale, float *out_shift) {
    for (uint64_t g = 0; g < group_count; g++, groups += group, out_q += group) {
        float low, high;
        find_range(groups, group, &low, &high);
        float scale = (high - low) / 15.0f, shift = -low;
        for (uint64_t i = 0; i < group; i++)
            out_q[i] = (uint8_t)rn_round_within((groups[i] + shift) / scale, 0, 15);
        out_scale[g] = scale;
        out_shift[g] = shift;
    }
}

static void int4_restore(const uint8_t *q, const float *scale, const float *shift,
                         uint64_t group_count, uint64_t group, float *out_groups) {
    for (uint64_t g = 0; g < group_count; g++, q += group, out_groups += group)
        for (uint64_t i = 0; i < group; i++)
            out_groups[i] = scale[g] * (float)q[i] - shift[g];
}

// ---- nf4 ----------------------------------------------------------------------------------------

static void nf4_blocks(const float *values, uint64_t blocks, uint8_t *out_packed,
                       float *out_absmax) {
    for (uint64_t b = 0; b < blocks; b++, values += RN_NF4_BLOCK, out_packed += RN_NF4_BLOCK / 2) {
        float absmax = rn_float_from_bits(rn_absmax_bits(values, RN_NF4_BLOCK));
        float inverse = 1.0f / (absmax < 1e-38f ? 1e-38f : absmax);
        for (int i = 0; i < RN_NF4_BLOCK; i += 2) {
            uint8_t first = rn_nf4_index(values[i] * inverse);
            uint8_t second = rn_nf4_index(values[i + 1] * inverse);
            out_packed[i / 2] = (uint8_t)(first << 4 | second);
        }
        out_absmax[b] = absmax;
    }
}

static void nf4_restore(const uint8_t *packed, const float *absmax, uint64_t blocks,
                        float *out_values) {
    for (uint64_t b = 0; b < blocks; b++, packed += RN_NF4_BLOCK / 2, out_values += RN_NF4_BLOCK)
        for (int i = 0; i < RN_NF4_BLOCK; i += 2) {
            out_values[i] = rn_nf4_table[packed[i / 2] >> 4] * absmax[b];
            out_values[i + 1] = rn_nf4_table[packed[i / 2] & 15] * absmax[b];
        }
}

// ---- ggml's q8_0 and q4_0 -----------------------------------------------------------------------

// Half away from zero, as roundf. Adding the float just below one half cannot carry a smaller
// fraction over.
static int round_away(float value) {
    return fabsf(value) < 256.0f ? (int)(value + copysignf(0x1.fffffep-2f, value)) : 0;
}

static void narrow_q8_0(const float *source, void *target, uint64_t blocks) {
    uint8_t *block = target;
    for (; blocks > 0; blocks--, source += 32, block += 34) {
        float scale = rn_float_from_bits(rn_absmax_bits(source, 32)) / 127.0f;
        float inverse = scale != 0 ? 1.0f / scale : 0.0f;
        rn_store_u16(block, rn_f16_narrow(scale));
        for (int i = 0; i < 32; i++)
            block[2 + i] = (uint8_t)round_away(source[i] * inverse);
    }
}

static void widen_q8_0(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 34, target += 32) {
        float scale = rn_f16_widen(rn_load_u16(block));
        for (int i = 0; i < 32; i++)
            target[i] = (float)(int8_t)block[2 + i] * scale;
    }
}

// The first value of the greatest size, with its sign; a NaN where there is one.
static float find_peak(const float *values) {
    float peak = 0;
    for (int i = 0; i < 32; i++) {
        if (isnan(values[i])) return NAN;
        if (fabsf(peak) < fabsf(values[i])) peak = values[i];
    }
    return peak;
}

static uint8_t q4_0_index(float scaled) {
    float moved = scaled + 8.5f;
    if (!(moved >= 0 && moved < 256)) return 0;
    return moved < 16 ? (uint8_t)moved : 15;
}

// The value of the greatest size becomes -8, the end that has no counterpart.
static void narrow_q4_0(const float *source, void *target, uint64_t blocks) {
    uint8_t *block = target;
    for (; blocks > 0; blocks--, source += 32, block += 18) {
        float scale = find_peak(source) / -8.0f;
        float inverse = scale != 0 ? 1.0f / scale : 0.0f;
        rn_store_u16(block, rn_f16_narrow(scale));
        for (int i = 0; i < 16; i++) {
            uint8_t low = q4_0_index(source[i] * inverse);
            uint8_t high = q4_0_index(source[i + 16] * inverse);
            block[2 + i] = (uint8_t)(low | high << 4);
        }
    }
}

static void widen_q4_0(const void *source, float *target, uint64_t blocks) {
    const uint8_t *block = source;
    for (; blocks > 0; blocks--, block += 18, target += 32) {
        float scale = rn_f16_widen(rn_load_u16(block));
        for (int i = 0; i < 16; i++) {
            target[i] = (float)((block[2 + i] & 15) - 8) * scale;
            target[i + 16] = (float)((block[2 + i] >> 4) - 8) * scale;
        }
    }
}

// ---- error --------------------------------------------------------------------------------------

static void error_add(const float *reference, const float *restored, uint64_t count,
                      rn_error_lanes *lanes) {
    for (uint64_t i = 0; i < count; i++) {
        float size = fabsf(reference[i] - restored[i]);
        lanes->abs[i % 8] += size;
        lanes->square[i % 8] += (double)size * size;
        lanes->square_ref[i % 8] += (double)reference[i] * reference[i];
        if (size > lanes->max) lanes->max = size;
    }
}

const rn_quant_kernels rn_quant_portable = {
    .int8_rows = int8_rows,
    .int8_restore = int8_restore,
    .int4_groups = int4_groups,
    .int4_restore = int4_restore,
    .nf4_blocks = nf4_blocks,
    .nf4_restore = nf4_restore,
    .error_add = error_add,
    .widen_q8_0 = widen_q8_0,
    .widen_q4_0 = widen_q4_0,
    .narrow_q8_0 = narrow_q8_0,
    .narrow_q4_0 = narrow_q4_0,
};
