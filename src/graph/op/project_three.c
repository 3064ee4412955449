// project_three.c — the same rows, normed once, by three weights: queries, keys and values.
//
// Outputs: a product for each weight, in their order.
#include "graph/project.h"

enum { X, NORM, W0, B0, W1, B1, W2, B2, INPUTS };

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_project_shape_rows(s));
    for (uint32_t i = 0; i < 3; i++)
        RN_TRY(rn_project_shape_product(s, W0 + 2 * i, &s->out[i]));
    return RN_OK;
}

static void unfold(const rn_call *call, rn_fused *out) {
    rn_tensor x = rn_project_begin(out);
    for (uint32_t i = 0; i < 3; i++)
        rn_project_multiply(out, x, W0 + 2 * i, call->outputs[i]);
}

extern const rn_op_info rn_project_three_op;
const rn_op_info rn_project_three_op = {
    .name = "project_three",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << NORM | 1u << B0 | 1u << B1 | 1u << B2,
    .output_count = 3,
    .attrs_bytes = sizeof(rn_project_attrs),
    .traits = RN_TRAIT_PRODUCT,
    .product = rn_project_product,
    .shape = shape,
    .cost = rn_project_cost,
    .workspace = rn_fused_reference_workspace,
    .reference = rn_fused_reference,
    .unfold = unfold,
    .print = rn_project_print,
};

rn_value rn_op_project_three(rn_graph *g, rn_value x, rn_value norm, const rn_value w[3],
                             const rn_value bias[3], rn_project_attrs attrs) {
    attrs = rn_project_note_norm(g, norm, attrs);
    return rn_graph_add(g, RN_OP_PROJECT_THREE,
                        (rn_value[]){x, norm, w[0], bias[0], w[1], bias[1], w[2], bias[2]}, INPUTS,
                        &attrs);
}
