// byte_tile_avx2.c — products of bytes with AVX2: 4 rows by 16 columns.
//
// The instruction that multiplies bytes adds pairs with saturation, which 255 * 127 twice reaches.
// So bytes are widened to 16 bits, those at even and at odd places apart, whose products are added
// in pairs of 32 bits.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES  8
#define ROWS   4
#define PANELS 1

typedef __m256i vint;
typedef struct pair {
    vint even, odd; // of 16 bits
} pair, left, right;

// A word a line reads better here.
// clang-format off
static inline vint vzero(void) { return _mm256_setzero_si256(); }
static inline void vstore(void *to, vint a) { _mm256_storeu_si256((__m256i *)to, a); }
static inline right load_right(const void *from) {
    vint bytes = _mm256_loadu_si256((const __m256i *)from);
    return (right){_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
}
static inline left load_left(const void *from) {
    uint32_t bits;
    memcpy(&bits, from, sizeof bits);
    return (left){_mm256_set1_epi32((int)(bits & 0x00ff00ff)),
                  _mm256_set1_epi32((int)(bits >> 8 & 0x00ff00ff))};
}
static inline vint dot(vint sum, left a, right b) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a.even, b.even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a.odd, b.odd));
}
// clang-format on

#include "backend/cpu/byte_tile_vector.h"

const rn_byte_set rn_byte_avx2 = {.rows = ROWS,
                                  .panels = PANELS,
                                  .row_unit = 1,
                                  .run = run,
                                  .finish = level_finish,
                                  .pack_row = level_pack_row};
