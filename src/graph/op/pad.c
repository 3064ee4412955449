// pad.c — a constant around the elements: before[i] and after[i] of it along axis i.
#include "graph/op/move.h"
#include "graph/op/print.h"

#include "base/checked.h"

static rn_status shape(rn_shaping *s) {
    const rn_pad_attrs *attrs = s->attrs;
    rn_shape *out = &s->out[0].shape;
    RN_TRY(rn_shape_want_plain(s, 0));
    s->out[0].dtype = s->in[0].dtype;
    *out = s->in[0].shape;
    for (uint32_t i = 0; i < out->rank; i++) {
        if (attrs->before[i] == 0 && attrs->after[i] == 0) continue;
        if (out->dims[i] == RN_ROWS) return rn_shape_fail(s, "the rows cannot be padded");
        if (!rn_add_u64(out->dims[i], attrs->before[i], &out->dims[i]) ||
            !rn_add_u64(out->dims[i], attrs->after[i], &out->dims[i]))
            return rn_shape_fail(s, "axis %u becomes too long", i);
    }
    return RN_OK;
}

static rn_status fill_all(const rn_tensor *y, float fill) {
    char element[sizeof(double)] = {0};
    RN_TRY(rn_dtype_convert(RN_DTYPE_F32, &fill, y->dtype, element, 1));
    rn_move_row(y->data, 1, element, 0, rn_tensor_elements(y), rn_element_bytes(y));
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_pad_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    uint64_t size = rn_element_bytes(x), begin = 0;
    rn_strides inner = rn_strides_of(x->shape), outer = rn_strides_of(y->shape);
    for (uint32_t i = 0; i < x->shape.rank; i++)
        begin += attrs->before[i] * outer.by[i];
    RN_TRY(fill_all(y, attrs->fill));
    rn_walk w = rn_walk_begin(x->shape, inner, outer);
    do
        rn_move_row((char *)y->data + (begin + w.at[1]) * size, w.step[1],
                    (const char *)x->data + w.at[0] * size, w.step[0], w.count, size);
    while (rn_walk_next(&w));
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_pad_attrs *attrs = b->node.attrs;
    rn_shape x = rn_graph_value(b->graph, b->node.inputs[0])->shape;
    rn_value dx = b->out_gradients[0];
    for (uint32_t i = 0; i < x.rank; i++)
        if (attrs->before[i] || attrs->after[i])
            dx = rn_op_slice(b->graph, dx, i, attrs->before[i], x.dims[i]);
    b->in_gradients[0] = dx;
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_pad_attrs *a = attrs;
    snprintf(out, bytes, "%g", (double)a->fill);
    for (uint32_t i = 0; i < RN_MAX_RANK; i++)
        if (a->before[i] || a->after[i])
            rn_print_more(out, bytes, ", axis %u by %llu and %llu", i,
                          (unsigned long long)a->before[i], (unsigned long long)a->after[i]);
}

extern const rn_op_info rn_pad_op;
const rn_op_info rn_pad_op = {
    .name = "pad",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_pad_attrs),
    .traits = RN_TRAIT_MOVE,
    .shape = shape,
    .cost = rn_move_cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_pad(rn_graph *g, rn_value x, rn_pad_attrs attrs) {
    return rn_graph_add(g, RN_OP_PAD, &x, 1, &attrs);
}
