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

#endif
