// byte_tile_portable.c — products of bytes in vectors of 16 bytes, and which level's tiles are
// used.
//
// As with AVX2, bytes at even and at odd places are widened to 16 bits apart. A product of two fits
// those: 255 * -128.
#include "backend/cpu/byte_tile.h"

#include "base/cpu.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include <string.h>

#define LANES  4
#define ROWS   4
#define PANELS 1

typedef uint32_t vint __attribute__((vector_size(16)));
typedef int32_t signed_lanes __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));
typedef int16_t signed_halves __attribute__((vector_size(16)));
typedef struct pair {
    signed_halves even, odd;
} pair, left, right;

static inline vint vzero(void) {
    return (vint){0};
}

static inline void vstore(void *to, vint a) {
    memcpy(to, &a, sizeof a);
}

static inline right load_right(const void *from) {
    halves bytes;
    memcpy(&bytes, from, sizeof bytes);
    return (right){(signed_halves)(bytes << 8) >> 8, (signed_halves)bytes >> 8};
}

static inline left load_left(const void *from) {
    uint32_t bits;
    memcpy(&bits, from, sizeof bits);
    vint all = vzero() + bits;
    return (left){(signed_halves)(all & 0x00ff00ff), (signed_halves)(all >> 8 & 0x00ff00ff)};
}

// Neighbours' products, added.
static inline vint multiply(signed_halves a, signed_halves b) {
#if defined(__SSE2__)
    return (vint)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    vint both = (vint)(a * b);
    return (vint)((signed_lanes)(both << 16) >> 16) + (vint)((signed_lanes)both >> 16);
#endif
}

static inline vint dot(vint sum, left a, right b) {
    return sum + multiply(a.even, b.even) + multiply(a.odd, b.odd);
}

#include "backend/cpu/byte_tile_vector.h"

const rn_byte_set rn_byte_portable = {.rows = ROWS,
                                      .panels = PANELS,
                                      .row_unit = 1,
                                      .run = run,
                                      .finish = level_finish,
                                      .pack_row = level_pack_row};

const rn_byte_set *rn_byte_set_get(uint64_t rows) {
#if defined(__x86_64__)
    enum { FEW = 8 }; // rows for which loading a matrix unit's tiles does not pay
    if (rows > FEW && rn_cpu_has_amx()) return &rn_byte_amx;
    if (rn_cpu_has_vnni()) return &rn_byte_vnni;
    if (rn_cpu_has_avxvnni()) return &rn_byte_avxvnni;
    if (rn_cpu_level_get() != RN_CPU_PORTABLE) return &rn_byte_avx2;
#endif
    (void)rows;
    return &rn_byte_portable;
}
