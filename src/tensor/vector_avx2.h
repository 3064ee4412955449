// vector_avx2.h — the vector words of the kernels, spelt for AVX2 and F16C: 8 lanes.
// vector_avx512.h has the same words with 16 lanes, so convert_vector.h and quant_vector.h are
// written once. Only _avx2.c files include this.
#ifndef RN_TENSOR_VECTOR_AVX2_H
#define RN_TENSOR_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES 8

typedef __m256 vfloat;
typedef __m256i vint; // 32-bit lanes
typedef __m256 vmask; // all ones or all zeros a lane
typedef struct vsum { // 8 double sums; element i of a vector goes to sum i
    __m256d low, high;
} vsum;

// A word a line reads better here.
// clang-format off
static inline vfloat vset(float x) { return _mm256_set1_ps(x); }
static inline vfloat vload(const float *from) { return _mm256_loadu_ps(from); }
static inline void vstore(float *to, vfloat a) { _mm256_storeu_ps(to, a); }
static inline vfloat vadd(vfloat a, vfloat b) { return _mm256_add_ps(a, b); }
static inline vfloat vsub(vfloat a, vfloat b) { return _mm256_sub_ps(a, b); }
static inline vfloat vmul(vfloat a, vfloat b) { return _mm256_mul_ps(a, b); }
static inline vfloat vdiv(vfloat a, vfloat b) { return _mm256_div_ps(a, b); }
// b where either is NaN
static inline vfloat vmin(vfloat a, vfloat b) { return _mm256_min_ps(a, b); }
static inline vfloat vmax(vfloat a, vfloat b) { return _mm256_max_ps(a, b); }

static inline vint iset(int x) { return _mm256_set1_epi32(x); }
static inline vint ifrom(vfloat a) { return _mm256_castps_si256(a); } // the bits
static inline vfloat vfrom(vint a) { return _mm256_castsi256_ps(a); }
static inline vint iadd(vint a, vint b) { return _mm256_add_epi32(a, b); }
static inline vint isub(vint a, vint b) { return _mm256_sub_epi32(a, b); }
static inline vint iand(vint a, vint b) { return _mm256_and_si256(a, b); }
static inline vint ior(vint a, vint b) { return _mm256_or_si256(a, b); }
static inline vint ixor(vint a, vint b) { return _mm256_xor_si256(a, b); }
static inline vint imin(vint a, vint b) { return _mm256_min_epi32(a, b); }
static inline vint imax(vint a, vint b) { return _mm256_max_epi32(a, b); }
#define ishl(a, n) _mm256_slli_epi32((a), (n))
#define ishr(a, n) _mm256_srli_epi32((a), (n)) // zeros come in
#define isar(a, n) _mm256_srai_epi32((a), (n)) // signs come in

static inline vint iround(vfloat a) { return _mm256_cvtps_epi32(a); } // to nearest even
static inline vint itrunc(vfloat a) { return _mm256_cvttps_epi32(a); }
static inline vfloat vconvert(vint a) { return _mm256_cvtepi32_ps(a); }

static inline vmask mequal(vfloat a, vfloat b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
static inline vmask mnot_less_equal(vfloat a, vfloat b) { return _mm256_cmp_ps(a, b, _CMP_NLE_UQ); }
static inline vmask mgreater_int(vint a, vint b) { return vfrom(_mm256_cmpgt_epi32(a, b)); }
static inline vint ipick(vmask m, vint yes, vint no) {
    return _mm256_blendv_epi8(no, yes, ifrom(m));
}
static inline vint iadd_where(vmask m, vint a, vint b) { return iadd(a, iand(ifrom(m), b)); }
static inline unsigned mbits(vmask m) { return (unsigned)_mm256_movemask_ps(m); }

static inline int itop(vint a) {
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
static inline int ibottom(vint a) {
    __m128i t = _mm_min_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    t = _mm_min_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_min_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
static inline float vtop(vfloat a) {
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}

static inline vint iload_u8(const void *from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
}
static inline vint iload_i8(const void *from) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from));
}
static inline vint iload_u16(const void *from) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
}
// The low byte, the low two bytes of each lane.
static inline __m128i low_16(vint a) {
    vint low = iand(a, iset(0xffff));
    return _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
}
static inline void istore_16(void *to, vint a) { _mm_storeu_si128((__m128i *)to, low_16(a)); }
static inline void istore_8(void *to, vint a) {
    __m128i pairs = low_16(iand(a, iset(0xff)));
    _mm_storel_epi64((__m128i *)to, _mm_packus_epi16(pairs, pairs));
}

