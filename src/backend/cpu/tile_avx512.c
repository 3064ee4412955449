// tile_avx512.c — tiles of 14 rows by 32 columns: 28 sums, two vectors of B and one element of A at
// a time fill the 32 registers.
//
// Each number of rows has its own loop, unrolled by the compiler. Those over packed rows know their
// steps; the others (pixels, rows of a matrix) compute addresses from them.
#include "backend/cpu/tile.h"

#include <immintrin.h>

enum {
    ROWS = RN_TILE_ROWS,
    GROUP = ROWS / 2,
    LANES = 16,
    AHEAD = 8,     // k's
    NEXT_STEP = 4, // k's for each row of the next tile
};

#define INLINE static inline __attribute__((always_inline))

typedef __m512 sums[ROWS][2];

INLINE float *c_row(const rn_tile *t, int row) {
    return row < GROUP ? t->c[0] + (size_t)row * t->c_row
                       : t->c[1] + (size_t)(row - GROUP) * t->c_row;
}

INLINE __mmask16 mask_of(int p, int panels, __mmask16 last) {
    return p == panels - 1 ? last : (__mmask16)0xFFFF;
}

INLINE void begin(const rn_tile *t, sums s, int rows, int panels, __mmask16 last) {
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++)
        s[row][0] = s[row][1] = _mm512_setzero_ps();
    if (!t->resume) return;
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++)
            s[row][p] =
                _mm512_maskz_loadu_ps(mask_of(p, panels, last), c_row(t, row) + p * RN_PANEL);
}

INLINE void end(const rn_tile *t, sums s, int rows, int panels, __mmask16 last) {
    if (t->bias) {
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            __m512 bias = _mm512_maskz_loadu_ps(mask_of(p, panels, last), t->bias + p * RN_PANEL);
#pragma GCC unroll 14
            for (int row = 0; row < rows; row++)
                s[row][p] = _mm512_add_ps(s[row][p], bias);
        }
    }
    if (t->clamped) { // the second operand is what a NaN leaves
        __m512 low = _mm512_set1_ps(t->low), high = _mm512_set1_ps(t->high);
#pragma GCC unroll 14
        for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++)
                s[row][p] = _mm512_min_ps(high, _mm512_max_ps(low, s[row][p]));
    }
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++)
            _mm512_mask_storeu_ps(c_row(t, row) + p * RN_PANEL, mask_of(p, panels, last),
                                  s[row][p]);
}

// One k. What comes from the second cache is asked for AHEAD k's early: packed rows, which pass by
// while B stays in the first cache; else B. (Asking for both is slower: loads are the next limit.)
INLINE void step(sums s, const float *a0, const float *a1, size_t a_row, const float *b,
                 size_t b_panel, int rows, int panels) {
    __m512 b0 = _mm512_loadu_ps(b), b1 = b0;
    if (panels == 2) b1 = _mm512_loadu_ps(b + b_panel);
    if (a_row == 1) {
        _mm_prefetch((const char *)(a0 + AHEAD * LANES), _MM_HINT_T0);
    } else {
        _mm_prefetch((const char *)(b + AHEAD * RN_PANEL), _MM_HINT_T0);
        if (panels == 2) _mm_prefetch((const char *)(b + b_panel + AHEAD * RN_PANEL), _MM_HINT_T0);
    }
#pragma GCC unroll 14
    for (int row = 0; row < rows; row++) {
        const float *a =
            row < GROUP ? a0 + (size_t)row * a_row : a1 + (size_t)(row - GROUP) * a_row;
        __m512 x = _mm512_set1_ps(*a);
        s[row][0] = _mm512_fmadd_ps(x, b0, s[row][0]);
        if (panels == 2) s[row][1] = _mm512_fmadd_ps(x, b1, s[row][1]);
    }
}

INLINE const float *walk(sums s, const float *a0, const float *a1, size_t a_row, size_t a_k,
                         const float *b, size_t b_panel, size_t depth, int rows, int panels) {
    for (size_t k = 0; k < depth; k++, a0 += a_k, a1 += a_k, b += RN_PANEL)
        step(s, a0, a1, a_row, b, b_panel, rows, panels);
    return b;
}

