// optimizers.cu — one step of an optimiser, in place, computed in f32 (graph/op/adamw.c, sgd.c,
// lion.c, average.c), one rounding an operation. Gradients may have 16 bits, weights and states may be
// bf16; states of 8 bits are those of optimizers8.cu.
#include "update.cuh"

// step(g, w, m, v) for each element; m and v where there are any. A type that is known when this is
// compiled costs no test; ANY: the call's.
constexpr uint32_t ANY = ~0u;
template <uint32_t G, uint32_t W, uint32_t State, class Step>
__device__ __forceinline__ void update_as(const rn_update_args &a, Step step) {
    const uint32_t g_type = G == ANY ? a.g_type : G, w_type = W == ANY ? a.w_type : W;
    const uint32_t state_type = State == ANY ? a.state_type : State;
    bool aligned = rn_is_aligned(a.g, 16) && rn_is_aligned(a.w, 16) && rn_is_aligned(a.m, 16) &&
                   rn_is_aligned(a.v, 16);
    bool rounds = w_type == RN_PLAIN_BF16 || state_type == RN_PLAIN_BF16;
    uint64_t eights = aligned ? a.n / 8 : 0;
    for (uint64_t i = rn_thread(); i < eights; i += rn_threads()) {
        rn_raw_eight raw[4]; // all on the way before the first is looked at
        raw[0] = rn_fetch_eight(g_type, a.g, 8 * i);
        raw[1] = raw[2] = raw[3] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        if (a.w) raw[1] = rn_fetch_eight(w_type, a.w, 8 * i);
        if (a.m) raw[2] = rn_fetch_eight(state_type, a.m, 8 * i);
        if (a.v) raw[3] = rn_fetch_eight(state_type, a.v, 8 * i);
        rn_noise_eight noise = {{0, 0, 0, 0, 0, 0, 0, 0}};
        if (rounds) noise = rn_draw(a, i);
        rn_eight g = rn_widen_eight(g_type, raw[0]), w = rn_widen_eight(w_type, raw[1]);
        rn_eight m = rn_widen_eight(state_type, raw[2]), v = rn_widen_eight(state_type, raw[3]);
#pragma unroll
        for (int j = 0; j < 8; j++)
            step(g.v[j], &w.v[j], &m.v[j], &v.v[j]);
        if (a.w) rn_put_eight(w_type, a.w, 8 * i, w, noise, RN_NOISE_WEIGHT);
        if (a.m) rn_put_eight(state_type, a.m, 8 * i, m, noise, RN_NOISE_FIRST);
        if (a.v) rn_put_eight(state_type, a.v, 8 * i, v, noise, RN_NOISE_SECOND);
    }
#pragma unroll 1
    for (uint64_t i = 8 * eights + rn_thread(); i < a.n; i += rn_threads()) {
        float w = a.w ? rn_load_one(w_type, a.w, i) : 0, g = rn_load_one(g_type, a.g, i);
        float m = a.m ? rn_load_one(state_type, a.m, i) : 0;
        float v = a.v ? rn_load_one(state_type, a.v, i) : 0;
        uint32_t word = rn_draw_one(a, i);
        step(g, &w, &m, &v);
        if (a.w) rn_put_one(w_type, a.w, i, w, word, RN_NOISE_WEIGHT);
        if (a.m) rn_put_one(state_type, a.m, i, m, word, RN_NOISE_FIRST);
        if (a.v) rn_put_one(state_type, a.v, i, v, word, RN_NOISE_SECOND);
    }
}

// Mixes that trainings have are compiled for their types.
template <class Step> __device__ __forceinline__ void update(const rn_update_args &a, Step step) {
    constexpr uint32_t F32 = RN_PLAIN_F32, BF16 = RN_PLAIN_BF16;
    if (rn_is_skipped(a)) return;
    bool wide = a.w_type == F32 && a.state_type == F32;
    if (a.g_type == BF16 && a.w_type == BF16 && a.state_type == BF16)
        update_as<BF16, BF16, BF16>(a, step);
    else if (a.g_type == F32 && wide)
        update_as<F32, F32, F32>(a, step);
    else if (a.g_type == BF16 && wide)
        update_as<BF16, F32, F32>(a, step);
    else
        update_as<ANY, ANY, ANY>(a, step);
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS, 4)
    rn_adamw(const __grid_constant__ rn_update_args a) {
    rn_begin();
    float unspread = __frcp_rn(a.spread);
    update(a, [&](float g, float *w, float *m, float *v) {
        *m = __fadd_rn(*m, __fmul_rn(a.take1, __fsub_rn(g, *m)));
        *v = __fadd_rn(__fmul_rn(*v, a.beta2), __fmul_rn(a.take2, __fmul_rn(g, g)));
        float root = rn_root_any(*v);
        float size = __fadd_rn(rn_quotient_by(root, a.spread, unspread), a.eps);
        float change = rn_quotient(__fmul_rn(a.pace, *m), size);
        *w = __fsub_rn(__fmul_rn(*w, a.keep), root < INFINITY ? change : __fmul_rn(0.0f, *m));
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
