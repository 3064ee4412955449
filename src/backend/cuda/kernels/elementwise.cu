// elementwise.cu — ops that make each element from one place of their inputs.
//
// One kernel for all functions of one input, one for two inputs of the same shape, one for two that
// are stretched to each other: the function is picked once a thread, outside of its loop. An
// element is read before it is written, by the same thread, so that y may be an input.
//
// Each of them for f32 alone, four elements at a time, once more (_any) for f32, bf16 and f16 in
// any mix, in eights, and (_bf16) for bf16 alone: what is known beforehand takes no registers, and
// with fewer of them more loads are in flight. Results of 16 bits have the quick activations.
#include "activation.cuh"
#include "begin.cuh"
#include "half_io.cuh"

// ---- one input ----------------------------------------------------------------------------------

template <class Fn> __device__ __forceinline__ void map_all(const rn_map_args &a, Fn fn) {
    const float *from = (const float *)a.x;
    float *to = (float *)a.y;
    uint64_t fours = rn_is_aligned(a.x, 16) && rn_is_aligned(a.y, 16) ? a.n / 4 : 0;
    for (uint64_t i = rn_thread(); i < fours; i += rn_threads()) {
        float4 x = ((const float4 *)from)[i];
        ((float4 *)to)[i] = make_float4(fn(x.x), fn(x.y), fn(x.z), fn(x.w));
    }
    for (uint64_t i = 4 * fours + rn_thread(); i < a.n; i += rn_threads())
        to[i] = fn(from[i]);
}

// The type where all are of one, or what the call says.
__device__ __forceinline__ constexpr uint32_t type_or(uint32_t known, uint32_t said) {
    return known != RN_PLAIN_NONE ? known : said;
}

template <uint32_t Type, class Fn>
__device__ __forceinline__ void map_eight(const rn_map_args &a, const rn_raw_eight &raw, uint64_t i,
                                          Fn fn) {
    rn_eight x = rn_widen_eight(type_or(Type, a.x_type), raw);
#pragma unroll
    for (int j = 0; j < 8; j++)
        x.v[j] = fn(x.v[j]);
    rn_store_eight(type_or(Type, a.y_type), a.y, 8 * i, x);
}

// Two eights in flight.
template <uint32_t Type, class Fn>
__device__ __forceinline__ void map_any(const rn_map_args &a, Fn fn) {
    const uint32_t x_type = type_or(Type, a.x_type), y_type = type_or(Type, a.y_type);
    uint64_t eights = rn_is_aligned(a.x, 16) && rn_is_aligned(a.y, 16) ? a.n / 8 : 0;
    for (uint64_t i = rn_thread(); i < eights; i += 2 * rn_threads()) {
        uint64_t next = i + rn_threads();
        rn_raw_eight first = rn_fetch_eight(x_type, a.x, 8 * i), second = first;
        if (next < eights) second = rn_fetch_eight(x_type, a.x, 8 * next);
        map_eight<Type>(a, first, i, fn);
        if (next < eights) map_eight<Type>(a, second, next, fn);
    }
    for (uint64_t i = 8 * eights + rn_thread(); i < a.n; i += rn_threads())
        rn_store_one(y_type, a.y, i, fn(rn_load_one(x_type, a.x, i)));
}

// What any result is made with: run(fn).
template <class Run> __device__ __forceinline__ void pick_exact(const rn_map_args &a, Run run) {
    float p = a.p, q = a.q;
    switch (a.fn) {
    case RN_MAP_NEG:
        return run([](float x) { return -x; });
    case RN_MAP_EXP:
        return run([](float x) { return expf(x); });
    case RN_MAP_LOG:
        return run([](float x) { return logf(x); });
    case RN_MAP_SQRT:
        return run([](float x) { return __fsqrt_rn(x); });
    case RN_MAP_RSQRT:
        return run([](float x) { return __frcp_rn(__fsqrt_rn(x)); });
    case RN_MAP_POW:
        return run([p](float x) { return powf(x, p); });
    case RN_MAP_CLAMP:
        return run([p, q](float x) { return x < p ? p : x > q ? q : x; });
    case RN_MAP_SCALE:
        return run([p, q](float x) { return __fadd_rn(__fmul_rn(x, p), q); });
    case RN_MAP_RELU:
        return run(rn_relu);
    case RN_MAP_SIGMOID:
        return run(rn_sigmoid);
    case RN_MAP_TANH:
        return run([](float x) { return tanhf(x); });
    case RN_MAP_SILU:
        return run(rn_silu);
    case RN_MAP_GELU:
        return run(rn_gelu);
    case RN_MAP_GELU_TANH:
        return run(rn_gelu_tanh);
    }
}

