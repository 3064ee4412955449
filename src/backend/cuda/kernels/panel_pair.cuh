// panel_pair.cuh — the matrix instruction of a warpgroup with both matrices in shared memory: d (64
// x N, f32) += a b, in bf16 or f16, of panels as panel.cuh has them. sm_90a.
//
// A matrix whose columns are summed over is *along* (rn_panel_along), one whose rows are, *across*
// (rn_panel_across).
#ifndef RN_CUDA_KERNELS_PANEL_PAIR_CUH
#define RN_CUDA_KERNELS_PANEL_PAIR_CUH

#include "panel.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define RN_D_16_LIST RN_D_8(0), RN_D_8(8)
#define RN_D_128_LIST                                                                              \
    RN_D_80_LIST, RN_D_8(80), RN_D_8(88), RN_D_8(96), RN_D_8(104), RN_D_8(112), RN_D_8(120)
#define RN_D_8_LIST   RN_D_8(0)
#define RN_AT_80      "%80, %81, %82, %83, %84, %85, %86, %87"
#define RN_AT_88      "%88, %89, %90, %91, %92, %93, %94, %95"
#define RN_AT_96      "%96, %97, %98, %99, %100, %101, %102, %103"
#define RN_AT_104     "%104, %105, %106, %107, %108, %109, %110, %111"
#define RN_AT_112     "%112, %113, %114, %115, %116, %117, %118, %119"
#define RN_AT_120     "%120, %121, %122, %123, %124, %125, %126, %127"
#define RN_AT_8_LIST  RN_AT_0
#define RN_AT_16_LIST RN_AT_0 ", " RN_AT_8
#define RN_AT_128_LIST                                                                             \
    RN_AT_80_LIST ", " RN_AT_80 ", " RN_AT_88 ", " RN_AT_96 ", " RN_AT_104 ", " RN_AT_112          \
                  ", " RN_AT_120

#define RN_PAIR(n, COUNT, type, A, B, MORE, across)                                                \
    asm volatile(RN_PANEL_HEAD(n, MORE, type) RN_AT_##COUNT##_LIST "}, " A ", " B                  \
                                                                   ", p, 1, 1, " across ";\n}\n"   \
                 : RN_D_##COUNT##_LIST                                                             \
                 : "l"(a), "l"(b), "r"(more))
#define RN_PAIR_TYPED(type, across)                                                                \
    if constexpr (COUNT == 8) RN_PAIR("16", 8, type, "%8", "%9", "%10", across);                   \
    if constexpr (COUNT == 16) RN_PAIR("32", 16, type, "%16", "%17", "%18", across);               \
    if constexpr (COUNT == 32) RN_PAIR("64", 32, type, "%32", "%33", "%34", across);               \
    if constexpr (COUNT == 64) RN_PAIR("128", 64, type, "%64", "%65", "%66", across);              \
    if constexpr (COUNT == 80) RN_PAIR("160", 80, type, "%80", "%81", "%82", across);              \
    if constexpr (COUNT == 128) RN_PAIR("256", 128, type, "%128", "%129", "%130", across);

// N = 2 COUNT. more 0: d is begun anew. ACROSS: both are across; else both along.
template <bool BF16, bool ACROSS, int COUNT>
__device__ __forceinline__ void rn_pair_multiply(float (&d)[COUNT], uint64_t a, uint64_t b,
                                                 uint32_t more) {
    static_assert(COUNT == 8 || COUNT == 16 || COUNT == 32 || COUNT == 64 || COUNT == 80 ||
                      COUNT == 128,
                  "16, 32, 64, 128, 160 or 256 columns");
    if constexpr (BF16 && !ACROSS) {
        RN_PAIR_TYPED("bf16", "0, 0")
    } else if constexpr (!BF16 && !ACROSS) {
        RN_PAIR_TYPED("f16", "0, 0")
    } else if constexpr (BF16) {
        RN_PAIR_TYPED("bf16", "1, 1")
    } else {
        RN_PAIR_TYPED("f16", "1, 1")
    }
}

#endif
#endif
