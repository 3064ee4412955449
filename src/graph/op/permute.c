// permute.c — the axes in another order: output axis i is input axis axes[i].
#include "graph/op/move.h"
#include "graph/op/print.h"

enum { UNUSED = UINT8_MAX }; // in axes[rank] and after

static rn_status shape(rn_shaping *s) {
    const rn_permute_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape;
    uint32_t seen = 0;
    RN_TRY(rn_shape_want_plain(s, 0));
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape.rank = x.rank;
    for (uint32_t i = 0; i < x.rank; i++) {
        uint8_t axis = attrs->axes[i];
        if (axis >= x.rank || seen >> axis & 1)
            return rn_shape_fail(s, "axis %u of the output cannot be axis %u of the input", i,
                                 axis);
        seen |= 1u << axis;
        s->out[0].shape.dims[i] = x.dims[axis];
    }
    if (x.rank > 0 && x.dims[0] == RN_ROWS && attrs->axes[0] != 0)
        return rn_shape_fail(s, "the rows must stay the outermost axis");
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_permute_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0];
    rn_strides strides = rn_strides_of(x->shape), moved = {{0}};
    for (uint32_t i = 0; i < x->shape.rank; i++)
        moved.by[i] = strides.by[attrs->axes[i]];
    rn_move_strided(&call->outputs[0], x, moved);
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_permute_attrs *attrs = b->node.attrs;
    uint8_t back[RN_MAX_RANK] = {0};
    for (uint8_t i = 0; i < RN_MAX_RANK && attrs->axes[i] != UNUSED; i++)
        back[attrs->axes[i]] = i;
    b->in_gradients[0] = rn_op_permute(b->graph, b->out_gradients[0], back);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_permute_attrs *a = attrs;
    snprintf(out, bytes, "axes");
    for (uint32_t i = 0; i < RN_MAX_RANK && a->axes[i] != UNUSED; i++)
        rn_print_more(out, bytes, " %u", a->axes[i]);
}

extern const rn_op_info rn_permute_op;
const rn_op_info rn_permute_op = {
    .name = "permute",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_permute_attrs),
    .traits = RN_TRAIT_MOVE,
    .shape = shape,
    .cost = rn_move_cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_permute(rn_graph *g, rn_value x, const uint8_t *axes) {
    rn_permute_attrs attrs;
    memset(attrs.axes, UNUSED, sizeof attrs.axes);
    if (x != RN_NO_VALUE && x <= rn_graph_value_count(g))
        memcpy(attrs.axes, axes, rn_graph_value(g, x)->shape.rank);
    return rn_graph_add(g, RN_OP_PERMUTE, &x, 1, &attrs);
}
