// project.c — residual + (rmsnorm(x) wᵀ + bias): a product with what inference does around it.
#include "graph/op/rows.h"
#include "graph/project.h"

enum { X, NORM, W, BIAS, RESIDUAL, INPUTS };

static rn_status shape(rn_shaping *s) {
    RN_TRY(rn_project_shape_rows(s));
    RN_TRY(rn_project_shape_product(s, W, &s->out[0]));
    return rn_shape_want_shape(s, RESIDUAL, "the residual", s->out[0].shape);
}

static rn_alias alias_of(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    (void)output, (void)out_offset_bytes;
    if (rn_tensor_given(&call->inputs[RESIDUAL])) return (rn_alias)RN_ALIAS_MAY(RESIDUAL);
    return (rn_alias){RN_ALIAS_KIND_NONE, 0};
}

static void unfold(const rn_call *call, rn_fused *out) {
    rn_tensor x = rn_project_begin(out), y = call->outputs[0];
    rn_tensor residual = call->inputs[RESIDUAL];
    if (!rn_tensor_given(&residual)) {
        rn_project_multiply(out, x, W, y);
        return;
    }
    rn_tensor product = rn_fused_hand(out, y.shape); // y may be the residual's memory
    rn_project_multiply(out, x, W, product);
    rn_fused_add(out, RN_OP_ADD, NULL, (rn_tensor[]){residual, product}, 2, &y, 1);
}

extern const rn_op_info rn_project_op;
const rn_op_info rn_project_op = {
    .name = "project",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << NORM | 1u << BIAS | 1u << RESIDUAL,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_project_attrs),
    .traits = RN_TRAIT_PRODUCT,
    .product = rn_project_product,
    .alias_of = alias_of,
    .shape = shape,
    .cost = rn_project_cost,
    .workspace = rn_fused_reference_workspace,
    .reference = rn_fused_reference,
    .unfold = unfold,
    .print = rn_project_print,
};

rn_value rn_op_project(rn_graph *g, rn_value x, rn_value norm, rn_value w, rn_value bias,
                       rn_value residual, rn_project_attrs attrs) {
    attrs = rn_project_note_norm(g, norm, attrs);
    return rn_graph_add(g, RN_OP_PROJECT, (rn_value[]){x, norm, w, bias, residual}, INPUTS, &attrs);
}
