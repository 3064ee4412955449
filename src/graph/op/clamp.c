// clamp.c — x, but not below `low` and not above `high`; NaN stays NaN.
#include "graph/op/grads.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_clamp_attrs *attrs = s->attrs;
    if (!(attrs->low <= attrs->high))
        return rn_shape_fail(s, "the low end %g is above the high end %g", (double)attrs->low,
                             (double)attrs->high);
    return rn_shape_like_first(s);
}

static rn_status reference(const rn_call *call) {
    const rn_clamp_attrs *attrs = call->attrs;
    const float *x = call->inputs[0].data; // (n)
    float *y = call->outputs[0].data;      // (n)
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    float low = attrs->low, high = attrs->high;
    for (uint64_t i = 0; i < n; i++)
        y[i] = x[i] < low ? low : x[i] > high ? high : x[i];
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    b->in_gradients[0] =
        rn_op_clamp_grad(b->graph, b->node.inputs[0], b->out_gradients[0], b->node.attrs);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_clamp_attrs *a = attrs;
    snprintf(out, bytes, "from %g to %g", (double)a->low, (double)a->high);
}

extern const rn_op_info rn_clamp_op;
const rn_op_info rn_clamp_op = {
    .name = "clamp",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_clamp_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_clamp(rn_graph *g, rn_value x, float low, float high) {
    return rn_graph_add(g, RN_OP_CLAMP, &x, 1, &(rn_clamp_attrs){low, high});
}
