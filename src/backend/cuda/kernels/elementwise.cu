// elementwise.cu — ops that make each element from one place of their inputs.
//
// One kernel for all functions of one input, one for two inputs of the same shape, one for two that
// are stretched to each other: the function is picked once a thread, outside of its loop. An
// element is read before it is written, by the same thread, so that y may be an input.
#include "activation.cuh"
#include "begin.cuh"

// ---- one input ----------------------------------------------------------------------------------

template <class Fn> __device__ __forceinline__ void map_all(const rn_map_args &a, Fn fn) {
    uint64_t fours = rn_is_aligned(a.x, 16) && rn_is_aligned(a.y, 16) ? a.n / 4 : 0;
    for (uint64_t i = rn_thread(); i < fours; i += rn_threads()) {
        float4 x = ((const float4 *)a.x)[i];
        ((float4 *)a.y)[i] = make_float4(fn(x.x), fn(x.y), fn(x.z), fn(x.w));
    }
    for (uint64_t i = 4 * fours + rn_thread(); i < a.n; i += rn_threads())
        a.y[i] = fn(a.x[i]);
}

extern "C" __global__ void rn_map(const __grid_constant__ rn_map_args a) {
    rn_begin();
    float p = a.p, q = a.q;
    switch (a.fn) {
    case RN_MAP_NEG:
        return map_all(a, [](float x) { return -x; });
    case RN_MAP_EXP:
        return map_all(a, [](float x) { return expf(x); });
    case RN_MAP_LOG:
        return map_all(a, [](float x) { return logf(x); });
    case RN_MAP_SQRT:
        return map_all(a, [](float x) { return __fsqrt_rn(x); });
    case RN_MAP_RSQRT:
        return map_all(a, [](float x) { return __frcp_rn(__fsqrt_rn(x)); });
    case RN_MAP_POW:
        return map_all(a, [p](float x) { return powf(x, p); });
    case RN_MAP_CLAMP:
        return map_all(a, [p, q](float x) { return x < p ? p : x > q ? q : x; });
    case RN_MAP_SCALE:
        return map_all(a, [p, q](float x) { return __fadd_rn(__fmul_rn(x, p), q); });
    case RN_MAP_RELU:
        return map_all(a, rn_relu);
    case RN_MAP_SIGMOID:
        return map_all(a, rn_sigmoid);
    case RN_MAP_TANH:
        return map_all(a, [](float x) { return tanhf(x); });
    case RN_MAP_SILU:
        return map_all(a, rn_silu);
    case RN_MAP_GELU:
        return map_all(a, rn_gelu);
    case RN_MAP_GELU_TANH:
        return map_all(a, rn_gelu_tanh);
    }
}

// ---- two inputs ---------------------------------------------------------------------------------

struct plus {
    __device__ float operator()(float a, float b) const { return __fadd_rn(a, b); }
};
struct minus {
    __device__ float operator()(float a, float b) const { return __fsub_rn(a, b); }
};
struct times {
    __device__ float operator()(float a, float b) const { return __fmul_rn(a, b); }
};
struct over {
    __device__ float operator()(float a, float b) const { return __fdiv_rn(a, b); }
};

template <class Fn> __device__ __forceinline__ float4 apply_four(float4 a, float4 b, Fn fn) {
    return make_float4(fn(a.x, b.x), fn(a.y, b.y), fn(a.z, b.z), fn(a.w, b.w));
}

template <class Fn> __device__ __forceinline__ void pair_all(const rn_pair_args &a, Fn fn) {
    bool aligned = rn_is_aligned(a.a, 16) && rn_is_aligned(a.b, 16) && rn_is_aligned(a.y, 16);
    uint64_t fours = aligned ? a.n / 4 : 0;
    for (uint64_t i = rn_thread(); i < fours; i += rn_threads())
        ((float4 *)a.y)[i] = apply_four(((const float4 *)a.a)[i], ((const float4 *)a.b)[i], fn);
    for (uint64_t i = 4 * fours + rn_thread(); i < a.n; i += rn_threads())
        a.y[i] = fn(a.a[i], a.b[i]);
}

extern "C" __global__ void rn_pair(const __grid_constant__ rn_pair_args a) {
    rn_begin();
    switch (a.fn) {
    case RN_PAIR_ADD:
        return pair_all(a, plus());
    case RN_PAIR_SUB:
        return pair_all(a, minus());
    case RN_PAIR_MUL:
        return pair_all(a, times());
    case RN_PAIR_DIV:
        return pair_all(a, over());
    }
}

extern "C" __global__ void rn_gated(const __grid_constant__ rn_pair_args a) {
    rn_begin();
    uint32_t activation = a.activation;
    pair_all(a, [activation](float gate, float up) {
        return __fmul_rn(rn_activate(activation, gate), up);
    });
}

// Four neighbours of a row, or one of them four times.
__device__ __forceinline__ float4 load_four(const float *from, uint64_t step) {
    return step ? *(const float4 *)from : make_float4(*from, *from, *from, *from);
}

template <class Index, class Fn>
__device__ __forceinline__ void stretch_all(const rn_pair_args &a, Fn fn) {
    uint32_t width = a.fours ? 4 : 1;
    Index n = (Index)(a.n / width), count = (Index)(a.walk.count / width);
    for (uint64_t i = rn_thread(); i < n; i += rn_threads()) {
        uint64_t at_a, at_b;
        rn_walk_find<Index>(a.walk, (Index)i, count, width, &at_a, &at_b);
        if (width == 4)
            ((float4 *)a.y)[i] = apply_four(load_four(a.a + at_a, a.walk.step[0]),
                                            load_four(a.b + at_b, a.walk.step[1]), fn);
        else
            a.y[i] = fn(a.a[at_a], a.b[at_b]);
    }
}

template <class Fn> __device__ __forceinline__ void stretch(const rn_pair_args &a, Fn fn) {
    if (a.n <= UINT32_MAX)
        stretch_all<uint32_t>(a, fn);
    else
        stretch_all<uint64_t>(a, fn);
}

extern "C" __global__ void rn_pair_walk(const __grid_constant__ rn_pair_args a) {
    rn_begin();
    switch (a.fn) {
    case RN_PAIR_ADD:
        return stretch(a, plus());
    case RN_PAIR_SUB:
        return stretch(a, minus());
    case RN_PAIR_MUL:
        return stretch(a, times());
    case RN_PAIR_DIV:
        return stretch(a, over());
    }
}
