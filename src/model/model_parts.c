// model_parts.c — the few pieces that several models are made of.
#include "model/model.h"

#include <stdio.h>

rn_value rn_model_weight(rn_graph *graph, const char *prefix, const char *part, rn_shape shape) {
    char name[192];
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    return rn_graph_weight(graph, name, RN_DTYPE_F32, shape);
}

rn_value rn_model_linear(rn_graph *graph, rn_value x, const char *prefix, uint64_t in,
                         uint64_t out) {
    rn_value w = rn_model_weight(graph, prefix, "weight", RN_SHAPE(out, in));
    return rn_op_matmul(graph, x, w, rn_model_weight(graph, prefix, "bias", RN_SHAPE(out)));
}

// A running statistic: read from the file for inference, kept by training.
static rn_value statistic(rn_graph *graph, const char *prefix, const char *part, uint64_t channels,
                          bool training) {
    char name[192];
    if (!training) return rn_model_weight(graph, prefix, part, RN_SHAPE(channels));
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    return rn_graph_state(graph, name, RN_DTYPE_F32, RN_SHAPE(channels), RN_PURPOSE_OTHER);
}

rn_value rn_model_batchnorm(rn_graph *graph, rn_value x, const char *prefix, uint64_t channels,
                            bool training) {
    rn_value weight = rn_model_weight(graph, prefix, "weight", RN_SHAPE(channels));
    rn_value bias = rn_model_weight(graph, prefix, "bias", RN_SHAPE(channels));
    rn_value mean = statistic(graph, prefix, "running_mean", channels, training);
    rn_value variance = statistic(graph, prefix, "running_var", channels, training);
    rn_batchnorm_attrs attrs = {.eps = 1e-5f, .momentum = 0.1f, .training = training};
    return rn_op_batchnorm(graph, x, weight, bias, mean, variance, attrs);
}

void rn_model_classify(rn_graph *graph, rn_value logits, uint32_t batch, rn_forward_values *out) {
    out->logits = logits;
    if (batch)
        out->targets = rn_graph_input(graph, "targets", RN_DTYPE_I32, RN_SHAPE(batch));
    else
        rn_graph_output(graph, logits, "logits");
}
