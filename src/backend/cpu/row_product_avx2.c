// row_product_avx2.c — the kernels of row_product.h with AVX2; they serve AVX-512 machines, too.
//
// 32 numbers of a codebook are four entries of 8 bytes (iq3: eight of 4) side by side, negated
// where a bit of 32 signs is set, or, for iq1, with an eighth added or taken away.
#include "backend/cpu/row_product.h"

#include "tensor/ggml_blocks.h"
#include "tensor/ggml_codebooks.h"
#include "tensor/small_float.h"

#include <immintrin.h>

// ---- signs --------------------------------------------------------------------------------------

// Bytes whose bit of 32 is set are negated.
static inline __m256i negate(__m256i bytes, uint32_t signs) {
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i all = _mm256_shuffle_epi8(_mm256_set1_epi32((int)signs), spread);
    __m256i mask = _mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit);
    return _mm256_sub_epi8(_mm256_xor_si256(bytes, mask), mask);
}

// Four times seven bits, each with the eighth that makes their number even: parities by folding.
static inline uint32_t even_signs(uint32_t sevens) {
    uint32_t s = (sevens & 127) | (sevens << 1 & 127u << 8) | (sevens << 2 & 127u << 16) |
                 (sevens << 3 & 127u << 24);
    uint32_t parity = s ^ (s >> 4 & 0x07070707u);
    parity ^= parity >> 2 & 0x03030303u;
    parity ^= parity >> 1;
    return s | (parity & 0x01010101u) << 7;
}

// ---- reading ------------------------------------------------------------------------------------

static inline uint32_t load_u32(const uint8_t *from) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline __m256i join_eights(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return _mm256_setr_epi64x((long long)a, (long long)b, (long long)c, (long long)d);
}

static inline float odd(unsigned scale) {
    return (float)(int)(2 * scale + 1);
}

// A part of a superblock: its bytes; its scales, without the superblock's, go to `scales`.
static inline __m256i read_iq2_xxs(const uint8_t *super, unsigned part, float *scales) {
    const uint8_t *at = super + 2 + part * 8;
    const uint64_t *book = rn_codebook_iq2_xxs;
    uint32_t rest = load_u32(at + 4);
    scales[0] = scales[1] = odd(rest >> 28);
    return negate(join_eights(book[at[0]], book[at[1]], book[at[2]], book[at[3]]),
                  even_signs(rest));
}

static inline __m256i read_iq2_xs(const uint8_t *super, unsigned part, float *scales) {
    const uint64_t *book = rn_codebook_iq2_xs;
    uint64_t codes;
    memcpy(&codes, super + 2 + part * 8, sizeof codes);
    uint32_t sevens = (uint32_t)(codes >> 9 & 127) | (uint32_t)(codes >> 25 & 127) << 7 |
                      (uint32_t)(codes >> 41 & 127) << 14 | (uint32_t)(codes >> 57) << 21;
    scales[0] = odd(super[66 + part] & 15);
    scales[1] = odd(super[66 + part] >> 4);
    return negate(join_eights(book[codes & 511], book[codes >> 16 & 511], book[codes >> 32 & 511],
                              book[codes >> 48 & 511]),
                  even_signs(sevens));
}

static inline __m256i read_iq2_s(const uint8_t *super, unsigned part, float *scales) {
    const uint8_t *low = super + 2 + part * 4;
    const uint64_t *book = rn_codebook_iq2_s;
    unsigned up = super[66 + part];
    scales[0] = odd(super[74 + part] & 15);
    scales[1] = odd(super[74 + part] >> 4);
    return negate(join_eights(book[low[0] | (up << 8 & 0x300)], book[low[1] | (up << 6 & 0x300)],
                              book[low[2] | (up << 4 & 0x300)], book[low[3] | (up << 2 & 0x300)]),
                  load_u32(low + 32));
}

static inline __m256i read_iq3_xxs(const uint8_t *super, unsigned part, float *scales) {
    const uint8_t *at = super + 2 + part * 8;
    const uint32_t *book = rn_codebook_iq3_xxs;
    uint32_t rest = load_u32(super + 66 + part * 4);
    scales[0] = scales[1] = odd(rest >> 28);
    return negate(_mm256_setr_epi32((int)book[at[0]], (int)book[at[1]], (int)book[at[2]],
                                    (int)book[at[3]], (int)book[at[4]], (int)book[at[5]],
                                    (int)book[at[6]], (int)book[at[7]]),
                  even_signs(rest));
}

