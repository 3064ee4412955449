// byte_tile_vnni.c — products of bytes with AVX-512 VNNI: 6 rows by 64 columns.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES  16
#define ROWS   6
#define PANELS 4

typedef __m512i vint, left, right;

// A word a line reads better here.
// clang-format off
static inline vint vzero(void) { return _mm512_setzero_si512(); }
static inline void vstore(void *to, vint a) { _mm512_storeu_si512(to, a); }
static inline right load_right(const void *from) { return _mm512_loadu_si512(from); }
static inline left load_left(const void *from) {
    int bits;
    memcpy(&bits, from, sizeof bits);
    return _mm512_set1_epi32(bits);
}
static inline vint dot(vint sum, left a, right b) { return _mm512_dpbusd_epi32(sum, a, b); }
// clang-format on

#include "backend/cpu/byte_tile_vector.h"

const rn_byte_set rn_byte_vnni = {.rows = ROWS,
                                  .panels = PANELS,
                                  .row_unit = 1,
                                  .run = run,
                                  .finish = level_finish,
                                  .pack_row = level_pack_row};
