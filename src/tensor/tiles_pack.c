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

void rn_tile_pack_e5m2(const uint8_t *from, uint64_t step, uint8_t *to) {
    uint8_t halves[RN_TILE_ROWS][2 * RN_TILE_COLS] = {{0}}; // e5m2 is the upper half of f16
    for (uint64_t r = 0; r < RN_TILE_ROWS; r++)
        for (int c = 0; c < RN_TILE_COLS; c++)
            halves[r][2 * c + 1] = from[r * step + (uint64_t)c];
    rn_tile_pack_halves(halves[0], sizeof halves[0], to);
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

// nf4 has even columns in high halves, odd ones in low halves, of pairs that stay together: 16
// bytes are two steps, whose words are the bytes t of A and B, then t + 4 of A and B.
static inline void join_nf4(const uint8_t *from_a, const uint8_t *from_b, word4 out[2]) {
    word4 a = load(from_a), b = load(from_b);
    a = (a >> 4 & LOW) | (a << 4 & HIGH);
    b = (b >> 4 & LOW) | (b << 4 & HIGH);
    for (int s = 0; s < 2; s++) {
        word4 both = s ? lace_bytes_high(a, b) : lace_bytes_low(a, b);
        out[s] = lace_halves_low(both, __builtin_shufflevector(both, both, 2, 3, 2, 3));
    }
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

// ---- numbers of any bits, a byte each -----------------------------------------------------------

// The pairs a[2i], a[2i+1] of the four lanes of row g in one step: in each word the first number in
// its low half, the second in its high one.
typedef struct step_pairs {
    word4 of[4];
} step_pairs;

static inline step_pairs read_pairs(const uint8_t *a, const uint8_t *b) {
    const word4 zero = {0}, x = load(a), y = load(b);
    step_pairs p = {{lace_halves_low(x, zero), lace_halves_low(y, zero), lace_halves_high(x, zero),
                     lace_halves_high(y, zero)}};
    for (int i = 0; i < 4; i++)
        p.of[i] = (p.of[i] | p.of[i] << 8) & 0x00ff00ffu;
    return p;
}

static word4 join_nibbles(const step_pairs *p) {
    word4 out = {0};
    for (int i = 0; i < 4; i++)
        out |= (p->of[i] & 0x000f000fu) << 4 * i;
    return out;
}

static word4 join_pairs(const step_pairs *p) {
    word4 out = {0};
    for (int i = 0; i < 4; i++)
        out |= ((p->of[i] | p->of[i] >> 12) & 0xffu) << 8 * i;
    return out;
}

// Bits `from` and from + 1 of step `s`, and bit `from`.
static word4 join_crumbs(const step_pairs *p, uint32_t from, uint32_t s) {
    word4 out = {0};
    for (uint32_t i = 0; i < 4; i++)
        out |= (p->of[i] >> from & 0x00030003u) << (s % 2 * 8 + i % 2 * 4 + i / 2 * 2);
    return out;
}

static word4 join_bits(const step_pairs *p, uint32_t from, uint32_t s) {
    word4 out = {0};
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = s % 4 * 2 + i / 2;
        out |= (p->of[i] >> from & 0x00010001u) << (n / 4 * 8 + n % 4 + i % 2 * 4);
    }
    return out;
}

// Two words a step: of pairs 0 and 1, and of 2 and 3.
static void put_byte_plane(const step_pairs p[8], int g, uint8_t *to) {
    for (uint32_t s = 0; s < 8; s += 2) {
        word4 w[4];
        for (uint32_t i = 0; i < 4; i++) {
            const word4 *pairs = p[s + i / 2].of + i % 2 * 2;
            word4 two = (pairs[0] & 0xffu) | (pairs[0] >> 8 & 0xff00u);
            w[i] = two | (pairs[1] & 0xffu) << 16 | (pairs[1] << 8 & 0xff000000u);
        }
        stream_lanes(to + 512 * (s / 2) + 64 * g, w[0], w[1], w[2], w[3]);
    }
}

// The words of row g's lanes in plane `plane`: one for 1, 2 or 4 steps.
static void put_plane(rn_tile_plane plane, const step_pairs p[8], uint32_t from, int g,
                      uint8_t *to) {
    word4 w[8] = {{0}};
    for (uint32_t s = 0; s < 8; s++) {
        if (plane == RN_PLANE_NIBBLES) w[s] = join_nibbles(&p[s]);
        if (plane == RN_PLANE_PAIRS) w[s] = join_pairs(&p[s]);
        if (plane == RN_PLANE_CRUMBS) w[s / 2] |= join_crumbs(&p[s], from, s);
        if (plane == RN_PLANE_BITS) w[s / 4] |= join_bits(&p[s], from, s);
    }
    if (plane == RN_PLANE_BITS) {
        stream(to + 32 * g, __builtin_shufflevector(w[0], w[1], 0, 4, 1, 5));
        stream(to + 32 * g + 16, __builtin_shufflevector(w[0], w[1], 2, 6, 3, 7));
        return;
    }
    stream_lanes(to + 64 * g, w[0], w[1], w[2], w[3]);
    if (plane != RN_PLANE_CRUMBS) stream_lanes(to + 512 + 64 * g, w[4], w[5], w[6], w[7]);
}

static void put_small(const rn_tile_row rows[16], uint32_t col, uint32_t wholes, uint8_t *to) {
    uint8_t all[RN_TILE_SCALES_BYTES + 2 * RN_TILE_ROWS * 2] __attribute__((aligned(16)));
    for (uint32_t r = 0; r < RN_TILE_ROWS; r++) {
        for (uint32_t c = 0; c < RN_TILE_COLS; c += 16)
            all[rn_tile_small_at(r, c)] = rows[r].small[(col + c) / 16];
        for (uint32_t i = 0; i < wholes; i++)
            rn_store_u16(all + rn_tile_whole_at(r, i, wholes), rows[r].whole[i]);
    }
    for (uint32_t at = 0; at < RN_TILE_SCALES_BYTES + wholes * RN_TILE_ROWS * 2; at += 16)
        stream(to + at, load(all + at));
}

void rn_tile_pack_rows(rn_tile_form form, const rn_tile_row rows[16], uint32_t col, uint8_t *to) {
    const rn_tile_planes *planes = rn_tile_planes_of(form);
    uint32_t low = rn_tile_plane_bytes(planes->low);
    for (int g = 0; g < 8; g++) {
        step_pairs p[8];
        for (uint32_t s = 0; s < 8; s++)
            p[s] = read_pairs(rows[g].q + col + 16 * s, rows[g + 8].q + col + 16 * s);
        if (planes->low == RN_PLANE_BYTES)
            put_byte_plane(p, g, to);
        else
            put_plane(planes->low, p, 0, g, to);
        if (planes->high) put_plane(planes->high, p, planes->high_from, g, to + low);
    }
    to += rn_tile_quants_bytes(form);
    const uint8_t *scales = (const uint8_t *)&rows[0].scales[col / 32];
    const uint8_t *offsets = (const uint8_t *)&rows[0].offsets[col / 32];
    if (planes->wholes) {
        put_small(rows, col, planes->wholes, to);
        return;
    }
    stream_scales(to, scales, sizeof rows[0], 2);
    if (planes->scales > 1) stream_scales(to + RN_TILE_SCALES_BYTES, offsets, sizeof rows[0], 2);
}
