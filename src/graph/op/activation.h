// activation.h — the activations and their slopes, for the ops of one and of two inputs.
#ifndef RN_GRAPH_OP_ACTIVATION_H
#define RN_GRAPH_OP_ACTIVATION_H

#include <math.h>

static inline float rn_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}
static inline float rn_sigmoid_slope(float x) {
    float s = rn_sigmoid(x);
    return s * (1.0f - s);
}

static inline float rn_relu(float x) {
    return x < 0.0f ? 0.0f : x; // NaN stays NaN
}
static inline float rn_relu_slope(float x) {
    return x > 0.0f ? 1.0f : 0.0f;
}

static inline float rn_silu(float x) {
    return x * rn_sigmoid(x);
}
static inline float rn_silu_slope(float x) {
    float s = rn_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

// x times the normal distribution's cumulative function.
static inline float rn_gelu(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f)); // sqrt(1/2)
}
static inline float rn_gelu_slope(float x) {
    float cumulative = 0.5f * (1.0f + erff(x * 0.70710678f));
    float density = 0.39894228f * expf(-0.5f * x * x); // 1 / sqrt(2 pi)
    return cumulative + x * density;
}

#define RN_GELU_TANH_SCALE 0.79788456f // sqrt(2 / pi)
#define RN_GELU_TANH_CUBE  0.044715f
static inline float rn_gelu_tanh(float x) {
    float inner = RN_GELU_TANH_SCALE * (x + RN_GELU_TANH_CUBE * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
}
static inline float rn_gelu_tanh_slope(float x) {
    float t = tanhf(RN_GELU_TANH_SCALE * (x + RN_GELU_TANH_CUBE * x * x * x));
    float inner_slope = RN_GELU_TANH_SCALE * (1.0f + 3.0f * RN_GELU_TANH_CUBE * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner_slope;
}

#endif
