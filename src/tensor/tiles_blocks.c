// tiles_blocks.c — ggml's blocks taken apart for tiles: numbers, and scales as tiles have them.
//
// The blocks are drawn in ggml_blocks.c and ggml_superblocks.c. A block of zeros, which is no row,
// becomes nothing but zeros.
#include "tensor/tiles_internal.h"

#include "tensor/ggml_blocks.h"
#include "tensor/ggml_codebooks.h"
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

// ---- blocks of 64 and 128 -----------------------------------------------------------------------

void rn_tile_read_nvfp4(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    for (uint32_t p = 0; p < 4; p++) {
        uint8_t *q = out->q + 64 * part + 16 * p;
        uint16_t scale = rn_f16_narrow(rn_nvfp4_scale(block[p]));
        for (uint32_t e = 0; e < 8; e++) {
            q[e] = block[4 + 8 * p + e] & 15;
            q[e + 8] = block[4 + 8 * p + e] >> 4;
        }
        (p % 2 ? out->offsets : out->scales)[2 * part + p / 2] = scale;
    }
}

// -1 to 2 as q4_0 has them.
void rn_tile_read_q2_0(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    uint16_t scale = rn_load_u16(block);
    for (uint32_t e = 0; e < 64; e++)
        out->q[64 * part + e] = (uint8_t)(scale ? (block[2 + e / 4] >> e % 4 * 2 & 3) + 7 : 0);
    out->scales[2 * part] = out->scales[2 * part + 1] = scale;
}

// Kinds with one scale, as q2_k has them: d times a number, less d. No scale stays +0.
static void set_whole(rn_tile_row *out, uint16_t scale, uint32_t cols) {
    out->whole[0] = scale;
    out->whole[1] = (uint16_t)(scale ? scale ^ 0x8000 : 0);
    memset(out->small, scale ? 0x11 : 0, cols / 16);
}

void rn_tile_read_q1_0(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    (void)part;
    for (uint32_t e = 0; e < 128; e++)
        out->q[e] = (uint8_t)((block[2 + e / 8] >> e % 8 & 1) * 2);
    set_whole(out, rn_load_u16(block), 128);
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

// Five ternary digits in each of 48 bytes (32, then 16), four in each of the last four.
void rn_tile_read_tq1_0(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    static const struct { int at, bytes, digits; } runs[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
    uint8_t *q = out->q;
    (void)part;
    for (int run = 0; run < 3; run++)
        for (int n = 0, power = 1; n < runs[run].digits; n++, power *= 3)
            for (int b = 0; b < runs[run].bytes; b++) {
                uint8_t fraction = (uint8_t)(block[runs[run].at + b] * power);
                *q++ = (uint8_t)(fraction * 3 >> 8);
            }
    set_whole(out, rn_load_u16(block + 52), 256);
}

void rn_tile_read_tq2_0(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    (void)part;
    for (int p = 0; p < 8; p++)
        for (int e = 0; e < 32; e++)
            out->q[32 * p + e] = block[p / 4 * 32 + e] >> p % 4 * 2 & 3;
    set_whole(out, rn_load_u16(block + 64), 256);
}

// ---- codebooks ----------------------------------------------------------------------------------

const int8_t rn_tile_c2_values[16] = {1, 7, 9, 8, 25, 43, 0, 0, -1, -7, -9, -8, -25, -43, 0, 0};
const int8_t rn_tile_c3_values[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                      -4, -12, -20, -28, -36, -44, -52, -62};

// Where a number is in its form's table; most of C3's are 8 apart.
static uint8_t find_code(rn_tile_form form, int number) {
    const int8_t *values = form == RN_TILE_C2 ? rn_tile_c2_values : rn_tile_c3_values;
    int size = number < 0 ? -number : number, code = form == RN_TILE_C2 ? 0 : size / 8;
    while (code < 7 && values[code] != size)
        code++;
    return (uint8_t)(code | (number < 0 ? 8 : 0));
}

// Without a scale there are no numbers.
static bool clear_unscaled(uint16_t scale, rn_tile_row *out) {
    if ((scale & 0x7fff) != 0) return false;
    memset(out, 0, sizeof *out);
    return true;
}

// The file's f16 d stays: units are eighths of it (iq3_xxs: quarters), times an odd number.
static void read_codebook(rn_dtype dtype, const uint8_t *block, uint16_t scale, rn_tile_row *out) {
    rn_tile_form form = rn_tile_form_of(dtype);
    if (clear_unscaled(scale, out)) return;
    out->whole[0] = scale;
    for (int p = 0; p < RN_CODEBOOK_PARTS; p++) {
        rn_codebook_part from;
        rn_codebook_read(dtype, block, p, &from);
        for (int e = 0; e < 32; e++)
            out->q[32 * p + e] = find_code(form, from.q[e]);
        for (int i = 0; i < 2; i++)
            set_small(out, 2 * p + i, (form == RN_TILE_C3 ? 2 : 1) * from.scales[i]);
    }
}

#define READ_CODEBOOK(DTYPE, name)                                                                 \
    void rn_tile_read_##name(const uint8_t *block, uint32_t part, rn_tile_row *out) {              \
        (void)part;                                                                                \
        read_codebook(RN_DTYPE_##DTYPE, block, rn_codebook_scale(RN_DTYPE_##DTYPE, block), out);   \
    }
READ_CODEBOOK(IQ1_S, iq1_s)
READ_CODEBOOK(IQ1_M, iq1_m)
READ_CODEBOOK(IQ2_XXS, iq2_xxs)
READ_CODEBOOK(IQ2_XS, iq2_xs)
READ_CODEBOOK(IQ2_S, iq2_s)
READ_CODEBOOK(IQ3_XXS, iq3_xxs)

// -15, -13, .. 15: no table is needed.
void rn_tile_read_iq3_s(const uint8_t *block, uint32_t part, rn_tile_row *out) {
    float unit = rn_codebook_unit(RN_DTYPE_IQ3_S, block);
    (void)part;
    if (clear_unscaled(rn_load_u16(block), out)) return;
    for (int p = 0; p < RN_CODEBOOK_PARTS; p++) {
        rn_codebook_part from;
        rn_codebook_read(RN_DTYPE_IQ3_S, block, p, &from);
        for (int e = 0; e < 32; e++)
            out->q[32 * p + e] = (uint8_t)((from.q[e] + 15) / 2);
        float scale = unit * (float)from.scales[0]; // of both halves
        out->scales[p] = rn_f16_narrow(2 * scale);
        out->offsets[p] = rn_f16_narrow(-15 * scale);
    }
}
