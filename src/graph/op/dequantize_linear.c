// dequantize_linear.c — (x - zero) * scale in f32: ONNX's DequantizeLinear.
#include "graph/op/linear.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_linear_attrs *a = s->attrs;
    RN_TRY(rn_shape_want_number(s, RN_LINEAR_X));
    if (a->dtype != RN_DTYPE_F32 && a->dtype != RN_DTYPE_F16 && a->dtype != RN_DTYPE_BF16)
        return rn_shape_fail(s, "the result is f32, f16 or bf16");
    if (s->in[RN_LINEAR_ZERO].dtype != RN_DTYPE_NONE)
        RN_TRY(rn_shape_want(s, RN_LINEAR_ZERO, s->in[RN_LINEAR_X].dtype));
    return rn_linear_shape(s);
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *zero = &call->inputs[RN_LINEAR_ZERO], *y = &call->outputs[0];
    uint64_t n = rn_tensor_elements(y);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = rn_linear_scale_at(call, i);
        double x = rn_real_at(&call->inputs[RN_LINEAR_X], i);
        if (rn_tensor_given(zero)) x -= rn_real_at(zero, at);
        rn_real_put(y, i,
                    (double)((float)x * (float)rn_real_at(&call->inputs[RN_LINEAR_SCALE], at)));
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_linear_attrs *a = attrs;
    snprintf(out, bytes, "to %s, axis %u, block %llu", rn_dtype_get(a->dtype)->name, a->axis,
             (unsigned long long)a->block);
}

extern const rn_op_info rn_dequantize_linear_op;
const rn_op_info rn_dequantize_linear_op = {
    .name = "dequantize_linear",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << RN_LINEAR_ZERO,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_linear_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_dequantize_linear(rn_graph *g, rn_value x, rn_value scale, rn_value zero,
                                 rn_linear_attrs attrs) {
    return rn_graph_add(g, RN_OP_DEQUANTIZE_LINEAR, (rn_value[]){x, scale, zero}, 3, &attrs);
}
