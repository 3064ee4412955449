// row_one_vector.h — one row of x by eight rows of a codebook kind, without a tile between, in the
// words that the including file defines:
//
//     dot(w, x)                  eight sums of four products each, w unsigned bytes up to 62
//     dot_signed(w, x, signs)    the same, x negated where its bit of 32 is set
//
// A superblock is eight parts of 32 numbers, and what its parts have in common is made for all of
// them in one vector: indices, signs, scales. Entries of a codebook have no signs, so that those go
// to x; iq1's are 7 or 9 too large, which is taken from a part's sum. The eight parts' results of a
// row are a vector; those of eight rows are transposed, and added part by part as
// graph/quantized_product.h has it. An entry is loaded into all lanes and blended: no gather, which
// is slow on many machines.
#include "backend/cpu/row_product.h"

#include "tensor/ggml_codebooks.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

enum { PARTS = RN_CODEBOOK_PARTS };

// What the parts of a superblock have.
typedef struct common {
    uint16_t codes[64];    // of entries, where they are put together
    uint32_t signs[PARTS]; // where they are
    __m256 scales[2];      // (parts) of the first half of each, of the second: without the unit
    __m256i offset[2];     // iq1: what entries of both eights are above their number, 16 bits each
} common;

INLINE __m256i load(const void *from) {
    return _mm256_loadu_si256((const __m256i *)from);
}

INLINE void store(void *to, __m256i a) {
    _mm256_storeu_si256((__m256i *)to, a);
}

INLINE __m256 odd(__m256i scales) {
    return _mm256_cvtepi32_ps(
        _mm256_add_epi32(_mm256_add_epi32(scales, scales), _mm256_set1_epi32(1)));
}

// ---- signs --------------------------------------------------------------------------------------

// Bytes of seven signs get the eighth, which makes their number even.
INLINE __m256i even_signs(__m256i sevens) {
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i lower = _mm256_shuffle_epi8(parity, _mm256_and_si256(sevens, low));
    __m256i upper =
        _mm256_shuffle_epi8(parity, _mm256_and_si256(_mm256_srli_epi16(sevens, 4), low));
    return _mm256_or_si256(sevens, _mm256_xor_si256(lower, upper));
}

// Words of four times seven signs and a scale of four bits.
INLINE void read_sevens(__m256i words, common *out) {
    __m256i s = _mm256_and_si256(words, _mm256_set1_epi32(127));
    UNROLL
    for (int i = 1; i < 4; i++)
        s = _mm256_or_si256(
            s, _mm256_and_si256(_mm256_slli_epi32(words, i), _mm256_set1_epi32(127 << 8 * i)));
    store(out->signs, even_signs(s));
    out->scales[0] = out->scales[1] = odd(_mm256_srli_epi32(words, 28));
}

// ---- kinds --------------------------------------------------------------------------------------

// Even and odd words of 16, in their order.
INLINE __m256i words_of(__m256i first, __m256i second, bool odd_ones) {
    __m256 a = _mm256_castsi256_ps(first), b = _mm256_castsi256_ps(second);
    __m256 some = odd_ones ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(some), 0xd8);
}

// A byte a part: the scale of its first half, of its second.
INLINE void read_two_scales(const uint8_t *from, common *out) {
    __m256i both = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from));
    out->scales[0] = odd(_mm256_and_si256(both, _mm256_set1_epi32(15)));
    out->scales[1] = odd(_mm256_srli_epi32(both, 4));
}

INLINE __m256i widen_bytes(const uint8_t *from) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
}

INLINE void read_iq2_xs(const uint8_t *super, common *out) {
    __m256i first = load(super + 2), second = load(super + 34), nine = _mm256_set1_epi16(511);
    store(out->codes, _mm256_and_si256(first, nine));
    store(out->codes + 16, _mm256_and_si256(second, nine));
    __m256i sevens = _mm256_packus_epi16(_mm256_srli_epi16(first, 9), _mm256_srli_epi16(second, 9));
    store(out->signs, even_signs(_mm256_permute4x64_epi64(sevens, 0xd8)));
    read_two_scales(super + 66, out);
}

// Two upper bits a code, in a byte a part.
INLINE void read_iq2_s(const uint8_t *super, common *out) {
    const __m256i spread = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1,
                                            2, -1, 2, -1, 2, -1, 2, -1, 3, -1, 3, -1, 3, -1, 3, -1);
    const __m256i places = _mm256_set1_epi64x(0x0004001000400100);
    UNROLL
    for (int i = 0; i < 2; i++) {
        int word;
        memcpy(&word, super + 66 + 4 * i, sizeof word);
        __m256i up = _mm256_shuffle_epi8(_mm256_set1_epi32(word), spread);
        up = _mm256_and_si256(_mm256_mullo_epi16(up, places), _mm256_set1_epi16(0x300));
        store(out->codes + 16 * i, _mm256_or_si256(widen_bytes(super + 2 + 16 * i), up));
    }
    store(out->signs, load(super + 34));
    read_two_scales(super + 74, out);
}

