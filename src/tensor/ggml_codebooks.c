// ggml_codebooks.c — reading parts of ggml's codebook kinds, and widening whole superblocks.
//
//     iq2_xxs  scale f16 | 8 x (4 indices of 8 bits | 4 x 7 signs, 4-bit scale)
//     iq2_xs   scale f16 | 32 x (index of 9 bits, 7 signs) | 16 4-bit scales
//     iq2_s    scale f16 | 32 lower bytes of indices | 32 x 8 signs | 32 x 2 upper bits | 16 scales
//     iq3_xxs  scale f16 | 64 indices of 8 bits | 8 x (4 x 7 signs, 4-bit scale)
//     iq3_s    scale f16 | 64 lower bytes | 64 upper bits | 32 x 8 signs | 8 4-bit scales
//     iq1_s    scale f16 | 32 lower bytes | 8 x (4 x 3 upper bits, 3-bit scale, offset's sign)
//     iq1_m    32 lower bytes | 32 x (3 upper bits, offset's sign) | 4 x (4 3-bit scales, a quarter
//              of the scale f16)
//
// An index is of 8 numbers (iq3: of 4). The eighth of seven signs is such that an even number of
// the eight is set. iq1 has an offset of an eighth instead of signs: -1, 0 or 1, plus or minus 1/8,
// so that eight times a number is whole.
#include "tensor/ggml_codebooks.h"

#include "tensor/ggml_blocks.h"
#include "tensor/small_float.h"

static uint32_t load_u32(const uint8_t *from) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

// ---- numbers ------------------------------------------------------------------------------------

// Eight numbers of a codebook, negative where their bit of `signs` is set.
static void put_signed(uint64_t entry, unsigned signs, int8_t *out) {
    for (int i = 0; i < 8; i++) {
        int number = (int)(entry >> 8 * i & 0xff);
        out[i] = (int8_t)(signs >> i & 1 ? -number : number);
    }
}