// Packed rows. On the way the next tile's rows of C are asked for, one every few k's: it begins
// with reading them.
INLINE void walk_packed(const rn_tile *t, sums s, int rows, int panels) {
    const float *a = t->a[0], *b = t->b;
    size_t depth = t->depth;
    if (rows == ROWS && t->next_c && depth >= NEXT_STEP * ROWS) {
        const char *c = (const char *)t->next_c;
        for (int row = 0; row < ROWS; row++, c += t->c_row * sizeof(float)) {
            _mm_prefetch(c, _MM_HINT_T0);
            _mm_prefetch(c + 64, _MM_HINT_T0);
#pragma GCC unroll 4
            for (int k = 0; k < NEXT_STEP; k++, a += LANES, b += RN_PANEL)
                step(s, a, a + GROUP, 1, b, t->b_panel, rows, panels);
        }
        depth -= NEXT_STEP * ROWS;
    }
    for (; depth >= 2; depth -= 2, a += 2 * LANES, b += 2 * RN_PANEL) {
        step(s, a, a + GROUP, 1, b, t->b_panel, rows, panels);
        step(s, a + LANES, a + LANES + GROUP, 1, b + RN_PANEL, t->b_panel, rows, panels);
    }
    walk(s, a, a + GROUP, 1, LANES, b, t->b_panel, depth, rows, panels);
}

INLINE void tile(const rn_tile *t, int rows, int panels) {
    const __mmask16 last = (__mmask16)(0xFFFFu >> (panels * RN_PANEL - (int)t->cols));
    const float *b = t->b;
    sums s;
    begin(t, s, rows, panels, last);
    if (t->a_row == 1 && t->a_k == LANES) {
        walk_packed(t, s, rows, panels);
    } else {
        for (uint32_t o = 0; o < t->outer; o++)
            for (uint32_t i = 0; i < t->inner; i++) {
                size_t at = o * t->outer_step + i * t->inner_step;
                b = walk(s, t->a[0] + at, t->a[1] + at, t->a_row, t->a_k, b, t->b_panel, t->depth,
                         rows, panels);
            }
    }
    end(t, s, rows, panels, last);
}

#define TILE(rows)                                                                                 \
    static void one_##rows(const rn_tile *t) {                                                     \
        tile(t, rows, 1);                                                                          \
    }                                                                                              \
    static void two_##rows(const rn_tile *t) {                                                     \
        tile(t, rows, 2);                                                                          \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
TILE(13)
TILE(14)

static void (*const tiles[2][ROWS])(const rn_tile *) = {
    {one_1, one_2, one_3, one_4, one_5, one_6, one_7, one_8, one_9, one_10, one_11, one_12, one_13,
     one_14},
    {two_1, two_2, two_3, two_4, two_5, two_6, two_7, two_8, two_9, two_10, two_11, two_12, two_13,
     two_14},
};

static void run(const rn_tile *t) {
    tiles[t->cols > RN_PANEL][t->rows - 1](t);
}

// 16 vectors of 16 become their columns: pairs, then fours, eights and sixteens.
INLINE void transpose(__m512 r[16]) {
    __m512 s[16];
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d low = _mm512_castps_pd(s[i + j]), high = _mm512_castps_pd(s[i + j + 2]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    for (int i = 0; i < 4; i++) {
        s[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        s[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xDD);
        s[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        s[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xDD);
    }
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(s[i], s[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(s[i], s[i + 8], 0xDD);
    }
}

// 16 k's of `count` rows; with fewer k's their loads and stores stay within them.
INLINE void pack_block(const float *from, size_t row_step, uint32_t count, size_t depth, float *to,
                       size_t to_step) {
    const __mmask16 mask = (__mmask16)(0xFFFFu >> (16 - depth));
    __m512 r[16];
#pragma GCC unroll 16
    for (uint32_t row = 0; row < 16; row++)
        r[row] =
            row < count ? _mm512_maskz_loadu_ps(mask, from + row * row_step) : _mm512_setzero_ps();
    transpose(r);
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
        if (i < depth) _mm512_storeu_ps(to + i * to_step, r[i]);
}

// Whole blocks of a whole panel (of B, of A) know their counts: then nothing is left to decide.
INLINE void pack_blocks(const float *from, size_t row_step, uint32_t count, size_t depth, float *to,
                        size_t to_step) {
    size_t k = 0;
    for (; k + 16 <= depth; k += 16)
        pack_block(from + k, row_step, count, 16, to + k * to_step, to_step);
    if (k < depth) pack_block(from + k, row_step, count, depth - k, to + k * to_step, to_step);
}

static void pack_rows(const float *from, size_t row_step, uint32_t count, size_t depth, float *to,
                      size_t to_step) {
    if (count == LANES)
        pack_blocks(from, row_step, LANES, depth, to, to_step);
    else if (count == ROWS)
        pack_blocks(from, row_step, ROWS, depth, to, to_step);
    else
        pack_blocks(from, row_step, count, depth, to, to_step);
}

static void pack_columns(const float *from, size_t k_step, uint32_t count, size_t depth, float *to,
                         size_t to_step) {
    __mmask16 mask = (__mmask16)(0xFFFFu >> (16 - count));
    for (size_t k = 0; k < depth; k++)
        _mm512_storeu_ps(to + k * to_step, _mm512_maskz_loadu_ps(mask, from + k * k_step));
}

const rn_tile_set rn_tile_avx512 = {ROWS, GROUP, 2, LANES, run, pack_rows, pack_columns};