// The ninth bit of eight codes in a byte a part.
INLINE void read_iq3_s(const uint8_t *super, common *out) {
    const __m256i spread = _mm256_setr_epi64x(0, 0, 0x0101010101010101, 0x0101010101010101);
    const __m256i bits =
        _mm256_broadcastsi128_si256(_mm_setr_epi16(0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80));
    UNROLL
    for (int i = 0; i < 4; i++) {
        int16_t two;
        memcpy(&two, super + 66 + 2 * i, sizeof two);
        __m256i up = _mm256_shuffle_epi8(_mm256_set1_epi16(two), spread);
        up = _mm256_cmpeq_epi16(_mm256_and_si256(up, bits), bits);
        up = _mm256_and_si256(up, _mm256_set1_epi16(0x100));
        store(out->codes + 16 * i, _mm256_or_si256(widen_bytes(super + 2 + 16 * i), up));
    }
    store(out->signs, load(super + 74));
    int word;
    memcpy(&word, super + 106, sizeof word);
    __m256i scales =
        _mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    out->scales[0] = out->scales[1] = odd(_mm256_and_si256(scales, _mm256_set1_epi32(15)));
}

// A word of 16 bits a part: four times three upper bits, a scale, whether entries are 9 above.
INLINE void read_iq1_s(const uint8_t *super, common *out) {
    const __m256i spread = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 5, 4,
                                            5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
    const __m256i places = _mm256_set1_epi64x(0x0000000400200100);
    __m128i words = _mm_loadu_si128((const __m128i *)(const void *)(super + 34));
    __m256i parts = _mm256_cvtepu16_epi32(words);
    UNROLL
    for (int i = 0; i < 2; i++) { // sixteen codes of four parts
        __m256i four = _mm256_broadcastq_epi64(i ? _mm_unpackhi_epi64(words, words) : words);
        four = _mm256_shuffle_epi8(four, spread);
        __m256i up =
            _mm256_blend_epi16(_mm256_mullo_epi16(four, places), _mm256_srli_epi16(four, 1), 0x88);
        up = _mm256_and_si256(up, _mm256_set1_epi16(0x700));
        store(out->codes + 16 * i, _mm256_or_si256(widen_bytes(super + 2 + 16 * i), up));
    }
    __m256i scales = _mm256_and_si256(_mm256_srli_epi32(parts, 12), _mm256_set1_epi32(7));
    out->scales[0] = out->scales[1] = odd(scales);
    __m256i two_more = _mm256_slli_epi32(_mm256_srli_epi32(parts, 15), 1);
    two_more = _mm256_or_si256(two_more, _mm256_slli_epi32(two_more, 16));
    out->offset[0] = out->offset[1] = _mm256_add_epi16(two_more, _mm256_set1_epi16(7));
}

// A nibble a code: three upper bits, whether entries are 9 above. Two times two scales of three
// bits are in a word of 16.
INLINE void read_iq1_m(const uint8_t *super, common *out) {
    const __m128i low = _mm_set1_epi8(15);
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(super + 32));
    __m128i even = _mm_and_si128(bytes, low), high = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
    __m256i nibbles[2] = {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(even, high)),
                          _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(even, high))};
    __m256i offset[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
        __m256i up = _mm256_slli_epi16(_mm256_and_si256(nibbles[i], _mm256_set1_epi16(7)), 8);
        store(out->codes + 16 * i, _mm256_or_si256(widen_bytes(super + 16 * i), up));
        offset[i] = _mm256_add_epi16(_mm256_slli_epi16(_mm256_srli_epi16(nibbles[i], 3), 1),
                                     _mm256_set1_epi16(7));
    }
    out->offset[0] = words_of(offset[0], offset[1], false);
    out->offset[1] = words_of(offset[0], offset[1], true);
    __m256i words =
        _mm256_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(super + 48)));
    words = _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    words = _mm256_srlv_epi32(words, _mm256_setr_epi32(0, 6, 0, 6, 0, 6, 0, 6));
    out->scales[0] = odd(_mm256_and_si256(words, _mm256_set1_epi32(7)));
    out->scales[1] = odd(_mm256_and_si256(_mm256_srli_epi32(words, 3), _mm256_set1_epi32(7)));
}