static inline __m256i read_iq3_s(const uint8_t *super, unsigned part, float *scales) {
    const uint8_t *at = super + 2 + part * 8;
    const uint32_t *book = rn_codebook_iq3_s;
    unsigned up = super[66 + part];
    scales[0] = scales[1] = odd(super[106 + part / 2] >> part % 2 * 4 & 15);
#define ENTRY(i) (int)book[at[i] | (up << (8 - (i)) & 0x100)]
    return negate(_mm256_setr_epi32(ENTRY(0), ENTRY(1), ENTRY(2), ENTRY(3), ENTRY(4), ENTRY(5),
                                    ENTRY(6), ENTRY(7)),
                  load_u32(super + 74 + part * 4));
#undef ENTRY
}

static inline __m256i read_iq1_s(const uint8_t *super, unsigned part, float *scales) {
    const uint8_t *low = super + 2 + part * 4;
    const uint64_t *book = rn_codebook_iq1;
    unsigned rest = rn_load_u16(super + 34 + part * 2);
    scales[0] = scales[1] = odd(rest >> 12 & 7);
    __m256i eighths =
        join_eights(book[low[0] | (rest << 8 & 0x700)], book[low[1] | (rest << 5 & 0x700)],
                    book[low[2] | (rest << 2 & 0x700)], book[low[3] | (rest >> 1 & 0x700)]);
    return _mm256_add_epi8(eighths, _mm256_set1_epi8(rest >> 15 ? -9 : -7));
}

static inline __m256i read_iq1_m(const uint8_t *super, unsigned part, float *scales) {
    static const uint64_t offset[2] = {0xf9f9f9f9f9f9f9f9u, 0xf7f7f7f7f7f7f7f7u}; // -7, -9
    const uint8_t *low = super + part * 4;
    const uint64_t *book = rn_codebook_iq1;
    unsigned up = rn_load_u16(super + 32 + part * 2);
    unsigned packed = (unsigned)rn_load_u16(super + 48 + part / 2 * 2) >> part % 2 * 6;
    scales[0] = odd(packed & 7);
    scales[1] = odd(packed >> 3 & 7);
    __m256i eighths =
        join_eights(book[low[0] | (up << 8 & 0x700)], book[low[1] | (up << 4 & 0x700)],
                    book[low[2] | (up & 0x700)], book[low[3] | (up >> 4 & 0x700)]);
    return _mm256_add_epi8(eighths, join_eights(offset[up >> 3 & 1], offset[up >> 7 & 1],
                                                offset[up >> 11 & 1], offset[up >> 15 & 1]));
}

static inline __m256i read_u4(const uint8_t *block, unsigned part, float *scales) {
    (void)part;
    __m128i nibbles = _mm_loadu_si128((const __m128i *)(const void *)(block + 5));
    __m128i low = _mm_set1_epi8(15);
    __m256i q = _mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(nibbles, 4), low),
                                 _mm_and_si128(nibbles, low));
    scales[0] = scales[1] = 1;
    return _mm256_sub_epi8(q, _mm256_set1_epi8((char)block[4]));
}

// Half of 64 columns; their scales have the block's own in them.
static inline __m256i read_fp4(const uint8_t *block, unsigned half, float *scales) {
    __m128i table = _mm_loadu_si128((const __m128i *)(const void *)rn_ggml_fp4_values);
    __m128i nibbles = _mm_loadu_si128((const __m128i *)(const void *)(block + 8 + half * 16));
    __m128i low = _mm_and_si128(nibbles, _mm_set1_epi8(15));
    __m128i high = _mm_and_si128(_mm_srli_epi16(nibbles, 4), _mm_set1_epi8(15));
    scales[0] = rn_nvfp4_scale(block[4 + half * 2]);
    scales[1] = rn_nvfp4_scale(block[5 + half * 2]);
    return _mm256_set_m128i(_mm_shuffle_epi8(table, _mm_unpackhi_epi64(low, high)),
                            _mm_shuffle_epi8(table, _mm_unpacklo_epi64(low, high)));
}

