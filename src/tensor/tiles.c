// tiles.c — the sizes of tiles, and reading one weight: the drawings of tiles.h as code.
#include "tensor/tiles_internal.h"

#include "base/checked.h"
#include "tensor/ggml_blocks.h"
#include "tensor/quant.h"
#include "tensor/small_float.h"

// ---- forms --------------------------------------------------------------------------------------

rn_tile_form rn_tile_form_of(rn_dtype dtype) {
    static const uint8_t forms[RN_DTYPE_COUNT] = {
        [RN_DTYPE_F16] = RN_TILE_F16,    [RN_DTYPE_BF16] = RN_TILE_BF16,
        [RN_DTYPE_INT8] = RN_TILE_I8,    [RN_DTYPE_Q8_0] = RN_TILE_Q8,
        [RN_DTYPE_INT4] = RN_TILE_A4,    [RN_DTYPE_Q4_1] = RN_TILE_A4,
        [RN_DTYPE_Q4_K] = RN_TILE_A4,    [RN_DTYPE_Q4_0] = RN_TILE_Q4,
        [RN_DTYPE_NF4] = RN_TILE_N4,     [RN_DTYPE_IQ4_NL] = RN_TILE_I4,
        [RN_DTYPE_IQ4_XS] = RN_TILE_I4,  [RN_DTYPE_MXFP4] = RN_TILE_F4,
        [RN_DTYPE_Q5_0] = RN_TILE_A5,    [RN_DTYPE_Q5_1] = RN_TILE_A5,
        [RN_DTYPE_Q5_K] = RN_TILE_A5,    [RN_DTYPE_Q6_K] = RN_TILE_Q6,
        [RN_DTYPE_Q3_K] = RN_TILE_Q3,    [RN_DTYPE_Q2_K] = RN_TILE_A2,
        [RN_DTYPE_TQ1_0] = RN_TILE_A2,   [RN_DTYPE_TQ2_0] = RN_TILE_A2,
        [RN_DTYPE_Q1_0] = RN_TILE_A2,    [RN_DTYPE_Q2_0] = RN_TILE_Q4,
        [RN_DTYPE_IQ1_S] = RN_TILE_C2,   [RN_DTYPE_IQ1_M] = RN_TILE_C2,
        [RN_DTYPE_IQ2_XXS] = RN_TILE_C2, [RN_DTYPE_IQ2_XS] = RN_TILE_C2,
        [RN_DTYPE_IQ2_S] = RN_TILE_C2,   [RN_DTYPE_IQ3_XXS] = RN_TILE_C3,
        [RN_DTYPE_IQ3_S] = RN_TILE_A4,   [RN_DTYPE_U4_B32] = RN_TILE_A4,
        [RN_DTYPE_NVFP4] = RN_TILE_V4,   [RN_DTYPE_FP4_B64] = RN_TILE_V4,
        [RN_DTYPE_F8_E4M3] = RN_TILE_F8, [RN_DTYPE_F8_E5M2] = RN_TILE_F16,
        [RN_DTYPE_F8_B128] = RN_TILE_F8, [RN_DTYPE_F8_B32] = RN_TILE_F8,
    };
    return (unsigned)dtype < RN_DTYPE_COUNT ? (rn_tile_form)forms[dtype] : RN_TILE_NONE;
}

