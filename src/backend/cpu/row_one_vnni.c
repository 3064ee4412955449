// row_one_vnni.c — see row_one_vector.h; signs are a mask here.
#include "tensor/small_float.h"

#include <immintrin.h>
#include <string.h>

#define ROW_ONE_TABLE rn_row_one_vnni

static inline __m256i dot(__m256i w, __m256i x) {
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, x);
}

static inline __m256i dot_signed(__m256i w, __m256i x, const void *signs) {
    uint32_t word;
    memcpy(&word, signs, sizeof word);
    return dot(w, _mm256_mask_sub_epi8(x, (__mmask32)word, _mm256_setzero_si256(), x));
}

#include "backend/cpu/row_one_vector.h"
