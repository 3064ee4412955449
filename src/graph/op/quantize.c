// quantize.c — f32 to a block type (q8_0, q4_0), in blocks along the last axis.
#include "graph/op/rows.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_cast_attrs *attrs = s->attrs;
    const rn_dtype_info *to = rn_dtype_get(attrs->dtype);
    uint64_t channels = 0;
    if (attrs->dtype != RN_DTYPE_Q8_0 && attrs->dtype != RN_DTYPE_Q4_0)
        return rn_shape_fail(s, "cannot quantize to %s, only to q8_0 and q4_0", to->name);
    RN_TRY(rn_shape_want_channels(s, &channels));
    if (channels % to->block_elements != 0)
        return rn_shape_fail(s, "the last axis, %llu, is not in whole blocks of %u",
                             (unsigned long long)channels, to->block_elements);
    s->out[0].dtype = attrs->dtype;
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    return rn_dtype_from_f32(y->dtype, x->data, y->data, rn_tensor_elements(x));
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_cast_attrs *a = attrs;
    snprintf(out, bytes, "to %s", rn_dtype_get(a->dtype)->name);
}

extern const rn_op_info rn_quantize_op;
const rn_op_info rn_quantize_op = {
    .name = "quantize",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_cast_attrs),
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_quantize(rn_graph *g, rn_value x, rn_dtype dtype) {
    return rn_graph_add(g, RN_OP_QUANTIZE, &x, 1, &(rn_cast_attrs){dtype});
}
