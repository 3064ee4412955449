// any.c — elementwise ops of any dtype: their reference loops, or vectors where f32 has them, on
// parts of the tensors that threads share out.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"

#include "base/checked.h"
#include "graph/op/linear.h"
#include "graph/op/move.h"

enum { SPAN = 16384, MOST_INPUTS = 3 };

// ---- parts --------------------------------------------------------------------------------------

// The result is cut along `axis`, outside of which it has one element.
typedef struct parts {
    const rn_call *call;
    rn_status (*run)(const rn_call *part);
    rn_shape shape; // of the result; all in one axis where the inputs are alike
    uint32_t axis;
    uint64_t rows; // of that axis in a part
} parts;

// Rows [first, first + count) of a tensor, which is stretched to the result's shape by NumPy's
// rule; a tensor that is the same for all of them stays whole.
static rn_tensor cut(const parts *p, const rn_tensor *from, uint64_t first, uint64_t count,
                     bool alike) {
    rn_tensor to = *from;
    if (!rn_tensor_given(from)) return to;
    if (alike && rn_tensor_elements(from) != 1) to.shape = p->shape;
    uint32_t missing = p->shape.rank - to.shape.rank;
    if (p->axis < missing || to.shape.dims[p->axis - missing] == 1) return to;
    uint64_t inner = rn_runs_of(to.shape, p->axis - missing + 1).elements;
    to.shape.dims[p->axis - missing] = count;
    to.data = (char *)to.data + first * inner * rn_element_bytes(from);
    return to;
}

static void run_part(void *arg, size_t index) {
    const parts *p = arg;
    rn_tensor in[MOST_INPUTS], out;
    rn_call part = *p->call;
    uint64_t first = index * p->rows;
    uint64_t count = rn_min_u64(p->rows, p->shape.dims[p->axis] - first);
    bool alike = p->shape.rank == 1;
    for (uint32_t i = 0; i < part.input_count; i++)
        in[i] = cut(p, &p->call->inputs[i], first, count, alike);
    out = cut(p, &p->call->outputs[0], first, count, alike);
    part.inputs = in;
    part.outputs = &out;
    part.workers = NULL;
    (void)!p->run(&part); // elementwise loops cannot fail
}

static rn_status run_parts(const rn_call *call, rn_status (*run)(const rn_call *part)) {
    parts p = {.call = call, .run = run, .shape = call->outputs[0].shape};
    uint64_t n = rn_tensor_elements(&call->outputs[0]);
    bool alike = true;
    for (uint32_t i = 0; i < call->input_count; i++) {
        uint64_t own = rn_tensor_given(&call->inputs[i]) ? rn_tensor_elements(&call->inputs[i]) : 1;
        alike &= own == n || own == 1;
    }
    if (alike) p.shape = RN_SHAPE(n);
    while (p.axis + 1 < p.shape.rank && p.shape.dims[p.axis] == 1)
        p.axis++;
    if (n <= SPAN || p.shape.rank == 0) return run(call);
    uint64_t length = p.shape.dims[p.axis];
    p.rows = rn_max_u64(1, SPAN / (n / length));
    rn_call_each(call, rn_div_up(length, p.rows), run_part, &p);
    return RN_OK;
}

static rn_status run_reference(const rn_call *part) {
    return rn_op_get(part->op)->reference(part);
}

rn_status rn_cpu_any(const rn_call *call) {
    return run_parts(call, run_reference);
}

// ---- functions of one f32 -----------------------------------------------------------------------

static rn_map_span *span_of(rn_unary_function function) {
    const rn_spans *s = rn_spans_get();
    switch (function) {
    case RN_UNARY_ABS:
        return s->abs;
    case RN_UNARY_ERF:
        return s->erf;
    case RN_UNARY_HARD_SIGMOID:
        return s->hard_sigmoid;
    case RN_UNARY_HARD_SWISH:
        return s->hard_swish;
    case RN_UNARY_LEAKY_RELU:
        return s->leaky_relu;
    default:
        return NULL;
    }
}

