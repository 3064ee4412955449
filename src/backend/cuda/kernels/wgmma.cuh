// wgmma.cuh — the matrix instruction of a warpgroup: d (64 x TOKENS, f32) += a (64 x 16) b, with a
// from registers and b from shared memory. sm_90a.
//
// A warp has 16 of a's and d's rows, in the lanes' order of mma m16n8k16: a's fragment is what
// forms widen to; d[4 j ..] are rows g, g, g + 8, g + 8 and tokens 8 j + 2t, + 2t+1, + 2t, + 2t+1.
//
// b is packed activations (args.h): core matrices of 8 tokens by 8 k, 128 bytes each; neighbours
// along k lie 128 bytes apart (the descriptor's leading offset), along tokens 1024 (its stride).
#ifndef RN_CUDA_KERNELS_WGMMA_CUH
#define RN_CUDA_KERNELS_WGMMA_CUH

#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// In a cluster, an address also has the block's rank, in its high bits; a place is in one's own.
__device__ __forceinline__ uint64_t rn_wgmma_place(uint32_t shared_address) {
    return (uint64_t)(1024 >> 4) << 32 | (uint64_t)(128 >> 4) << 16 |
           (shared_address & 0x3ffff) >> 4;
}

// Registers that were written are seen by the instructions that follow.
__device__ __forceinline__ void rn_wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void rn_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// All but the last LEFT groups have ended.
template <int LEFT> __device__ __forceinline__ void rn_wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Keeps the compiler from reading or writing sums across this point.
template <int COUNT> __device__ __forceinline__ void rn_wgmma_hold(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#define RN_WGMMA_32(type)                                                                          \
    asm volatile("{\n"                                                                             \
                 ".reg .pred p;\n"                                                                 \
                 "setp.eq.u32 p, 0, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " "                   \
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "        \
                 "{%16, %17, %18, %19}, %20, p, 1, 1, 0;\n"                                        \
                 "}\n"                                                                             \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),         \
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),       \
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define RN_WGMMA_64(type)                                                                          \
    asm volatile(                                                                                  \
        "{\n"                                                                                      \
        ".reg .pred p;\n"                                                                          \
        "setp.eq.u32 p, 0, 0;\n"                                                                   \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "                            \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                  \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "        \
        "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"                                                 \
        "}\n"                                                                                      \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),      \
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),  \
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),            \
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),            \
          "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])             \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define RN_WGMMA_128(type)                                                                         \
    asm volatile(                                                                                  \
        "{\n"                                                                                      \
        ".reg .pred p;\n"                                                                          \
        "setp.eq.u32 p, 0, 0;\n"                                                                   \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " "                           \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                  \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "         \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "         \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "        \
        "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n"                                                 \
        "}\n"                                                                                      \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),      \
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),  \
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),            \
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),            \
          "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),            \
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]),            \
          "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),            \
          "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),            \
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),            \
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]),            \
          "+f"(d[62]), "+f"(d[63])                                                                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

template <bool BF16, int COUNT>
__device__ __forceinline__ void rn_wgmma(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b) {
    static_assert(COUNT == 16 || COUNT == 32 || COUNT == 64, "32, 64 or 128 tokens");
    if constexpr (COUNT == 16 && BF16) RN_WGMMA_32("bf16");
    if constexpr (COUNT == 16 && !BF16) RN_WGMMA_32("f16");
    if constexpr (COUNT == 32 && BF16) RN_WGMMA_64("bf16");
    if constexpr (COUNT == 32 && !BF16) RN_WGMMA_64("f16");
    if constexpr (COUNT == 64 && BF16) RN_WGMMA_128("bf16");
    if constexpr (COUNT == 64 && !BF16) RN_WGMMA_128("f16");
}

#endif
#endif
