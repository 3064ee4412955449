// optimizers.cu — one step of an optimiser, in place, in f32 (graph/op/adamw.c, sgd.c, lion.c), one
// rounding an operation. Gradients may have 16 bits.
#include "begin.cuh"
#include "half_io.cuh"
#include "training_args.h"

// Four elements a thread and step, by accesses of 16 bytes (8 for a gradient of 16 bits); step(i)
// for what is left, step4(i) for elements 4 i .. 4 i + 3.
template <class Four, class One>
__device__ __forceinline__ void each_element(uint64_t n, bool aligned, Four step4, One step) {
    uint64_t fours = aligned ? n / 4 : 0;
    for (uint64_t i = rn_thread(); i < fours; i += rn_threads())
        step4(i);
    for (uint64_t i = 4 * fours + rn_thread(); i < n; i += rn_threads())
        step(i);
}

__device__ __forceinline__ float4 load_gradient(uint32_t type, const void *g, uint64_t four) {
    if (type == RN_PLAIN_F32) return ((const float4 *)g)[four];
    uint2 two = ((const uint2 *)g)[four];
    if (type == RN_PLAIN_BF16)
        return make_float4(rn_widen_bf16(two.x & 0xffff), rn_widen_bf16(two.x >> 16),
                           rn_widen_bf16(two.y & 0xffff), rn_widen_bf16(two.y >> 16));
    return make_float4(rn_widen_f16(two.x & 0xffff), rn_widen_f16(two.x >> 16),
                       rn_widen_f16(two.y & 0xffff), rn_widen_f16(two.y >> 16));
}

// ---- AdamW --------------------------------------------------------------------------------------

__device__ __forceinline__ void adamw(const rn_adamw_args &a, float g, float *w, float *m,
                                      float *v) {
    *m = __fadd_rn(*m, __fmul_rn(a.take1, __fsub_rn(g, *m)));
    *v = __fadd_rn(__fmul_rn(*v, a.beta2), __fmul_rn(a.take2, __fmul_rn(g, g)));
    float size = __fadd_rn(__fdiv_rn(__fsqrt_rn(*v), a.spread), a.eps);
    *w = __fsub_rn(__fmul_rn(*w, a.keep), __fdiv_rn(__fmul_rn(a.pace, *m), size));
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_adamw(const __grid_constant__ rn_adamw_args a) {
    rn_begin();
    bool aligned = rn_is_aligned(a.w, 16) && rn_is_aligned(a.m, 16) && rn_is_aligned(a.v, 16) &&
                   rn_is_aligned(a.g, 16) && rn_is_aligned(a.new_w, 16) &&
                   rn_is_aligned(a.new_m, 16) && rn_is_aligned(a.new_v, 16);
    each_element(
        a.n, aligned,
        [&](uint64_t i) {
            float4 w = ((const float4 *)a.w)[i], m = ((const float4 *)a.m)[i];
            float4 v = ((const float4 *)a.v)[i], g = load_gradient(a.g_type, a.g, i);
            adamw(a, g.x, &w.x, &m.x, &v.x);
            adamw(a, g.y, &w.y, &m.y, &v.y);
            adamw(a, g.z, &w.z, &m.z, &v.z);
            adamw(a, g.w, &w.w, &m.w, &v.w);
            ((float4 *)a.new_w)[i] = w, ((float4 *)a.new_m)[i] = m, ((float4 *)a.new_v)[i] = v;
        },
        [&](uint64_t i) {
            float w = a.w[i], m = a.m[i], v = a.v[i];
            adamw(a, rn_load_one(a.g_type, a.g, i), &w, &m, &v);
            a.new_w[i] = w, a.new_m[i] = m, a.new_v[i] = v;
        });
}

// ---- SGD ----------------------------------------------------------------------------------------

__device__ __forceinline__ void sgd(const rn_sgd_args &a, float g, float *w, float *velocity) {
    float d = __fadd_rn(g, __fmul_rn(a.decay, *w));
    if (a.velocity) *velocity = d = __fadd_rn(__fmul_rn(*velocity, a.momentum), d);
    *w = __fsub_rn(*w, __fmul_rn(a.rate, d));
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_sgd(const __grid_constant__ rn_sgd_args a) {
    rn_begin();
    bool aligned = rn_is_aligned(a.w, 16) && rn_is_aligned(a.velocity, 16) &&
                   rn_is_aligned(a.g, 16) && rn_is_aligned(a.new_w, 16) &&
                   rn_is_aligned(a.new_velocity, 16);
    each_element(
        a.n, aligned,
        [&](uint64_t i) {
            float4 w = ((const float4 *)a.w)[i], g = load_gradient(a.g_type, a.g, i);
            float4 velocity = make_float4(0, 0, 0, 0);
            if (a.velocity) velocity = ((const float4 *)a.velocity)[i];
            sgd(a, g.x, &w.x, &velocity.x);
            sgd(a, g.y, &w.y, &velocity.y);
            sgd(a, g.z, &w.z, &velocity.z);
            sgd(a, g.w, &w.w, &velocity.w);
            ((float4 *)a.new_w)[i] = w;
            if (a.velocity) ((float4 *)a.new_velocity)[i] = velocity;
        },
        [&](uint64_t i) {
            float w = a.w[i], velocity = a.velocity ? a.velocity[i] : 0;
            sgd(a, rn_load_one(a.g_type, a.g, i), &w, &velocity);
            a.new_w[i] = w;
            if (a.velocity) a.new_velocity[i] = velocity;
        });
}

// ---- Lion ---------------------------------------------------------------------------------------

__device__ __forceinline__ void lion(const rn_lion_args &a, float g, float *w, float *m) {
    float mixed = __fadd_rn(__fmul_rn(*m, a.beta1), __fmul_rn(a.take1, g));
    float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;
    *m = __fadd_rn(__fmul_rn(*m, a.beta2), __fmul_rn(a.take2, g));
    *w = __fsub_rn(__fmul_rn(*w, a.keep), __fmul_rn(a.pace, sign));
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_lion(const __grid_constant__ rn_lion_args a) {
    rn_begin();
    bool aligned = rn_is_aligned(a.w, 16) && rn_is_aligned(a.m, 16) && rn_is_aligned(a.g, 16) &&
                   rn_is_aligned(a.new_w, 16) && rn_is_aligned(a.new_m, 16);
    each_element(
        a.n, aligned,
        [&](uint64_t i) {
            float4 w = ((const float4 *)a.w)[i], m = ((const float4 *)a.m)[i];
            float4 g = load_gradient(a.g_type, a.g, i);
            lion(a, g.x, &w.x, &m.x);
            lion(a, g.y, &w.y, &m.y);
            lion(a, g.z, &w.z, &m.z);
            lion(a, g.w, &w.w, &m.w);
            ((float4 *)a.new_w)[i] = w, ((float4 *)a.new_m)[i] = m;
        },
        [&](uint64_t i) {
            float w = a.w[i], m = a.m[i];
            lion(a, rn_load_one(a.g_type, a.g, i), &w, &m);
            a.new_w[i] = w, a.new_m[i] = m;
        });
}
