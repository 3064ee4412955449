// tiles_blocks.c — ggml's blocks taken apart for tiles: numbers, and scales as tiles have them.
//
// The blocks are drawn in ggml_blocks.c and ggml_superblocks.c. A block of zeros, which is no row,
// becomes nothing but zeros.
#include "tensor/tiles_internal.h"

#include "tensor/ggml_blocks.h"
#include "tensor/small_float.h"

static float half_at(const uint8_t *from) {
    return rn_f16_widen(rn_load_u16(from));
}

// Nibbles of 32 elements: element e and e + 16 in byte e.
static void split_halves(const uint8_t *nibbles, uint8_t out[32]) {
    for (int e = 0; e < 16; e++) {
        out[e] = nibbles[e] & 15;
        out[e + 16] = nibbles[e] >> 4;
    }
}

static void add_fifths(const uint8_t bits[4], uint8_t out[32]) {
    for (int e = 0; e < 32; e++)
        out[e] |= (uint8_t)((bits[e / 8] >> e % 8 & 1) << 4);
}

// ---- blocks of 32 -------------------------------------------------------------------------------

void rn_tile_read_q4_1(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    split_halves(block + 4, out->q + 32 * part);
    out->scales[part] = rn_load_u16(block);
    out->offsets[part] = rn_load_u16(block + 2);
}

// 16 times a scale is exact; where it is none of f16's, the block's least weight is none, either.
void rn_tile_read_q5_0(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    split_halves(block + 6, out->q + 32 * part);
    add_fifths(block + 2, out->q + 32 * part);
    out->scales[part] = rn_load_u16(block);
    out->offsets[part] = rn_f16_narrow(0.0f - 16 * half_at(block)); // no scale stays +0
}

void rn_tile_read_q5_1(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    split_halves(block + 8, out->q + 32 * part);
    add_fifths(block + 4, out->q + 32 * part);
    out->scales[part] = rn_load_u16(block);
    out->offsets[part] = rn_load_u16(block + 2);
}

void rn_tile_read_iq4_nl(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    split_halves(block + 2, out->q + 32 * part);
    out->scales[part] = rn_load_u16(block);
}

// 2^(byte - 128), beside a table of doubled values. What f16 cannot hold becomes infinity, and the
// byte that means no number stays none: never a plausible weight.
static uint16_t narrow_e8m0(uint8_t byte) {
    enum { LEAST = 128 - 24, FIRST_NORMAL = 128 - 14, MOST = 128 + 15 };
    if (byte == 255) return 0x7e00;
    if (byte > MOST) return 0x7c00;
    if (byte >= FIRST_NORMAL) return (uint16_t)((byte - FIRST_NORMAL + 1) << 10);
    return (uint16_t)(byte >= LEAST ? 1 << (byte - LEAST) : 0);
}

void rn_tile_read_mxfp4(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    split_halves(block + 1, out->q + 32 * part);
    out->scales[part] = narrow_e8m0(block[0]);
}

// ---- blocks of 256 ------------------------------------------------------------------------------

void rn_tile_read_q5_k(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    float scales[16]; // as q4_k has them
    (void)part;
    rn_tile_q4_k_scales(block, scales);
    for (int p = 0; p < 8; p++) {
        const uint8_t *nibbles = block + 48 + p / 2 * 32, *fifth = block + 16;
        out->scales[p] = rn_f16_narrow(scales[p]);
        out->offsets[p] = rn_f16_narrow(scales[8 + p]);
        for (int e = 0; e < 32; e++)
            out->q[32 * p + e] =
                (uint8_t)((nibbles[e] >> p % 2 * 4 & 15) | (fifth[e] >> p & 1) << 4);
    }
}

void rn_tile_read_iq4_xs(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    float scale = half_at(block);
    unsigned upper = rn_load_u16(block + 2);
    (void)part;
    for (int p = 0; p < 8; p++) {
        int low = block[4 + p / 2] >> p % 2 * 4 & 15, high = (int)(upper >> p * 2 & 3);
        split_halves(block + 8 + 16 * p, out->q + 32 * p);
        out->scales[p] = rn_f16_narrow(0.0f + scale * (float)((low | high << 4) - 32)); // no -0
    }
}

// A scale of 16 columns as a small one; a block without a scale has none.
static void set_small(rn_tile_row *out, int part, int factor) {
    out->small[part] = (uint8_t)(half_at((const uint8_t *)out->whole) == 0 ? 0 : factor + 128);
}

// Two bits of part p of 16 elements: byte p/8*32 + p%2*16 + e, at bit p%8/2*2.
static void read_crumbs(const uint8_t *bytes, int p, uint8_t out[16]) {
    for (int e = 0; e < 16; e++)
        out[e] = bytes[p / 8 * 32 + p % 2 * 16 + e] >> p % 8 / 2 * 2 & 3;
}

void rn_tile_read_q6_k(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    (void)part;
    memcpy(out->whole, block + 208, 2);
    for (int p = 0; p < 16; p++) {
        const uint8_t *nibbles = block + p / 8 * 64 + p % 4 * 16;
        uint8_t *q = out->q + 16 * p;
        read_crumbs(block + 128, p, q);
        for (int e = 0; e < 16; e++)
            q[e] = (uint8_t)(q[e] << 4 | (nibbles[e] >> p % 8 / 4 * 4 & 15));
        set_small(out, p, (int8_t)block[192 + p]);
    }
}

// Twelve bytes hold sixteen scales: nibbles in the first eight, upper bits in the last four.
void rn_tile_read_q3_k(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    const uint8_t *scales = block + 96;
    (void)part;
    memcpy(out->whole, block + 108, 2);
    for (int p = 0; p < 16; p++) {
        int low = scales[p % 8] >> p / 8 * 4 & 15, high = scales[8 + p % 4] >> p / 4 * 2 & 3;
        uint8_t *q = out->q + 16 * p;
        read_crumbs(block + 32, p, q);
        for (int e = 0; e < 16; e++)
            q[e] |= (uint8_t)((block[p % 2 * 16 + e] >> p / 2 & 1) << 2);
        set_small(out, p, (low | high << 4) - 32);
    }
}

void rn_tile_read_q2_k(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    (void)part;
    memcpy(out->whole, block + 80, 4);
    out->whole[1] ^= out->whole[1] ? 0x8000 : 0; // what is taken off is added; none stays +0
    memcpy(out->small, block, 16);
    for (int p = 0; p < 16; p++)
        read_crumbs(block + 16, p, out->q + 16 * p);
}
