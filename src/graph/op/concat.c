// concat.c — parts one after another along an axis.
#include "graph/op/move.h"

#include "base/checked.h"

#include <stdio.h>

// Whether two shapes differ at most in `axis`.
static bool match(rn_shape a, rn_shape b, uint32_t axis) {
    if (a.rank != b.rank) return false;
    a.dims[axis] = b.dims[axis];
    return rn_shape_equal(a, b);
}

static rn_status shape(rn_shaping *s) {
    const rn_concat_attrs *attrs = s->attrs;
    rn_shape first = s->in[0].shape;
    uint64_t length = 0;
    RN_TRY(rn_shape_want_plain(s, 0));
    if (attrs->axis >= first.rank) return rn_shape_fail(s, "there is no axis %u", attrs->axis);
    for (uint32_t i = 0; i < s->input_count; i++) {
        RN_TRY(rn_shape_want(s, i, s->in[0].dtype));
        if (!match(s->in[i].shape, first, attrs->axis))
            return rn_shape_fail(s, "part %u differs in more than axis %u", i, attrs->axis);
        if (s->in[i].shape.dims[attrs->axis] == RN_ROWS)
            return rn_shape_fail(s, "parts cannot be joined along the rows");
        if (!rn_add_u64(length, s->in[i].shape.dims[attrs->axis], &length))
            return rn_shape_fail(s, "axis %u becomes too long", attrs->axis);
    }
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = first;
    s->out[0].shape.dims[attrs->axis] = length;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_concat_attrs *attrs = call->attrs;
    const rn_tensor *y = &call->outputs[0];
    uint64_t size = rn_element_bytes(y);
    rn_runs whole = rn_runs_of(y->shape, attrs->axis);
    char *to = y->data;
    for (uint32_t part = 0; part < call->input_count; part++) {
        const char *from = call->inputs[part].data;
        uint64_t bytes = rn_runs_of(call->inputs[part].shape, attrs->axis).elements * size;
        for (uint64_t i = 0; i < whole.count; i++)
            memcpy(to + i * whole.elements * size, from + i * bytes, bytes);
        to += bytes;
    }
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_concat_attrs *attrs = b->node.attrs;
    uint64_t start = 0;
    for (uint32_t i = 0; i < b->node.input_count; i++) {
        rn_shape part = rn_graph_value(b->graph, b->node.inputs[i])->shape;
        uint64_t count = part.dims[attrs->axis];
        if (b->wanted[i])
            b->in_gradients[i] =
                rn_op_slice(b->graph, b->out_gradients[0], attrs->axis, start, count);
        start += count;
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_concat_attrs *a = attrs;
    snprintf(out, bytes, "axis %u", a->axis);
}

extern const rn_op_info rn_concat_op;
const rn_op_info rn_concat_op = {
    .name = "concat",
    .min_inputs = 1,
    .max_inputs = UINT32_MAX,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_concat_attrs),
    .traits = RN_TRAIT_MOVE,
    .shape = shape,
    .cost = rn_move_cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_concat(rn_graph *g, const rn_value *parts, uint32_t count, uint32_t axis) {
    return rn_graph_add(g, RN_OP_CONCAT, parts, count, &(rn_concat_attrs){axis});
}