INLINE void read_common(rn_dtype dtype, const uint8_t *super, common *out) {
    switch (dtype) {
    case RN_DTYPE_IQ2_XXS:
        read_sevens(words_of(load(super + 2), load(super + 34), true), out);
        break;
    case RN_DTYPE_IQ2_XS:
        read_iq2_xs(super, out);
        break;
    case RN_DTYPE_IQ2_S:
        read_iq2_s(super, out);
        break;
    case RN_DTYPE_IQ3_XXS:
        read_sevens(load(super + 66), out);
        break;
    case RN_DTYPE_IQ3_S:
        read_iq3_s(super, out);
        break;
    case RN_DTYPE_IQ1_S:
        read_iq1_s(super, out);
        break;
    default:
        read_iq1_m(super, out);
    }
    // They are read from memory, one by one: compilers would cut them out of vectors.
    __asm__("" : "+m"(out->codes), "+m"(out->signs));
}

// ---- entries ------------------------------------------------------------------------------------

INLINE __m256i in_all(uint64_t eight) {
    return _mm256_set1_epi64x((long long)eight);
}

INLINE __m256i join_eights(__m256i a, __m256i b, __m256i c, __m256i d) {
    return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x0c), _mm256_blend_epi32(c, d, 0xc0), 0xf0);
}

#define EIGHT(book, codes)                                                                         \
    join_eights(in_all((book)[(codes)[0]]), in_all((book)[(codes)[1]]),                            \
                in_all((book)[(codes)[2]]), in_all((book)[(codes)[3]]))

// Two fours in every second word each.
INLINE __m256i in_turns(uint32_t a, uint32_t b) {
    return _mm256_blend_epi32(_mm256_set1_epi32((int)a), _mm256_set1_epi32((int)b), 0xaa);
}

#define FOURS(book, codes)                                                                         \
    join_eights(in_turns((book)[(codes)[0]], (book)[(codes)[1]]),                                  \
                in_turns((book)[(codes)[2]], (book)[(codes)[3]]),                                  \
                in_turns((book)[(codes)[4]], (book)[(codes)[5]]),                                  \
                in_turns((book)[(codes)[6]], (book)[(codes)[7]]))

// The 32 bytes of a part.
INLINE __m256i entries(rn_dtype dtype, const uint8_t *super, const common *c, int part) {
    const uint8_t *bytes = super + 2 + part * 8;
    switch (dtype) {
    case RN_DTYPE_IQ2_XXS:
        return EIGHT(rn_codebook_iq2_xxs, bytes);
    case RN_DTYPE_IQ2_XS:
        return EIGHT(rn_codebook_iq2_xs, c->codes + part * 4);
    case RN_DTYPE_IQ2_S:
        return EIGHT(rn_codebook_iq2_s, c->codes + part * 4);
    case RN_DTYPE_IQ3_XXS:
        return FOURS(rn_codebook_iq3_xxs, bytes);
    case RN_DTYPE_IQ3_S:
        return FOURS(rn_codebook_iq3_s, c->codes + part * 8);
    default:
        return EIGHT(rn_codebook_iq1, c->codes + part * 4);
    }
}

// ---- sums ---------------------------------------------------------------------------------------

// Lane i of the results: what the lower four lanes of s[i] add up to, what the upper do.
INLINE void add_neighbours(const __m256i s[8], __m256i *lower, __m256i *upper) {
    __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(s[4], s[5]), _mm256_hadd_epi32(s[6], s[7]));
    *lower = _mm256_permute2x128_si256(low, high, 0x20);
    *upper = _mm256_permute2x128_si256(low, high, 0x31);
}

