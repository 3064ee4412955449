// attend_fragment.cuh — matrix fragments of 16 queries: products, what a thread holds of them, and
// the copies that feed them.
#pragma once

#include "attend.cuh"

namespace rn_att {

// ---- matrix units -------------------------------------------------------------------------------

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

// Four 8 x 8 matrices; lane l names row l % 8 of matrix l / 8.
static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

static __device__ __forceinline__ void load_transposed(uint32_t (&r)[4], const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t pack_two(float low, float high) {
    __half2 h = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&h);
}

// ---- copies into shared memory ------------------------------------------------------------------

// 16 bytes; zeros where `given` is false.
static __device__ __forceinline__ void copy_piece(void *target, const void *source, bool given) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)),
                 "l"(source), "r"(given ? 16 : 0)
                 : "memory");
}

// 16 bytes of NaN, by the thread itself.
static __device__ __forceinline__ void fill_piece(void *target) {
    *(uint4 *)target = make_uint4(~0u, ~0u, ~0u, ~0u);
}

static __device__ __forceinline__ void end_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LEFT> static __device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ void prefetch_line(const void *source) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(source));
}

// ---- scores and sums ----------------------------------------------------------------------------

// Scores as powers of two; keys that the two rows of this thread do not see get none.
static __device__ __forceinline__ void mask_scores(float (&s)[4], float scale, uint32_t key,
                                                   key_range low, key_range high) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        key_range r = i < 2 ? low : high;
        uint32_t k = key + (i & 1);
        s[i] = k >= r.first && k < r.end ? __fmul_rn(s[i], scale) : RN_NO_SCORE;
    }
}

// What a thread holds of two rows (l / 4 and l / 4 + 8) of the fragment.
template <int N> struct holding {
    float low_top, high_top, low_sum, high_sum;
    float value[N][4]; // of 8 dims each
};

template <int N> static __device__ __forceinline__ void clear(holding<N> &h) {
    h.low_top = h.high_top = RN_NO_SCORE;
    h.low_sum = h.high_sum = 0;
#pragma unroll
    for (int n = 0; n < N; n++)
        h.value[n][0] = h.value[n][1] = h.value[n][2] = h.value[n][3] = 0;
}

// The four lanes of a row add up. A row that saw none of the keys holds nothing, even where values
// were no numbers (0 * inf): they may be another sequence's.
template <int N> static __device__ __forceinline__ void sum_lanes(holding<N> &h) {
    for (int i = 1; i <= 2; i++) {
        h.low_sum = __fadd_rn(h.low_sum, __shfl_xor_sync(~0u, h.low_sum, i));
        h.high_sum = __fadd_rn(h.high_sum, __shfl_xor_sync(~0u, h.high_sum, i));
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (h.low_sum == 0) h.value[n][0] = h.value[n][1] = 0;
        if (h.high_sum == 0) h.value[n][2] = h.value[n][3] = 0;
    }
}

template <int N>
static __device__ __forceinline__ void shrink(holding<N> &h, float low, float high) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        h.value[n][0] = __fmul_rn(h.value[n][0], low);
        h.value[n][1] = __fmul_rn(h.value[n][1], low);
        h.value[n][2] = __fmul_rn(h.value[n][2], high);
        h.value[n][3] = __fmul_rn(h.value[n][3], high);
    }
}

} // namespace rn_att
