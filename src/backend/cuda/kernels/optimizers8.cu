// optimizers8.cu — a step of an optimiser whose states have 8 bits (graph/blocks8.h), the bits of
// states as bitsandbytes has them.
//
//     codes ─ map ─▶ m, v ─ step ─▶ m', v' ─ largest ─▶ scales
//                        └──▶ w'        └─ quotient, steps ─▶ codes'
//
// A warp has a block of 256 elements, a lane eight of them; the next block is on its way while one
// is computed. Maps and steps (graph/state_steps.h) are made once for all that a block of threads
// does, so there are no more of those than run at once. Blocks whose numbers are not finite, and
// those whose scale is no normal number, go the plain way.
#include "update.cuh"

#include "tensor/dynamic_map.h"
#include "graph/state_steps.h"

namespace {

__device__ const float map_signed[256] = {RN_DYNAMIC_MAP_SIGNED};
__device__ const float map_unsigned[256] = {RN_DYNAMIC_MAP_UNSIGNED};

struct tables {
    float with_sign[256], without[256];
    uint32_t steps[RN_STATE_BUCKETS], steps_without[RN_STATE_BUCKETS];
};

__device__ __forceinline__ void make_tables(tables *to, bool has_second) {
    for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x) {
        to->with_sign[i] = map_signed[i];
        to->without[i] = map_unsigned[i];
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < RN_STATE_BUCKETS; i += blockDim.x) {
        to->steps[i] = rn_state_step(to->with_sign, 127, i);
        if (has_second) to->steps_without[i] = rn_state_step(to->without, 0, i);
    }
    __syncthreads();
}

// ---- codes --------------------------------------------------------------------------------------

struct eight_codes {
    uint32_t word[2]; // four each
};

__device__ __forceinline__ uint32_t code_at(const eight_codes &codes, int j) {
    return codes.word[j / 4] >> j % 4 * 8 & 0xFF;
}

// Whole: all eight are there, at a multiple of 8 bytes.
template <bool Whole>
__device__ __forceinline__ eight_codes fetch_codes(const void *data, uint64_t i, uint32_t count) {
    const uint8_t *from = (const uint8_t *)data + i;
    eight_codes out = {{0, 0}};
    if constexpr (Whole) {
        uint2 both = *(const uint2 *)from;
        out = {{both.x, both.y}};
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (j < (int)count) out.word[j / 4] |= (uint32_t)from[j] << j % 4 * 8;
    }
    return out;
}

template <bool Whole>
__device__ __forceinline__ void store_codes(void *data, uint64_t i, uint32_t count,
                                            const eight_codes &codes) {
    uint8_t *to = (uint8_t *)data + i;
    if constexpr (Whole) {
        *(uint2 *)to = make_uint2(codes.word[0], codes.word[1]);
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (j < (int)count) to[j] = (uint8_t)code_at(codes, j);
    }
}

__device__ __forceinline__ float largest_of_warp(const rn_eight &x) { // as bits: NaN is above all
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < 8; j++)
        most = max(most, __float_as_uint(x.v[j]) & 0x7FFFFFFF);
    return __uint_as_float(__reduce_max_sync(~0u, most));
}

// By a search (graph/state_codes.h): of any number and magnitude. NaN has the first code.
__device__ __forceinline__ uint32_t search_code(const float *map, uint32_t first, float value,
                                                float magnitude) {
    float x = __fdiv_rn(value, magnitude);
    uint32_t low = 0, high = 255, bits = __float_as_uint(fabsf(x)), code;
    if (!(x == x)) {
        code = 0;
    } else {
        for (low = first; low < high;) {
            uint32_t middle = (low + high) / 2;
            if (bits > rn_state_middle(map, middle))
                low = middle + 1;
            else
                high = middle;
        }
        code = low;
        if (first && signbit(x)) code = code > 254 ? 0 : 254 - code;
    }
    if (first == 0 || signbit(map[code]) == signbit(value)) return code;
    return (value > 0 ? code + 1 : code - 1) & 0xFF;
}

__device__ __noinline__ eight_codes search_codes(const float *map, uint32_t first, rn_eight x,
                                                 float magnitude) {
    eight_codes out = {{0, 0}};
    for (int j = 0; j < 8; j++)
        out.word[j / 4] |= search_code(map, first, x.v[j], magnitude) << j % 4 * 8;
    return out;
}

// x's codes of a map whose numbers from 0 on begin at `first`.
template <uint32_t First>
__device__ __forceinline__ eight_codes encode(const float *map, const uint32_t *steps,
                                              const rn_eight &x, float magnitude) {
    uint32_t exponent = __float_as_uint(magnitude) >> 23;
    eight_codes out = {{0, 0}};
    if (exponent == 0 || exponent >= 254) return search_codes(map, First, x, magnitude);
    float unit = __uint_as_float((254 - exponent) << 23); // makes the magnitude 1 .. 2
    float whole = __fmul_rn(magnitude, unit), inverse = __frcp_rn(whole);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float part = rn_quotient_by(__fmul_rn(fabsf(x.v[j]), unit), whole, inverse);
        uint32_t code = rn_state_look(steps, __float_as_uint(part)) >> RN_STATE_REST_BITS;
        if (First) code = rn_state_mirror(code, signbit(x.v[j]));
        out.word[j / 4] |= code << j % 4 * 8;
    }
    return out;
}

