// packed_float_avx2.c — see packed_float_vector.h.
#include "tensor/vector_avx2.h"

#define FLOAT_TABLE rn_float_avx2
enum { PANELS = 2, DIRECT_ROWS = 4 };

typedef uint32_t unsigned_lanes __attribute__((vector_size(32)));

// clang-format off
static inline vfloat vfma(vfloat a, vfloat b, vfloat c) { return _mm256_fmadd_ps(a, b, c); }
static inline vint ishift(vint a, int n) { return (vint)((unsigned_lanes)a >> n); }
static inline vfloat number_at(vint a, int mask) {
    return vfrom(_mm256_or_si256(iset(0x4B000000), _mm256_and_si256(a, iset(mask))));
}
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
// clang-format on

#include "backend/cpu/packed_float_vector.h"
