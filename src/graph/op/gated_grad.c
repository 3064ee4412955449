// gated_grad.c — gate, up, dy -> d gate = dy up slope(gate), d up = dy activation(gate).
#include "graph/op/gated.h"
#include "graph/op/grads.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_shape_like_first(s));
    s->out[1] = s->out[0];
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_gated_attrs *attrs = call->attrs;
    float (*activate)(float) = rn_gates[attrs->activation].value;
    float (*slope)(float) = rn_gates[attrs->activation].slope;
    const float *gate = call->inputs[0].data, *up = call->inputs[1].data; // (n)
    const float *dy = call->inputs[2].data;                               // (n)
    float *d_gate = call->outputs[0].data, *d_up = call->outputs[1].data; // (n), or NULL: unread
    uint64_t n = rn_tensor_elements(&call->inputs[0]);
    for (uint64_t i = 0; i < n; i++) {
        float gi = gate[i], ui = up[i], di = dy[i]; // before any of them is overwritten
        if (d_gate) d_gate[i] = di * ui * slope(gi);
        if (d_up) d_up[i] = di * activate(gi);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_gated_attrs *a = attrs;
    snprintf(out, bytes, "%s", rn_gates[a->activation].name);
}

extern const rn_op_info rn_gated_grad_op;
const rn_op_info rn_gated_grad_op = {
    .name = "gated_grad",
    .min_inputs = 3,
    .max_inputs = 3,
    .output_count = 2,
    .optional_outputs = 0x3,
    .half_inputs = 7,
    .half_outputs = 3,
    .attrs_bytes = sizeof(rn_gated_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias = {RN_ALIAS_MAY(0), RN_ALIAS_MAY(1)},
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_gated_grad(rn_graph *g, rn_value gate, rn_value up, rn_value dy,
                          const rn_gated_attrs *attrs) {
    return rn_graph_add(g, RN_OP_GATED_GRAD, (rn_value[]){gate, up, dy}, 3, attrs);
}
