// packed_float_avx512.c — see packed_float_vector.h.
#include "tensor/vector_avx512.h"

#define FLOAT_TABLE rn_float_avx512
enum { PANELS = 4, DIRECT_ROWS = 4 };

typedef uint32_t unsigned_lanes __attribute__((vector_size(64)));

// clang-format off
static inline vfloat vfma(vfloat a, vfloat b, vfloat c) { return _mm512_fmadd_ps(a, b, c); }
static inline vint ishift(vint a, int n) { return (vint)((unsigned_lanes)a >> n); }
static inline vfloat number_at(vint a, int mask) {
    return vfrom(_mm512_ternarylogic_epi32(iset(0x4B000000), a, iset(mask), 0xf8));
}
static inline vfloat vload_some(const float *from, unsigned count) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
}
static inline void vstore_some(float *to, unsigned count, vfloat a) {
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), a);
}
// clang-format on

#include "backend/cpu/packed_float_vector.h"
