// tile_wide_avx512.c — tiles of 6 rows by 64 columns: 24 sums, four vectors of B, an element of A.
//
// 10 loads for 24 multiply-adds, where 14 rows by 32 columns have 16 for 28: vectors of 64 bytes
// are loaded less often than they are multiplied. Six rows of A need so little of the first cache
// that they stay there, packed or not, while panels of B come from the second (gemm.c). Rows are
// either packed, [k][8], or contiguous along k; one segment.
#include "backend/cpu/tile.h"

#include <immintrin.h>

enum {
    ROWS = 6,
    GROUP = 3,
    PANELS = 4,
    LANES = 8,
    NEXT_STEP = 4, // k's for each row of the next tile
};

#define INLINE static inline __attribute__((always_inline))

typedef __m512 sums[ROWS][PANELS];

INLINE __mmask16 mask_of(int p, int panels, __mmask16 last) {
    return p == panels - 1 ? last : (__mmask16)0xFFFF;
}

INLINE void begin(const rn_tile *t, sums s, int rows, int panels, __mmask16 last) {
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++)
            s[row][p] = t->resume
                            ? _mm512_maskz_loadu_ps(mask_of(p, panels, last),
                                                    t->c[0] + (size_t)row * t->c_row + p * RN_PANEL)
                            : _mm512_setzero_ps();
}

INLINE void end(const rn_tile *t, sums s, int rows, int panels, __mmask16 last) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++) {
        const __mmask16 mask = mask_of(p, panels, last);
        const __m512 bias =
            t->bias ? _mm512_maskz_loadu_ps(mask, t->bias + p * RN_PANEL) : _mm512_setzero_ps();
#pragma GCC unroll 6
        for (int row = 0; row < rows; row++) {
            __m512 sum = t->bias ? _mm512_add_ps(s[row][p], bias) : s[row][p];
            _mm512_mask_storeu_ps(t->c[0] + (size_t)row * t->c_row + p * RN_PANEL, mask, sum);
        }
    }
}

// One k.
INLINE void step(sums s, const float *a0, const float *a1, size_t a_row, const float *b,
                 size_t b_panel, int rows, int panels) {
    __m512 x[PANELS];
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++)
        x[p] = _mm512_loadu_ps(b + (size_t)p * b_panel);
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++) {
        const float *a =
            row < GROUP ? a0 + (size_t)row * a_row : a1 + (size_t)(row - GROUP) * a_row;
        __m512 y = _mm512_set1_ps(*a);
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++)
            s[row][p] = _mm512_fmadd_ps(y, x[p], s[row][p]);
    }
}

// On the way the next tile's rows of C are asked for, one every few k's: it begins with reading
// them.
INLINE void walk(const rn_tile *t, sums s, size_t a_row, size_t a_k, int rows, int panels) {
    const float *a0 = t->a[0], *a1 = t->a[1], *b = t->b;
    size_t depth = t->depth;
    if (rows == ROWS && panels == PANELS && t->next_c && depth >= NEXT_STEP * ROWS) {
        const char *c = (const char *)t->next_c;
        for (int row = 0; row < ROWS; row++, c += t->c_row * sizeof(float)) {
#pragma GCC unroll 4
            for (int k = 0; k < NEXT_STEP; k++, a0 += a_k, a1 += a_k, b += RN_PANEL) {
                _mm_prefetch(c + (size_t)k * 64, _MM_HINT_T0);
                step(s, a0, a1, a_row, b, t->b_panel, rows, panels);
            }
        }
        depth -= NEXT_STEP * ROWS;
    }
    for (; depth >= 2; depth -= 2, a0 += 2 * a_k, a1 += 2 * a_k, b += 2 * RN_PANEL) {
        step(s, a0, a1, a_row, b, t->b_panel, rows, panels);
        step(s, a0 + a_k, a1 + a_k, a_row, b + RN_PANEL, t->b_panel, rows, panels);
    }
    if (depth) step(s, a0, a1, a_row, b, t->b_panel, rows, panels);
}

INLINE void tile(const rn_tile *t, int rows, int panels) {
    const __mmask16 last = (__mmask16)(0xFFFFu >> (panels * RN_PANEL - (int)t->cols));
    sums s;
    begin(t, s, rows, panels, last);
    if (t->a_k == 1)
        walk(t, s, t->a_row, 1, rows, panels);
    else
        walk(t, s, 1, LANES, rows, panels);
    end(t, s, rows, panels, last);
}

