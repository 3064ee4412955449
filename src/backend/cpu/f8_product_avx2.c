// f8_product_avx2.c — e4m3 in 16 lanes with AVX2; it serves AVX-512 machines, too.
//
// e4m3's bits, moved to the places of an f16's, are that number divided by 256, also where it is
// denormal; the conversion to f32 knows denormals without delay. The 256 go into the scale.
#include "backend/cpu/f8_product.h"

#include <immintrin.h>
#include <string.h>

// 16 columns of 16 rows: out[i] has columns 2i and 2i + 1, each of rows 0 to 7 in its lower half
// and of rows 8 to 15 in its upper.
static inline void transpose(const uint8_t *const row[16], uint64_t at, __m256i out[8]) {
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(row[i] + at))),
            _mm_loadu_si128((const __m128i *)(const void *)(row[i + 8] + at)), 1);
    for (int i = 0; i < 4; i++) { // rows i and i + 4: columns 0 to 7, 8 to 15
        b[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 4]);
        b[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 4]);
    }
    for (int i = 0; i < 2; i++) // rows i, i + 2, i + 4, i + 6: four columns each
        for (int half = 0; half < 2; half++) {
            a[4 * i + 2 * half] = _mm256_unpacklo_epi8(b[2 * i + half], b[2 * i + 4 + half]);
            a[4 * i + 2 * half + 1] = _mm256_unpackhi_epi8(b[2 * i + half], b[2 * i + 4 + half]);
        }
    for (int i = 0; i < 4; i++) {
        out[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 4]);
        out[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 4]);
    }
}

// Bytes in the upper halves of 16 bits to f16; e4m3's only NaN stays one.
static inline __m256i to_half(__m256i bytes) {
    const __m256i top = _mm256_set1_epi16(0x3f80);
    __m256i bits = _mm256_and_si256(_mm256_srai_epi16(bytes, 1), _mm256_set1_epi16((short)0xbf80));
    __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(bits, top), top);
    return _mm256_or_si256(bits, nan);
}

typedef struct lanes {
    __m256 low, high; // rows 0 to 7, 8 to 15
} lanes;

static inline lanes widen(__m256i bytes, lanes scale) {
    __m256i half = to_half(bytes);
    return (lanes){_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), scale.low),
                   _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), scale.high)};
}

static inline lanes load_scales(const uint8_t *const row[16]) {
    float scales[16];
    for (int i = 0; i < 16; i++) {
        memcpy(&scales[i], row[i], sizeof *scales);
        scales[i] *= 256;
    }
    return (lanes){_mm256_loadu_ps(scales), _mm256_loadu_ps(scales + 8)};
}

// `m` is constant where this is called.
static inline __attribute__((always_inline)) void multiply(const float *x, const uint64_t m,
                                                           uint64_t k, uint64_t block,
                                                           const uint8_t *row[16], float *sums) {
    lanes acc[RN_F8_MOST];
    for (uint64_t i = 0; i < m; i++)
        acc[i].low = acc[i].high = _mm256_setzero_ps();
    for (uint64_t c = 0; c < k; c += block) {
        lanes scale = load_scales(row);
        for (uint64_t at = 0; at < block; at += 16) {
            __m256i pairs[8];
            transpose(row, 4 + at, pairs);
            for (uint64_t j = 0; j < 16; j++) {
                const __m256i zero = _mm256_setzero_si256();
                __m256i pair = pairs[j / 2];
                lanes w = widen(j % 2 ? _mm256_unpackhi_epi8(zero, pair)
                                      : _mm256_unpacklo_epi8(zero, pair),
                                scale);
                for (uint64_t i = 0; i < m; i++) {
                    __m256 value = _mm256_broadcast_ss(x + i * k + c + at + j);
                    acc[i].low = _mm256_fmadd_ps(value, w.low, acc[i].low);
                    acc[i].high = _mm256_fmadd_ps(value, w.high, acc[i].high);
                }
            }
        }
        for (int i = 0; i < 16; i++)
            row[i] += block + sizeof(float);
    }
    for (uint64_t i = 0; i < m; i++) {
        _mm256_storeu_ps(sums + i * RN_F8_LANES, acc[i].low);
        _mm256_storeu_ps(sums + i * RN_F8_LANES + 8, acc[i].high);
    }
}

void rn_f8_multiply_avx2(const float *x, uint64_t m, uint64_t k, uint64_t block, const uint8_t *w,
                         uint64_t row_bytes, uint64_t rows, float *sums) {
    const uint8_t *row[RN_F8_LANES];
    for (uint64_t i = 0; i < RN_F8_LANES; i++)
        row[i] = w + (i < rows ? i : rows - 1) * row_bytes;
    switch (m) {
    case 1:
        multiply(x, 1, k, block, row, sums);
        break;
    case 2:
        multiply(x, 2, k, block, row, sums);
        break;
    case 3:
        multiply(x, 3, k, block, row, sums);
        break;
    case 4:
        multiply(x, 4, k, block, row, sums);
        break;
    default:
        break;
    }
}
