// resize.c — one axis to another length: each element of the result is a mean of its neighbours in
// x, weighted by their distance. Beyond its ends x goes on with its first and last element.
//
// Places and weights are in double, as in ONNX's reference evaluator.
#include "graph/op/grads.h"
#include "graph/op/move.h"
#include "graph/op/number.h"
#include "graph/op/resize.h"

#include "base/checked.h"

#include <stdio.h>

static rn_status shape(rn_shaping *s) {
    const rn_resize_attrs *attrs = s->attrs;
    RN_TRY(rn_shape_want_number(s, 0));
    RN_TRY(rn_shape_want_axis(s, 0, attrs->axis));
    if (attrs->function != RN_RESIZE_NEAREST) RN_TRY(rn_shape_want_float(s, 0));
    if ((unsigned)attrs->function > RN_RESIZE_CUBIC ||
        (unsigned)attrs->coordinates > RN_RESIZE_CROP || (unsigned)attrs->nearest > RN_RESIZE_CEIL)
        return rn_shape_fail(s, "there is no such way to resize");
    if (s->in[0].shape.dims[attrs->axis] == RN_ROWS || attrs->length == 0 ||
        !(attrs->scale >= 0 && attrs->scale < 1e9))
        return rn_shape_fail(s, "axis %u cannot become %llu long", attrs->axis,
                             (unsigned long long)attrs->length);
    if (attrs->scale > 0 && attrs->scale < 1e-6) return rn_shape_fail(s, "the scale is too small");
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = s->in[0].shape;
    s->out[0].shape.dims[attrs->axis] = attrs->length;
    return RN_OK;
}

// ---- the loop -----------------------------------------------------------------------------------

// `n` neighbours of the result: `from` is where their taps' place 0 is, `step` how far the next.
static void mix(const rn_call *call, const rn_resize_taps *t, uint64_t from, uint64_t step,
                uint64_t to, uint64_t n) {
    double sums[RN_NUMBERS] = {0};
    for (int64_t tap = 0; tap < t->count; tap++) {
        double weight = rn_resize_weight(t, tap) / t->total;
        uint64_t at = from + rn_resize_tap(t, tap) * step;
        for (uint64_t j = 0; j < n; j++)
            sums[j] += weight * rn_real_at(&call->inputs[0], at + j);
    }
    for (uint64_t j = 0; j < n; j++)
        rn_real_put(&call->outputs[0], to + j, t->filled ? t->attrs->fill : sums[j]);
}

// Element `index` of the axis, in all the others.
static void resize(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_resize_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_axis_cut cut = rn_axis_cut_of(x->shape, attrs->axis);
    rn_resize_taps t = rn_resize_taps_of(attrs, index, cut.length);
    uint64_t size = rn_element_bytes(x);
    for (uint64_t o = 0; o < cut.outer; o++) {
        uint64_t from = o * cut.length * cut.inner;
        uint64_t to = (o * attrs->length + index) * cut.inner;
        if (attrs->function == RN_RESIZE_NEAREST && !t.filled) {
            memcpy((char *)y->data + to * size,
                   (const char *)x->data + (from + rn_resize_tap(&t, 0) * cut.inner) * size,
                   cut.inner * size);
            continue;
        }
        for (uint64_t i = 0; i < cut.inner; i += RN_NUMBERS)
            mix(call, &t, from + i, cut.inner, to + i,
                cut.inner - i < RN_NUMBERS ? cut.inner - i : RN_NUMBERS);
    }
}

static rn_status reference(const rn_call *call) {
    const rn_resize_attrs *attrs = call->attrs;
    rn_call_each(call, attrs->length, resize, (void *)(uintptr_t)call);
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    const rn_resize_attrs *attrs = b->node.attrs;
    rn_graph *g = b->graph;
    if (attrs->coordinates == RN_RESIZE_CROP ||
        rn_graph_dtype(g, b->node.inputs[0]) != RN_DTYPE_F32)
        return rn_fail(RN_UNSUPPORTED, "%s: resize has a gradient for f32, uncropped",
                       b->node.name);
    rn_resize_grad_attrs back = {*attrs,
                                 rn_graph_value(g, b->node.inputs[0])->shape.dims[attrs->axis]};
    b->in_gradients[0] = rn_op_resize_grad(g, b->out_gradients[0], &back);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    static const char *const names[] = {"nearest", "linear", "cubic"};
    const rn_resize_attrs *a = attrs;
    snprintf(out, bytes, "%s, axis %u to %llu", names[a->function], a->axis,
             (unsigned long long)a->length);
}

extern const rn_op_info rn_resize_op;
const rn_op_info rn_resize_op = {
    .name = "resize",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_resize_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = rn_move_cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

rn_value rn_op_resize(rn_graph *g, rn_value x, rn_resize_attrs attrs) {
    return rn_graph_add(g, RN_OP_RESIZE, &x, 1, &attrs);
}

rn_value rn_graph_upsample(rn_graph *g, rn_value x, uint32_t factor) {
    if (x == RN_NO_VALUE) return x;
    rn_shape s = rn_graph_value(g, x)->shape;
    uint64_t high, wide;
    if (s.rank != 4 || factor == 0 || !rn_mul_u64(s.dims[1], factor, &high) ||
        !rn_mul_u64(s.dims[2], factor, &wide)) {
        rn_graph_spoil(g,
                       rn_fail(RN_INVALID, "%s cannot be upsampled by %u: images are (N, H, W, C)",
                               rn_shape_format(s).text, factor));
        return RN_NO_VALUE;
    }
    x = rn_op_reshape(g, x, RN_SHAPE(s.dims[0], s.dims[1], 1, s.dims[2], 1, s.dims[3]));
    x = rn_op_broadcast(g, x, RN_SHAPE(s.dims[0], s.dims[1], factor, s.dims[2], factor, s.dims[3]));
    return rn_op_reshape(g, x, RN_SHAPE(s.dims[0], high, wide, s.dims[3]));
}
