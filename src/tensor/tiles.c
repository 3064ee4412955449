// tiles.c — the sizes of tiles, and reading one weight: the drawings of tiles.h as code.
#include "tensor/tiles_internal.h"

#include "base/checked.h"
#include "tensor/quant.h"
#include "tensor/small_float.h"

// ---- forms --------------------------------------------------------------------------------------

rn_tile_form rn_tile_form_of(rn_dtype dtype) {
    static const uint8_t forms[RN_DTYPE_COUNT] = {
        [RN_DTYPE_F16] = RN_TILE_F16, [RN_DTYPE_Q6_K] = RN_TILE_Q6, [RN_DTYPE_BF16] = RN_TILE_BF16,
        [RN_DTYPE_Q8_0] = RN_TILE_Q8, [RN_DTYPE_INT8] = RN_TILE_I8, [RN_DTYPE_Q4_0] = RN_TILE_Q4,
        [RN_DTYPE_INT4] = RN_TILE_A4, [RN_DTYPE_Q4_K] = RN_TILE_A4, [RN_DTYPE_NF4] = RN_TILE_N4,
    };
    return (unsigned)dtype < RN_DTYPE_COUNT ? (rn_tile_form)forms[dtype] : RN_TILE_NONE;
}

uint32_t rn_tile_quants_bytes(rn_tile_form form) {
    static const uint16_t bytes[RN_TILE_FORM_COUNT] = {
        [RN_TILE_F16] = 4096, [RN_TILE_BF16] = 4096, [RN_TILE_Q8] = 2048, [RN_TILE_I8] = 2048,
        [RN_TILE_Q4] = 1024,  [RN_TILE_A4] = 1024,   [RN_TILE_N4] = 1024, [RN_TILE_Q6] = 2048,
    };
    return (unsigned)form < RN_TILE_FORM_COUNT ? bytes[form] : 0;
}

uint32_t rn_tile_bytes(rn_tile_form form) {
    static const uint8_t scales[RN_TILE_FORM_COUNT] = {
        [RN_TILE_Q8] = 1, [RN_TILE_Q4] = 1, [RN_TILE_A4] = 2, [RN_TILE_N4] = 1, [RN_TILE_Q6] = 2};
    uint32_t quants = rn_tile_quants_bytes(form);
    return quants ? quants + scales[form] * RN_TILE_SCALES_BYTES : 0;
}

// ---- sizes --------------------------------------------------------------------------------------

// Scales are for 32 columns: int4's groups and nf4's blocks must not end within them.
static uint64_t whole_cols(rn_dtype dtype) {
    if (dtype == RN_DTYPE_INT4 || dtype == RN_DTYPE_NF4) return 32;
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

static float nibble_value(rn_tile_form form, int q, const uint8_t *scales) {
    double scale = half_at(scales);
    if (form == RN_TILE_Q4) return round_to_f16(scale * (q - 8));
    if (form == RN_TILE_A4)
        return round_to_f16(scale * q + (double)half_at(scales + RN_TILE_SCALES_BYTES));
    return round_to_f16(scale * (double)rn_f16_widen(rn_f16_narrow(rn_nf4_table[q])));
}

float rn_tiles_at(const uint8_t *tiles, rn_dtype dtype, uint64_t rows, uint64_t cols, uint64_t row,
                  uint64_t col) {
    rn_tile_form form = rn_tile_form_of(dtype);
    uint64_t tile_cols = rn_div_up(cols, RN_TILE_COLS), count = rn_div_up(rows, RN_TILE_ROWS);
    uint64_t number = row / RN_TILE_ROWS * tile_cols + col / RN_TILE_COLS;
    uint32_t r = row % RN_TILE_ROWS, c = col % RN_TILE_COLS;
    const uint8_t *tile = tiles + number * rn_tile_bytes(form);
    const uint8_t *scales = tile + rn_tile_quants_bytes(form) + rn_tile_scale_at(r, c);
    float row_scale;
    switch (form) {
    case RN_TILE_F16:
        return half_at(tile + rn_tile_half_at(r, c));
    case RN_TILE_BF16:
        return rn_bf16_widen(rn_load_u16(tile + rn_tile_half_at(r, c)));
    case RN_TILE_Q8:
        return round_to_f16((double)half_at(scales) * (tile[rn_tile_byte_at(r, c)] - 128));
    case RN_TILE_Q6:
        scales += rn_tile_is_odd(c) ? RN_TILE_SCALES_BYTES : 0;
        return round_to_f16((double)half_at(scales) * (tile[rn_tile_byte_at(r, c)] - 128));
    case RN_TILE_I8:
        memcpy(&row_scale, tiles + count * tile_cols * rn_tile_bytes(form) + 4 * row, 4);
        return row_scale * (float)(tile[rn_tile_byte_at(r, c)] - 128);
    default:
        return nibble_value(form, tile[rn_tile_nibble_at(r, c)] >> rn_tile_nibble_shift(r) & 15,
                            scales);
    }
}