const rn_tile_planes *rn_tile_planes_of(rn_tile_form form) {
    static const rn_tile_planes planes[RN_TILE_FORM_COUNT] = {
        [RN_TILE_F16] = {.low = RN_PLANE_HALVES},
        [RN_TILE_BF16] = {.low = RN_PLANE_HALVES},
        [RN_TILE_Q8] = {.low = RN_PLANE_BYTES, .scales = 1},
        [RN_TILE_I8] = {.low = RN_PLANE_BYTES},
        [RN_TILE_Q4] = {.low = RN_PLANE_NIBBLES, .scales = 1},
        [RN_TILE_A4] = {.low = RN_PLANE_NIBBLES, .scales = 2},
        [RN_TILE_N4] = {.low = RN_PLANE_PAIRS, .scales = 1},
        [RN_TILE_Q6] = {RN_PLANE_NIBBLES, RN_PLANE_CRUMBS, 4, .scales = 1, .wholes = 1},
        [RN_TILE_A5] = {RN_PLANE_NIBBLES, RN_PLANE_BITS, 4, .scales = 2},
        [RN_TILE_I4] = {.low = RN_PLANE_PAIRS, .scales = 1},
        [RN_TILE_F4] = {.low = RN_PLANE_PAIRS, .scales = 1},
        [RN_TILE_Q3] = {RN_PLANE_CRUMBS, RN_PLANE_BITS, 2, .scales = 1, .wholes = 1},
        [RN_TILE_A2] = {.low = RN_PLANE_CRUMBS, .scales = 1, .wholes = 2},
        [RN_TILE_F8] = {.low = RN_PLANE_BYTES, .scales = 1},
        [RN_TILE_V4] = {.low = RN_PLANE_PAIRS, .scales = 2, .parted = true},
        [RN_TILE_C2] = {.low = RN_PLANE_PAIRS, .scales = 1, .wholes = 1},
        [RN_TILE_C3] = {.low = RN_PLANE_PAIRS, .scales = 1, .wholes = 1},
    };
    return &planes[(unsigned)form < RN_TILE_FORM_COUNT ? form : RN_TILE_NONE];
}

uint32_t rn_tile_plane_bytes(rn_tile_plane plane) {
    static const uint16_t bytes[RN_PLANE_COUNT] = {0, 4096, 2048, 1024, 1024, 512, 256};
    return bytes[plane];
}

uint32_t rn_tile_quants_bytes(rn_tile_form form) {
    const rn_tile_planes *p = rn_tile_planes_of(form);
    return rn_tile_plane_bytes(p->low) + rn_tile_plane_bytes(p->high);
}

uint32_t rn_tile_bytes(rn_tile_form form) {
    const rn_tile_planes *p = rn_tile_planes_of(form);
    return rn_tile_quants_bytes(form) + p->scales * RN_TILE_SCALES_BYTES +
           p->wholes * RN_TILE_ROWS * 2;
}

// ---- sizes --------------------------------------------------------------------------------------

// Scales are for 32 columns: int4's groups and nf4's blocks must not end within them, and e4m3 has
// NaN in them.
static uint64_t whole_cols(rn_dtype dtype) {
    if (dtype == RN_DTYPE_INT4 || dtype == RN_DTYPE_NF4 || dtype == RN_DTYPE_F8_E4M3) return 32;
    return rn_dtype_get(dtype)->block_elements;
}

bool rn_tiles_bytes(rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out_bytes) {
    rn_tile_form form = rn_tile_form_of(dtype);
    uint64_t strips = rn_div_up(rows, RN_TILE_ROWS), tiles = 0, bytes = 0;
    uint64_t scales = form == RN_TILE_I8 ? RN_TILE_ROWS * sizeof(float) : 0; // of a strip
    *out_bytes = 0;
    if (form == RN_TILE_NONE || cols == 0 || cols % whole_cols(dtype) != 0) return false;
    if (!rn_mul_u64(strips, rn_div_up(cols, RN_TILE_COLS), &tiles) ||
        !rn_mul_u64(tiles, rn_tile_bytes(form), &bytes) ||
        !rn_add_u64(bytes, strips * scales, &bytes)) // as many tiles are larger: no overflow
        return false;
    return rn_align_u64(bytes, 64, out_bytes);
}

// ---- one weight ---------------------------------------------------------------------------------

static float half_at(const uint8_t *from) {
    return rn_f16_widen(rn_load_u16(from));
}

// To f16 and back, rounded once: a float that is not exact gets an odd last bit, so that it is
// never taken for the middle of two f16.
static float round_to_f16(double value) {
    float near = (float)value;
    uint32_t bits = rn_float_bits(near);
    if ((double)near != value && value == value) {
        double size = value < 0 ? -value : value, near_size = near < 0 ? -near : near;
        bits = (near_size > size ? bits - 1 : bits) | 1;
    }
    return rn_f16_widen(rn_f16_narrow(rn_float_from_bits(bits)));
}

static uint32_t bits_at(const uint8_t *words, uint32_t at, uint32_t shift, uint32_t mask) {
    uint32_t word;
    memcpy(&word, words + at, sizeof word);
    return word >> shift & mask;
}

