// broadcast.c — x repeated along axes of 1 and along new outer axes, by NumPy's rule.
//
// A view where nothing is repeated.
#include "graph/op/move.h"

#include <stdio.h>

typedef struct broadcast_attrs {
    rn_shape shape;
} broadcast_attrs;

static rn_status shape(rn_shaping *s) {
    const broadcast_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_plain(s, 0));
    s->out[0].dtype = s->in[0].dtype;
    if (attrs->shape.rank > RN_MAX_RANK ||
        !rn_shape_join(s->in[0].shape, attrs->shape, &s->out[0].shape) ||
        !rn_shape_equal(s->out[0].shape, attrs->shape))
        return rn_shape_fail(s, "the input cannot be stretched to %s",
                             rn_shape_format(attrs->shape).text);
    return RN_OK;
}

static rn_alias alias_of(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    (void)output, (void)out_offset_bytes;
    bool same = rn_tensor_elements(&call->inputs[0]) == rn_tensor_elements(&call->outputs[0]);
    return same ? (rn_alias)RN_ALIAS_VIEW(0) : (rn_alias){RN_ALIAS_KIND_NONE, 0};
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_move_strided(y, x, rn_strides_stretched(x->shape, y->shape));
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    b->in_gradients[0] = rn_graph_unbroadcast(b->graph, b->out_gradients[0], b->node.inputs[0]);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const broadcast_attrs *a = attrs;
    snprintf(out, bytes, "to %s", rn_shape_format(a->shape).text);
}

extern const rn_op_info rn_broadcast_op;
const rn_op_info rn_broadcast_op = {
    .name = "broadcast",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(broadcast_attrs),
    .traits = RN_TRAIT_MOVE,
    .alias_of = alias_of,
    .shape = shape,
    .cost = rn_move_cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_broadcast(rn_graph *g, rn_value x, rn_shape to) {
    return rn_graph_add(g, RN_OP_BROADCAST, &x, 1, &(broadcast_attrs){to});
}
