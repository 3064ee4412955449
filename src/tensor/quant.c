// quant.c — the entry points of quant.h: what is left of a piece after the kernels took the whole
// blocks, and the choice between the versions of the kernels.
#include "tensor/quant.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "tensor/dynamic_map.h"
#include "tensor/quant_kernels.h"

#include <math.h>

const float rn_nf4_table[16] = {
    -1.0f,
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
    1.0f,
};

const float rn_dynamic_map[256] = {RN_DYNAMIC_MAP_SIGNED};

const rn_quant_kernels *rn_quant_kernels_get(void) {
#if defined(__x86_64__)
    switch (rn_cpu_level_get()) {
    case RN_CPU_AVX512:
        return &rn_quant_avx512;
    case RN_CPU_AVX2:
        return &rn_quant_avx2;
    default:
        break;
    }
#endif
    return &rn_quant_portable;
}

void rn_quant_int8_rows(const float *rows, uint64_t row_count, uint64_t cols, int8_t *out_q,
                        float *out_scale) {
    rn_quant_kernels_get()->int8_rows(rows, row_count, cols, out_q, out_scale);
}

void rn_dequant_int8_rows(const int8_t *q, const float *scale, uint64_t row_count, uint64_t cols,
                          float *out_rows) {
    rn_quant_kernels_get()->int8_restore(q, scale, row_count, cols, out_rows);
}

uint64_t rn_quant_int4_group(uint64_t cols) {
    if (cols <= 128) return cols;
    for (uint64_t group = 128; group >= 32; group -= 32)
        if (cols % group == 0) return group;
    return cols;
}

void rn_quant_int4_groups(const float *groups, uint64_t group_count, uint64_t group, uint8_t *out_q,
                          float *out_scale, float *out_shift) {
    rn_quant_kernels_get()->int4_groups(groups, group_count, group, out_q, out_scale, out_shift);
}

void rn_dequant_int4_groups(const uint8_t *q, const float *scale, const float *shift,
                            uint64_t group_count, uint64_t group, float *out_groups) {
    rn_quant_kernels_get()->int4_restore(q, scale, shift, group_count, group, out_groups);
}

void rn_quant_int4_pack(const uint8_t *low, const uint8_t *high, uint64_t count,
                        uint8_t *out_packed) {
    for (uint64_t i = 0; i < count; i++)
        out_packed[i] = (uint8_t)(low[i] | (high ? high[i] << 4 : 0));
}

void rn_quant_int4_unpack(const uint8_t *packed, uint64_t count, uint8_t *out_low,
                          uint8_t *out_high) {
    for (uint64_t i = 0; out_low && i < count; i++)
        out_low[i] = packed[i] & 15;
    for (uint64_t i = 0; out_high && i < count; i++)
        out_high[i] = packed[i] >> 4;
}

// bitsandbytes divides in a short last block, where it multiplies by the reciprocal in whole ones.
static void nf4_tail(const float *values, uint64_t count, uint8_t *out_packed, float *out_absmax) {
    float absmax = rn_float_from_bits(rn_absmax_bits(values, count));
    if (absmax < 1e-38f) absmax = 1e-38f;
    for (uint64_t i = 0; i < count; i += 2) {
        uint8_t first = rn_nf4_index(values[i] / absmax);
        uint8_t second = rn_nf4_index(i + 1 < count ? values[i + 1] / absmax : 0);
        out_packed[i / 2] = (uint8_t)(first << 4 | second);
    }
    *out_absmax = absmax;
}

void rn_quant_nf4_blocks(const float *values, uint64_t count, uint8_t *out_packed,
                         float *out_absmax) {
    uint64_t blocks = count / RN_NF4_BLOCK, whole = blocks * RN_NF4_BLOCK;
    rn_quant_kernels_get()->nf4_blocks(values, blocks, out_packed, out_absmax);
    if (whole < count)
        nf4_tail(values + whole, count - whole, out_packed + whole / 2, out_absmax + blocks);
}

