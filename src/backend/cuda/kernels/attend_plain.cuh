// attend_plain.cuh — queries against a tile of 64 keys in f32, without matrix units: any D to 256.
//
// A block has 32 slots for queries; warp w works on slots w, w + 8, w + 16 and w + 24, alone, so
// that nothing but the tile is shared. Lane l scores keys l and l + 32 and sums dims l, l + 32, ...
#pragma once

#include "attend.cuh"
#include "attention_args.h"

namespace rn_att {

enum : uint32_t { SLOTS = RN_PLAIN_SLOTS, WARPS = RN_PLAIN_THREADS / 32, EACH = SLOTS / WARPS };

struct plain_desk {
    float *q;        // (SLOTS, D)
    float *tile;     // (TILE, D + 1): the lanes' keys lie in different banks
    float *p;        // (SLOTS, TILE)
    uint32_t dims;   // D
    uint32_t active; // slots of this warp
};

static __device__ __forceinline__ plain_desk open_desk(float *memory, uint32_t dims,
                                                       uint32_t slots) {
    uint32_t warp = threadIdx.x / 32;
    float *tile = memory + SLOTS * dims;
    return {memory, tile, tile + TILE * (dims + 1), dims,
            slots > warp ? min((slots - warp + WARPS - 1) / WARPS, (uint32_t)EACH) : 0};
}

// The query in slot i of the warp.
static __device__ __forceinline__ uint32_t slot_of(uint32_t i) {
    return threadIdx.x / 32 + WARPS * i;
}

// What a warp holds of one query: value[j] is of dim lane + 32 j.
template <int N> struct plain_sum { float top, sum, value[N]; };

template <int N> static __device__ __forceinline__ void clear(plain_sum<N> &s) {
    s.top = RN_NO_SCORE;
    s.sum = 0;
#pragma unroll
    for (int j = 0; j < N; j++)
        s.value[j] = 0;
}

// Sums over d in order.
static __device__ __forceinline__ void find_scores(const plain_desk &d, float (&s)[EACH][2]) {
    uint32_t lane = threadIdx.x % 32;
    const float *low = d.tile + lane * (d.dims + 1), *high = low + 32 * (d.dims + 1);
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        s[i][0] = s[i][1] = 0;
#pragma unroll 4
    for (uint32_t at = 0; at < d.dims; at++) {
        float x = low[at], y = high[at];
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            if (i < d.active) {
                float q = d.q[slot_of(i) * d.dims + at];
                s[i][0] = fmaf(q, x, s[i][0]);
                s[i][1] = fmaf(q, y, s[i][1]);
            }
    }
}

// Scores (in powers of two, -inf where a key is not seen) of slot i become powers.
template <int N>
static __device__ __forceinline__ void soften(const plain_desk &d, uint32_t i, float low,
                                              float high, plain_sum<N> &sum) {
    float top = fmaxf(low, high);
#pragma unroll
    for (int m = 16; m; m /= 2)
        top = fmaxf(top, __shfl_xor_sync(~0u, top, m));
    top = fmaxf(top, sum.top);
    float base = find_base(top), shrink = power_of_two(sum.top - base);
    low = power_of_two(__fadd_rn(low, -base));
    high = power_of_two(__fadd_rn(high, -base));
    float *p = d.p + slot_of(i) * TILE + threadIdx.x % 32, more = __fadd_rn(low, high);
    p[0] = low;
    p[32] = high;
#pragma unroll
    for (int m = 16; m; m /= 2)
        more = __fadd_rn(more, __shfl_xor_sync(~0u, more, m));
    sum.sum = fmaf(sum.sum, shrink, more);
    sum.top = top;
#pragma unroll
    for (int j = 0; j < N; j++)
        sum.value[j] = __fmul_rn(sum.value[j], shrink);
}

// Keys in order.
template <int N>
static __device__ __forceinline__ void add_values(const plain_desk &d, plain_sum<N> (&sum)[EACH]) {
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t key = 0; key < TILE; key++) {
        float v[N];
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] = lane + 32 * j < d.dims ? d.tile[key * (d.dims + 1) + lane + 32 * j] : 0;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            if (i < d.active) {
                float p = d.p[slot_of(i) * TILE + key];
#pragma unroll
                for (int j = 0; j < N; j++)
                    sum[i].value[j] = fmaf(p, v[j], sum[i].value[j]);
            }
    }
}

// The next chunk of the same query behind those before it; one that it saw nothing of changes
// nothing, even where values were no numbers: they may be another sequence's.
template <int N>
static __device__ __forceinline__ void join(plain_sum<N> &total, const plain_sum<N> &next) {
    if (next.sum == 0) return;
    blend b = join(total.top, total.sum, next.top, next.sum);
#pragma unroll
    for (int j = 0; j < N; j++)
        total.value[j] = join_value(b, total.value[j], next.value[j]);
}

template <int N>
static __device__ __forceinline__ void write_result(const plain_sum<N> &sum, float *out,
                                                    uint32_t dims) {
    float inverse = find_inverse(sum.sum);
#pragma unroll
    for (int j = 0; j < N; j++) {
        uint32_t d = threadIdx.x % 32 + 32 * j;
        if (d < dims) out[d] = finish(sum.value[j], inverse);
    }
}

} // namespace rn_att
