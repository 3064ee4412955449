// panel.cuh — the matrix instruction of a warpgroup over panels: d (64 x N, f32) += a (64 x 16) b
// (16 x N), in bf16 or f16. sm_90a.
//
// A matrix (rows, columns) lies in shared memory as *panels* of 64 columns, one behind the other. A
// panel's row is 128 bytes, whose eight pieces of 16 bytes are swizzled: piece p of row r lies at
// place p ^ (r % 8). A panel begins at a multiple of 1024 bytes. Its rows may be what is summed
// over (across) or not (along): one matrix serves as both, which the backward pass makes use of.
//
// In registers, a warp has 16 of the 64 rows; lane l, with g = l / 4 and t = l % 4:
//     d[4 j + i]     row g + 8 (i / 2), column 8 j + 2 t + i % 2
//     a[i]           row g + 8 (i % 2), columns 2 t and 2 t + 1, + 8 (i / 2)
#ifndef RN_CUDA_KERNELS_PANEL_CUH
#define RN_CUDA_KERNELS_PANEL_CUH

#include "wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- where a matrix lies ------------------------------------------------------------------------

// Its panels begin at `address`. Summed over columns: 16 columns further on is + 32 bytes.
__device__ __forceinline__ uint64_t rn_panel_along(uint32_t address) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 |
           (address & 0x3ffff) >> 4;
}

// Summed over rows: 16 rows further on is + 2048 bytes. `panel_bytes`: from one panel to the next.
__device__ __forceinline__ uint64_t rn_panel_across(uint32_t address, uint32_t panel_bytes) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)(panel_bytes >> 4) << 16 |
           (address & 0x3ffff) >> 4;
}

__device__ __forceinline__ uint64_t rn_panel_step(uint64_t place, uint32_t bytes) {
    return place + (bytes >> 4);
}

// What threads have written to shared memory is seen by the instructions that follow.
__device__ __forceinline__ void rn_panel_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- the instruction ----------------------------------------------------------------------------

#define RN_AT_0       "%0, %1, %2, %3, %4, %5, %6, %7"
#define RN_AT_8       "%8, %9, %10, %11, %12, %13, %14, %15"
#define RN_AT_16      "%16, %17, %18, %19, %20, %21, %22, %23"
#define RN_AT_24      "%24, %25, %26, %27, %28, %29, %30, %31"
#define RN_AT_32      "%32, %33, %34, %35, %36, %37, %38, %39"
#define RN_AT_40      "%40, %41, %42, %43, %44, %45, %46, %47"
#define RN_AT_48      "%48, %49, %50, %51, %52, %53, %54, %55"
#define RN_AT_56      "%56, %57, %58, %59, %60, %61, %62, %63"
#define RN_AT_64      "%64, %65, %66, %67, %68, %69, %70, %71"
#define RN_AT_72      "%72, %73, %74, %75, %76, %77, %78, %79"
#define RN_AT_16_LIST RN_AT_0 ", " RN_AT_8
#define RN_AT_32_LIST RN_AT_16_LIST ", " RN_AT_16 ", " RN_AT_24
#define RN_AT_48_LIST RN_AT_32_LIST ", " RN_AT_32 ", " RN_AT_40
#define RN_AT_64_LIST RN_AT_48_LIST ", " RN_AT_48 ", " RN_AT_56
#define RN_AT_80_LIST RN_AT_64_LIST ", " RN_AT_64 ", " RN_AT_72

#define RN_D_8(i)                                                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define RN_D_16_LIST RN_D_8(0), RN_D_8(8)
#define RN_D_32_LIST RN_D_16_LIST, RN_D_8(16), RN_D_8(24)
#define RN_D_48_LIST RN_D_32_LIST, RN_D_8(32), RN_D_8(40)
#define RN_D_64_LIST RN_D_48_LIST, RN_D_8(48), RN_D_8(56)
#define RN_D_80_LIST RN_D_64_LIST, RN_D_8(64), RN_D_8(72)

#define RN_PANEL_HEAD(n, more, type)                                                               \
    "{\n.reg .pred p;\nsetp.ne.u32 p, " more ", 0;\nwgmma.mma_async.sync.aligned.m64n" n           \
    "k16.f32." type "." type " {"