#define TILE(rows)                                                                                 \
    static void one_##rows(const rn_tile *t) {                                                     \
        tile(t, rows, 1);                                                                          \
    }                                                                                              \
    static void two_##rows(const rn_tile *t) {                                                     \
        tile(t, rows, 2);                                                                          \
    }                                                                                              \
    static void three_##rows(const rn_tile *t) {                                                   \
        tile(t, rows, 3);                                                                          \
    }                                                                                              \
    static void four_##rows(const rn_tile *t) {                                                    \
        tile(t, rows, 4);                                                                          \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)

static void (*const tiles[PANELS][ROWS])(const rn_tile *) = {
    {one_1, one_2, one_3, one_4, one_5, one_6},
    {two_1, two_2, two_3, two_4, two_5, two_6},
    {three_1, three_2, three_3, three_4, three_5, three_6},
    {four_1, four_2, four_3, four_4, four_5, four_6},
};

static void run(const rn_tile *t) {
    tiles[(t->cols - 1) / RN_PANEL][t->rows - 1](t);
}

// 8 vectors of 16 k's: four k's of four rows become their columns, k = 4 * lane + j in r[j] for
// rows 0 to 3, in r[4 + j] for the others.
INLINE void transpose_fours(__m512 r[LANES]) {
    for (int i = 0; i < LANES; i += 4) {
        __m512d low = _mm512_castps_pd(_mm512_unpacklo_ps(r[i], r[i + 1]));
        __m512d high = _mm512_castps_pd(_mm512_unpackhi_ps(r[i], r[i + 1]));
        __m512d low2 = _mm512_castps_pd(_mm512_unpacklo_ps(r[i + 2], r[i + 3]));
        __m512d high2 = _mm512_castps_pd(_mm512_unpackhi_ps(r[i + 2], r[i + 3]));
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, low2));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, low2));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high, high2));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high, high2));
    }
}

// 16 k's of `count` rows; with fewer k's their loads and stores stay within them.
INLINE void pack_block(const float *from, size_t row_step, uint32_t count, size_t depth, float *to,
                       size_t to_step) {
    const __mmask16 mask = (__mmask16)(0xFFFFu >> (16 - depth));
    __m512 r[LANES];
#pragma GCC unroll 8
    for (uint32_t row = 0; row < LANES; row++)
        r[row] =
            row < count ? _mm512_maskz_loadu_ps(mask, from + row * row_step) : _mm512_setzero_ps();
    transpose_fours(r);
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
        __m512 pairs[2] = {_mm512_shuffle_f32x4(r[j], r[4 + j], 0x44),  // k = j, 4 + j
                           _mm512_shuffle_f32x4(r[j], r[4 + j], 0xEE)}; // k = 8 + j, 12 + j
#pragma GCC unroll 2
        for (size_t half = 0; half < 2; half++) {
            __m512 both = _mm512_shuffle_f32x4(pairs[half], pairs[half], 0xD8);
            size_t k = 8 * half + j;
            if (k < depth) _mm256_storeu_ps(to + k * to_step, _mm512_castps512_ps256(both));
            if (k + 4 < depth)
                _mm256_storeu_ps(to + (k + 4) * to_step, _mm512_extractf32x8_ps(both, 1));
        }
    }
}

INLINE void pack_blocks(const float *from, size_t row_step, uint32_t count, size_t depth, float *to,
                        size_t to_step) {
    size_t k = 0;
    for (; k + 16 <= depth; k += 16)
        pack_block(from + k, row_step, count, 16, to + k * to_step, to_step);
    if (k < depth) pack_block(from + k, row_step, count, depth - k, to + k * to_step, to_step);
}

// Whole panels know their count: then nothing is left to decide.
static void pack_rows(const float *from, size_t row_step, uint32_t count, size_t depth, float *to,
                      size_t to_step) {
    if (count == ROWS)
        pack_blocks(from, row_step, ROWS, depth, to, to_step);
    else
        pack_blocks(from, row_step, count, depth, to, to_step);
}

static void pack_columns(const float *from, size_t k_step, uint32_t count, size_t depth, float *to,
                         size_t to_step) {
    __mmask8 mask = (__mmask8)(0xFFu >> (LANES - count));
    for (size_t k = 0; k < depth; k++)
        _mm256_storeu_ps(to + k * to_step, _mm256_maskz_loadu_ps(mask, from + k * k_step));
}

const rn_tile_set rn_tile_wide_avx512 = {ROWS, GROUP, PANELS, LANES, run, pack_rows, pack_columns};