extern "C" __global__ void rn_map(const __grid_constant__ rn_map_args a) {
    rn_begin();
    pick_exact(a, [&](auto fn) { map_all(a, fn); });
}

// What a result of 16 bits is made with.
template <class Run> __device__ __forceinline__ void pick_quick(const rn_map_args &a, Run run) {
    switch (a.fn) {
    case RN_MAP_SIGMOID:
        return run(rn_quick_sigmoid);
    case RN_MAP_SILU:
        return run([](float x) { return rn_quick_activate(RN_CUDA_SILU, x); });
    case RN_MAP_GELU:
        return run([](float x) { return rn_quick_activate(RN_CUDA_GELU, x); });
    case RN_MAP_GELU_TANH:
        return run([](float x) { return rn_quick_activate(RN_CUDA_GELU_TANH, x); });
    default:
        return pick_exact(a, run);
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_map_any(const __grid_constant__ rn_map_args a) {
    rn_begin();
    if (a.y_type == RN_PLAIN_F32)
        pick_exact(a, [&](auto fn) { map_any<RN_PLAIN_NONE>(a, fn); });
    else
        pick_quick(a, [&](auto fn) { map_any<RN_PLAIN_NONE>(a, fn); });
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_map_bf16(const __grid_constant__ rn_map_args a) {
    rn_begin();
    pick_quick(a, [&](auto fn) { map_any<RN_PLAIN_BF16>(a, fn); });
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
        ((float *)a.y)[i] = fn(((const float *)a.a)[i], ((const float *)a.b)[i]);
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

template <class Fn>
__device__ __forceinline__ rn_eight apply_eight(const rn_eight &a, const rn_eight &b, Fn fn) {
    rn_eight y;
#pragma unroll
    for (int j = 0; j < 8; j++)
        y.v[j] = fn(a.v[j], b.v[j]);
    return y;
}

template <uint32_t Type, class Fn>
__device__ __forceinline__ void pair_eight(const rn_pair_args &a, const rn_raw_eight &left,
                                           const rn_raw_eight &right, uint64_t i, Fn fn) {
    rn_store_eight(type_or(Type, a.y_type), a.y, 8 * i,
                   apply_eight(rn_widen_eight(type_or(Type, a.a_type), left),
                               rn_widen_eight(type_or(Type, a.b_type), right), fn));
}

template <uint32_t Type, class Fn>
__device__ __forceinline__ void pair_any(const rn_pair_args &a, Fn fn) {
    const uint32_t a_type = type_or(Type, a.a_type), b_type = type_or(Type, a.b_type);
    bool aligned = rn_is_aligned(a.a, 16) && rn_is_aligned(a.b, 16) && rn_is_aligned(a.y, 16);
    uint64_t eights = aligned ? a.n / 8 : 0;
    for (uint64_t i = rn_thread(); i < eights; i += 2 * rn_threads()) {
        uint64_t next = i + rn_threads();
        rn_raw_eight left = rn_fetch_eight(a_type, a.a, 8 * i), left_next = left;
        rn_raw_eight right = rn_fetch_eight(b_type, a.b, 8 * i), right_next = right;
        if (next < eights) left_next = rn_fetch_eight(a_type, a.a, 8 * next);
        if (next < eights) right_next = rn_fetch_eight(b_type, a.b, 8 * next);
        pair_eight<Type>(a, left, right, i, fn);
        if (next < eights) pair_eight<Type>(a, left_next, right_next, next, fn);
    }
    for (uint64_t i = 8 * eights + rn_thread(); i < a.n; i += rn_threads())
        rn_store_one(type_or(Type, a.y_type), a.y, i,
                     fn(rn_load_one(a_type, a.a, i), rn_load_one(b_type, a.b, i)));
}

// dy times the slope of an activation.
template <uint32_t Type>
__device__ __forceinline__ void pair_slope(const rn_pair_args &a, uint32_t activation) {
    if (type_or(Type, a.y_type) == RN_PLAIN_F32)
        pair_any<Type>(a, [activation](float x, float dy) {
            return __fmul_rn(dy, rn_activation_slope(activation, x));
        });
    else
        pair_any<Type>(
            a, [activation](float x, float dy) { return dy * rn_quick_slope(activation, x); });
}

template <uint32_t Type>
__device__ __forceinline__ void pair_gated(const rn_pair_args &a, uint32_t activation) {
    if (type_or(Type, a.y_type) == RN_PLAIN_F32)
        pair_any<Type>(a, [activation](float gate, float up) {
            return __fmul_rn(rn_activate(activation, gate), up);
        });
    else
        pair_any<Type>(a, [activation](float gate, float up) {
            return rn_quick_activate(activation, gate) * up;
        });
}

template <uint32_t Type> __device__ __forceinline__ void pair_by(const rn_pair_args &a) {
    float p = a.p, q = a.q;
    switch (a.fn) {
    case RN_PAIR_ADD:
        return pair_any<Type>(a, plus());
    case RN_PAIR_SUB:
        return pair_any<Type>(a, minus());
    case RN_PAIR_MUL:
        return pair_any<Type>(a, times());
    case RN_PAIR_DIV:
        return pair_any<Type>(a, over());
    case RN_PAIR_GATED: // the usual one without a test an element
        if (a.activation == RN_CUDA_SILU) return pair_gated<Type>(a, RN_CUDA_SILU);
        return pair_gated<Type>(a, a.activation);
    case RN_PAIR_RELU_GRAD:
        return pair_any<Type>(a, [](float y, float dy) { return y > 0.0f ? dy : 0.0f; });
    case RN_PAIR_SILU_GRAD:
        return pair_slope<Type>(a, RN_CUDA_SILU);
    case RN_PAIR_GELU_GRAD:
        return pair_slope<Type>(a, RN_CUDA_GELU);
    case RN_PAIR_GELU_TANH_GRAD:
        return pair_slope<Type>(a, RN_CUDA_GELU_TANH);
    case RN_PAIR_CLAMP_GRAD:
        return pair_any<Type>(a,
                              [p, q](float x, float dy) { return x >= p && x <= q ? dy : 0.0f; });
    }
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_pair_any(const __grid_constant__ rn_pair_args a) {
    rn_begin();
    pair_by<RN_PLAIN_NONE>(a);
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS, 5)
    rn_pair_bf16(const __grid_constant__ rn_pair_args a) {
    rn_begin();
    pair_by<RN_PLAIN_BF16>(a);
}

// ---- sums in a tree -----------------------------------------------------------------------------

__device__ __forceinline__ void *slot_of(const rn_tree_sum_args &a, uint32_t slot) {
    uint64_t bytes = a.n << (a.type == RN_PLAIN_F32 ? 2 : 1);
    return slot == 0 ? a.sum : (uint8_t *)a.parts + (slot - 1) * bytes;
}

__device__ __forceinline__ float as_slot(const rn_tree_sum_args &a, float x) {
    return a.type == RN_PLAIN_F32 ? x : rn_widen_bf16(rn_narrow_two(RN_PLAIN_BF16, x, 0.0f));
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_tree_sum(const __grid_constant__ rn_tree_sum_args a) {
    rn_begin();
    void *into = slot_of(a, a.into);
    // Slots lie n elements apart.
    bool aligned = rn_is_aligned(a.g, 16) && rn_is_aligned(a.sum, 16) &&
                   rn_is_aligned(a.parts, 16) && a.n % 8 == 0;
    uint64_t eights = aligned ? a.n / 8 : 0;
    for (uint64_t i = rn_thread(); i < eights; i += rn_threads()) {
        rn_eight sum = rn_load_eight(a.g_type, a.g, 8 * i);
        for (uint32_t k = a.adds; k-- > 0;) {
            rn_eight slot = rn_load_eight(a.type, slot_of(a, a.into + k), 8 * i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum.v[j] = __fadd_rn(slot.v[j], as_slot(a, sum.v[j]));
        }
        rn_store_eight(a.type, into, 8 * i, sum);
    }
#pragma unroll 1
    for (uint64_t i = 8 * eights + rn_thread(); i < a.n; i += rn_threads()) {
        float sum = rn_load_one(a.g_type, a.g, i);
        for (uint32_t k = a.adds; k-- > 0;)
            sum = __fadd_rn(rn_load_one(a.type, slot_of(a, a.into + k), i), as_slot(a, sum));
        rn_store_one(a.type, into, i, sum);
    }
}

// ---- stretched to each other --------------------------------------------------------------------

// Four neighbours of a row, or one of them four times.
__device__ __forceinline__ float4 load_four(const float *from, uint64_t step) {
    return step ? *(const float4 *)from : make_float4(*from, *from, *from, *from);
}

struct stretch_f32 {
    template <class Index, class Fn>
    static __device__ __forceinline__ void run(const rn_pair_args &a, Fn fn) {
        const float *left = (const float *)a.a, *right = (const float *)a.b;
        uint32_t width = a.width;
        Index n = (Index)(a.n / width), count = (Index)(a.walk.count / width);
        for (uint64_t i = rn_thread(); i < n; i += rn_threads()) {
            uint64_t at_a, at_b;
            rn_walk_find<Index>(a.walk, (Index)i, count, width, &at_a, &at_b);
            if (width == 4)
                ((float4 *)a.y)[i] = apply_four(load_four(left + at_a, a.walk.step[0]),
                                                load_four(right + at_b, a.walk.step[1]), fn);
            else
                ((float *)a.y)[i] = fn(left[at_a], right[at_b]);
        }
    }
};

__device__ __forceinline__ rn_eight load_stretched(uint32_t type, const void *from, uint64_t at,
                                                   uint64_t step) {
    if (step) return rn_load_eight(type, from, at);
    float one = rn_load_one(type, from, at);
    return rn_eight{{one, one, one, one, one, one, one, one}};
}

template <uint32_t Type> struct stretch_any {
    template <class Index, class Fn>
    static __device__ __forceinline__ void run(const rn_pair_args &a, Fn fn) {
        const uint32_t a_type = type_or(Type, a.a_type), b_type = type_or(Type, a.b_type);
        const uint32_t y_type = type_or(Type, a.y_type);
        uint32_t width = a.width;
        Index n = (Index)(a.n / width), count = (Index)(a.walk.count / width);
        for (uint64_t i = rn_thread(); i < n; i += rn_threads()) {
            uint64_t at_a, at_b;
            rn_walk_find<Index>(a.walk, (Index)i, count, width, &at_a, &at_b);
            if (width == 8)
                rn_store_eight(y_type, a.y, 8 * i,
                               apply_eight(load_stretched(a_type, a.a, at_a, a.walk.step[0]),
                                           load_stretched(b_type, a.b, at_b, a.walk.step[1]), fn));
            else
                rn_store_one(y_type, a.y, i,
                             fn(rn_load_one(a_type, a.a, at_a), rn_load_one(b_type, a.b, at_b)));
        }
    }
};

template <class Way, class Fn>
__device__ __forceinline__ void stretch(const rn_pair_args &a, Fn fn) {
    if (a.n <= UINT32_MAX)
        Way::template run<uint32_t>(a, fn);
    else
        Way::template run<uint64_t>(a, fn);
}

template <class Way> __device__ __forceinline__ void stretch_by(const rn_pair_args &a) {
    switch (a.fn) {
    case RN_PAIR_ADD:
        return stretch<Way>(a, plus());
    case RN_PAIR_SUB:
        return stretch<Way>(a, minus());
    case RN_PAIR_MUL:
        return stretch<Way>(a, times());
    case RN_PAIR_DIV:
        return stretch<Way>(a, over());
    }
}

extern "C" __global__ void rn_pair_walk(const __grid_constant__ rn_pair_args a) {
    rn_begin();
    stretch_by<stretch_f32>(a);
}

extern "C" __global__ void rn_pair_walk_any(const __grid_constant__ rn_pair_args a) {
    rn_begin();
    stretch_by<stretch_any<RN_PLAIN_NONE>>(a);
}

extern "C" __global__ void rn_pair_walk_bf16(const __grid_constant__ rn_pair_args a) {
    rn_begin();
    stretch_by<stretch_any<RN_PLAIN_BF16>>(a);
}

// ---- the gate's gradients -----------------------------------------------------------------------

struct gradient_two {
    float gate, up;
};

template <uint32_t Type, class Fn>
__device__ __forceinline__ void gate_eight(const rn_gated_grad_args &a, uint64_t i, Fn fn) {
    rn_eight gate = rn_load_eight(type_or(Type, a.gate_type), a.gate, 8 * i);
    rn_eight up = rn_load_eight(type_or(Type, a.up_type), a.up, 8 * i);
    rn_eight dy = rn_load_eight(type_or(Type, a.dy_type), a.dy, 8 * i);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        gradient_two two = fn(gate.v[j], up.v[j], dy.v[j]);
        gate.v[j] = two.gate, up.v[j] = two.up;
    }
    if (a.d_gate) rn_store_eight(type_or(Type, a.d_gate_type), a.d_gate, 8 * i, gate);
    if (a.d_up) rn_store_eight(type_or(Type, a.d_up_type), a.d_up, 8 * i, up);
}

template <uint32_t Type, class Fn>
__device__ __forceinline__ void gate_all(const rn_gated_grad_args &a, Fn fn) {
    bool aligned = rn_is_aligned(a.gate, 16) && rn_is_aligned(a.up, 16) &&
                   rn_is_aligned(a.dy, 16) && rn_is_aligned(a.d_gate, 16) &&
                   rn_is_aligned(a.d_up, 16);
    uint64_t eights = aligned ? a.n / 8 : 0;
    for (uint64_t i = rn_thread(); i < eights; i += rn_threads())
        gate_eight<Type>(a, i, fn);
    for (uint64_t i = 8 * eights + rn_thread(); i < a.n; i += rn_threads()) {
        gradient_two two = fn(rn_load_one(a.gate_type, a.gate, i), rn_load_one(a.up_type, a.up, i),
                              rn_load_one(a.dy_type, a.dy, i));
        if (a.d_gate) rn_store_one(a.d_gate_type, a.d_gate, i, two.gate);
        if (a.d_up) rn_store_one(a.d_up_type, a.d_up, i, two.up);
    }
}

__device__ __forceinline__ void gate_exact(const rn_gated_grad_args &a, uint32_t activation) {
    gate_all<RN_PLAIN_NONE>(a, [activation](float gate, float up, float dy) {
        return gradient_two{__fmul_rn(__fmul_rn(dy, up), rn_activation_slope(activation, gate)),
                            __fmul_rn(dy, rn_activate(activation, gate))};
    });
}

template <uint32_t Type>
__device__ __forceinline__ void gate_quick(const rn_gated_grad_args &a, uint32_t activation) {
    if (activation == RN_CUDA_SILU) // one exponential for both
        gate_all<Type>(a, [](float gate, float up, float dy) {
            float s = rn_quick_sigmoid(gate);
            return gradient_two{dy * up * s * fmaf(gate, 1.0f - s, 1.0f), dy * gate * s};
        });
    else
        gate_all<Type>(a, [activation](float gate, float up, float dy) {
            return gradient_two{dy * up * rn_quick_slope(activation, gate),
                                dy * rn_quick_activate(activation, gate)};
        });
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS)
    rn_gated_grad_any(const __grid_constant__ rn_gated_grad_args a) {
    rn_begin();
    if (a.d_gate_type == RN_PLAIN_F32 || a.d_up_type == RN_PLAIN_F32)
        gate_exact(a, a.activation);
    else
        gate_quick<RN_PLAIN_NONE>(a, a.activation);
}

extern "C" __global__ void __launch_bounds__(RN_ROWS_THREADS, 5)
    rn_gated_grad_bf16(const __grid_constant__ rn_gated_grad_args a) {
    rn_begin();
    gate_quick<RN_PLAIN_BF16>(a, a.activation);
}
