// cast.c — the elements as another plain type; rounding as rn_dtype_convert says.
#include "graph/op/move.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_cast_attrs *attrs = s->attrs;
    const rn_dtype_info *from = rn_dtype_get(s->in[0].dtype), *to = rn_dtype_get(attrs->dtype);
    if (!from->readable || from->block_elements != 1 || !to->readable || to->block_elements != 1)
        return rn_shape_fail(s, "cannot cast %s to %s: both must be plain types", from->name,
                             to->name);
    s->out[0].dtype = attrs->dtype;
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    return rn_dtype_convert(x->dtype, x->data, y->dtype, y->data, rn_tensor_elements(x));
}

static rn_status gradient(rn_backward *b) {
    rn_dtype dtype = rn_graph_value(b->graph, b->node.inputs[0])->dtype;
    b->in_gradients[0] = rn_op_cast(b->graph, b->out_gradients[0], dtype);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_cast_attrs *a = attrs;
    snprintf(out, bytes, "to %s", rn_dtype_get(a->dtype)->name);
}

extern const rn_op_info rn_cast_op;
const rn_op_info rn_cast_op = {
    .name = "cast",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_cast_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .shape = shape,
    .cost = rn_move_cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_cast(rn_graph *g, rn_value x, rn_dtype dtype) {
    return rn_graph_add(g, RN_OP_CAST, &x, 1, &(rn_cast_attrs){dtype});
}