// ---- blocks -------------------------------------------------------------------------------------

// What of a block of 256 a lane reads.
struct raw_block {
    rn_raw_eight g, w;
    eight_codes m, v;
    float m_scale, v_scale;
    uint32_t count; // of eight
};

template <uint32_t G, uint32_t W, bool HasSecond, bool Whole>
__device__ __forceinline__ raw_block fetch_block(const rn_update_args &a, uint64_t block) {
    raw_block out;
    uint64_t at = 256 * block + threadIdx.x % 32 * 8;
    out.count = Whole || at + 8 <= a.n ? 8u : at >= a.n ? 0u : (uint32_t)(a.n - at);
    out.v = {{0, 0}};
    out.g = Whole ? rn_fetch_eight(G, a.g, at)
                  : rn_fetch_up_to_eight(G, a.g, at, out.count, false);
    out.w = Whole ? rn_fetch_eight(W, a.w, at)
                  : rn_fetch_up_to_eight(W, a.w, at, out.count, false);
    out.m = fetch_codes<Whole>(a.m, at, out.count);
    if (HasSecond) out.v = fetch_codes<Whole>(a.v, at, out.count);
    out.m_scale = a.m_scale[block];
    out.v_scale = HasSecond ? a.v_scale[block] : 0;
    return out;
}

// Moments of a gradient that is not finite are 0; the weight stays.
struct adamw_step {
    const rn_update_args &a;
    float least; // below it, a second moment's root is lost beside the floor

    __device__ __forceinline__ adamw_step(const rn_update_args &args) : a(args) {
        least = fmaxf(__fmul_rn(__fmul_rn(a.eps, 0x1p-26f), __fmul_rn(a.eps, 0x1p-26f)),
                      0x1p-100f);
    }
    __device__ __forceinline__ void moments(float g, float *m, float *v) const {
        *m = __fadd_rn(__fmul_rn(*m, a.beta1), __fmul_rn(a.take1, g));
        *v = __fadd_rn(__fmul_rn(*v, a.beta2), __fmul_rn(__fmul_rn(a.take2, g), g));
    }
    __device__ __forceinline__ float weight(float w, float, float m, float v, float) const {
        float size = __fadd_rn(rn_root(fmaxf(v, least)), a.eps);
        return __fmul_rn(__fadd_rn(w, __fmul_rn(a.pace, rn_quotient(m, size))), a.keep);
    }
    __device__ __forceinline__ float weight_any(float w, float, float m, float v, float) const {
        float size = __fadd_rn(__fsqrt_rn(v), a.eps);
        return __fmul_rn(__fadd_rn(w, __fmul_rn(a.pace, __fdiv_rn(m, size))), a.keep);
    }
};

struct lion_step {
    const rn_update_args &a;

    __device__ __forceinline__ lion_step(const rn_update_args &args) : a(args) {}
    __device__ __forceinline__ void moments(float g, float *m, float *) const {
        *m = __fadd_rn(__fmul_rn(*m, a.beta2), __fmul_rn(a.take2, g));
    }
    __device__ __forceinline__ float weight(float w, float g, float, float, float old) const {
        float mixed = __fadd_rn(__fmul_rn(old, a.beta1), __fmul_rn(a.take1, g));
        float sign = mixed > 0 ? a.pace : mixed < 0 ? -a.pace : 0.0f;
        return __fsub_rn(__fmul_rn(w, a.keep), sign);
    }
    __device__ __forceinline__ float weight_any(float w, float g, float m, float v,
                                                float old) const {
        return weight(w, g, m, v, old);
    }
};

template <uint32_t W, bool Whole>
__device__ __forceinline__ void store_weights(const rn_update_args &a, uint64_t at, uint32_t count,
                                              const rn_eight &w) {
    if constexpr (Whole) {
        rn_noise_eight noise = {{0, 0, 0, 0, 0, 0, 0, 0}};
        if (W == RN_PLAIN_BF16) noise = rn_draw(a, at / 8);
        rn_put_eight(W, a.w, at, w, noise, RN_NOISE_WEIGHT);
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (j < (int)count)
                rn_put_one(W, a.w, at + j, w.v[j], rn_draw_one(a, at + j), RN_NOISE_WEIGHT);
    }
}

// What comes of a block with numbers that are not finite.
template <class Step>
__device__ __noinline__ void step_around(const Step &step, const rn_eight &g, const rn_eight &old,
                                         rn_eight *w, rn_eight *m, rn_eight *v) {
    for (int j = 0; j < 8; j++) {
        bool finite = isfinite(g.v[j]);
        float next = step.weight_any(w->v[j], g.v[j], m->v[j], v->v[j], old.v[j]);
        w->v[j] = finite ? next : w->v[j];
        m->v[j] = finite ? m->v[j] : 0;
        v->v[j] = finite ? v->v[j] : 0;
    }
}

