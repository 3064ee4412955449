// product_put.cuh — where the sums of a warpgroup of wgmma go: 64 rows, 2 SUMS tokens. sm_90a.
#ifndef RN_CUDA_KERNELS_PRODUCT_PUT_CUH
#define RN_CUDA_KERNELS_PRODUCT_PUT_CUH

#include "args.h"
#include "product_finish.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void wait_for_kernel_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Element e of the sums: its row and token within the warp's tile.
__device__ __forceinline__ uint32_t row_of(uint32_t e, uint32_t lane) {
    return lane / 4 + e / 2 % 2 * 8;
}
__device__ __forceinline__ uint32_t token_of(uint32_t e, uint32_t lane) {
    return e / 4 * 8 + lane % 4 * 2 + e % 2;
}

// All of a warpgroup's sums to their places. The residual may be the same memory: it is read in
// batches, since a load does not pass a store before it.
template <int SUMS>
__device__ __forceinline__ void put_totals(const rn_product_args &a, uint32_t which, uint32_t row,
                                           uint32_t token, uint32_t lane,
                                           const float (&totals)[SUMS]) {
    constexpr int batch = SUMS < 32 ? SUMS : 32;
    const rn_product_weight &w = a.weights[which];
    const float *residual = which == 0 ? a.residual : nullptr;
    row += row_of(0, lane), token += token_of(0, lane);
    rn_row_finish finish[2] = {rn_row_finish_of(w, row), rn_row_finish_of(w, row + 8)};
    bool inside[2] = {row < w.rows, row + 8 < w.rows};
    uint64_t at = (uint64_t)token * w.rows + row;
#pragma unroll
    for (int first = 0; first < SUMS; first += batch) {
        float old[batch];
#pragma unroll
        for (int e = 0; e < batch; e++) {
            uint32_t t = (first + e) / 4 * 8 + e % 2;
            bool is_read = residual && inside[e / 2 % 2] && token + t < a.rows;
            const float *place = residual + at + (uint64_t)t * w.rows + e / 2 % 2 * 8;
            old[e] = is_read ? __ldcg(place) : -0.0f;
        }
#pragma unroll
        for (int e = 0; e < batch; e++) {
            uint32_t t = (first + e) / 4 * 8 + e % 2;
            float value = rn_finish_row(finish[e / 2 % 2], totals[first + e]);
            if (inside[e / 2 % 2] && token + t < a.rows)
                w.out[at + (uint64_t)t * w.rows + e / 2 % 2 * 8] = __fadd_rn(value, old[e]);
        }
    }
}

// Both warpgroups lay their sums into the ring, which nobody uses any more; then each makes half of
// the tokens.
template <int SUMS>
__device__ __forceinline__ void put_gated(const rn_product_args &a, uint32_t group, uint32_t row,
                                          uint32_t token, uint32_t lane, float *meeting,
                                          const float (&totals)[SUMS]) {
    const rn_product_weight &w = a.weights[group];
    uint32_t thread = threadIdx.x % 128;
    asm volatile("bar.sync 1, 256;" ::: "memory");
    rn_row_finish finish[2] = {rn_row_finish_of(w, row + row_of(0, lane)),
                               rn_row_finish_of(w, row + row_of(2, lane))};
#pragma unroll
    for (int e = 0; e < SUMS; e++)
        meeting[(group * SUMS + e) * 128 + thread] = rn_finish_row(finish[e / 2 % 2], totals[e]);
    asm volatile("bar.sync 1, 256;" ::: "memory");
    uint32_t half = SUMS / 2;
#pragma unroll 4
    for (uint32_t e = group * half; e < (group + 1) * half; e++) {
        uint32_t r = row + row_of(e, lane), t = token + token_of(e, lane);
        if (r >= w.rows || t >= a.rows) continue;
        float gate = meeting[e * 128 + thread], up = meeting[(SUMS + e) * 128 + thread];
        rn_finish_put(a, 0, t, r, rn_finish_gate(a, gate, up));
    }
}

#endif
#endif