void rn_dequant_nf4_blocks(const uint8_t *packed, const float *absmax, uint64_t count,
                           float *out_values) {
    uint64_t blocks = count / RN_NF4_BLOCK;
    rn_quant_kernels_get()->nf4_restore(packed, absmax, blocks, out_values);
    for (uint64_t i = blocks * RN_NF4_BLOCK; i < count; i++)
        out_values[i] = rn_nf4_table[packed[i / 2] >> (i % 2 ? 0 : 4) & 15] * absmax[blocks];
}

// ---- double quantisation ------------------------------------------------------------------------

float rn_quant_nf4_offset(const float *absmax, uint64_t count) {
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += absmax[i];
    return count ? (float)(sum / (double)count) : 0;
}

// The place of the nearest number of the map; NaN has the last.
static uint8_t nearest_code(float x) {
    uint32_t low = 0, high = 255;
    while (low < high) {
        uint32_t code = (low + high) / 2;
        if (!(x <= (rn_dynamic_map[code] + rn_dynamic_map[code + 1]) / 2))
            low = code + 1;
        else
            high = code;
    }
    return (uint8_t)low;
}

void rn_quant_nf4_absmax(const float *absmax, uint64_t count, float offset, uint8_t *out_codes,
                         float *out_nested) {
    for (uint64_t first = 0; first < count; first += RN_NF4_NESTED, out_nested++) {
        uint64_t end = rn_min_u64(first + RN_NF4_NESTED, count);
        float most = 0;
        for (uint64_t i = first; i < end; i++) {
            float size = fabsf(absmax[i] - offset);
            if (!(size <= most)) most = size; // NaN stays
        }
        float divisor = most < 1e-38f ? 1e-38f : most, inverse = 1 / divisor;
        bool whole = end - first == RN_NF4_NESTED;
        *out_nested = whole ? most : divisor; // as nf4's last block
        for (uint64_t i = first; i < end; i++) {
            float rest = absmax[i] - offset;
            out_codes[i] = nearest_code(whole ? rest * inverse : rest / divisor);
        }
    }
}

rn_status rn_quant_nf4_state(rn_dtype restored, const uint64_t *shape, uint32_t rank,
                             const float *offset, rn_sink sink) {
    const char *dtype = restored == RN_DTYPE_F32    ? "float32"
                        : restored == RN_DTYPE_F16  ? "float16"
                        : restored == RN_DTYPE_BF16 ? "bfloat16"
                                                    : NULL;
    if (!dtype)
        return rn_fail(RN_INVALID, "an nf4 weight is restored as f32, f16 or bf16, not as %s",
                       rn_dtype_get(restored)->name);
    RN_TRY(rn_sink_print(sink,
                         "{\"quant_type\": \"nf4\", \"blocksize\": %d, \"dtype\": \"%s\", "
                         "\"shape\": [",
                         RN_NF4_BLOCK, dtype));
    for (uint32_t i = 0; i < rank; i++)
        RN_TRY(rn_sink_print(sink, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]));
    if (!offset) return rn_sink_print(sink, "]}");
    return rn_sink_print(sink,
                         "], \"nested_blocksize\": %d, \"nested_dtype\": \"float32\", "
                         "\"nested_offset\": %.17g}",
                         RN_NF4_NESTED, (double)*offset);
}

// The same order of additions whatever the vector width.
static double total(const double lanes[8]) {
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

void rn_quant_error_add(rn_quant_error *error, const float *reference, const float *restored,
                        uint64_t count) {
    if (count == 0) return;
    rn_error_lanes lanes = {{0}, {0}, {0}, 0};
    rn_quant_kernels_get()->error_add(reference, restored, count, &lanes);
    rn_quant_error piece = {total(lanes.abs), lanes.max, total(lanes.square),
                            total(lanes.square_ref), count};
    rn_quant_error_merge(error, &piece);
}

void rn_quant_error_merge(rn_quant_error *error, const rn_quant_error *other) {
    error->sum_abs += other->sum_abs;
    error->sum_square += other->sum_square;
    error->sum_square_ref += other->sum_square_ref;
    error->count += other->count;
    if (other->max_abs > error->max_abs) error->max_abs = other->max_abs;
}
