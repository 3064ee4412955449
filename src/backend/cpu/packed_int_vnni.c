// packed_int_vnni.c — rounded products with AVX-512 VNNI: one instruction multiplies 64 bytes by 64
// bytes and adds groups of four.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES 16

typedef __m512i vint;
typedef __m512 vfloat;
typedef uint32_t unsigned_lanes __attribute__((vector_size(64)));
typedef int32_t signed_lanes __attribute__((vector_size(64)));

#define INT_TABLE rn_int_vnni
#define DIRECT_ROWS                                                                                \
    {                                                                                              \
        [RN_INT_INT8] = 32, [RN_INT_Q8_0] = 32, [RN_INT_Q4_0] = 32, [RN_INT_Q5_0] = 16,            \
        [RN_INT_Q4_1] = 32, [RN_INT_Q5_1] = 16, [RN_INT_IQ4_NL] = 16, [RN_INT_MXFP4] = 16,         \
        [RN_INT_NVFP4] = 1, [RN_INT_Q1_0] = 1, [RN_INT_Q2_0] = 1, [RN_INT_Q2_K] = 8,               \
        [RN_INT_Q3_K] = 8, [RN_INT_Q4_K] = 24, [RN_INT_Q5_K] = 8, [RN_INT_Q6_K] = 12,              \
        [RN_INT_IQ4_XS] = 16, [RN_INT_TQ1_0] = 1, [RN_INT_TQ2_0] = 1                               \
    }
#define STRIP_ROWS 8
#define TILE_ROWS  3
#define PAIRED     0
enum { PANELS = 4, STRIP_PANELS = 2, BYTE_OFFSET = 128 };

// A word a line reads better here.
// clang-format off
static inline vint izero(void) { return _mm512_setzero_si512(); }
static inline vint iset(int x) { return _mm512_set1_epi32(x); }
static inline vint iload(const void *from) { return _mm512_loadu_si512(from); }
static inline void istore(void *to, vint a) { _mm512_storeu_si512(to, a); }
static inline vint iset_from(const void *from) {
    int bits;
    memcpy(&bits, from, sizeof bits);
    return iset(bits);
}
static inline vint iand(vint a, vint b) { return _mm512_and_si512(a, b); }
static inline vint ior_and(vint a, vint b, vint c) { // a | (b & c)
    return _mm512_ternarylogic_epi32(a, b, c, 0xf8);
}
static inline vint ishl(vint a, int n) { return (vint)((unsigned_lanes)a << n); }
static inline vint ishr(vint a, int n) { return (vint)((unsigned_lanes)a >> n); }
static inline vint isar(vint a, int n) { return (vint)((signed_lanes)a >> n); }
static inline vint ior(vint a, vint b) { return _mm512_or_si512(a, b); }
static inline vint ixor(vint a, vint b) { return _mm512_xor_si512(a, b); }
static inline vint ishl_halves(vint a, int n) { return _mm512_slli_epi16(a, (unsigned)n); }
static inline vint isar_halves(vint a, int n) { return _mm512_srai_epi16(a, (unsigned)n); }
static inline vint imul_halves(vint a, vint b) { return _mm512_mullo_epi16(a, b); }
static inline vint iadd(vint a, vint b) { return _mm512_add_epi32(a, b); }
static inline vint iadd_bytes(vint a, vint b) { return _mm512_add_epi8(a, b); }
// Byte `at` of each lane in all its bytes.
static inline vint ibyte(vint a, int at) {
    const vint lanes = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    return _mm512_shuffle_epi8(a, _mm512_add_epi8(lanes, _mm512_set1_epi8((char)at)));
}
// Bytes: table[a], a < 16; a + value where bits & mask is not 0, mask one bit; a + (b >= limit).
static inline vint ilook_up(const uint8_t *table, vint a) {
    return _mm512_shuffle_epi8(
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table)), a);
}
static inline vint iadd_where(vint a, vint bits, vint mask, vint value) {
    return _mm512_mask_add_epi8(a, _mm512_test_epi8_mask(bits, mask), a, value);
}
static inline vint iadd_above(vint a, vint b, int limit) {
    __mmask64 above = _mm512_cmpge_epu8_mask(b, _mm512_set1_epi8((char)limit));
    return _mm512_mask_add_epi8(a, above, a, _mm512_set1_epi8(1));
}
// 0 where b is `value`, else a.
static inline vint izero_where(vint a, vint b, int value) {
    return _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(b, iset(value)), a);
}
static inline vint iload_bytes(const void *from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
}
static inline vint imax(vint a, vint b) { return _mm512_max_epi32(a, b); }
static inline int imax_all(vint a) { return _mm512_reduce_max_epi32(a); }
static inline int isum_all(vint a) { return _mm512_reduce_add_epi32(a); }
static inline vint iround(vfloat a) { return _mm512_cvtps_epi32(a); }
static inline void istore_bytes(void *to, vint a) {
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(a));
}
static inline vint idot(vint sum, vint w, vint x) {
    return _mm512_dpbusd_epi32(sum, w, x);
}
static inline vint idot_byte(vint sum, vint w, vint x) { return idot(sum, w, x); }
static inline vint iadd_products(vint a, vint b) { return _mm512_madd_epi16(a, b); }
// No sums of 16 bits here.
static inline vint ipairs(vint w, vint x) { return idot(izero(), w, x); }
static inline vint iadd_halves(vint a, vint b) { return iadd(a, b); }
static inline vint add_pairs(vint sum, vint pairs) { return iadd(sum, pairs); }

static inline vfloat vset(float x) { return _mm512_set1_ps(x); }
static inline vfloat vset_from(const void *from) { return _mm512_castsi512_ps(iset_from(from)); }
static inline vfloat vload(const float *from) { return _mm512_loadu_ps(from); }
static inline void vstore(float *to, vfloat a) { _mm512_storeu_ps(to, a); }
static inline vfloat vload_some(const float *from, unsigned count) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
}
static inline void vstore_some(float *to, unsigned count, vfloat a) {
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), a);
}
static inline vint ibits(vfloat a) { return _mm512_castps_si512(a); }
static inline vfloat vfrom(vint a) { return _mm512_castsi512_ps(a); }
static inline vfloat vconvert(vint a) { return _mm512_cvtepi32_ps(a); }
static inline vfloat vmul(vfloat a, vfloat b) { return _mm512_mul_ps(a, b); }
static inline vfloat vadd(vfloat a, vfloat b) { return _mm512_add_ps(a, b); }
static inline vfloat vfma(vfloat a, vfloat b, vfloat c) { return _mm512_fmadd_ps(a, b, c); }
static inline vfloat vfnma(vfloat a, vfloat b, vfloat c) { return _mm512_fnmadd_ps(a, b, c); }
static inline vfloat vload_half(const void *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}
static inline vfloat vload_low_half(vint a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
static inline vfloat vload_high_half(vint a) { return vload_low_half(ishr(a, 16)); }
// clang-format on

#include "backend/cpu/packed_int_vector.h"
