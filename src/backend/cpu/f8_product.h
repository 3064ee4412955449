// f8_product.h — products of few rows of x with f8_b128 and f8_b32 weights as they lie: y = x wᵀ +
// bias.
//
// The sums are those of the generic product (backend/cpu/packed.h), bit for bit: one chain over k
// of numbers that were widened and scaled first. Here lanes are rows of w: 16 x 16 bytes are
// transposed, and widened in registers, so that nothing but the weights themselves is read.
#ifndef RN_BACKEND_CPU_F8_PRODUCT_H
#define RN_BACKEND_CPU_F8_PRODUCT_H

#include "graph/op.h"

#define RN_F8_LANES 16 // rows of w that are multiplied together
#define RN_F8_MOST  4  // rows of x

// Whether a matmul call, not transposed, is one of these; the generic product makes all others.
bool rn_cpu_f8_takes(const rn_call *call);
RN_MUST_USE rn_status rn_cpu_f8_matmul(const rn_call *call);

// x (m, k), m up to RN_F8_MOST, with 16 rows of w that are row_bytes apart; `rows` of them are
// there. sums (m, 16).
// `block` is 128 or 32.
void rn_f8_multiply_avx2(const float *x, uint64_t m, uint64_t k, uint64_t block, const uint8_t *w,
                         uint64_t row_bytes, uint64_t rows, float *sums); // x86-64 builds only

#endif
