// gated.c — activation(gate) * up: the middle of a gated feed-forward layer in one pass.
#include "graph/op/gated.h"
#include "graph/op/grads.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_gated_attrs *attrs = s->attrs;
    if ((unsigned)attrs->activation >= RN_ACTIVATION_COUNT)
        return rn_shape_fail(s, "there is no activation %d", (int)attrs->activation);
    return rn_shape_like_first(s);
}

static rn_status reference(const rn_call *call) {
    const rn_gated_attrs *attrs = call->attrs;
    float (*activate)(float) = rn_gates[attrs->activation].value;
    const float *gate = call->inputs[0].data, *up = call->inputs[1].data; // (n)
    float *y = call->outputs[0].data;                                     // (n)
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    for (uint64_t i = 0; i < n; i++)
        y[i] = activate(gate[i]) * up[i];
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    rn_value first = rn_op_gated_grad(b->graph, b->node.inputs[0], b->node.inputs[1],
                                      b->out_gradients[0], b->node.attrs);
    for (uint32_t i = 0; i < 2; i++)
        if (b->wanted[i]) b->in_gradients[i] = rn_graph_output_of(b->graph, first, i);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_gated_attrs *a = attrs;
    snprintf(out, bytes, "%s", rn_gates[a->activation].name);
}

extern const rn_op_info rn_gated_op;
const rn_op_info rn_gated_op = {
    .name = "gated",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .half_inputs = 3,
    .half_outputs = 1,
    .attrs_bytes = sizeof(rn_gated_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias = {RN_ALIAS_MAY(0)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_gated(rn_graph *g, rn_value gate, rn_value up, rn_activation activation) {
    return rn_graph_add(g, RN_OP_GATED, (rn_value[]){gate, up}, 2, &(rn_gated_attrs){activation});
}
