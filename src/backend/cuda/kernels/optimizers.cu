// optimizers.cu — one step of an optimiser, in place, computed in f32 (graph/op/adamw.c, sgd.c,
// lion.c, average.c, graph/blocks8.h), one rounding an operation. Gradients may have 16 bits, weights
// and states may be bf16.
#include "begin.cuh"
#include "half_io.cuh"
#include "graph/state_maps.h"
#include "training_args.h"

// ---- stochastic rounding ------------------------------------------------------------------------

// Philox4x32-10 of (counter, stream, step): graph/stochastic.h.
__device__ __forceinline__ uint4 noise_block(const rn_update_args &a, uint64_t counter) {
    uint32_t k0 = (uint32_t)a.seed, k1 = (uint32_t)(a.seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = a.stream, c3 = a.step;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53 * c0, q = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(q >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)q;
        c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    return make_uint4(c0, c1, c2, c3);
}

struct noise_eight {
    uint32_t words[8];
};

// Of elements 8 i .. 8 i + 7; nothing is drawn where nothing is bf16.
__device__ __forceinline__ noise_eight draw(const rn_update_args &a, uint64_t i) {
    noise_eight out = {{0, 0, 0, 0, 0, 0, 0, 0}};
    if (a.w_type == RN_PLAIN_F32 && a.state_type != RN_PLAIN_BF16) return out;
    uint4 low = noise_block(a, 2 * i), high = noise_block(a, 2 * i + 1);
    out = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
    return out;
}

enum { NOISE_WEIGHT, NOISE_FIRST, NOISE_SECOND };
__device__ __forceinline__ uint32_t noise_bits(uint32_t word, int which) {
    if (which == NOISE_WEIGHT) return word & 0xFFFF;
    return which == NOISE_FIRST ? word >> 16 : (word * 0x9E3779B1u) >> 16;
}

__device__ __forceinline__ uint32_t round_bf16(float value, uint32_t bits16) {
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7F800000u) == 0x7F800000u)
        return (bits >> 16) | ((bits & 0x007FFFFFu) ? 0x40 : 0);
    return (bits + bits16) >> 16;
}