// Sums of eights of x, for iq1's offsets: two of 16 bits a part; of its first half, of its second.
INLINE void sum_eights(const int8_t *x, __m256i out[2]) {
    const __m256i one = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
    __m256i four[2];
    for (int i = 0; i < 2; i++) {
        __m256i s[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            s[j] = _mm256_madd_epi16(_mm256_maddubs_epi16(one, load(x + 32 * (4 * i + j))), ones);
        four[i] = _mm256_packs_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    }
    out[0] = _mm256_permute2x128_si256(four[0], four[1], 0x20);
    out[1] = _mm256_permute2x128_si256(four[0], four[1], 0x31);
}

// rn_codebook_unit, in place.
INLINE float unit_of(rn_dtype dtype, const uint8_t *super) {
    if (dtype != RN_DTYPE_IQ1_M) {
        const float power = dtype == RN_DTYPE_IQ3_S     ? 1
                            : dtype == RN_DTYPE_IQ3_XXS ? 0.25f
                                                        : 0.125f;
        return power * _cvtsh_ss(rn_load_u16(super));
    }
    uint64_t words;
    memcpy(&words, super + 48, sizeof words);
    return 0.125f * _cvtsh_ss((uint16_t)((words >> 12 & 0xf) | (words >> 24 & 0xf0) |
                                         (words >> 36 & 0xf00) | (words >> 48 & 0xf000)));
}

// What the parts of a superblock add, without x's scales.
INLINE __m256 multiply_super(rn_dtype dtype, const uint8_t *super, const int8_t *x,
                             const __m256i eights[2]) {
    const bool is_signed = dtype != RN_DTYPE_IQ1_S && dtype != RN_DTYPE_IQ1_M;
    const __m256 unit = _mm256_set1_ps(unit_of(dtype, super));
    common c;
    __m256i s[PARTS], half[2];
    read_common(dtype, super, &c);
    UNROLL
    for (int part = 0; part < PARTS; part++) {
        __m256i w = entries(dtype, super, &c, part), q = load(x + 32 * part);
        s[part] = is_signed ? dot_signed(w, q, &c.signs[part]) : dot(w, q);
    }
    add_neighbours(s, &half[0], &half[1]);
    UNROLL
    for (int i = 0; i < 2 && !is_signed; i++)
        half[i] = _mm256_sub_epi32(half[i], _mm256_madd_epi16(c.offset[i], eights[i]));
    __m256 sum = _mm256_mul_ps(_mm256_mul_ps(unit, c.scales[0]), _mm256_cvtepi32_ps(half[0]));
    return _mm256_fmadd_ps(_mm256_mul_ps(unit, c.scales[1]), _mm256_cvtepi32_ps(half[1]), sum);
}

INLINE void transpose(__m256 r[8]) {
    __m256 s[8];
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 4)
        UNROLL
    for (int j = 0; j < 2; j++) {
        r[i + 2 * j] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0x44);
        r[i + 2 * j + 1] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0xEE);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        s[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        s[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        r[i] = s[i];
}

// The next eight rows come from memory behind these: they are asked for while these are read.
INLINE void multiply_rows(rn_dtype dtype, uint64_t bytes, const uint8_t *const rows[RN_ROW_LANES],
                          uint64_t row_bytes, uint64_t blocks, rn_quantized_row x, float *sums) {
    __m256 acc = _mm256_setzero_ps();
    for (uint64_t b = 0, at = 0; b < blocks; b += PARTS, at += bytes) {
        __m256i eights[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        __m256 parts[RN_ROW_LANES];
        if (dtype == RN_DTYPE_IQ1_S || dtype == RN_DTYPE_IQ1_M) sum_eights(x.q + 32 * b, eights);
        for (int r = 0; r < RN_ROW_LANES; r++) {
            const uint8_t *super = rows[r] + at;
            __builtin_prefetch(super + RN_ROW_LANES * row_bytes);
            __builtin_prefetch(super + RN_ROW_LANES * row_bytes + 64);
            parts[r] = multiply_super(dtype, super, x.q + 32 * b, eights);
        }
        transpose(parts);
        UNROLL
        for (int part = 0; part < PARTS; part++)
            acc = _mm256_fmadd_ps(_mm256_set1_ps(x.scale[b + (uint64_t)part]), parts[part], acc);
    }
    _mm256_storeu_ps(sums, acc);
}

// ---- the table ----------------------------------------------------------------------------------

#define ONE(DTYPE, name, bytes)                                                                    \
    static void one_##name(const uint8_t *const rows[RN_ROW_LANES], uint64_t row_bytes,            \
                           uint64_t blocks, rn_quantized_row x, float sums[RN_ROW_LANES]) {        \
        multiply_rows(RN_DTYPE_##DTYPE, bytes, rows, row_bytes, blocks, x, sums);                  \
    }
#define ONE_ENTRY(DTYPE, name, bytes) [RN_DTYPE_##DTYPE] = one_##name,
#define ONE_KINDS(ROW)                                                                             \
    ROW(IQ2_XXS, iq2_xxs, 66)                                                                      \
    ROW(IQ2_XS, iq2_xs, 74)                                                                        \
    ROW(IQ2_S, iq2_s, 82)                                                                          \
    ROW(IQ3_XXS, iq3_xxs, 98)                                                                      \
    ROW(IQ3_S, iq3_s, 110)                                                                         \
    ROW(IQ1_S, iq1_s, 50)                                                                          \
    ROW(IQ1_M, iq1_m, 56)
ONE_KINDS(ONE)

rn_row_one *const ROW_ONE_TABLE[RN_DTYPE_COUNT] = {ONE_KINDS(ONE_ENTRY)};