template <uint32_t G, uint32_t W, bool HasSecond, bool Whole, class Step>
__device__ __forceinline__ void update_block(const rn_update_args &a, const tables &table,
                                             const Step &step, const raw_block &raw,
                                             uint64_t block) {
    uint64_t at = 256 * block + threadIdx.x % 32 * 8;
    rn_eight g = rn_widen_eight(G, raw.g), w = rn_widen_eight(W, raw.w), m, v, old;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        old.v[j] = m.v[j] = __fmul_rn(table.with_sign[code_at(raw.m, j)], raw.m_scale);
        v.v[j] = HasSecond ? __fmul_rn(table.without[code_at(raw.v, j)], raw.v_scale) : 0.0f;
        step.moments(g.v[j], &m.v[j], &v.v[j]);
        if (!Whole && j >= (int)raw.count) m.v[j] = v.v[j] = 0;
    }
    float m_scale = largest_of_warp(m), v_scale = HasSecond ? largest_of_warp(v) : 0.0f;
    if (m_scale < INFINITY && v_scale < INFINITY) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            w.v[j] = step.weight(w.v[j], g.v[j], m.v[j], v.v[j], old.v[j]);
    } else {
        rn_eight around[4] = {old, w, m, v};
        step_around(step, g, around[0], &around[1], &around[2], &around[3]);
        w = around[1], m = around[2], v = around[3];
        m_scale = largest_of_warp(m);
        v_scale = HasSecond ? largest_of_warp(v) : 0.0f;
    }
    store_weights<W, Whole>(a, at, raw.count, w);
    store_codes<Whole>(a.m, at, raw.count, encode<127>(table.with_sign, table.steps, m, m_scale));
    if (HasSecond)
        store_codes<Whole>(a.v, at, raw.count,
                           encode<0>(table.without, table.steps_without, v, v_scale));
    if (threadIdx.x % 32 == 0) {
        a.m_scale[block] = m_scale;
        if (HasSecond) a.v_scale[block] = v_scale;
    }
}

template <uint32_t G, uint32_t W, bool HasSecond, class Step>
__device__ __forceinline__ void update_as(const rn_update_args &a, const tables &table) {
    bool aligned = rn_is_aligned(a.g, 16) && rn_is_aligned(a.w, 16) && rn_is_aligned(a.m, 8) &&
                   rn_is_aligned(a.v, 8);
    uint64_t block = rn_thread() / 32, blocks = rn_threads() / 32, whole = aligned ? a.n / 256 : 0;
    Step step(a);
    raw_block next;
    if (block < whole) next = fetch_block<G, W, HasSecond, true>(a, block);
    for (; block < whole; block += blocks) {
        raw_block raw = next;
        if (block + blocks < whole) next = fetch_block<G, W, HasSecond, true>(a, block + blocks);
        update_block<G, W, HasSecond, true>(a, table, step, raw, block);
    }
    for (; 256 * block < a.n; block += blocks)
        update_block<G, W, HasSecond, false>(
            a, table, step, fetch_block<G, W, HasSecond, false>(a, block), block);
}

template <bool HasSecond, class Step>
__device__ __forceinline__ void update(const rn_update_args &a, tables *table) {
    constexpr uint32_t F32 = RN_PLAIN_F32, BF16 = RN_PLAIN_BF16, F16 = RN_PLAIN_F16;
    make_tables(table, HasSecond);
    rn_begin();
    if (rn_is_skipped(a)) return;
    if (a.w_type == BF16 && a.g_type == BF16)
        update_as<BF16, BF16, HasSecond, Step>(a, *table);
    else if (a.w_type == BF16 && a.g_type == F16)
        update_as<F16, BF16, HasSecond, Step>(a, *table);
    else if (a.w_type == BF16)
        update_as<F32, BF16, HasSecond, Step>(a, *table);
    else if (a.g_type == BF16)
        update_as<BF16, F32, HasSecond, Step>(a, *table);
    else if (a.g_type == F16)
        update_as<F16, F32, HasSecond, Step>(a, *table);
    else
        update_as<F32, F32, HasSecond, Step>(a, *table);
}

} // namespace

extern "C" __global__ void __launch_bounds__(RN_UPDATE8_THREADS, RN_UPDATE8_BLOCKS)
    rn_adamw8(const __grid_constant__ rn_update_args a) {
    __shared__ tables table;
    update<true, adamw_step>(a, &table);
}

extern "C" __global__ void __launch_bounds__(RN_UPDATE8_THREADS, RN_UPDATE8_BLOCKS)
    rn_lion8(const __grid_constant__ rn_update_args a) {
    __shared__ tables table;
    update<false, lion_step>(a, &table);
}
