// clamp_grad.c — dy where x lies within the ends (on them, too, as in PyTorch), else 0.
#include "graph/op/grads.h"

#include <stdio.h>

static rn_status reference(const rn_call *call) {
    const rn_clamp_attrs *attrs = call->attrs;
    const float *x = call->inputs[0].data, *dy = call->inputs[1].data; // (n)
    float *dx = call->outputs[0].data;                                 // (n)
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    float low = attrs->low, high = attrs->high;
    for (uint64_t i = 0; i < n; i++)
        dx[i] = x[i] >= low && x[i] <= high ? dy[i] : 0.0f;
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_clamp_attrs *a = attrs;
    snprintf(out, bytes, "from %g to %g", (double)a->low, (double)a->high);
}

extern const rn_op_info rn_clamp_grad_op;
const rn_op_info rn_clamp_grad_op = {
    .name = "clamp_grad",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_clamp_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias = {RN_ALIAS_MAY(1)},
    .shape = rn_shape_like_first,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_clamp_grad(rn_graph *g, rn_value x, rn_value dy, const rn_clamp_attrs *attrs) {
    return rn_graph_add(g, RN_OP_CLAMP_GRAD, (rn_value[]){x, dy}, 2, attrs);
}
