// row_one_avx2.c — see row_one_vector.h.
#include "tensor/small_float.h"

#include <immintrin.h>
#include <string.h>

#define ROW_ONE_TABLE rn_row_one_avx2

static inline __m256i dot(__m256i w, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1));
}

static inline __m256i dot_signed(__m256i w, __m256i x, const void *signs) {
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    int word;
    memcpy(&word, signs, sizeof word);
    __m256i all = _mm256_shuffle_epi8(_mm256_set1_epi32(word), spread);
    __m256i mask = _mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit);
    return dot(w, _mm256_sub_epi8(_mm256_xor_si256(x, mask), mask));
}

#include "backend/cpu/row_one_vector.h"
