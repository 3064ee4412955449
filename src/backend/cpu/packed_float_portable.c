// packed_float_portable.c — panels to f32 in plain C.
#include "backend/cpu/packed_floats.h"

#include "tensor/panels.h"
#include "tensor/quant.h"
#include "tensor/small_float.h"

enum { LANES = 16 };

static float float_at(const uint8_t *floats, int lane) {
    uint32_t bits;
    memcpy(&bits, floats + 4 * lane, sizeof bits);
    return rn_float_from_bits(bits);
}

// The nibble of column k: `at` says where each of the eight of a word lies.
static uint8_t nibble_at(const uint8_t *words, const uint8_t at[8], uint64_t k, int lane) {
    uint32_t word;
    memcpy(&word, words + k / 8 * 64 + 4 * lane, sizeof word);
    return word >> at[k % 8] & 15;
}

static float weight_int4(const uint8_t *unit, uint64_t k, int lane) {
    static const uint8_t at[8] = {0, 8, 16, 24, 4, 12, 20, 28};
    return float_at(unit, lane) * (float)nibble_at(unit + 128, at, k, lane) -
           float_at(unit + 64, lane);
}

static float weight_nf4(const uint8_t *unit, uint64_t k, int lane) {
    static const uint8_t at[8] = {4, 0, 12, 8, 20, 16, 28, 24};
    return rn_nf4_table[nibble_at(unit + 64, at, k, lane)] * float_at(unit, lane);
}

static float weight_nf4_dq(const uint8_t *panel, uint64_t k, int lane) {
    static const uint8_t at[8] = {4, 0, 12, 8, 20, 16, 28, 24};
    const rn_nf4_dq_head *head = (const rn_nf4_dq_head *)(const void *)panel;
    const uint8_t *unit = panel + head->bytes + k / RN_NF4_BLOCK * 528;
    float absmax[RN_PANEL_ROWS];
    rn_panels_absmax(panel, k / RN_NF4_BLOCK, absmax);
    return rn_nf4_table[nibble_at(unit + 16, at, k % RN_NF4_BLOCK, lane)] * absmax[lane];
}

static float weight(rn_float_form form, const uint8_t *panel, uint64_t unit_cols,
                    uint64_t unit_bytes, uint64_t k, int lane) {
    switch (form) {
    case RN_FLOAT_F32:
        return float_at(panel + k * 64, lane);
    case RN_FLOAT_F16:
        return rn_f16_widen(rn_load_u16(panel + k * 32 + 2 * (uint64_t)lane));
    case RN_FLOAT_BF16:
        return rn_bf16_widen(rn_load_u16(panel + k * 32 + 2 * (uint64_t)lane));
    case RN_FLOAT_E4M3:
        return rn_e4m3_widen(panel[k / 4 * 64 + 4 * (uint64_t)lane + k % 4]);
    case RN_FLOAT_INT4:
        return weight_int4(panel + k / unit_cols * unit_bytes, k % unit_cols, lane);
    case RN_FLOAT_NF4_DQ:
        return weight_nf4_dq(panel, k, lane);
    default:
        return weight_nf4(panel + k / RN_NF4_BLOCK * 576, k % RN_NF4_BLOCK, lane);
    }
}

static void unpack(rn_float_form form, const uint8_t *panel, uint64_t unit_cols,
                   uint64_t unit_bytes, uint64_t k, uint64_t depth, float *to) {
    for (uint64_t end = k + depth; k < end; k++, to += LANES)
        for (int lane = 0; lane < LANES; lane++)
            to[lane] = weight(form, panel, unit_cols, unit_bytes, k, lane);
}

const rn_float_kernels rn_float_portable = {.sizes = {1}, .unpack = unpack};
