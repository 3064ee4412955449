// dequantize.c — any readable type to f32.
#include "graph/op.h"

static rn_status shape(rn_shaping *s) {
    const rn_dtype_info *from = rn_dtype_get(s->in[0].dtype);
    if (!from->readable) return rn_shape_fail(s, "there is no reading %s", from->name);
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0];
    return rn_dtype_to_f32(x->dtype, x->data, call->outputs[0].data, rn_tensor_elements(x));
}

extern const rn_op_info rn_dequantize_op;
const rn_op_info rn_dequantize_op = {
    .name = "dequantize",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
};

rn_value rn_op_dequantize(rn_graph *g, rn_value x) {
    return rn_graph_add(g, RN_OP_DEQUANTIZE, &x, 1, NULL);
}
