// project_gated.c — activation(x gateᵀ) * (x upᵀ), x normed once: the wide half of a gated
// feed-forward layer.
#include "graph/op/gated.h"
#include "graph/project.h"

#include <stdio.h>

enum { X, NORM, GATE, GATE_BIAS, UP, UP_BIAS, INPUTS };

static rn_status shape(rn_shaping *s) {
    const rn_project_attrs *a = s->attrs;
    struct rn_typed halves[2];
    RN_TRY(rn_project_shape_rows(s));
    RN_TRY(rn_project_shape_product(s, GATE, &halves[0]));
    RN_TRY(rn_project_shape_product(s, UP, &halves[1]));
    return rn_fused_shape(s, RN_OP_GATED, &(rn_gated_attrs){a->activation}, halves, 2, &s->out[0]);
}

// The gate lies where the result will: gated may work in place.
static void unfold(const rn_call *call, rn_fused *out) {
    rn_tensor x = rn_project_begin(out), y = call->outputs[0];
    rn_tensor up = rn_fused_hand(out, y.shape); // (rows, N)
    rn_project_multiply(out, x, GATE, y);
    rn_project_multiply(out, x, UP, up);
    rn_fused_add(out, RN_OP_GATED, &out->gated, (rn_tensor[]){y, up}, 2, &y, 1);
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_project_attrs *a = attrs;
    int at = snprintf(out, bytes, "%s, ", rn_gates[a->activation].name);
    if (at > 0 && (size_t)at < bytes) rn_project_print(attrs, out + at, bytes - (size_t)at);
}

extern const rn_op_info rn_project_gated_op;
const rn_op_info rn_project_gated_op = {
    .name = "project_gated",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << NORM | 1u << GATE_BIAS | 1u << UP_BIAS,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_project_attrs),
    .traits = RN_TRAIT_PRODUCT,
    .product = rn_project_product,
    .shape = shape,
    .cost = rn_project_cost,
    .workspace = rn_fused_reference_workspace,
    .reference = rn_fused_reference,
    .unfold = unfold,
    .print = print,
};

rn_value rn_op_project_gated(rn_graph *g, rn_value x, rn_value norm, rn_value gate,
                             rn_value gate_bias, rn_value up, rn_value up_bias,
                             rn_project_attrs attrs) {
    attrs = rn_project_note_norm(g, norm, attrs);
    return rn_graph_add(g, RN_OP_PROJECT_GATED, (rn_value[]){x, norm, gate, gate_bias, up, up_bias},
                        INPUTS, &attrs);
}
