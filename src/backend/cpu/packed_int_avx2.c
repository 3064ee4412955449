// packed_int_avx2.c — rounded products with AVX2: bytes are multiplied and added in pairs, then in
// fours.
//
// Pairs are added with saturation at 2^15. Weights of up to 7 bits cannot reach it (2 * 127 * 127);
// for those of 8 bits the sign goes over to x, which leaves at most 2 * 128 * 127. The fewer bits
// weights have, the more pairs are added before they are widened.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES 8

typedef __m256i vint;
typedef __m256 vfloat;
typedef uint32_t unsigned_lanes __attribute__((vector_size(32)));
typedef int32_t signed_lanes __attribute__((vector_size(32)));

#define INT_TABLE rn_int_avx2
#define DIRECT_ROWS                                                                                \
    {                                                                                              \
        [RN_INT_INT8] = 8, [RN_INT_Q8_0] = 8, [RN_INT_Q4_0] = 8, [RN_INT_Q5_0] = 4,                \
        [RN_INT_Q4_1] = 8, [RN_INT_Q5_1] = 4, [RN_INT_IQ4_NL] = 4, [RN_INT_MXFP4] = 4,             \
        [RN_INT_NVFP4] = 1, [RN_INT_Q1_0] = 1, [RN_INT_Q2_0] = 1, [RN_INT_Q2_K] = 2,               \
        [RN_INT_Q3_K] = 2, [RN_INT_Q4_K] = 3, [RN_INT_Q5_K] = 4, [RN_INT_Q6_K] = 1,                \
        [RN_INT_IQ4_XS] = 4, [RN_INT_TQ1_0] = 1, [RN_INT_TQ2_0] = 1                                \
    }
#define STRIP_ROWS 4
#define TILE_ROWS  6
#define PAIRED     1
enum { PANELS = 1, STRIP_PANELS = 1, BYTE_OFFSET = 0 };

// A word a line reads better here.
// clang-format off
static inline vint izero(void) { return _mm256_setzero_si256(); }
static inline vint iset(int x) { return _mm256_set1_epi32(x); }
static inline vint iload(const void *from) { return _mm256_loadu_si256((const __m256i *)from); }
static inline void istore(void *to, vint a) { _mm256_storeu_si256((__m256i *)to, a); }
static inline vint iset_from(const void *from) {
    int bits;
    memcpy(&bits, from, sizeof bits);
    return iset(bits);
}
static inline vint iand(vint a, vint b) { return _mm256_and_si256(a, b); }
static inline vint ior_and(vint a, vint b, vint c) { // a | (b & c)
    return _mm256_or_si256(a, _mm256_and_si256(b, c));
}
static inline vint ishl(vint a, int n) { return (vint)((unsigned_lanes)a << n); }
static inline vint ishr(vint a, int n) { return (vint)((unsigned_lanes)a >> n); }
static inline vint isar(vint a, int n) { return (vint)((signed_lanes)a >> n); }
static inline vint ior(vint a, vint b) { return _mm256_or_si256(a, b); }
static inline vint ixor(vint a, vint b) { return _mm256_xor_si256(a, b); }
static inline vint ishl_halves(vint a, int n) { return _mm256_slli_epi16(a, n); }
static inline vint isar_halves(vint a, int n) { return _mm256_srai_epi16(a, n); }
static inline vint imul_halves(vint a, vint b) { return _mm256_mullo_epi16(a, b); }
static inline vint iadd(vint a, vint b) { return _mm256_add_epi32(a, b); }
static inline vint iadd_bytes(vint a, vint b) { return _mm256_add_epi8(a, b); }
// Byte `at` of each lane in all its bytes.
static inline vint ibyte(vint a, int at) {
    const vint lanes = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    return _mm256_shuffle_epi8(a, _mm256_add_epi8(lanes, _mm256_set1_epi8((char)at)));
}
// Bytes: table[a], a < 16; a + value where bits & mask is not 0, mask one bit; a + (b >= limit).
static inline vint ilook_up(const uint8_t *table, vint a) {
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table)), a);
}
static inline vint iadd_where(vint a, vint bits, vint mask, vint value) {
    vint set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, mask), mask);
    return _mm256_add_epi8(a, _mm256_and_si256(set, value));
}
static inline vint iadd_above(vint a, vint b, int limit) {
    vint least = _mm256_set1_epi8((char)limit);
    return _mm256_sub_epi8(a, _mm256_cmpeq_epi8(_mm256_max_epu8(b, least), b));
}
// 0 where b is `value`, else a.
static inline vint izero_where(vint a, vint b, int value) {
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(b, iset(value)), a);
}
static inline vint iload_bytes(const void *from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
}
static inline vint imax(vint a, vint b) { return _mm256_max_epi32(a, b); }
static inline int imax_all(vint a) {
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
static inline int isum_all(vint a) {
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
static inline vint iround(vfloat a) { return _mm256_cvtps_epi32(a); }
static inline void istore_bytes(void *to, vint a) { // within -128 .. 127
    __m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((__m128i *)to, _mm_packs_epi16(pairs, pairs));
}
static inline vint add_pairs(vint sum, vint pairs) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline vint ipairs(vint w, vint x) { return _mm256_maddubs_epi16(w, x); }
static inline vint iadd_halves(vint a, vint b) { return _mm256_add_epi16(a, b); }
static inline vint iadd_products(vint a, vint b) { return _mm256_madd_epi16(a, b); }
static inline vint idot(vint sum, vint w, vint x) { return add_pairs(sum, ipairs(w, x)); }
static inline vint idot_byte(vint sum, vint w, vint x) {
    vint value = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    vint pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(value),
                                      _mm256_sign_epi8(x, value));
    return add_pairs(sum, pairs);
}

static inline vfloat vset(float x) { return _mm256_set1_ps(x); }
static inline vfloat vset_from(const void *from) { return _mm256_castsi256_ps(iset_from(from)); }
static inline vfloat vload(const float *from) { return _mm256_loadu_ps(from); }
static inline void vstore(float *to, vfloat a) { _mm256_storeu_ps(to, a); }
static inline vint mask_of(unsigned count) {
    vint lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(iset((int)count), lane);
}
static inline vfloat vload_some(const float *from, unsigned count) {
    return _mm256_maskload_ps(from, mask_of(count));
}
static inline void vstore_some(float *to, unsigned count, vfloat a) {
    _mm256_maskstore_ps(to, mask_of(count), a);
}
static inline vint ibits(vfloat a) { return _mm256_castps_si256(a); }
static inline vfloat vfrom(vint a) { return _mm256_castsi256_ps(a); }
static inline vfloat vconvert(vint a) { return _mm256_cvtepi32_ps(a); }
static inline vfloat vmul(vfloat a, vfloat b) { return _mm256_mul_ps(a, b); }
static inline vfloat vadd(vfloat a, vfloat b) { return _mm256_add_ps(a, b); }
static inline vfloat vfma(vfloat a, vfloat b, vfloat c) { return _mm256_fmadd_ps(a, b, c); }
static inline vfloat vfnma(vfloat a, vfloat b, vfloat c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vfloat vload_half(const void *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}
static inline vfloat vload_high_half(vint a) {
    vint high = ishr(a, 16);
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
}
static inline vfloat vload_low_half(vint a) { return vload_high_half(ishl(a, 16)); }
// clang-format on

#include "backend/cpu/packed_int_vector.h"
