// byte_tile_avxvnni.c — products of bytes on AVX2 machines that multiply bytes (AVX-VNNI): 6 rows
// by 16 columns.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES  8
#define ROWS   6
#define PANELS 1

typedef __m256i vint, left, right;

// A word a line reads better here.
// clang-format off
static inline vint vzero(void) { return _mm256_setzero_si256(); }
static inline void vstore(void *to, vint a) { _mm256_storeu_si256((__m256i *)to, a); }
static inline right load_right(const void *from) { return _mm256_loadu_si256((const __m256i *)from); }
static inline left load_left(const void *from) {
    int bits;
    memcpy(&bits, from, sizeof bits);
    return _mm256_set1_epi32(bits);
}
static inline vint dot(vint sum, left a, right b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
// clang-format on

#include "backend/cpu/byte_tile_vector.h"

const rn_byte_set rn_byte_avxvnni = {.rows = ROWS,
                                     .panels = PANELS,
                                     .row_unit = 1,
                                     .run = run,
                                     .finish = level_finish,
                                     .pack_row = level_pack_row};