static inline vfloat vload_half(const void *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}
static inline void vstore_half(void *to, vfloat a) {
    _mm_storeu_si128((__m128i *)to,
                     _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline uint16_t half_bits(float x) { return (uint16_t)_cvtss_sh(x, 0); }
static inline float half_float(uint16_t half) { return _cvtsh_ss(half); }
// Bytes that are the upper halves of f16.
static inline vfloat vload_e5m2(const void *from) {
    __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)from));
    return _mm256_cvtph_ps(_mm_slli_epi16(wide, 8));
}

// Two 4-bit values a byte, the first in the high nibble; LANES / 2 bytes.
static inline vint iload_nibbles(const uint8_t *from) {
    int bytes;
    memcpy(&bytes, from, sizeof bytes);
    __m256i wide = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes));
    __m256i second = _mm256_slli_epi64(_mm256_and_si256(wide, _mm256_set1_epi64x(15)), 32);
    return _mm256_or_si256(_mm256_srli_epi64(wide, 4), second);
}
static inline void istore_nibbles(uint8_t *to, vint a) {
    __m256i both = _mm256_or_si256(_mm256_slli_epi64(a, 4), _mm256_srli_epi64(a, 32));
    __m256i bytes = _mm256_shuffle_epi8(both, _mm256_set1_epi64x(0x0800)); // bytes 0 and 8
    __m128i four = _mm_unpacklo_epi16(_mm256_castsi256_si128(bytes),
                                      _mm256_extracti128_si256(bytes, 1));
    int packed = _mm_cvtsi128_si32(four);
    memcpy(to, &packed, sizeof packed);
}

// table[index] with indices 0..15: both halves, then the one that bit 3 names.
typedef struct vtable {
    __m256 low, high;
} vtable;
static inline vtable table_load(const float table[16]) {
    return (vtable){_mm256_loadu_ps(table), _mm256_loadu_ps(table + 8)};
}
static inline vfloat table_get(vtable table, vint index) {
    __m256 low = _mm256_permutevar8x32_ps(table.low, index);
    __m256 high = _mm256_permutevar8x32_ps(table.high, index);
    return _mm256_blendv_ps(low, high, vfrom(ishl(index, 28)));
}

static inline vsum sum_zero(void) { return (vsum){_mm256_setzero_pd(), _mm256_setzero_pd()}; }
static inline __m256d sum_low(vfloat a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
static inline __m256d sum_high(vfloat a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
static inline vsum sum_add(vsum sum, vfloat a) {
    return (vsum){_mm256_add_pd(sum.low, sum_low(a)), _mm256_add_pd(sum.high, sum_high(a))};
}
// The square of a float is exact in double, so the fused operation rounds as the separate ones do.
static inline vsum sum_add_square(vsum sum, vfloat a) {
    __m256d low = sum_low(a), high = sum_high(a);
    return (vsum){_mm256_fmadd_pd(low, low, sum.low), _mm256_fmadd_pd(high, high, sum.high)};
}
static inline void sum_store(double to[8], vsum sum) {
    _mm256_storeu_pd(to, sum.low);
    _mm256_storeu_pd(to + 4, sum.high);
}
// clang-format on

#endif
