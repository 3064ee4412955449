// reverse_sequence.c — the first lengths[b] elements of batch b's time axis in reverse, the others
// as they are.
#include "graph/op/move.h"
#include "graph/op/number.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_reverse_sequence_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape, lengths = s->in[1].shape;
    RN_TRY(rn_shape_want_plain(s, 0));
    RN_TRY(rn_shape_want_index(s, 1));
    RN_TRY(rn_shape_want_axis(s, 0, attrs->batch_axis));
    RN_TRY(rn_shape_want_axis(s, 0, attrs->time_axis));
    if (attrs->batch_axis == attrs->time_axis || x.dims[attrs->time_axis] == RN_ROWS)
        return rn_shape_fail(s, "axis %u cannot be that of time", attrs->time_axis);
    if (lengths.rank != 1 || lengths.dims[0] != x.dims[attrs->batch_axis])
        return rn_shape_fail(s, "lengths must be one a batch");
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = x;
    return RN_OK;
}

static rn_status reference(const rn_call *call) {
    const rn_reverse_sequence_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_strides strides = rn_strides_of(x->shape);
    uint64_t size = rn_element_bytes(x), n = rn_tensor_elements(x);
    uint64_t batches = x->shape.dims[attrs->batch_axis], times = x->shape.dims[attrs->time_axis];
    for (uint64_t e = 0; e < n; e++) {
        uint64_t batch = e / strides.by[attrs->batch_axis] % batches;
        uint64_t time = e / strides.by[attrs->time_axis] % times, from = e;
        int64_t length = rn_integer_at(&call->inputs[1], batch);
        if (length < 0 || (uint64_t)length > times)
            return rn_fail(RN_INVALID, "reverse_sequence: length %lld is not within 0 and %llu",
                           (long long)length, (unsigned long long)times);
        if (time < (uint64_t)length)
            from += ((uint64_t)length - 1 - 2 * time) * strides.by[attrs->time_axis];
        memcpy((char *)y->data + e * size, (const char *)x->data + from * size, size);
    }
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_reverse_sequence_attrs *a = attrs;
    snprintf(out, bytes, "axis %u, batches %u", a->time_axis, a->batch_axis);
}

extern const rn_op_info rn_reverse_sequence_op;
const rn_op_info rn_reverse_sequence_op = {
    .name = "reverse_sequence",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_reverse_sequence_attrs),
    .shape = shape,
    .cost = rn_move_cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_reverse_sequence(rn_graph *g, rn_value x, rn_value lengths,
                                rn_reverse_sequence_attrs attrs) {
    return rn_graph_add(g, RN_OP_REVERSE_SEQUENCE, (rn_value[]){x, lengths}, 2, &attrs);
}
