// convert.h — the hot conversions between f32 and the narrow types, in the versions of base/cpu.h.
// All versions give the same bits as small_float.h. Private to src/tensor.
#ifndef RN_TENSOR_CONVERT_H
#define RN_TENSOR_CONVERT_H

#include <stdint.h>

// `count` elements; neither side needs alignment beyond the f32 side's own; no overlap.
typedef void rn_widen_kernel(const void *source, float *target, uint64_t count);
typedef void rn_narrow_kernel(const float *source, void *target, uint64_t count);

typedef struct rn_convert_kernels {
    rn_widen_kernel *widen_f16;
    rn_widen_kernel *widen_bf16;
    rn_widen_kernel *widen_e4m3;
    rn_widen_kernel *widen_e5m2;
    rn_widen_kernel *widen_i8;
    rn_narrow_kernel *narrow_f16;
    rn_narrow_kernel *narrow_bf16;
    rn_narrow_kernel *narrow_e4m3;
    rn_narrow_kernel *narrow_e5m2;
} rn_convert_kernels;

extern const rn_convert_kernels rn_convert_portable;
extern const rn_convert_kernels rn_convert_avx2;   // x86-64 builds only
extern const rn_convert_kernels rn_convert_avx512; // x86-64 builds only

// The table for rn_cpu_level_get().
const rn_convert_kernels *rn_convert_kernels_get(void);

#endif