static float unit_of(rn_dtype dtype, const uint8_t *block) {
    float unit;
    if (dtype != RN_DTYPE_U4_B32 && dtype != RN_DTYPE_FP4_B64)
        return rn_codebook_unit(dtype, block);
    memcpy(&unit, block, sizeof unit);
    return unit;
}

static void read_rows(rn_dtype dtype, const uint8_t *row, uint64_t first, uint64_t count,
                      rn_row_blocks out) {
    const rn_dtype_info *info = rn_dtype_get(dtype);
    uint64_t parts = info->block_elements / RN_ROW_BLOCK, i = 0;
    if (first % parts || count % parts) {
        rn_row_kind_read(dtype, row, first, count, out);
        return;
    }
    const uint8_t *block = row + first / parts * info->block_bytes;
    // A loop a kind, so that each is compiled for its own reader.
#define READ(DTYPE, name, PARTS, BYTES)                                                            \
    case RN_DTYPE_##DTYPE:                                                                         \
        for (; i < count; block += BYTES) {                                                        \
            float unit = unit_of(dtype, block);                                                    \
            for (unsigned part = 0; part < PARTS; part++, i++) {                                   \
                float scales[2];                                                                   \
                __m256i q = read_##name(block, part, scales);                                      \
                _mm256_storeu_si256((__m256i *)(void *)(out.q + 32 * i), q);                       \
                out.first[i * out.step] = unit * scales[0];                                        \
                out.second[i * out.step] = unit * scales[1];                                       \
            }                                                                                      \
        }                                                                                          \
        return;
    switch (dtype) {
        READ(IQ2_XXS, iq2_xxs, 8, 66)
        READ(IQ2_XS, iq2_xs, 8, 74)
        READ(IQ2_S, iq2_s, 8, 82)
        READ(IQ3_XXS, iq3_xxs, 8, 98)
        READ(IQ3_S, iq3_s, 8, 110)
        READ(IQ1_S, iq1_s, 8, 50)
        READ(IQ1_M, iq1_m, 8, 56)
        READ(U4_B32, u4, 1, 21)
        READ(FP4_B64, fp4, 2, 40)
    default:
        rn_row_kind_read(dtype, row, first, count, out);
    }
#undef READ
}

// ---- multiplying --------------------------------------------------------------------------------

// Eight sums of 32-bit numbers, four of each half of a block. Weights are at most 62, so that two
// products fit 16 bits.
static inline __m256i multiply_block(const int8_t *w, __m256i x) {
    __m256i q = _mm256_loadu_si256((const __m256i *)(const void *)w);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Lane r of the result: the sum of s[r]'s lower half, or of its upper half.
static inline void add_neighbours(const __m256i s[8], __m256i *lower, __m256i *upper) {
    __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(s[4], s[5]), _mm256_hadd_epi32(s[6], s[7]));
    *lower = _mm256_permute2x128_si256(low, high, 0x20);
    *upper = _mm256_permute2x128_si256(low, high, 0x31);
}

static void multiply(const rn_row_tile *tile, rn_quantized_row x, uint64_t first,
                     float sums[RN_ROW_LANES]) {
    const uint64_t row = tile->blocks * 32;
    const float *scales = tile->scales;
    __m256 acc = _mm256_loadu_ps(sums);
    for (uint64_t b = 0; b < tile->blocks; b++, scales += 2 * RN_ROW_LANES) {
        const __m256i q =
            _mm256_loadu_si256((const __m256i *)(const void *)(x.q + (first + b) * 32));
        __m256i s[8], lower, upper;
        for (uint64_t r = 0; r < 8; r++)
            s[r] = multiply_block(tile->q + r * row + b * 32, q);
        add_neighbours(s, &lower, &upper);
        __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(scales), _mm256_cvtepi32_ps(lower));
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(scales + 8), _mm256_cvtepi32_ps(upper), sum);
        acc = _mm256_fmadd_ps(_mm256_set1_ps(x.scale[first + b]), sum, acc);
    }
    _mm256_storeu_ps(sums, acc);
}

const rn_row_kernels rn_row_avx2 = {read_rows, multiply};
