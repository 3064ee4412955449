// tiles_pack.c — whole tiles, from 16 rows of a file.
//
// Whatever the form, what the four lanes of a row g hold is a square of 4 x 4 words, transposed:
// f16 has it at once, of rows g and g + 8 (A and B, words of two columns),
//
//     A0 A1 A2 A3 (columns 0..7)          lane 0:  A0 B0 A4 B4
//     B0 B1 B2 B3                   -->   lane 1:  A1 B1 A5 B5
//     A4 A5 A6 A7 (columns 8..15)         lane 2:  A2 B2 A6 B6
//     B4 B5 B6 B7                         lane 3:  A3 B3 A7 B7
//
// bytes after the pairs of A and B are laced, 4 bits after A and B are laid into the halves of a
// byte: then a word is a step, and the square is of four steps. The 64 bytes go out past the
// caches: a weight is packed once, and read by somebody else.
#include "tensor/tiles_internal.h"

#include "tensor/convert.h"
#include "tensor/small_float.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

typedef uint64_t long2 __attribute__((vector_size(16)));
typedef uint32_t word4 __attribute__((vector_size(16)));
typedef uint16_t half8 __attribute__((vector_size(16)));
typedef uint8_t byte16 __attribute__((vector_size(16)));

#define LOW  0x0f0f0f0fu
#define HIGH 0xf0f0f0f0u

// ---- words --------------------------------------------------------------------------------------

static inline word4 load(const uint8_t *from) {
    word4 words;
    memcpy(&words, from, sizeof words);
    return words;
}

static inline void stream(uint8_t *to, word4 words) {
#if defined(__SSE2__)
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)words);
#else
    memcpy(to, &words, sizeof words);
#endif
}

