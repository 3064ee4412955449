// tile_avx2.c — tiles of 6 rows by 16 columns: 12 sums, two vectors of B and one element of A at a
// time in 16 registers. Otherwise as tile_avx512.c.
#include "backend/cpu/tile.h"

#include <immintrin.h>

enum { ROWS = 6, GROUP = ROWS / 2, LANES = 8, AHEAD = 8 };

#define INLINE static inline __attribute__((always_inline))

typedef __m256 sums[ROWS][2];

INLINE float *c_row(const rn_tile *t, int row) {
    return row < GROUP ? t->c[0] + (size_t)row * t->c_row
                       : t->c[1] + (size_t)(row - GROUP) * t->c_row;
}

// Lanes below `count`.
INLINE __m256i mask_of(int count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes);
}

INLINE void begin(const rn_tile *t, sums s, int rows, const __m256i mask[2]) {
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
        s[row][0] = s[row][1] = _mm256_setzero_ps();
    if (!t->resume) return;
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++) {
        s[row][0] = _mm256_maskload_ps(c_row(t, row), mask[0]);
        s[row][1] = _mm256_maskload_ps(c_row(t, row) + 8, mask[1]);
    }
}

INLINE void end(const rn_tile *t, sums s, int rows, const __m256i mask[2]) {
    if (t->bias) {
        __m256 low = _mm256_maskload_ps(t->bias, mask[0]);
        __m256 high = _mm256_maskload_ps(t->bias + 8, mask[1]);
#pragma GCC unroll 6
        for (int row = 0; row < rows; row++) {
            s[row][0] = _mm256_add_ps(s[row][0], low);
            s[row][1] = _mm256_add_ps(s[row][1], high);
        }
    }
    if (t->clamped) { // the second operand is what a NaN leaves
        __m256 low = _mm256_set1_ps(t->low), high = _mm256_set1_ps(t->high);
#pragma GCC unroll 6
        for (int row = 0; row < rows; row++) {
            s[row][0] = _mm256_min_ps(high, _mm256_max_ps(low, s[row][0]));
            s[row][1] = _mm256_min_ps(high, _mm256_max_ps(low, s[row][1]));
        }
    }
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++) {
        _mm256_maskstore_ps(c_row(t, row), mask[0], s[row][0]);
        _mm256_maskstore_ps(c_row(t, row) + 8, mask[1], s[row][1]);
    }
}

INLINE const float *walk(sums s, const float *a0, const float *a1, size_t a_row, size_t a_k,
                         const float *b, size_t depth, int rows) {
    for (size_t k = 0; k < depth; k++) {
        __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
        if (a_row == 1) _mm_prefetch((const char *)(a0 + AHEAD * LANES), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + AHEAD * RN_PANEL), _MM_HINT_T0);
#pragma GCC unroll 6
        for (int row = 0; row < rows; row++) {
            const float *a =
                row < GROUP ? a0 + (size_t)row * a_row : a1 + (size_t)(row - GROUP) * a_row;
            __m256 x = _mm256_broadcast_ss(a);
            s[row][0] = _mm256_fmadd_ps(x, b0, s[row][0]);
            s[row][1] = _mm256_fmadd_ps(x, b1, s[row][1]);
        }
        a0 += a_k, a1 += a_k, b += RN_PANEL;
    }
    return b;
}

INLINE void tile(const rn_tile *t, int rows) {
    const __m256i mask[2] = {mask_of((int)t->cols), mask_of((int)t->cols - 8)};
    const float *b = t->b;
    sums s;
    begin(t, s, rows, mask);
    if (t->a_row == 1 && t->a_k == LANES) {
        walk(s, t->a[0], t->a[0] + GROUP, 1, LANES, b, t->depth, rows);
    } else {
        for (uint32_t o = 0; o < t->outer; o++)
            for (uint32_t i = 0; i < t->inner; i++) {
                size_t at = o * t->outer_step + i * t->inner_step;
                b = walk(s, t->a[0] + at, t->a[1] + at, t->a_row, t->a_k, b, t->depth, rows);
            }
    }
    end(t, s, rows, mask);
}

static void run(const rn_tile *t) {
    switch (t->rows) {
    case 1:
        tile(t, 1);
        return;
    case 2:
        tile(t, 2);
        return;
    case 3:
        tile(t, 3);
        return;
    case 4:
        tile(t, 4);
        return;
    case 5:
        tile(t, 5);
        return;
    default:
        tile(t, 6);
        return;
    }
}

// 8 vectors of 8 become their columns.
INLINE void transpose(__m256 r[8]) {
    __m256 s[8];
    for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0x44);
            r[i + 2 * j + 1] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0xEE);
        }
    for (int i = 0; i < 4; i++) {
        s[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        s[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++)
        r[i] = s[i];
}

static void pack_rows(const float *from, size_t row_step, uint32_t count, size_t depth, float *to,
                      size_t to_step) {
    for (size_t k = 0; k < depth; k += 8) {
        size_t left = depth - k < 8 ? depth - k : 8;
        __m256i mask = mask_of((int)left);
        __m256 r[8];
#pragma GCC unroll 8
        for (uint32_t row = 0; row < 8; row++)
            r[row] = row < count ? _mm256_maskload_ps(from + row * row_step + k, mask)
                                 : _mm256_setzero_ps();
        transpose(r);
        for (size_t i = 0; i < left; i++)
            _mm256_storeu_ps(to + (k + i) * to_step, r[i]);
    }
}

static void pack_columns(const float *from, size_t k_step, uint32_t count, size_t depth, float *to,
                         size_t to_step) {
    __m256i mask = mask_of((int)count);
    for (size_t k = 0; k < depth; k++)
        _mm256_storeu_ps(to + k * to_step, _mm256_maskload_ps(from + k * k_step, mask));
}

const rn_tile_set rn_tile_avx2 = {ROWS, GROUP, 1, LANES, run, pack_rows, pack_columns};
