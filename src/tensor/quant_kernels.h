// quant_kernels.h — the loops behind quant.h and behind ggml's q8_0 and q4_0, in the versions of
// base/cpu.h. The portable ones are the definition; the others must give the same bits. Private to
// src/tensor.
#ifndef RN_TENSOR_QUANT_KERNELS_H
#define RN_TENSOR_QUANT_KERNELS_H

#include "tensor/convert.h"
#include "tensor/quant.h"
#include "tensor/small_float.h"

#include <math.h>

// Running sums of rn_quant_error_add: element i of the call goes to lane i % 8 whatever the vector
// width.
typedef struct rn_error_lanes {
    double abs[8], square[8], square_ref[8];
    float max;
} rn_error_lanes;

typedef struct rn_quant_kernels {
    void (*int8_rows)(const float *rows, uint64_t row_count, uint64_t cols, int8_t *out_q,
                      float *out_scale);
    void (*int8_restore)(const int8_t *q, const float *scale, uint64_t row_count, uint64_t cols,
                         float *out_rows);
    void (*int4_groups)(const float *groups, uint64_t group_count, uint64_t group, uint8_t *out_q,
                        float *out_scale, float *out_shift);
    void (*int4_restore)(const uint8_t *q, const float *scale, const float *shift,
                         uint64_t group_count, uint64_t group, float *out_groups);
    // whole blocks only
    void (*nf4_blocks)(const float *values, uint64_t blocks, uint8_t *out_packed,
                       float *out_absmax);
    void (*nf4_restore)(const uint8_t *packed, const float *absmax, uint64_t blocks,
                        float *out_values);
    // adds `count` elements to lanes that hold a multiple of 8 elements
    void (*error_add)(const float *reference, const float *restored, uint64_t count,
                      rn_error_lanes *lanes);
    rn_widen_kernel *widen_q8_0, *widen_q4_0;
    rn_narrow_kernel *narrow_q8_0, *narrow_q4_0;
} rn_quant_kernels;

extern const rn_quant_kernels rn_quant_portable;
extern const rn_quant_kernels rn_quant_avx2;   // x86-64 builds only
extern const rn_quant_kernels rn_quant_avx512; // x86-64 builds only

// The table for rn_cpu_level_get().
const rn_quant_kernels *rn_quant_kernels_get(void);

// The 15 boundaries between neighbours of rn_nf4_table; the sixteenth entry is unused.
extern const float rn_nf4_bounds[16];

// ---- one value at a time, for the portable kernels and for what a vector leaves over ------------

// The largest |value|, or a NaN where there is one: as bits, the order of integers is the order of
// sizes.
static inline uint32_t rn_absmax_bits(const float *values, uint64_t count) {
    uint32_t top = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = rn_float_bits(values[i]) & 0x7fffffff;
        top = bits > top ? bits : top;
    }
    return top;
}

// Orders all floats as integers: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN. Its own inverse.
static inline int32_t rn_order_key(int32_t bits) {
    return bits ^ (bits >> 31 & 0x7fffffff);
}

// To nearest even within [low, high], both of small size; NaN gives 0.
static inline int rn_round_within(float value, float low, float high) {
    float kept = value < low ? low : value > high ? high : value;
    int rounded = (int)(rn_float_bits(kept + 0x1.8p23f) - 0x4b400000);
    return value == value ? rounded : 0;
}

static inline uint8_t rn_nf4_index(float scaled) {
    int index = 0;
    for (int i = 0; i < 15; i++)
        index += !(scaled <= rn_nf4_bounds[i]); // NaN is beyond every boundary
    return (uint8_t)index;
}

#endif
