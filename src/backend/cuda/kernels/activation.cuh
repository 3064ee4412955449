// activation.cuh — the activations of graph/op/activation.h, by the same formulas, one rounding an
// operation: contraction to fused multiply-adds must not depend on where they are inlined.
#ifndef RN_CUDA_KERNELS_ACTIVATION_CUH
#define RN_CUDA_KERNELS_ACTIVATION_CUH

#include <stdint.h>

// As rn_activation numbers them (include/ration/graph.h).
enum { RN_CUDA_SILU, RN_CUDA_GELU, RN_CUDA_GELU_TANH, RN_CUDA_RELU, RN_CUDA_SIGMOID };

__device__ __forceinline__ float rn_sigmoid(float x) {
    return __frcp_rn(__fadd_rn(1.0f, expf(-x)));
}

__device__ __forceinline__ float rn_silu(float x) {
    return __fmul_rn(x, rn_sigmoid(x));
}

__device__ __forceinline__ float rn_relu(float x) {
    return x < 0.0f ? 0.0f : x; // NaN stays NaN
}

__device__ __forceinline__ float rn_gelu(float x) {
    return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, erff(__fmul_rn(x, 0.70710678f))));
}

__device__ __forceinline__ float rn_gelu_tanh(float x) {
    float cube = __fmul_rn(__fmul_rn(__fmul_rn(0.044715f, x), x), x);
    float inner = __fmul_rn(0.79788456f, __fadd_rn(x, cube));
    return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, tanhf(inner)));
}

__device__ __forceinline__ float rn_activate(uint32_t activation, float x) {
    switch (activation) {
    case RN_CUDA_SILU:
        return rn_silu(x);
    case RN_CUDA_GELU:
        return rn_gelu(x);
    case RN_CUDA_GELU_TANH:
        return rn_gelu_tanh(x);
    case RN_CUDA_RELU:
        return rn_relu(x);
    default:
        return rn_sigmoid(x);
    }
}

// ---- slopes -------------------------------------------------------------------------------------

__device__ __forceinline__ float rn_sigmoid_slope(float x) {
    float s = rn_sigmoid(x);
    return __fmul_rn(s, __fsub_rn(1.0f, s));
}

__device__ __forceinline__ float rn_relu_slope(float x) {
    return x > 0.0f ? 1.0f : 0.0f;
}

__device__ __forceinline__ float rn_silu_slope(float x) {
    float s = rn_sigmoid(x);
    return __fmul_rn(s, __fadd_rn(1.0f, __fmul_rn(x, __fsub_rn(1.0f, s))));
}

__device__ __forceinline__ float rn_gelu_slope(float x) {
    float cumulative = __fmul_rn(0.5f, __fadd_rn(1.0f, erff(__fmul_rn(x, 0.70710678f))));
    float density = __fmul_rn(0.39894228f, expf(__fmul_rn(__fmul_rn(-0.5f, x), x)));
    return __fadd_rn(cumulative, __fmul_rn(x, density));
}

__device__ __forceinline__ float rn_gelu_tanh_slope(float x) {
    float square = __fmul_rn(x, x), cube = __fmul_rn(__fmul_rn(0.044715f, x), square);
    float t = tanhf(__fmul_rn(0.79788456f, __fadd_rn(x, cube)));
    float inner = __fmul_rn(0.79788456f, __fadd_rn(1.0f, __fmul_rn(0.134145f, square)));
    float rest = __fmul_rn(__fmul_rn(0.5f, x), __fsub_rn(1.0f, __fmul_rn(t, t)));
    return __fadd_rn(__fmul_rn(0.5f, __fadd_rn(1.0f, t)), __fmul_rn(rest, inner));
}

__device__ __forceinline__ float rn_activation_slope(uint32_t activation, float x) {
    switch (activation) {
    case RN_CUDA_SILU:
        return rn_silu_slope(x);
    case RN_CUDA_GELU:
        return rn_gelu_slope(x);
    case RN_CUDA_GELU_TANH:
        return rn_gelu_tanh_slope(x);
    case RN_CUDA_RELU:
        return rn_relu_slope(x);
    default:
        return rn_sigmoid_slope(x);
    }
}

// ---- for results of 16 bits ---------------------------------------------------------------------

// The same functions to about 1e-5, by the units for exponentials and quotients: what a result of
// 16 bits shows of them (2^-9 at best) is the same, and the kernels wait for memory alone.

__device__ __forceinline__ float rn_quick_sigmoid(float x) {
    float down = x < -80.0f ? 80.0f : -x; // quotients by e^87 and more are 0; NaN stays NaN
    return __fdividef(1.0f, 1.0f + __expf(down));
}

__device__ __forceinline__ float rn_quick_gelu_share(float x) { // (1 + tanh(...)) / 2
    return rn_quick_sigmoid(1.5957691f * fmaf(0.044715f * x, x * x, x));
}

// The normal distribution's cumulative function by Abramowitz and Stegun's 7.1.26, to 1e-7 of 1;
// *out_bell is e^(-x x / 2), which its slope is made of, too.
__device__ __forceinline__ float rn_quick_cumulative(float x, float *out_bell) {
    float t = __fdividef(1.0f, fmaf(0.3275911f * 0.70710678f, fabsf(x), 1.0f));
    float bell = __expf(-0.5f * x * x);
    float tail =
        fmaf(fmaf(fmaf(fmaf(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t,
             0.254829592f);
    tail *= 0.5f * t * bell;
    *out_bell = bell;
    return x < 0.0f ? tail : 1.0f - tail;
}

__device__ __forceinline__ float rn_quick_activate(uint32_t activation, float x) {
    float bell;
    switch (activation) {
    case RN_CUDA_SILU:
        return x * rn_quick_sigmoid(x);
    case RN_CUDA_GELU:
        return x * rn_quick_cumulative(x, &bell);
    case RN_CUDA_GELU_TANH:
        return x * rn_quick_gelu_share(x);
    case RN_CUDA_SIGMOID:
        return rn_quick_sigmoid(x);
    default:
        return rn_activate(activation, x);
    }
}

__device__ __forceinline__ float rn_quick_slope(uint32_t activation, float x) {
    float s, bell;
    switch (activation) {
    case RN_CUDA_SILU:
        s = rn_quick_sigmoid(x);
        return s * fmaf(x, 1.0f - s, 1.0f);
    case RN_CUDA_GELU:
        s = rn_quick_cumulative(x, &bell);
        return fmaf(x * 0.39894228f, bell, s);
    case RN_CUDA_GELU_TANH:
        s = rn_quick_gelu_share(x); // its slope: s (1 - s) times that of the angle
        return s * fmaf(x * (1.0f - s), 1.5957691f * fmaf(0.134145f * x, x, 1.0f), 1.0f);
    case RN_CUDA_SIGMOID:
        s = rn_quick_sigmoid(x);
        return s * (1.0f - s);
    default:
        return rn_activation_slope(activation, x);
    }
}

#endif
