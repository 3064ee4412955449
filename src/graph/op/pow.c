// pow.c — x to a constant exponent. A negative x gives NaN unless the exponent is whole.
#include "graph/op.h"

#include <math.h>
#include <stdio.h>

static rn_status reference(const rn_call *call) {
    const rn_pow_attrs *attrs = call->attrs;
    const float *x = call->inputs[0].data; // (n)
    float *y = call->outputs[0].data;      // (n)
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    for (uint64_t i = 0; i < n; i++)
        y[i] = powf(x[i], attrs->exponent);
    return RN_OK;
}

// dx = dy p x^(p - 1). For p = 0 that would be 0 * infinity at x = 0.
static rn_status gradient(rn_backward *b) {
    const rn_pow_attrs *attrs = b->node.attrs;
    rn_graph *g = b->graph;
    float p = attrs->exponent;
    rn_value dy = rn_op_scale(g, b->out_gradients[0], p, 0.0f);
    b->in_gradients[0] =
        p == 0.0f ? dy : rn_op_mul(g, dy, rn_op_pow(g, b->node.inputs[0], p - 1.0f));
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_pow_attrs *a = attrs;
    snprintf(out, bytes, "exponent %g", (double)a->exponent);
}

extern const rn_op_info rn_pow_op;
const rn_op_info rn_pow_op = {
    .name = "pow",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_pow_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = rn_shape_like_first,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_pow(rn_graph *g, rn_value x, float exponent) {
    return rn_graph_add(g, RN_OP_POW, &x, 1, &(rn_pow_attrs){exponent});
}
