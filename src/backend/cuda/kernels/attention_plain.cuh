// attention_plain.cuh — what attention over whole tensors and its gradients share without matrix
// units: tiles of tensors of any type, and who sees whom.
#ifndef RN_CUDA_KERNELS_ATTENTION_PLAIN_CUH
#define RN_CUDA_KERNELS_ATTENTION_PLAIN_CUH

#include "attend_plain.cuh"
#include "flash_args.h"
#include "half_io.cuh"

namespace rn_att {

// Query t stands at key t + S - T.
static __device__ __forceinline__ key_range find_keys(const rn_flash_args &a, uint32_t t) {
    if (!a.causal && a.window == 0) return {0, a.keys};
    int64_t at = (int64_t)t + a.keys - a.queries;
    if (at < 0) return {0, 0};
    uint32_t end = (uint32_t)at + 1;
    return {a.window && end > a.window ? end - a.window : 0, end};
}

static __device__ __forceinline__ const float *find_mask(const rn_flash_args &a, uint32_t b) {
    return a.mask && a.mask_of_batch ? a.mask + (size_t)b * a.queries * a.keys : a.mask;
}

// Rows `tile` x 64 and on of x (rows, D), which begins at element `at`.
static __device__ __forceinline__ void load_tile(const plain_desk &d, const void *x, uint32_t type,
                                                 size_t at, size_t stride, uint32_t tile,
                                                 uint32_t rows) {
    for (uint32_t i = threadIdx.x / 32; i < TILE; i += WARPS) {
        uint32_t row = tile * TILE + i;
        for (uint32_t j = threadIdx.x % 32; j < d.dims; j += 32)
            d.tile[i * (d.dims + 1) + j] =
                row < rows ? rn_load_one(type, x, at + row * stride + j) : 0;
    }
}

// The block's rows (SLOTS, D).
static __device__ __forceinline__ void load_slots(float *to, const void *x, uint32_t type,
                                                  size_t at, size_t stride, uint32_t dims,
                                                  uint32_t count) {
    for (uint32_t i = threadIdx.x / 32; i < count; i += WARPS)
        for (uint32_t j = threadIdx.x % 32; j < dims; j += 32)
            to[i * dims + j] = rn_load_one(type, x, at + i * stride + j);
}

// The score of query t with `key` as a power of two; -inf where it is not seen.
static __device__ __forceinline__ float mask_score(const rn_flash_args &a, const float *mask,
                                                   uint32_t b, uint32_t t, uint32_t key,
                                                   float score) {
    key_range seen = find_keys(a, t);
    int32_t document = a.documents ? a.documents[(size_t)b * a.queries + t] : 0;
    if (document > 0) seen.first = max(seen.first, (uint32_t)document);
    if (key < seen.first || key >= seen.end) return RN_NO_SCORE;
    score = __fmul_rn(score, a.scale);
    if (mask) score = __fadd_rn(score, mask[(size_t)t * a.keys + key]);
    return __fmul_rn(score, 1.4426950408889634f);
}

// The scores with keys `key` and `key` + 32.
static __device__ __forceinline__ void mask_scores(const rn_flash_args &a, const float *mask,
                                                   uint32_t b, uint32_t t, uint32_t key,
                                                   float (&s)[2]) {
    s[0] = mask_score(a, mask, b, t, key, s[0]);
    s[1] = mask_score(a, mask, b, t, key + 32, s[1]);
}

template <int N>
static __device__ __forceinline__ void write_slot(const plain_sum<N> &sum, float factor, void *out,
                                                  uint32_t type, size_t at, uint32_t dims) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        uint32_t d = threadIdx.x % 32 + 32 * j;
        if (d < dims) rn_store_one(type, out, at + d, finish(sum.value[j], factor));
    }
}

} // namespace rn_att

#endif