static unsigned all_signs(unsigned seven) {
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

// Eight times the numbers: `offset` is 1 or -1, an eighth.
static void put_shifted(uint64_t entry, int offset, int8_t *out) {
    for (int i = 0; i < 8; i++)
        out[i] = (int8_t)((int)(entry >> 8 * i & 0xff) - 8 + offset);
}

static uint64_t join_fours(uint32_t first, uint32_t second) {
    return first | (uint64_t)second << 32;
}

static int32_t odd(unsigned scale) {
    return (int32_t)(2 * scale + 1);
}

// ---- parts --------------------------------------------------------------------------------------

static void read_iq2_xxs(const uint8_t *super, int part, rn_codebook_part *out) {
    const uint8_t *indices = super + 2 + part * 8;
    uint32_t rest = load_u32(indices + 4);
    for (int i = 0; i < 4; i++)
        put_signed(rn_codebook_iq2_xxs[indices[i]], all_signs(rest >> 7 * i & 127), out->q + 8 * i);
    out->scales[0] = out->scales[1] = odd(rest >> 28);
}

static void read_iq2_xs(const uint8_t *super, int part, rn_codebook_part *out) {
    unsigned scales = super[66 + part];
    for (int i = 0; i < 4; i++) {
        unsigned code = rn_load_u16(super + 2 + part * 8 + 2 * i);
        put_signed(rn_codebook_iq2_xs[code & 511], all_signs(code >> 9), out->q + 8 * i);
    }
    out->scales[0] = odd(scales & 15);
    out->scales[1] = odd(scales >> 4);
}

static void read_iq2_s(const uint8_t *super, int part, rn_codebook_part *out) {
    const uint8_t *lower = super + 2 + part * 4, *signs = lower + 32;
    unsigned upper = super[66 + part], scales = super[74 + part];
    for (int i = 0; i < 4; i++)
        put_signed(rn_codebook_iq2_s[lower[i] | (upper >> 2 * i & 3) << 8], signs[i],
                   out->q + 8 * i);
    out->scales[0] = odd(scales & 15);
    out->scales[1] = odd(scales >> 4);
}

static void read_iq3_xxs(const uint8_t *super, int part, rn_codebook_part *out) {
    const uint8_t *indices = super + 2 + part * 8;
    uint32_t rest = load_u32(super + 66 + part * 4);
    for (int i = 0; i < 4; i++) {
        uint64_t entry = join_fours(rn_codebook_iq3_xxs[indices[2 * i]],
                                    rn_codebook_iq3_xxs[indices[2 * i + 1]]);
        put_signed(entry, all_signs(rest >> 7 * i & 127), out->q + 8 * i);
    }
    out->scales[0] = out->scales[1] = odd(rest >> 28);
}

static void read_iq3_s(const uint8_t *super, int part, rn_codebook_part *out) {
    const uint8_t *lower = super + 2 + part * 8, *signs = super + 74 + part * 4;
    unsigned upper = super[66 + part], scales = super[106 + part / 2];
    for (int i = 0; i < 4; i++) {
        uint32_t first = rn_codebook_iq3_s[lower[2 * i] | (upper >> 2 * i & 1) << 8];
        uint32_t second = rn_codebook_iq3_s[lower[2 * i + 1] | (upper >> (2 * i + 1) & 1) << 8];
        put_signed(join_fours(first, second), signs[i], out->q + 8 * i);
    }
    out->scales[0] = out->scales[1] = odd(scales >> part % 2 * 4 & 15);
}

static void read_iq1_s(const uint8_t *super, int part, rn_codebook_part *out) {
    const uint8_t *lower = super + 2 + part * 4;
    unsigned rest = rn_load_u16(super + 34 + part * 2);
    for (int i = 0; i < 4; i++)
        put_shifted(rn_codebook_iq1[lower[i] | (rest >> 3 * i & 7) << 8], rest >> 15 ? -1 : 1,
                    out->q + 8 * i);
    out->scales[0] = out->scales[1] = odd(rest >> 12 & 7);
}

static void read_iq1_m(const uint8_t *super, int part, rn_codebook_part *out) {
    const uint8_t *lower = super + part * 4, *upper = super + 32 + part * 2;
    unsigned scales = rn_load_u16(super + 48 + part / 2 * 2) >> part % 2 * 6;
    for (int i = 0; i < 4; i++) {
        unsigned nibble = upper[i / 2] >> i % 2 * 4;
        put_shifted(rn_codebook_iq1[lower[i] | (nibble & 7) << 8], nibble & 8 ? -1 : 1,
                    out->q + 8 * i);
    }
    out->scales[0] = odd(scales & 7);
    out->scales[1] = odd(scales >> 3 & 7);
}

// ---- kinds --------------------------------------------------------------------------------------

typedef struct codebook {
    void (*read)(const uint8_t *super, int part, rn_codebook_part *out);
    float unit; // times the f16 scale
} codebook;

static const codebook codebooks[RN_DTYPE_COUNT] = {
    [RN_DTYPE_IQ2_XXS] = {read_iq2_xxs, 0.125f}, [RN_DTYPE_IQ2_XS] = {read_iq2_xs, 0.125f},
    [RN_DTYPE_IQ2_S] = {read_iq2_s, 0.125f},     [RN_DTYPE_IQ3_XXS] = {read_iq3_xxs, 0.25f},
    [RN_DTYPE_IQ3_S] = {read_iq3_s, 1},          [RN_DTYPE_IQ1_S] = {read_iq1_s, 0.125f},
    [RN_DTYPE_IQ1_M] = {read_iq1_m, 0.125f},
};

bool rn_codebook_is(rn_dtype dtype) {
    return (unsigned)dtype < RN_DTYPE_COUNT && codebooks[dtype].read;
}

// iq1_m keeps four bits of its scale above each four of the others.
static uint16_t iq1_m_scale(const uint8_t *super) {
    unsigned scale = 0;
    for (int i = 0; i < 4; i++)
        scale |= (unsigned)(rn_load_u16(super + 48 + 2 * i) >> 12) << 4 * i;
    return (uint16_t)scale;
}

uint16_t rn_codebook_scale(rn_dtype dtype, const uint8_t *super) {
    return dtype == RN_DTYPE_IQ1_M ? iq1_m_scale(super) : rn_load_u16(super);
}

float rn_codebook_unit(rn_dtype dtype, const uint8_t *super) {
    return rn_f16_widen(rn_codebook_scale(dtype, super)) * codebooks[dtype].unit;
}

void rn_codebook_read(rn_dtype dtype, const uint8_t *super, int part, rn_codebook_part *out) {
    codebooks[dtype].read(super, part, out);
}

// ---- widening -----------------------------------------------------------------------------------

static void widen(rn_dtype dtype, const uint8_t *super, float *target, uint64_t blocks) {
    uint32_t bytes = rn_dtype_get(dtype)->block_bytes;
    for (; blocks > 0; blocks--, super += bytes) {
        float unit = rn_codebook_unit(dtype, super);
        for (int part = 0; part < RN_CODEBOOK_PARTS; part++, target += 32) {
            rn_codebook_part p;
            rn_codebook_read(dtype, super, part, &p);
            for (int i = 0; i < 32; i++)
                target[i] = unit * (float)p.scales[i / 16] * (float)p.q[i];
        }
    }
}

#define WIDEN(DTYPE, name)                                                                         \
    void rn_ggml_widen_##name(const void *source, float *target, uint64_t blocks) {                \
        widen(RN_DTYPE_##DTYPE, source, target, blocks);                                           \
    }
WIDEN(IQ1_S, iq1_s)
WIDEN(IQ1_M, iq1_m)
WIDEN(IQ2_XXS, iq2_xxs)
WIDEN(IQ2_XS, iq2_xs)
WIDEN(IQ2_S, iq2_s)
WIDEN(IQ3_XXS, iq3_xxs)
WIDEN(IQ3_S, iq3_s)
