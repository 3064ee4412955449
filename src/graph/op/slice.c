// slice.c — `count` elements of one axis, from `start` on.
//
// Where all axes outside of it are 1 the elements lie together, and the slice is a view of them.
#include "graph/op/move.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_slice_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape;
    RN_TRY(rn_shape_want_plain(s, 0));
    if (attrs->axis >= x.rank) return rn_shape_fail(s, "there is no axis %u", attrs->axis);
    uint64_t length = x.dims[attrs->axis];
    if (length == RN_ROWS) return rn_shape_fail(s, "the rows cannot be sliced");
    if (attrs->count == 0 || attrs->count > length || attrs->start > length - attrs->count)
        return rn_shape_fail(s, "%llu elements from %llu on are not within the %llu of axis %u",
                             (unsigned long long)attrs->count, (unsigned long long)attrs->start,
                             (unsigned long long)length, attrs->axis);
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = x;
    s->out[0].shape.dims[attrs->axis] = attrs->count;
    return RN_OK;
}

static rn_alias alias_of(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    const rn_slice_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0];
    (void)output;
    if (rn_runs_of(x->shape, attrs->axis).count != 1) return (rn_alias){RN_ALIAS_KIND_NONE, 0};
    uint64_t inner = rn_runs_of(x->shape, attrs->axis + 1).elements;
    *out_offset_bytes = attrs->start * inner * rn_element_bytes(x);
    return (rn_alias)RN_ALIAS_VIEW(0);
}

static rn_status reference(const rn_call *call) {
    const rn_slice_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_runs from = rn_runs_of(x->shape, attrs->axis), to = rn_runs_of(y->shape, attrs->axis);
    uint64_t inner = rn_runs_of(x->shape, attrs->axis + 1).elements, size = rn_element_bytes(x);
    const char *source = (const char *)x->data + attrs->start * inner * size;
    for (uint64_t i = 0; i < to.count; i++)
        memcpy((char *)y->data + i * to.elements * size, source + i * from.elements * size,
               to.elements * size);
    return RN_OK;
}

// What was cut away has the gradient 0.
static rn_status gradient(rn_backward *b) {
    const rn_slice_attrs *attrs = b->node.attrs;
    rn_shape x = rn_graph_value(b->graph, b->node.inputs[0])->shape;
    rn_pad_attrs pad = {.fill = 0.0f};
    pad.before[attrs->axis] = attrs->start;
    pad.after[attrs->axis] = x.dims[attrs->axis] - attrs->start - attrs->count;
    b->in_gradients[0] = rn_op_pad(b->graph, b->out_gradients[0], pad);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_slice_attrs *a = attrs;
    snprintf(out, bytes, "axis %u, %llu from %llu on", a->axis, (unsigned long long)a->count,
             (unsigned long long)a->start);
}

extern const rn_op_info rn_slice_op;
const rn_op_info rn_slice_op = {
    .name = "slice",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_slice_attrs),
    .traits = RN_TRAIT_MOVE,
    .alias_of = alias_of,
    .shape = shape,
    .cost = rn_move_cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_slice(rn_graph *g, rn_value x, uint32_t axis, uint64_t start, uint64_t count) {
    return rn_graph_add(g, RN_OP_SLICE, &x, 1, &(rn_slice_attrs){axis, start, count});
}
