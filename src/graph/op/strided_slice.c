// strided_slice.c — every n-th element of each axis, forwards or backwards.
#include "graph/op/move.h"
#include "graph/op/print.h"

static rn_status shape(rn_shaping *s) {
    const rn_strided_slice_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape;
    RN_TRY(rn_shape_want_plain(s, 0));
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape.rank = x.rank;
    for (uint32_t i = 0; i < x.rank; i++) {
        uint64_t length = x.dims[i], start = attrs->start[i], count = attrs->count[i];
        int64_t step = attrs->step[i];
        uint64_t by = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
        s->out[0].shape.dims[i] = count;
        if (length == RN_ROWS) {
            if (start == 0 && step == 1 && count == RN_ROWS) continue;
            return rn_shape_fail(s, "the rows cannot be sliced");
        }
        if (count == 0 && step != 0) continue;
        uint64_t room = step < 0 ? start : length - start - 1;
        if (step == 0 || start >= length || (count - 1) > room / by)
            return rn_shape_fail(s, "axis %u has no %llu elements from %llu on, %lld apart", i,
                                 (unsigned long long)count, (unsigned long long)start,
                                 (long long)step);
    }
    return RN_OK;
}

// Rows are those of the last axis.
typedef struct slicing {
    const rn_call *call;
    rn_strides strides;
    uint64_t rows, width, together; // together: rows in a task
} slicing;

static void move_row(const slicing *s, uint64_t row) {
    const rn_strided_slice_attrs *attrs = s->call->attrs;
    const rn_tensor *x = &s->call->inputs[0], *y = &s->call->outputs[0];
    uint32_t rank = x->shape.rank, last = rank ? rank - 1 : 0;
    uint64_t size = rn_element_bytes(x), left = row;
    int64_t step = rank ? attrs->step[last] : 1, at = rank ? (int64_t)attrs->start[last] : 0;
    char *to = (char *)y->data + row * s->width * size;
    for (uint32_t i = last; i-- > 0; left /= y->shape.dims[i]) {
        uint64_t index = left % y->shape.dims[i];
        int64_t place = (int64_t)attrs->start[i] + (int64_t)index * attrs->step[i];
        at += place * (int64_t)s->strides.by[i];
    }
    const char *from = (const char *)x->data + (uint64_t)at * size;
    if (step >= 0)
        rn_move_row(to, 1, from, (uint64_t)step, s->width, size);
    else
        for (uint64_t i = 0; i < s->width; i++)
            memcpy(to + i * size, from - i * (0 - (uint64_t)step) * size, size);
}

static void move_some(void *arg, size_t task) {
    const slicing *s = arg;
    for (uint64_t i = 0; i < s->together && task * s->together + i < s->rows; i++)
        move_row(s, task * s->together + i);
}

static rn_status reference(const rn_call *call) {
    enum { TASK_ELEMENTS = 16384 };
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    uint64_t n = rn_tensor_elements(y), rank = x->shape.rank;
    slicing s = {.call = call, .strides = rn_strides_of(x->shape)};
    if (n == 0) return RN_OK;
    s.width = rank ? y->shape.dims[rank - 1] : 1;
    s.rows = n / s.width;
    s.together = TASK_ELEMENTS / s.width + 1;
    rn_call_each(call, (s.rows + s.together - 1) / s.together, move_some, &s);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    double bytes = (double)rn_tensor_bytes(&call->outputs[0]);
    out->read_bytes += bytes;
    out->write_bytes += bytes;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_strided_slice_attrs *a = attrs;
    snprintf(out, bytes, "every");
    for (uint32_t i = 0; i < RN_MAX_RANK && a->step[i]; i++)
        rn_print_more(out, bytes, " %lld", (long long)a->step[i]);
}

extern const rn_op_info rn_strided_slice_op;
const rn_op_info rn_strided_slice_op = {
    .name = "strided_slice",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_strided_slice_attrs),
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

// What is not strided is slices of single axes, which may be views.
static rn_value slice_axes(rn_graph *g, rn_value x, const rn_strided_slice_attrs *attrs) {
    rn_shape shape = rn_graph_value(g, x)->shape;
    for (uint32_t i = 0; i < shape.rank && x != RN_NO_VALUE; i++)
        if (attrs->start[i] != 0 || attrs->count[i] != shape.dims[i])
            x = rn_op_slice(g, x, i, attrs->start[i], attrs->count[i]);
    return x;
}

rn_value rn_op_strided_slice(rn_graph *g, rn_value x, rn_strided_slice_attrs attrs) {
    bool plain = x != RN_NO_VALUE && x <= rn_graph_value_count(g), cut = false;
    for (uint32_t i = 0; plain && i < rn_graph_value(g, x)->shape.rank; i++) {
        cut |= attrs.count[i] != rn_graph_value(g, x)->shape.dims[i];
        plain = attrs.step[i] == 1;
    }
    if (plain && cut) return slice_axes(g, x, &attrs);
    return rn_graph_add(g, RN_OP_STRIDED_SLICE, &x, 1, &attrs);
}
