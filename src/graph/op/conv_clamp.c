// conv_clamp.c — a convolution of f32 whose outputs are kept within two ends: conv2d or conv, and
// clamp on what it made.
#include "graph/fused.h"
#include "graph/op/conv.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_conv_clamp_attrs *a = s->attrs;
    bool plain = rn_conv_is_conv2d(&a->conv, s->in[0].shape.rank);
    rn_conv2d_attrs conv2d = rn_conv_as_conv2d(&a->conv);
    struct rn_typed made;
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_fused_shape(s, plain ? RN_OP_CONV2D : RN_OP_CONV,
                          plain ? (const void *)&conv2d : &a->conv, s->in, 3, &made));
    return rn_fused_shape(s, RN_OP_CLAMP, &a->clamp, &made, 1, &s->out[0]);
}

static void unfold(const rn_call *call, rn_fused *out) {
    const rn_conv_clamp_attrs *a = call->attrs;
    const rn_tensor *y = &call->outputs[0];
    bool plain = rn_conv_is_conv2d(&a->conv, call->inputs[0].shape.rank);
    out->conv2d = rn_conv_as_conv2d(&a->conv);
    rn_fused_add(out, plain ? RN_OP_CONV2D : RN_OP_CONV,
                 plain ? (const void *)&out->conv2d : &a->conv, call->inputs, 3, y, 1);
    rn_fused_add(out, RN_OP_CLAMP, &a->clamp, y, 1, y, 1);
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    rn_fused_flops(call, out);
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_conv_clamp_attrs *a = attrs;
    snprintf(out, bytes, "groups %u, %g to %g", a->conv.groups ? a->conv.groups : 1,
             (double)a->clamp.low, (double)a->clamp.high);
}

extern const rn_op_info rn_conv_clamp_op;
const rn_op_info rn_conv_clamp_op = {
    .name = "conv_clamp",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_conv_clamp_attrs),
    .shape = shape,
    .cost = cost,
    .workspace = rn_fused_reference_workspace,
    .reference = rn_fused_reference,
    .unfold = unfold,
    .print = print,
};

rn_value rn_op_conv_clamp(rn_graph *g, rn_value x, rn_value w, rn_value bias,
                          rn_conv_clamp_attrs attrs) {
    return rn_graph_add(g, RN_OP_CONV_CLAMP, (rn_value[]){x, w, bias}, 3, &attrs);
}