__device__ __forceinline__ void put(uint32_t type, void *data, uint64_t i, uint32_t count,
                                    bool aligned, const rn_eight &x, const noise_eight &noise,
                                    int which) {
    if (type != RN_PLAIN_BF16) {
        rn_store_up_to_eight(type, data, i, count, aligned, x);
        return;
    }
    uint32_t narrow[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        narrow[j] = round_bf16(x.v[j], noise_bits(noise.words[j], which));
    uint16_t *to = (uint16_t *)data + i;
    if (aligned && count == 8) {
        *(uint4 *)to = make_uint4(narrow[0] | narrow[1] << 16, narrow[2] | narrow[3] << 16,
                                  narrow[4] | narrow[5] << 16, narrow[6] | narrow[7] << 16);
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (j < (int)count) to[j] = (uint16_t)narrow[j];
}

// ---- element by element -------------------------------------------------------------------------

__device__ __forceinline__ bool is_skipped(const rn_update_args &a) {
    return a.guard && !isfinite(*a.guard);
}

// step(g, w, m, v) for each element; m and v where there are any.
template <class Step> __device__ __forceinline__ void update(const rn_update_args &a, Step step) {
    bool aligned = rn_is_aligned(a.g, 16) && rn_is_aligned(a.w, 16) && rn_is_aligned(a.m, 16) &&
                   rn_is_aligned(a.v, 16);
    if (is_skipped(a)) return;
    for (uint64_t i = rn_thread(); 8 * i < a.n; i += rn_threads()) {
        uint32_t count = a.n - 8 * i < 8 ? (uint32_t)(a.n - 8 * i) : 8;
        rn_eight w, m, v, g = rn_load_up_to_eight(a.g_type, a.g, 8 * i, count, aligned);
        w = m = v = {{0, 0, 0, 0, 0, 0, 0, 0}};
        if (a.w) w = rn_load_up_to_eight(a.w_type, a.w, 8 * i, count, aligned);
        if (a.m) m = rn_load_up_to_eight(a.state_type, a.m, 8 * i, count, aligned);
        if (a.v) v = rn_load_up_to_eight(a.state_type, a.v, 8 * i, count, aligned);
        noise_eight noise = draw(a, i);
#pragma unroll
        for (int j = 0; j < 8; j++)
            step(g.v[j], &w.v[j], &m.v[j], &v.v[j]);
        if (a.w) put(a.w_type, a.w, 8 * i, count, aligned, w, noise, NOISE_WEIGHT);
        if (a.m) put(a.state_type, a.m, 8 * i, count, aligned, m, noise, NOISE_FIRST);
        if (a.v) put(a.state_type, a.v, 8 * i, count, aligned, v, noise, NOISE_SECOND);
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_adamw(const __grid_constant__ rn_update_args a) {
    rn_begin();
    update(a, [&](float g, float *w, float *m, float *v) {
        *m = __fadd_rn(*m, __fmul_rn(a.take1, __fsub_rn(g, *m)));
        *v = __fadd_rn(__fmul_rn(*v, a.beta2), __fmul_rn(a.take2, __fmul_rn(g, g)));
        float size = __fadd_rn(__fdiv_rn(__fsqrt_rn(*v), a.spread), a.eps);
        *w = __fsub_rn(__fmul_rn(*w, a.keep), __fdiv_rn(__fmul_rn(a.pace, *m), size));
    });
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_sgd(const __grid_constant__ rn_update_args a) {
    rn_begin();
    update(a, [&](float g, float *w, float *m, float *) {
        float d = __fadd_rn(g, __fmul_rn(a.decay, *w));
        if (a.m) *m = d = __fadd_rn(__fmul_rn(*m, a.momentum), d);
        *w = __fsub_rn(*w, __fmul_rn(a.pace, d));
    });
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_lion(const __grid_constant__ rn_update_args a) {
    rn_begin();
    update(a, [&](float g, float *w, float *m, float *) {
        float mixed = __fadd_rn(__fmul_rn(*m, a.beta1), __fmul_rn(a.take1, g));
        float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;
        *m = __fadd_rn(__fmul_rn(*m, a.beta2), __fmul_rn(a.take2, g));
        *w = __fsub_rn(__fmul_rn(*w, a.keep), __fmul_rn(a.pace, sign));
    });
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_average(const __grid_constant__ rn_update_args a) {
    rn_begin();
    update(a, [&](float g, float *, float *m, float *) {
        *m = __fadd_rn(__fmul_rn(*m, a.beta1), __fmul_rn(a.take1, g));
    });
}

// ---- 8 bits -------------------------------------------------------------------------------------

// A warp has a block of 256 elements, a lane eight of them. The maps lie in shared memory.
struct maps {
    float with_sign[256], without[256];
};
static __device__ const float rn_state_signed[256] = {RN_STATE_MAP_SIGNED};
static __device__ const float rn_state_unsigned[256] = {RN_STATE_MAP_UNSIGNED};

// graph/state_codes.h
__device__ __forceinline__ uint32_t code_of(const float *map, float lowest, float x) {
    uint32_t pivot = 127, above = 255, below = 0;
    float lower = lowest, upper = 1, value = map[127];
#pragma unroll
    for (uint32_t i = 64; i > 0; i >>= 1) {
        bool right = x > value;
        below = right ? pivot : below;
        lower = right ? value : lower;
        above = right ? above : pivot;
        upper = right ? upper : value;
        pivot = right ? pivot + i : pivot - i;
        value = map[pivot];
    }
    if (x > value) return x > __fmul_rn(__fadd_rn(upper, value), 0.5f) ? above : pivot;
    return x < __fmul_rn(__fadd_rn(lower, value), 0.5f) ? below : pivot;
}

__device__ __forceinline__ uint32_t code_signed(const float *map, float value, float magnitude) {
    uint32_t code = code_of(map, -1.0f, __fdiv_rn(value, magnitude));
    if (signbit(map[code]) == signbit(value)) return code;
    return (value > 0 ? code + 1 : code - 1) & 0xFF;
}

__device__ __forceinline__ float largest_of_warp(const rn_eight &x) {
    float most = 0;
#pragma unroll
    for (int j = 0; j < 8; j++)
        most = fmaxf(most, fabsf(x.v[j]));
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1)
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, lanes));
    return most;
}

struct codes_eight {
    uint32_t v[8];
};

__device__ __forceinline__ codes_eight load_codes(const void *data, uint64_t i, uint32_t count) {
    const uint8_t *from = (const uint8_t *)data + i;
    codes_eight out;
    uint64_t all = count == 8 && rn_is_aligned(data, 8) ? *(const uint64_t *)from : 0;
#pragma unroll
    for (int j = 0; j < 8; j++)
        out.v[j] = count == 8 && rn_is_aligned(data, 8) ? (uint32_t)(all >> 8 * j) & 0xFF
                   : j < (int)count                     ? from[j]
                                                        : 0;
    return out;
}

__device__ __forceinline__ void store_codes(void *data, uint64_t i, uint32_t count,
                                            const codes_eight &x) {
    uint8_t *to = (uint8_t *)data + i;
    if (count == 8 && rn_is_aligned(data, 8)) {
        uint64_t all = 0;
#pragma unroll
        for (int j = 0; j < 8; j++)
            all |= (uint64_t)x.v[j] << 8 * j;
        *(uint64_t *)to = all;
        return;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (j < (int)count) to[j] = (uint8_t)x.v[j];
}

__device__ __forceinline__ void load_maps(maps *to) {
    for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x) {
        to->with_sign[i] = rn_state_signed[i];
        to->without[i] = rn_state_unsigned[i];
    }
    __syncthreads();
}

// step(block, first element, count) of each of a warp's blocks.
template <class Step> __device__ __forceinline__ void each_block(uint64_t n, Step step) {
    uint64_t warp = rn_thread() / 32, warps = rn_threads() / 32;
    uint32_t lane = threadIdx.x % 32;
    for (uint64_t block = warp; 256 * block < n; block += warps) {
        uint64_t first = 256 * block + 8 * lane;
        step(block, first, first >= n ? 0u : n - first < 8 ? (uint32_t)(n - first) : 8u);
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_adamw8(const __grid_constant__ rn_update_args a) {
    __shared__ maps map;
    rn_begin();
    load_maps(&map);
    bool aligned = rn_is_aligned(a.g, 16) && rn_is_aligned(a.w, 16);
    if (is_skipped(a)) return;
    each_block(a.n, [&](uint64_t block, uint64_t at, uint32_t count) {
        rn_eight g = rn_load_up_to_eight(a.g_type, a.g, at, count, aligned);
        rn_eight w = rn_load_up_to_eight(a.w_type, a.w, at, count, aligned), m, v;
        codes_eight mc = load_codes(a.m, at, count), vc = load_codes(a.v, at, count);
        float ms = a.m_scale[block], vs = a.v_scale[block];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            bool finite = j < (int)count && isfinite(g.v[j]);
            float old_m = __fmul_rn(map.with_sign[mc.v[j]], ms);
            float old_v = __fmul_rn(map.without[vc.v[j]], vs);
            float square = __fmul_rn(__fmul_rn(a.take2, g.v[j]), g.v[j]);
            m.v[j] = finite ? __fadd_rn(__fmul_rn(old_m, a.beta1), __fmul_rn(a.take1, g.v[j])) : 0;
            v.v[j] = finite ? __fadd_rn(__fmul_rn(old_v, a.beta2), square) : 0;
            float size = __fadd_rn(__fsqrt_rn(v.v[j]), a.eps);
            float moved = __fadd_rn(w.v[j], __fmul_rn(a.pace, __fdiv_rn(m.v[j], size)));
            w.v[j] = finite ? __fmul_rn(moved, a.keep) : w.v[j];
        }
        ms = largest_of_warp(m);
        vs = largest_of_warp(v);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            mc.v[j] = code_signed(map.with_sign, m.v[j], ms);
            vc.v[j] = code_of(map.without, 0.0f, __fdiv_rn(v.v[j], vs));
        }
        if (count) put(a.w_type, a.w, at, count, aligned, w, draw(a, at / 8), NOISE_WEIGHT);
        store_codes(a.m, at, count, mc);
        store_codes(a.v, at, count, vc);
        if (threadIdx.x % 32 == 0) a.m_scale[block] = ms, a.v_scale[block] = vs;
    });
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_lion8(const __grid_constant__ rn_update_args a) {
    __shared__ maps map;
    rn_begin();
    load_maps(&map);
    bool aligned = rn_is_aligned(a.g, 16) && rn_is_aligned(a.w, 16);
    if (is_skipped(a)) return;
    each_block(a.n, [&](uint64_t block, uint64_t at, uint32_t count) {
        rn_eight g = rn_load_up_to_eight(a.g_type, a.g, at, count, aligned);
        rn_eight w = rn_load_up_to_eight(a.w_type, a.w, at, count, aligned), m;
        codes_eight mc = load_codes(a.m, at, count);
        float ms = a.m_scale[block];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            bool finite = j < (int)count && isfinite(g.v[j]);
            float old = __fmul_rn(map.with_sign[mc.v[j]], ms);
            float mixed = __fadd_rn(__fmul_rn(old, a.beta1), __fmul_rn(a.take1, g.v[j]));
            float sign = mixed > 0 ? a.pace : mixed < 0 ? -a.pace : 0.0f;
            m.v[j] = finite ? __fadd_rn(__fmul_rn(old, a.beta2), __fmul_rn(a.take2, g.v[j])) : 0;
            w.v[j] = finite ? __fsub_rn(__fmul_rn(w.v[j], a.keep), sign) : w.v[j];
        }
        ms = largest_of_warp(m);
#pragma unroll
        for (int j = 0; j < 8; j++)
            mc.v[j] = code_signed(map.with_sign, m.v[j], ms);
        if (count) put(a.w_type, a.w, at, count, aligned, w, draw(a, at / 8), NOISE_WEIGHT);
        store_codes(a.m, at, count, mc);
        if (threadIdx.x % 32 == 0) a.m_scale[block] = ms;
    });
}
