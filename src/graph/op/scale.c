// scale.c — x * factor + offset, with two constants.
#include "graph/op.h"

#include <stdio.h>

static rn_status reference(const rn_call *call) {
    const rn_scale_attrs *attrs = call->attrs;
    const float *x = call->inputs[0].data; // (n)
    float *y = call->outputs[0].data;      // (n)
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    float factor = attrs->factor, offset = attrs->offset;
    for (uint64_t i = 0; i < n; i++)
        y[i] = x[i] * factor + offset;
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_scale_attrs *attrs = b->node.attrs;
    b->in_gradients[0] = rn_op_scale(b->graph, b->out_gradients[0], attrs->factor, 0.0f);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_scale_attrs *a = attrs;
    snprintf(out, bytes, "factor %g, offset %g", (double)a->factor, (double)a->offset);
}

extern const rn_op_info rn_scale_op;
const rn_op_info rn_scale_op = {
    .name = "scale",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .half_inputs = 1,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_scale_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = rn_shape_like_first,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_scale(rn_graph *g, rn_value x, float factor, float offset) {
    return rn_graph_add(g, RN_OP_SCALE, &x, 1, &(rn_scale_attrs){factor, offset});
}