static rn_status run_unary(const rn_call *part) {
    const rn_unary_attrs *a = part->attrs;
    rn_map_span *span = part->inputs[0].dtype == RN_DTYPE_F32 ? span_of(a->function) : NULL;
    if (!span) return run_reference(part);
    span(part->inputs[0].data, part->outputs[0].data, rn_tensor_elements(&part->outputs[0]),
         (float)a->a, (float)a->b);
    return RN_OK;
}

rn_status rn_cpu_unary(const rn_call *call) {
    return run_parts(call, run_unary);
}

// ---- linear quantisation ------------------------------------------------------------------------

// One scale for all, f32 and 8 bits; anything else is the reference's.
static rn_status run_quantize(const rn_call *part) {
    const rn_linear_attrs *a = part->attrs;
    const rn_tensor *x = &part->inputs[RN_LINEAR_X], *y = &part->outputs[0];
    const rn_tensor *zero = &part->inputs[RN_LINEAR_ZERO];
    bool is_signed = y->dtype == RN_DTYPE_I8;
    if (x->dtype != RN_DTYPE_F32 || !(is_signed || y->dtype == RN_DTYPE_U8) || a->low != a->high)
        return run_reference(part);
    rn_spans_get()->quantize(x->data, y->data, rn_tensor_elements(y),
                             (float)rn_real_at(&part->inputs[RN_LINEAR_SCALE], 0),
                             rn_tensor_given(zero) ? (float)rn_real_at(zero, 0) : 0, is_signed);
    return RN_OK;
}

static rn_status run_dequantize(const rn_call *part) {
    const rn_tensor *x = &part->inputs[RN_LINEAR_X], *y = &part->outputs[0];
    const rn_tensor *zero = &part->inputs[RN_LINEAR_ZERO];
    bool is_signed = x->dtype == RN_DTYPE_I8;
    if (y->dtype != RN_DTYPE_F32 || !(is_signed || x->dtype == RN_DTYPE_U8))
        return run_reference(part);
    rn_spans_get()->dequantize(x->data, y->data, rn_tensor_elements(y),
                               (float)rn_real_at(&part->inputs[RN_LINEAR_SCALE], 0),
                               rn_tensor_given(zero) ? (float)rn_real_at(zero, 0) : 0, is_signed);
    return RN_OK;
}

// One scale an index of the axis: a row of what is inside of it at a time, each as a call of its
// own with one scale.
typedef struct axis_rows {
    const rn_call *call;
    rn_status (*run)(const rn_call *part);
    rn_axis_cut cut;
} axis_rows;

static void run_row(void *arg, size_t index) {
    const axis_rows *r = arg;
    rn_call part = *r->call;
    rn_tensor in[MOST_INPUTS], out = part.outputs[0];
    for (uint32_t i = 0; i < MOST_INPUTS; i++) {
        in[i] = part.inputs[i];
        in[i].shape = i == RN_LINEAR_X ? RN_SHAPE(r->cut.inner) : RN_SCALAR;
        uint64_t at = i == RN_LINEAR_X ? index * r->cut.inner : index % r->cut.length;
        if (in[i].data) in[i].data = (char *)in[i].data + at * rn_element_bytes(&in[i]);
    }
    out.shape = RN_SHAPE(r->cut.inner);
    out.data = (char *)out.data + index * r->cut.inner * rn_element_bytes(&out);
    part.inputs = in;
    part.outputs = &out;
    (void)!r->run(&part); // elementwise loops cannot fail
}

static rn_status run_linear(const rn_call *call, rn_status (*run)(const rn_call *part)) {
    const rn_linear_attrs *a = call->attrs;
    if (rn_tensor_elements(&call->inputs[RN_LINEAR_SCALE]) == 1) return run_parts(call, run);
    axis_rows r = {call, run, rn_axis_cut_of(call->inputs[RN_LINEAR_X].shape, a->axis)};
    if (a->block || r.cut.inner < 8) return run_reference(call);
    rn_call_each(call, r.cut.outer * r.cut.length, run_row, &r);
    return RN_OK;
}

rn_status rn_cpu_quantize_linear(const rn_call *call) {
    return run_linear(call, run_quantize);
}

rn_status rn_cpu_dequantize_linear(const rn_call *call) {
    return run_linear(call, run_dequantize);
}
