// gated.h — the activations that a gate may have, by number.
#ifndef RN_GRAPH_OP_GATED_H
#define RN_GRAPH_OP_GATED_H

#include <ration/graph.h>

#include "graph/op/activation.h"

static const struct {
    const char *name;
    float (*value)(float x), (*slope)(float x);
} rn_gates[RN_ACTIVATION_COUNT] = {
    [RN_ACTIVATION_SILU] = {"silu", rn_silu, rn_silu_slope},
    [RN_ACTIVATION_GELU] = {"gelu", rn_gelu, rn_gelu_slope},
    [RN_ACTIVATION_GELU_TANH] = {"gelu_tanh", rn_gelu_tanh, rn_gelu_tanh_slope},
    [RN_ACTIVATION_RELU] = {"relu", rn_relu, rn_relu_slope},
    [RN_ACTIVATION_SIGMOID] = {"sigmoid", rn_sigmoid, rn_sigmoid_slope},
};

#endif