// COUNT sums a thread for N = 2 COUNT columns; A0 .. are the operands behind them.
#define RN_PANEL_REGISTERS(n, COUNT, type, A0, A1, A2, A3, B, MORE, ACROSS)                        \
    asm volatile(RN_PANEL_HEAD(n, MORE, type) RN_AT_##COUNT##_LIST                                 \
                 "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", p, 1, 1, " ACROSS ";\n}\n"           \
                 : RN_D_##COUNT##_LIST                                                             \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more))
#define RN_PANEL_SHARED(n, COUNT, type, A, B, MORE)                                                \
    asm volatile(RN_PANEL_HEAD(n, MORE, type) RN_AT_##COUNT##_LIST "}, " A ", " B                  \
                                                                   ", p, 1, 1, 0, 0;\n}\n"         \
                 : RN_D_##COUNT##_LIST                                                             \
                 : "l"(a), "l"(b), "r"(more))
#define RN_PANEL_32(type, ACROSS)                                                                  \
    RN_PANEL_REGISTERS("64", 32, type, "%32", "%33", "%34", "%35", "%36", "%37", ACROSS)
#define RN_PANEL_48(type, ACROSS)                                                                  \
    RN_PANEL_REGISTERS("96", 48, type, "%48", "%49", "%50", "%51", "%52", "%53", ACROSS)
#define RN_PANEL_64(type, ACROSS)                                                                  \
    RN_PANEL_REGISTERS("128", 64, type, "%64", "%65", "%66", "%67", "%68", "%69", ACROSS)
#define RN_PANEL_80(type, ACROSS)                                                                  \
    RN_PANEL_REGISTERS("160", 80, type, "%80", "%81", "%82", "%83", "%84", "%85", ACROSS)
#define RN_PANEL_CHOOSE(COUNT_IS, type)                                                            \
    if constexpr (COUNT == COUNT_IS && ACROSS) RN_PANEL_##COUNT_IS(type, "1");                     \
    if constexpr (COUNT == COUNT_IS && !ACROSS) RN_PANEL_##COUNT_IS(type, "0");

// a from registers; b's rows are summed over (ACROSS), or its columns. more 0: d is begun anew.
template <bool BF16, bool ACROSS, int COUNT>
__device__ __forceinline__ void rn_panel_multiply(float (&d)[COUNT], const uint32_t (&a)[4],
                                                  uint64_t b, uint32_t more) {
    static_assert(COUNT == 32 || COUNT == 48 || COUNT == 64 || COUNT == 80,
                  "64, 96, 128 or 160 columns");
    if constexpr (BF16) {
        RN_PANEL_CHOOSE(32, "bf16")
        RN_PANEL_CHOOSE(48, "bf16")
        RN_PANEL_CHOOSE(64, "bf16")
        RN_PANEL_CHOOSE(80, "bf16")
    } else {
        RN_PANEL_CHOOSE(32, "f16")
        RN_PANEL_CHOOSE(48, "f16")
        RN_PANEL_CHOOSE(64, "f16")
        RN_PANEL_CHOOSE(80, "f16")
    }
}

// Both from shared memory, both summed over their columns.
template <bool BF16, int COUNT>
__device__ __forceinline__ void rn_panel_multiply(float (&d)[COUNT], uint64_t a, uint64_t b,
                                                  uint32_t more) {
    static_assert(COUNT == 16 || COUNT == 32 || COUNT == 64, "32, 64 or 128 columns");
    if constexpr (BF16 && COUNT == 16) RN_PANEL_SHARED("32", 16, "bf16", "%16", "%17", "%18");
    if constexpr (!BF16 && COUNT == 16) RN_PANEL_SHARED("32", 16, "f16", "%16", "%17", "%18");
    if constexpr (BF16 && COUNT == 32) RN_PANEL_SHARED("64", 32, "bf16", "%32", "%33", "%34");
    if constexpr (!BF16 && COUNT == 32) RN_PANEL_SHARED("64", 32, "f16", "%32", "%33", "%34");
    if constexpr (BF16 && COUNT == 64) RN_PANEL_SHARED("128", 64, "bf16", "%64", "%65", "%66");
    if constexpr (!BF16 && COUNT == 64) RN_PANEL_SHARED("128", 64, "f16", "%64", "%65", "%66");
}

#endif
#endif
