// vector_avx512.h — the vector words of the kernels, spelt for AVX-512: 16 lanes. vector_avx2.h has
// the same words with 8 lanes, so convert_vector.h and quant_vector.h are written once. Only
// _avx512.c files include this.
#ifndef RN_TENSOR_VECTOR_AVX512_H
#define RN_TENSOR_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define LANES 16

typedef __m512 vfloat;
typedef __m512i vint;    // 32-bit lanes
typedef __mmask16 vmask; // one truth a lane
typedef __m512d vsum;    // 8 double sums; element i of a vector goes to sum i % 8

// A word a line reads better here.
// clang-format off
static inline vfloat vset(float x) { return _mm512_set1_ps(x); }
static inline vfloat vload(const float *from) { return _mm512_loadu_ps(from); }
static inline void vstore(float *to, vfloat a) { _mm512_storeu_ps(to, a); }
static inline vfloat vadd(vfloat a, vfloat b) { return _mm512_add_ps(a, b); }
static inline vfloat vsub(vfloat a, vfloat b) { return _mm512_sub_ps(a, b); }
static inline vfloat vmul(vfloat a, vfloat b) { return _mm512_mul_ps(a, b); }
static inline vfloat vdiv(vfloat a, vfloat b) { return _mm512_div_ps(a, b); }
// b where either is NaN
static inline vfloat vmin(vfloat a, vfloat b) { return _mm512_min_ps(a, b); }
static inline vfloat vmax(vfloat a, vfloat b) { return _mm512_max_ps(a, b); }

static inline vint iset(int x) { return _mm512_set1_epi32(x); }
static inline vint ifrom(vfloat a) { return _mm512_castps_si512(a); } // the bits
static inline vfloat vfrom(vint a) { return _mm512_castsi512_ps(a); }
static inline vint iadd(vint a, vint b) { return _mm512_add_epi32(a, b); }
static inline vint isub(vint a, vint b) { return _mm512_sub_epi32(a, b); }
static inline vint iand(vint a, vint b) { return _mm512_and_si512(a, b); }
static inline vint ior(vint a, vint b) { return _mm512_or_si512(a, b); }
static inline vint ixor(vint a, vint b) { return _mm512_xor_si512(a, b); }
static inline vint imin(vint a, vint b) { return _mm512_min_epi32(a, b); }
static inline vint imax(vint a, vint b) { return _mm512_max_epi32(a, b); }
#define ishl(a, n) _mm512_slli_epi32((a), (n))
#define ishr(a, n) _mm512_srli_epi32((a), (n)) // zeros come in
#define isar(a, n) _mm512_srai_epi32((a), (n)) // signs come in

static inline vint iround(vfloat a) { return _mm512_cvtps_epi32(a); } // to nearest even
static inline vint itrunc(vfloat a) { return _mm512_cvttps_epi32(a); }
static inline vfloat vconvert(vint a) { return _mm512_cvtepi32_ps(a); }

static inline vmask mequal(vfloat a, vfloat b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline vmask mnot_less_equal(vfloat a, vfloat b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ);
}
static inline vmask mgreater_int(vint a, vint b) { return _mm512_cmpgt_epi32_mask(a, b); }
static inline vint ipick(vmask m, vint yes, vint no) { return _mm512_mask_blend_epi32(m, no, yes); }
static inline vint iadd_where(vmask m, vint a, vint b) { return _mm512_mask_add_epi32(a, m, a, b); }
static inline unsigned mbits(vmask m) { return m; }

static inline int itop(vint a) { return _mm512_reduce_max_epi32(a); }
static inline int ibottom(vint a) { return _mm512_reduce_min_epi32(a); }
static inline float vtop(vfloat a) { return _mm512_reduce_max_ps(a); }

static inline vint iload_u8(const void *from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
}
static inline vint iload_i8(const void *from) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from));
}
static inline vint iload_u16(const void *from) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
}
// The low byte, the low two bytes of each lane.
static inline void istore_8(void *to, vint a) {
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8(a));
}
static inline void istore_16(void *to, vint a) {
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(a));
}

static inline vfloat vload_half(const void *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}
static inline void vstore_half(void *to, vfloat a) {
    _mm256_storeu_si256((__m256i *)to,
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline uint16_t half_bits(float x) { return (uint16_t)_cvtss_sh(x, 0); }
static inline float half_float(uint16_t half) { return _cvtsh_ss(half); }
// Bytes that are the upper halves of f16.
static inline vfloat vload_e5m2(const void *from) {
    __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)from));
    return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
}

// Two 4-bit values a byte, the first in the high nibble; LANES / 2 bytes.
static inline vint iload_nibbles(const uint8_t *from) {
    __m512i wide = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)from));
    __m512i second = _mm512_slli_epi64(_mm512_and_si512(wide, _mm512_set1_epi64(15)), 32);
    return _mm512_or_si512(_mm512_srli_epi64(wide, 4), second);
}
static inline void istore_nibbles(uint8_t *to, vint a) {
    __m512i both = _mm512_or_si512(_mm512_slli_epi64(a, 4), _mm512_srli_epi64(a, 32));
    _mm_storel_epi64((__m128i *)to, _mm512_cvtepi64_epi8(both));
}

// table[index] with indices 0..15.
typedef __m512 vtable;
static inline vtable table_load(const float table[16]) { return _mm512_loadu_ps(table); }
static inline vfloat table_get(vtable table, vint index) {
    return _mm512_permutexvar_ps(index, table);
}

static inline vsum sum_zero(void) { return _mm512_setzero_pd(); }
static inline __m512d sum_low(vfloat a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a)); }
static inline __m512d sum_high(vfloat a) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)); }
static inline vsum sum_add(vsum sum, vfloat a) {
    return _mm512_add_pd(_mm512_add_pd(sum, sum_low(a)), sum_high(a));
}
// The square of a float is exact in double, so the fused operation rounds as the separate ones do.
static inline vsum sum_add_square(vsum sum, vfloat a) {
    __m512d low = sum_low(a), high = sum_high(a);
    return _mm512_fmadd_pd(high, high, _mm512_fmadd_pd(low, low, sum));
}
static inline void sum_store(double to[8], vsum sum) { _mm512_storeu_pd(to, sum); }
// clang-format on

#endif