void rn_tile_pack_end(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

// Four lanes: lane t gets word t of each.
static inline void stream_lanes(uint8_t *to, word4 a, word4 b, word4 c, word4 d) {
    word4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    word4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    word4 AB = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    word4 CD = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    stream(to, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
    stream(to + 16, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
    stream(to + 32, __builtin_shufflevector(AB, CD, 0, 1, 4, 5));
    stream(to + 48, __builtin_shufflevector(AB, CD, 2, 3, 6, 7));
}

static inline word4 lace_halves_low(word4 a, word4 b) {
    return (word4)__builtin_shufflevector((half8)a, (half8)b, 0, 8, 1, 9, 2, 10, 3, 11);
}
static inline word4 lace_halves_high(word4 a, word4 b) {
    return (word4)__builtin_shufflevector((half8)a, (half8)b, 4, 12, 5, 13, 6, 14, 7, 15);
}
static inline word4 lace_bytes_low(word4 a, word4 b) {
    return (word4)__builtin_shufflevector((byte16)a, (byte16)b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,
                                          5, 21, 6, 22, 7, 23);
}
static inline word4 lace_bytes_high(word4 a, word4 b) {
    return (word4)__builtin_shufflevector((byte16)a, (byte16)b, 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                          28, 13, 29, 14, 30, 15, 31);
}

// ---- scales -------------------------------------------------------------------------------------

static inline uint64_t pair_at(const uint8_t *row, uint64_t eight_rows) {
    return rn_load_u16(row) | (uint64_t)rn_load_u16(row + eight_rows) << 16;
}

// Four f16 of each row, `block` bytes apart.
static inline void stream_scales(uint8_t *to, const uint8_t *from, uint64_t step, uint64_t block) {
    for (int g = 0; g < 8; g++, from += step, to += 16) {
        long2 lane = {pair_at(from, 8 * step) | pair_at(from + block, 8 * step) << 32,
                      pair_at(from + 2 * block, 8 * step) | pair_at(from + 3 * block, 8 * step)
                                                                << 32};
        stream(to, (word4)lane);
    }
}

// ---- 16 bits ------------------------------------------------------------------------------------

void rn_tile_pack_halves(const uint8_t *from, uint64_t step, uint8_t *to) {
    for (int s = 0; s < 8; s++, from += 32)
        for (int g = 0; g < 8; g++, to += 64) {
            const uint8_t *a = from + (uint64_t)g * step, *b = a + 8 * step;
            stream_lanes(to, load(a), load(b), load(a + 16), load(b + 16));
        }
}

// ---- 8 bits -------------------------------------------------------------------------------------

// 32 columns of 16 rows.
static inline void pack_bytes(const uint8_t *from, uint64_t step, uint8_t *to) {
    for (int g = 0; g < 8; g++, to += 64) {
        const uint8_t *a = from + (uint64_t)g * step, *b = a + 8 * step;
        word4 a0 = load(a) ^ 0x80808080u, a1 = load(a + 16) ^ 0x80808080u;
        word4 b0 = load(b) ^ 0x80808080u, b1 = load(b + 16) ^ 0x80808080u;
        stream_lanes(to, lace_halves_low(a0, b0), lace_halves_high(a0, b0), lace_halves_low(a1, b1),
                     lace_halves_high(a1, b1));
    }
}

void rn_tile_pack_int8(const uint8_t *from, uint64_t step, uint8_t *to) {
    for (int p = 0; p < 4; p++)
        pack_bytes(from + 32 * p, step, to + 512 * p);
}

void rn_tile_pack_q8_0(const uint8_t *from, uint64_t step, uint8_t *to) {
    for (int p = 0; p < 4; p++)
        pack_bytes(from + 34 * p + 2, step, to + 512 * p);
    stream_scales(to + 2048, from, step, 34);
}

// 32 values of 6 bits, less 32: quarter `k` of a half of a block.
static inline void join_q6_k(const uint8_t *nibbles, const uint8_t *upper, int k, int8_t *out) {
    for (int e = 0; e < 32; e += 16) {
        word4 low = load(nibbles + k % 2 * 32 + e) >> k / 2 * 4 & LOW;
        word4 high = load(upper + e) >> 2 * k & 0x03030303u;
        byte16 q = (byte16)(low | high << 4) - 32;
        memcpy(out + e, &q, sizeof q);
    }
}

// Scales are exact before they are rounded. A block of zeros, which is no row, has values of zero.
void rn_tile_q6_k_bytes(const uint8_t *block, int8_t out_q[256], uint16_t out_scales[16]) {
    float scale = rn_f16_widen(rn_load_u16(block + 208)), scales[16];
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 4; k++)
            join_q6_k(block + 64 * half, block + 128 + 32 * half, k, out_q + 128 * half + 32 * k);
    if (scale == 0) memset(out_q, 0, 256);
    for (int part = 0; part < 16; part++)
        scales[part] = scale * (float)(int8_t)block[192 + part];
    rn_convert_kernels_get()->narrow_f16(scales, out_scales, 16);
}

void rn_tile_pack_q6_k(const uint8_t *from, uint64_t step, uint8_t *to) {
    enum { TILE = 2304, QUANTS = 2048 };
    int8_t q[16][256];
    uint16_t scales[16][16];
    for (int r = 0; r < 16; r++)
        rn_tile_q6_k_bytes(from + (uint64_t)r * step, q[r], scales[r]);
    for (int half = 0; half < 2; half++, to += TILE) {
        const uint8_t *first = (const uint8_t *)scales + 16 * half;
        rn_tile_pack_int8((const uint8_t *)q + 128 * half, sizeof q[0], to);
        stream_scales(to + QUANTS, first, sizeof scales[0], 4);
        stream_scales(to + QUANTS + RN_TILE_SCALES_BYTES, first + 2, sizeof scales[0], 4);
    }
}

// ---- 4 bits -------------------------------------------------------------------------------------

// 16 columns, a byte each: A in the low half, B in the high one.
static inline word4 join_low(word4 a, word4 b) {
    return (a & LOW) | (b << 4 & HIGH);
}
static inline word4 join_high(word4 a, word4 b) {
    return (a >> 4 & LOW) | (b & HIGH);
}
// Their four words: of columns 2t, 2t + 8, 2t + 1, 2t + 9.
static inline word4 order_step(word4 columns) {
    return lace_bytes_low(columns, __builtin_shufflevector(columns, columns, 2, 3, 2, 3));
}

// 64 columns: where steps come from, in bytes of the row; high: whether they are in high halves.
typedef struct nibble_steps {
    int at[4];
    bool high[4];
} nibble_steps;

static inline word4 join_step(const uint8_t *a, const uint8_t *b, int at, bool high) {
    word4 x = load(a + at), y = load(b + at);
    return order_step(high ? join_high(x, y) : join_low(x, y));
}

static inline __attribute__((always_inline)) void pack_nibbles(const uint8_t *from, uint64_t step,
                                                               const nibble_steps s, uint8_t *to) {
    for (int g = 0; g < 8; g++, to += 64) {
        const uint8_t *a = from + (uint64_t)g * step, *b = a + 8 * step;
        stream_lanes(to, join_step(a, b, s.at[0], s.high[0]), join_step(a, b, s.at[1], s.high[1]),
                     join_step(a, b, s.at[2], s.high[2]), join_step(a, b, s.at[3], s.high[3]));
    }
}

void rn_tile_pack_q4_0(const uint8_t *from, uint64_t step, uint8_t *to) {
    const nibble_steps steps = {{2, 2, 20, 20}, {false, true, false, true}};
    pack_nibbles(from, step, steps, to);
    pack_nibbles(from + 36, step, steps, to + 512);
    stream_scales(to + 1024, from, step, 18);
}

void rn_tile_q4_k_scales(const uint8_t *block, float out[16]) {
    float scale = rn_f16_widen(rn_load_u16(block)), offset = rn_f16_widen(rn_load_u16(block + 2));
    uint32_t w[3], bits[4]; // twelve bytes; eight scales and eight offsets of 6 bits
    memcpy(w, block + 4, sizeof w);
    bits[0] = w[0] & 0x3f3f3f3f;
    bits[1] = (w[2] & LOW) | (w[0] >> 6 & 0x03030303) << 4;
    bits[2] = w[1] & 0x3f3f3f3f;
    bits[3] = (w[2] >> 4 & LOW) | (w[1] >> 6 & 0x03030303) << 4;
    uint8_t bytes[16];
    memcpy(bytes, bits, sizeof bytes);
    for (int i = 0; i < 8; i++) {
        out[i] = scale * (float)bytes[i];
        out[8 + i] = 0.0f - offset * (float)bytes[8 + i]; // no offset stays +0
    }
}

void rn_tile_pack_q4_k(const uint8_t *from, uint64_t step, uint8_t *to) {
    enum { TILE = 1280, QUANTS = 1024 };
    const nibble_steps steps = {{0, 16, 0, 16}, {false, false, true, true}};
    float floats[16][16];
    uint16_t scales[16][16]; // of each row: 8 scales, 8 offsets
    for (int r = 0; r < 16; r++)
        rn_tile_q4_k_scales(from + (uint64_t)r * step, floats[r]);
    rn_convert_kernels_get()->narrow_f16(floats[0], scales, 256);
    for (int half = 0; half < 2; half++, to += TILE) {
        const uint8_t *first = (const uint8_t *)scales + 8 * half;
        pack_nibbles(from + 16 + 64 * half, step, steps, to);
        pack_nibbles(from + 48 + 64 * half, step, steps, to + 512);
        stream_scales(to + QUANTS, first, sizeof scales[0], 2);
        stream_scales(to + QUANTS + RN_TILE_SCALES_BYTES, first + 16, sizeof scales[0], 2);
    }
}

void rn_tile_pack_int4_low(const uint8_t *from, uint64_t step, uint8_t *to) {
    const nibble_steps steps = {{0, 16, 32, 48}, {false, false, false, false}};
    pack_nibbles(from, step, steps, to);
    pack_nibbles(from + 64, step, steps, to + 512);
}

void rn_tile_pack_int4_high(const uint8_t *from, uint64_t step, uint8_t *to) {
    const nibble_steps steps = {{0, 16, 32, 48}, {true, true, true, true}};
    pack_nibbles(from, step, steps, to);
    pack_nibbles(from + 64, step, steps, to + 512);
}

// nf4 has even columns in high halves, odd ones in low halves: 16 bytes are two steps, and byte t
// of the even ones goes beside byte t + 4.
static inline void join_nf4(const uint8_t *from_a, const uint8_t *from_b, word4 out[2]) {
    word4 a = load(from_a), b = load(from_b);
    word4 even = join_high(a, b), odd = join_low(a, b);
    word4 even4 = (word4)((long2)even >> 32), odd4 = (word4)((long2)odd >> 32);
    out[0] = lace_halves_low(lace_bytes_low(even, even4), lace_bytes_low(odd, odd4));
    out[1] = lace_halves_low(lace_bytes_high(even, even4), lace_bytes_high(odd, odd4));
}

void rn_tile_pack_nf4(const uint8_t *from, uint64_t step, uint8_t *to) {
    for (int p = 0; p < 2; p++, from += 32)
        for (int g = 0; g < 8; g++, to += 64) {
            const uint8_t *a = from + (uint64_t)g * step, *b = a + 8 * step;
            word4 s[4];
            join_nf4(a, b, s);
            join_nf4(a + 16, b + 16, s + 2);
            stream_lanes(to, s[0], s[1], s[2], s[3]);
        }
}
