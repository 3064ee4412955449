// onnx_loss.c — ONNX's losses: the negative log likelihood of targets, from logarithms of
// probabilities or from scores.
#include "exchange/onnx_importer.h"

// log_prob (N, C, d...), target (N, d...), weight (C) or none -> the loss, by `reduction`.
static rn_value likelihood(rn_import_call *c, rn_value log_prob, uint32_t target_input,
                           uint32_t weight_input) {
    rn_graph *g = c->graph;
    rn_value target = rn_import_in(c, target_input), weight = rn_import_optional(c, weight_input);
    rn_shape shape = rn_import_shape_of(c->import, target), wide = {.rank = shape.rank + 1};
    rn_dtype dtype = rn_import_dtype_of(c->import, log_prob),
             index = rn_import_dtype_of(c->import, target);
    const rn_onnx_attribute *ignore = rn_import_attribute(c, "ignore_index");
    rn_value counted = RN_NO_VALUE, zero = rn_import_scalar(c->import, dtype, 0);
    if (!log_prob || !target || shape.rank + 1 > RN_MAX_RANK) return RN_NO_VALUE;
    if (ignore) {
        rn_value code = rn_import_scalar(c->import, index, (double)ignore->i);
        counted = rn_op_compare(g, RN_COMPARE_NOT_EQUAL, target, code);
        target = rn_op_select(g, counted, target, rn_import_scalar(c->import, index, 0));
    }
    for (uint32_t i = 0; i < wide.rank; i++)
        wide.dims[i] = i == 0 ? shape.dims[0] : i == 1 ? 1 : shape.dims[i - 1];
    rn_value places = rn_import_reshape(c->import, target, wide);
    rn_gather_attrs at = {.kind = RN_GATHER_ELEMENTS, .axis = 1};
    rn_value picked = rn_import_reshape(c->import, rn_op_gather_as(g, log_prob, places, at), shape);
    rn_value loss = rn_op_neg(g, picked);
    rn_value weights = weight ? rn_op_gather(g, weight, target, 0) : RN_NO_VALUE;
    if (counted) {
        rn_value one = weights ? weights : rn_import_scalar(c->import, dtype, 1);
        weights = rn_op_select(g, counted, one, zero);
        loss = rn_op_select(g, counted, loss, zero);
    }
    if (weights) loss = rn_op_mul(g, loss, weights);
    if (rn_import_text_is(c, "reduction", "mean", "none")) return loss;
    uint32_t all = (1u << shape.rank) - 1;
    rn_value sum = rn_op_reduce(g, RN_REDUCE_SUM, loss, all, false);
    if (rn_import_text_is(c, "reduction", "mean", "sum")) return sum;
    if (!weights) return rn_op_reduce(g, RN_REDUCE_MEAN, loss, all, false);
    return rn_op_div(g, sum, rn_op_reduce(g, RN_REDUCE_SUM, weights, all, false));
}

static void negative_log_likelihood(rn_import_call *c) {
    rn_import_out(c, 0, likelihood(c, rn_import_in(c, 0), 1, 2));
}

static void softmax_cross_entropy(rn_import_call *c) {
    rn_value scores = rn_import_in(c, 0);
    if (!scores) return;
    rn_value log_prob = rn_op_soft(c->graph, RN_SOFT_LOG_MAX, scores, 1);
    rn_import_out(c, 0, likelihood(c, log_prob, 1, 2));
    rn_import_out(c, 1, log_prob);
}

const rn_import_op rn_onnx_loss_ops[] = {
    {"NegativeLogLikelihoodLoss", negative_log_likelihood, 0},
    {"SoftmaxCrossEntropyLoss", softmax_cross_entropy, 0},
    {NULL, NULL, 0},
};
