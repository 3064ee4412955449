// reshape.c — the same bytes under another shape. A view: nothing runs.
//
// RN_ROWS stays the outermost axis, for the axes inside it are all that a plan knows exactly.
#include "graph/op/move.h"

#include <stdio.h>

typedef struct reshape_attrs {
    rn_shape shape; // as asked for: one axis may be 0
} reshape_attrs;

// Gives the axis that is 0, if any, what is left of `elements`; false where nothing whole is left.
static bool fill_open_axis(rn_shape *shape, uint32_t from, uint64_t elements) {
    uint32_t open = RN_MAX_RANK, zeros = 0;
    for (uint32_t i = from; i < shape->rank; i++)
        if (shape->dims[i] == 0) open = i, zeros++;
    if (zeros != 1) return zeros == 0;
    shape->dims[open] = 1;
    uint64_t known = rn_shape_elements(*shape, 1);
    if (elements % known != 0) return false;
    shape->dims[open] = elements / known;
    return true;
}

// With rows: the axes inside them must hold as many elements as before.
static bool fit(rn_shape x, rn_shape *shape) {
    bool has_rows = x.rank > 0 && x.dims[0] == RN_ROWS;
    if (has_rows && shape->rank > 0 && shape->dims[0] == 0) shape->dims[0] = RN_ROWS;
    if (has_rows != (shape->rank > 0 && shape->dims[0] == RN_ROWS)) return false;
    uint64_t elements = rn_shape_elements(x, 1);
    return fill_open_axis(shape, has_rows, elements) && rn_shape_elements(*shape, 1) == elements;
}

static rn_status shape(rn_shaping *s) {
    const reshape_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_plain(s, 0));
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = attrs->shape;
    if (attrs->shape.rank > RN_MAX_RANK || !fit(s->in[0].shape, &s->out[0].shape))
        return rn_shape_fail(s, "the elements do not fit into %s",
                             rn_shape_format(attrs->shape).text);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    (void)call, (void)out; // free
}

static rn_status gradient(rn_backward *b) {
    rn_shape x = rn_graph_value(b->graph, b->node.inputs[0])->shape;
    b->in_gradients[0] = rn_op_reshape(b->graph, b->out_gradients[0], x);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const reshape_attrs *a = attrs;
    snprintf(out, bytes, "to %s", rn_shape_format(a->shape).text);
}

extern const rn_op_info rn_reshape_op;
const rn_op_info rn_reshape_op = {
    .name = "reshape",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(reshape_attrs),
    .traits = RN_TRAIT_VIEW | RN_TRAIT_MOVE,
    .alias = {RN_ALIAS_VIEW(0)},
    .shape = shape,
    .cost = cost,
    .gradient = gradient,
    .print = print,
};

rn_value rn_op_reshape(rn_graph *g, rn_value x, rn_shape to) {
    return rn_graph_add(g, RN_OP_RESHAPE, &x, 1, &(reshape_attrs){to});
}
