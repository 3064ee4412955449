// tiles_scaled.c — e4m3, and ration's own blocks (tensor/scaled_blocks.h), taken apart for tiles.
//
// Their scales are f32: rounded to f16 once, and infinite where f16 ends.
#include "tensor/tiles_internal.h"

#include "tensor/small_float.h"

static float float_at(const uint8_t *from) {
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}

// 32 columns. The scale counts in 256ths, as e4m3's bits in f16's places do.
static void read_e4m3(const uint8_t *from, float scale, uint32_t part, rn_tile_row *out) {
    bool is_nan = false;
    memcpy(out->q + 32 * part, from, 32);
    for (int e = 0; e < 32; e++)
        is_nan = is_nan || (from[e] & 0x7f) == 0x7f;
    out->scales[part] = is_nan ? 0x7e00 : rn_f16_narrow(256 * scale);
}

void rn_tile_read_e4m3(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    static const uint8_t zeros[32]; // what is no row has no scale
    read_e4m3(block, memcmp(block, zeros, sizeof zeros) == 0 ? 0 : 1, part, out);
}

void rn_tile_read_f8_b32(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    read_e4m3(block + 4, float_at(block), part, out);
}

void rn_tile_read_f8_b128(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    (void)part;
    for (uint32_t p = 0; p < 4; p++)
        read_e4m3(block + 4 + 32 * p, float_at(block), p, out);
}

// As nvfp4, whose scales are multiplied with one more.
void rn_tile_read_fp4_b64(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    float scale = float_at(block);
    rn_tile_read_nvfp4(block + 4, part, out);
    for (uint32_t p = 0; p < 4; p++)
        (p % 2 ? out->offsets : out->scales)[2 * part + p / 2] =
            rn_f16_narrow(rn_nvfp4_scale(block[4 + p]) * scale);
}

void rn_tile_read_u4_b32(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    float scale = float_at(block);
    uint8_t *q = out->q + 32 * part;
    for (int e = 0; e < 16; e++) {
        q[e] = block[5 + e] & 15;
        q[e + 16] = block[5 + e] >> 4;
    }
    out->scales[part] = rn_f16_narrow(scale);
    out->offsets[part] = rn_f16_narrow(0.0f - scale * block[4]); // none stays +0
}
