// attention_pages_avx512.c — 16 keys by 16 dimensions are widened and turned in registers; values
// are widened as they are multiplied, once for up to six heads.
#include "backend/cpu/attention_pages.h"

#include <immintrin.h>
#include <string.h>

enum { HEADS = 6, VECTORS = 4, Q8_BLOCK_BYTES = 34 };

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

INLINE __m128i load_bytes(const uint8_t *from) {
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

INLINE void ask(const uint8_t *from, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)(from + at), _MM_HINT_T0);
}

// 16 elements of a row from dimension d on, a multiple of 16.
INLINE __m512 widen(rn_dtype dtype, const uint8_t *row, uint64_t d) {
    if (dtype == RN_DTYPE_F32) return _mm512_loadu_ps((const float *)(const void *)row + d);
    if (dtype == RN_DTYPE_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(row + 2 * d)));
    const uint8_t *block = row + d / 32 * Q8_BLOCK_BYTES;
    uint16_t half;
    memcpy(&half, block, sizeof half);
    __m512i bytes =
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(block + 2 + d % 32)));
    return _mm512_mul_ps(_mm512_set1_ps(_cvtsh_ss(half)), _mm512_cvtepi32_ps(bytes));
}

// ---- keys ---------------------------------------------------------------------------------------

// Pairs, then fours, eights and sixteens.
INLINE void transpose(__m512 r[16]) {
    __m512 s[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) {
        UNROLL
        for (int j = 0; j < 2; j++) {
            __m512d low = _mm512_castps_pd(s[i + j]), high = _mm512_castps_pd(s[i + j + 2]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        s[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        s[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xDD);
        s[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        s[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xDD);
    }
    UNROLL
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(s[i], s[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(s[i], s[i + 8], 0xDD);
    }
}

// At most 16 rows, `count` of them there.
INLINE void turn(const rn_page_rows *rows, rn_dtype dtype, uint64_t row, uint64_t count,
                 float *to) {
    const uint8_t *from = rows->data + row * rows->row_bytes;
    const __mmask16 mask = (__mmask16)(0xFFFFu >> (16 - count));
    const uint64_t step_bytes = count * rows->row_bytes / (rows->dims / 16);
    for (uint64_t d = 0; d < rows->dims; d += 16) {
        __m512 r[16];
        ask(rows->next + row * rows->row_bytes + d / 16 * step_bytes, step_bytes);
        UNROLL
        for (uint64_t i = 0; i < 16; i++)
            r[i] = i < count ? widen(dtype, from + i * rows->row_bytes, d) : _mm512_setzero_ps();
        transpose(r);
        UNROLL
        for (uint64_t i = 0; i < 16; i++)
            _mm512_mask_storeu_ps(to + (d + i) * RN_PAGE_KEYS, mask, r[i]);
    }
}

// q8_0: bytes are turned first. Of the 4 keys in a lane of four registers each dword becomes one
// dimension's, then each lane becomes one dimension's, of all 16 keys.
INLINE void turn_bytes(const uint8_t *from, uint64_t row_bytes, uint8_t *to /* (16, 16) */) {
    const __m512i lanes = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    __m512i r[4];
    UNROLL
    for (uint64_t j = 0; j < 4; j++) {
        r[j] = _mm512_castsi128_si512(load_bytes(from + j * row_bytes));
        r[j] = _mm512_inserti32x4(r[j], load_bytes(from + (4 + j) * row_bytes), 1);
        r[j] = _mm512_inserti32x4(r[j], load_bytes(from + (8 + j) * row_bytes), 2);
        r[j] = _mm512_inserti32x4(r[j], load_bytes(from + (12 + j) * row_bytes), 3);
    }
    __m512i low = _mm512_unpacklo_epi8(r[0], r[1]), low2 = _mm512_unpacklo_epi8(r[2], r[3]);
    __m512i high = _mm512_unpackhi_epi8(r[0], r[1]), high2 = _mm512_unpackhi_epi8(r[2], r[3]);
    r[0] = _mm512_unpacklo_epi16(low, low2);
    r[1] = _mm512_unpackhi_epi16(low, low2);
    r[2] = _mm512_unpacklo_epi16(high, high2);
    r[3] = _mm512_unpackhi_epi16(high, high2);
    UNROLL
    for (int j = 0; j < 4; j++)
        _mm512_store_si512(to + 64 * j, _mm512_permutexvar_epi32(lanes, r[j]));
}

// 16 rows.
static void turn_q8_0(const rn_page_rows *rows, uint64_t row, float *to) {
    const uint64_t row_bytes = rows->row_bytes;
    const uint8_t *from = rows->data + row * row_bytes, *next = rows->next + row * row_bytes;
    _Alignas(64) uint8_t bytes[256];
    for (uint64_t d = 0; d < rows->dims; d += 32, from += Q8_BLOCK_BYTES) {
        ask(next + d / 32 * 16 * Q8_BLOCK_BYTES, 16 * Q8_BLOCK_BYTES);
        uint16_t halves[16];
        UNROLL
        for (uint64_t i = 0; i < 16; i++)
            memcpy(&halves[i], from + i * row_bytes, sizeof halves[i]);
        __m512 scales = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(void *)halves));
        for (uint64_t half = 0; half < 32; half += 16) {
            turn_bytes(from + 2 + half, row_bytes, bytes);
            UNROLL
            for (uint64_t i = 0; i < 16; i++) {
                __m512 whole = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(bytes + 16 * i)));
                _mm512_storeu_ps(to + (d + half + i) * RN_PAGE_KEYS, _mm512_mul_ps(scales, whole));
            }
        }
    }
}

INLINE void turn_all(const rn_page_rows *rows, rn_dtype dtype, float *to) {
    uint64_t i = 0;
    for (; i + 16 <= rows->count; i += 16)
        if (dtype == RN_DTYPE_Q8_0)
            turn_q8_0(rows, i, to + i);
        else
            turn(rows, dtype, i, 16, to + i);
    if (i < rows->count) turn(rows, dtype, i, rows->count - i, to + i);
}

static void columns(const rn_page_rows *rows, uint64_t first, float *to) {
    if (rows->dtype == RN_DTYPE_F32)
        turn_all(rows, RN_DTYPE_F32, to + first);
    else if (rows->dtype == RN_DTYPE_F16)
        turn_all(rows, RN_DTYPE_F16, to + first);
    else
        turn_all(rows, RN_DTYPE_Q8_0, to + first);
}

// ---- scores -------------------------------------------------------------------------------------

INLINE void multiply(const float *q, uint64_t dims, int heads, const float *columns, float *to) {
    __m512 sums[HEADS][2];
    UNROLL
    for (int h = 0; h < heads; h++)
        sums[h][0] = sums[h][1] = _mm512_setzero_ps();
    for (uint64_t d = 0; d < dims; d++, columns += RN_PAGE_KEYS) {
        __m512 low = _mm512_loadu_ps(columns), high = _mm512_loadu_ps(columns + 16);
        UNROLL
        for (int h = 0; h < heads; h++) {
            __m512 x = _mm512_set1_ps(q[(uint64_t)h * dims + d]);
            sums[h][0] = _mm512_fmadd_ps(x, low, sums[h][0]);
            sums[h][1] = _mm512_fmadd_ps(x, high, sums[h][1]);
        }
    }
    UNROLL
    for (int h = 0; h < heads; h++) {
        _mm512_storeu_ps(to + h * 64, sums[h][0]);
        _mm512_storeu_ps(to + h * 64 + 16, sums[h][1]);
    }
}

// As even blocks of heads as HEADS allows.
INLINE uint64_t block_of(uint64_t heads) {
    uint64_t blocks = (heads + HEADS - 1) / HEADS;
    return (heads + blocks - 1) / blocks;
}

#define SCORES_OF(count)                                                                           \
    case count:                                                                                    \
        multiply(q + h * dims, dims, count, columns, to + h * 64);                                 \
        break;

static void scores(const float *q, uint64_t dims, uint64_t heads, const float *columns, float *to) {
    uint64_t each = block_of(heads);
    for (uint64_t h = 0; h < heads; h += each)
        switch (heads - h < each ? heads - h : each) {
            SCORES_OF(1)
            SCORES_OF(2)
            SCORES_OF(3)
            SCORES_OF(4)
            SCORES_OF(5)
        default:
            multiply(q + h * dims, dims, HEADS, columns, to + h * 64);
        }
}

// ---- values -------------------------------------------------------------------------------------

// A few heads by 16 * vectors dimensions from d on.
INLINE void add(const rn_page_rows *rows, rn_dtype dtype, const float *p, uint64_t p_row,
                uint64_t d, int heads, int vectors, float *y) {
    const uint8_t *from = rows->data, *next = rows->next + d * rows->row_bytes / rows->dims;
    const uint64_t bytes = 16 * (uint64_t)vectors * rows->row_bytes / rows->dims;
    __m512 sums[HEADS][VECTORS];
    UNROLL
    for (int h = 0; h < heads; h++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            sums[h][v] = _mm512_loadu_ps(y + (uint64_t)h * rows->dims + d + (uint64_t)v * 16);
    }
    for (uint64_t i = 0; i < rows->count; i++, from += rows->row_bytes, next += rows->row_bytes) {
        ask(next, bytes);
        __m512 x[VECTORS];
        UNROLL
        for (int v = 0; v < vectors; v++)
            x[v] = widen(dtype, from, d + (uint64_t)v * 16);
        UNROLL
        for (int h = 0; h < heads; h++) {
            __m512 weight = _mm512_set1_ps(p[(uint64_t)h * p_row + i]);
            UNROLL
            for (int v = 0; v < vectors; v++)
                sums[h][v] = _mm512_fmadd_ps(weight, x[v], sums[h][v]);
        }
    }
    UNROLL
    for (int h = 0; h < heads; h++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            _mm512_storeu_ps(y + (uint64_t)h * rows->dims + d + (uint64_t)v * 16, sums[h][v]);
    }
}

INLINE void add_heads(const rn_page_rows *rows, rn_dtype dtype, const float *p, uint64_t p_row,
                      int heads, float *y) {
    uint64_t d = 0;
    for (; d + 16 * VECTORS <= rows->dims; d += 16 * VECTORS)
        add(rows, dtype, p, p_row, d, heads, VECTORS, y);
    for (; d < rows->dims; d += 16)
        add(rows, dtype, p, p_row, d, heads, 1, y);
}

#define HEADS_OF(count)                                                                            \
    case count:                                                                                    \
        add_heads(rows, dtype, p, p_row, count, y);                                                \
        break;

INLINE void add_some(const rn_page_rows *rows, rn_dtype dtype, const float *p, uint64_t p_row,
                     uint64_t heads, float *y) {
    switch (heads) {
        HEADS_OF(1)
        HEADS_OF(2)
        HEADS_OF(3)
        HEADS_OF(4)
        HEADS_OF(5)
    default:
        add_heads(rows, dtype, p, p_row, HEADS, y);
    }
}

static void values(const rn_page_rows *rows, const float *p, uint64_t p_row, uint64_t heads,
                   float *y) {
    uint64_t each = block_of(heads);
    for (uint64_t h = 0, some; h < heads; h += some) {
        some = heads - h < each ? heads - h : each;
        const float *from = p + h * p_row;
        float *to = y + h * rows->dims;
        if (rows->dtype == RN_DTYPE_F32)
            add_some(rows, RN_DTYPE_F32, from, p_row, some, to);
        else if (rows->dtype == RN_DTYPE_F16)
            add_some(rows, RN_DTYPE_F16, from, p_row, some, to);
        else
            add_some(rows, RN_DTYPE_Q8_0, from, p_row, some, to);
    }
}

const rn_page_kernels rn_page_avx512 = {columns, scores, values};