static int plane_at(rn_tile_plane plane, const uint8_t *from, uint32_t r, uint32_t c) {
    switch (plane) {
    case RN_PLANE_BYTES:
        return from[rn_tile_byte_at(r, c)];
    case RN_PLANE_NIBBLES:
        return from[rn_tile_nibble_at(r, c)] >> rn_tile_nibble_shift(r) & 15;
    case RN_PLANE_PAIRS:
        return from[rn_tile_pair_at(r, c)] >> rn_tile_pair_shift(c) & 15;
    case RN_PLANE_CRUMBS:
        return (int)bits_at(from, rn_tile_crumb_at(r, c), rn_tile_crumb_shift(r, c), 3);
    case RN_PLANE_BITS:
        return (int)bits_at(from, rn_tile_bit_at(r, c), rn_tile_bit_shift(r, c), 1);
    default:
        return 0;
    }
}

// A weight before its scale: exact in f16.
static double number_of(rn_tile_form form, int q) {
    static const int16_t zero[RN_TILE_FORM_COUNT] = {
        [RN_TILE_Q8] = 128, [RN_TILE_I8] = 128, [RN_TILE_Q4] = 8,
        [RN_TILE_Q6] = 32,  [RN_TILE_Q3] = 4,
    };
    if (form == RN_TILE_N4) return rn_f16_widen(rn_f16_narrow(rn_nf4_table[q]));
    if (form == RN_TILE_I4) return rn_ggml_iq4_values[q];
    if (form == RN_TILE_F4 || form == RN_TILE_V4) return rn_ggml_fp4_values[q];
    if (form == RN_TILE_C2) return rn_tile_c2_values[q];
    if (form == RN_TILE_C3) return rn_tile_c3_values[q];
    if (form == RN_TILE_F8) return (double)rn_e4m3_widen((uint8_t)q) / 256;
    return q - zero[form];
}

static float small_value(rn_tile_form form, double number, const uint8_t *scales, uint32_t r,
                         uint32_t c) {
    uint32_t wholes = rn_tile_planes_of(form)->wholes;
    int small = scales[rn_tile_small_at(r, c)];
    double d = half_at(scales + rn_tile_whole_at(r, 0, wholes));
    double factor = form == RN_TILE_C2 || form == RN_TILE_C3 ? (small - 128) / 8.0 : small - 128;
    if (form != RN_TILE_A2) return round_to_f16((double)round_to_f16(d * factor) * number);
    double m = half_at(scales + rn_tile_whole_at(r, 1, wholes));
    return round_to_f16((double)round_to_f16(d * (small & 15)) * number +
                        (double)round_to_f16(m * (small >> 4)));
}

float rn_tiles_at(const uint8_t *tiles, rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t row,
                  uint64_t col) {
    rn_tile_form form = rn_tile_form_of(dtype);
    const rn_tile_planes *p = rn_tile_planes_of(form);
    uint64_t tile_cols = rn_div_up(cols, RN_TILE_COLS), count = rn_div_up(rows, RN_TILE_ROWS);
    uint64_t strip = row / RN_TILE_ROWS * tile_cols + col / RN_TILE_COLS;
    uint32_t r = row % RN_TILE_ROWS, c = col % RN_TILE_COLS;
    const uint8_t *tile = tiles + strip * rn_tile_bytes(form);
    const uint8_t *scales = tile + rn_tile_quants_bytes(form);
    float row_scale;
    if (form == RN_TILE_F16) return half_at(tile + rn_tile_half_at(r, c));
    if (form == RN_TILE_BF16) return rn_bf16_widen(rn_load_u16(tile + rn_tile_half_at(r, c)));
    int q = plane_at(p->low, tile, r, c) |
            plane_at(p->high, tile + rn_tile_plane_bytes(p->low), r, c) << p->high_from;
    double number = number_of(form, q);
    if (form == RN_TILE_I8) {
        memcpy(&row_scale, tiles + count * tile_cols * rn_tile_bytes(form) + 4 * row, 4);
        return row_scale * (float)number;
    }
    if (p->wholes) return small_value(form, number, scales, r, c);
    scales += rn_tile_scale_at(r, c);
    if (p->parted)
        return round_to_f16((double)half_at(scales + c / 16 % 2 * RN_TILE_SCALES_BYTES) * number);
    double offset = p->scales > 1 ? (double)half_at(scales + RN_TILE_SCALES_BYTES) : 0;
    return round_to_f16((double)half_at(scales) * number + offset);
}
