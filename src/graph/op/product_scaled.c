// product_scaled.c — a product of bytes as f32: its sums times a scale, plus a bias. What models
// with dynamically quantised activations have behind every product.
#include "graph/fused.h"

enum { A, B, A_ZERO, B_ZERO, SCALE, BIAS, INPUTS };

static rn_status shape(rn_shaping *s) {
    struct rn_typed made;
    RN_TRY(rn_fused_shape(s, RN_OP_PRODUCT, NULL, s->in, 4, &made));
    if (made.dtype != RN_DTYPE_I32 || s->in[A].dtype == RN_DTYPE_I32)
        return rn_shape_fail(s, "products of i8 and u8 are scaled");
    RN_TRY(rn_shape_want(s, SCALE, RN_DTYPE_F32));
    rn_shape columns = RN_SHAPE(made.shape.dims[made.shape.rank - 1]), scale = s->in[SCALE].shape;
    if (!rn_shape_equal(scale, columns) && rn_shape_elements(scale, 2) != 1)
        return rn_shape_fail(s, "the scale is one for all, or one a column");
    s->out[0].shape = made.shape;
    if (s->in[BIAS].dtype == RN_DTYPE_NONE) return RN_OK;
    RN_TRY(rn_shape_want(s, BIAS, RN_DTYPE_F32));
    if (rn_shape_equal(s->in[BIAS].shape, columns)) return RN_OK;
    return rn_shape_fail(s, "the bias is one number a column");
}

static void unfold(const rn_call *call, rn_fused *out) {
    const rn_tensor *y = &call->outputs[0], *in = call->inputs;
    rn_tensor sums = rn_fused_hand(out, y->shape), scale = in[SCALE];
    sums.dtype = RN_DTYPE_I32;
    if (rn_tensor_elements(&scale) == 1) scale.shape = RN_SCALAR;
    out->cast = (rn_cast_attrs){RN_DTYPE_F32};
    rn_fused_add(out, RN_OP_PRODUCT, NULL, in, 4, &sums, 1);
    rn_fused_add(out, RN_OP_CAST, &out->cast, &sums, 1, y, 1);
    rn_fused_add(out, RN_OP_MUL, NULL, (rn_tensor[]){*y, scale}, 2, y, 1);
    if (rn_tensor_given(&in[BIAS]))
        rn_fused_add(out, RN_OP_ADD, NULL, (rn_tensor[]){*y, in[BIAS]}, 2, y, 1);
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    rn_fused_flops(call, out);
}

extern const rn_op_info rn_product_scaled_op;
const rn_op_info rn_product_scaled_op = {
    .name = "product_scaled",
    .min_inputs = INPUTS,
    .max_inputs = INPUTS,
    .optional_inputs = 1u << A_ZERO | 1u << B_ZERO | 1u << BIAS,
    .output_count = 1,
    .shape = shape,
    .cost = cost,
    .workspace = rn_fused_reference_workspace,
    .reference = rn_fused_reference,
    .unfold = unfold,
};

rn_value rn_op_product_scaled(rn_graph *g, rn_value a, rn_value b, rn_value a_zero, rn_value b_zero,
                              rn_value scale, rn_value bias) {
    rn_value in[INPUTS] = {a, b, a_zero, b_zero, scale, bias};
    return rn_graph_add(g, RN_OP_PRODUCT_SCALED, in, INPUTS, NULL);
}
