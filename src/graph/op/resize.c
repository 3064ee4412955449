// resize.c — one axis to another length: each element of the result is a mean of its neighbours in
// x, weighted by their distance. Beyond its ends x goes on with its first and last element.
//
// Places and weights are in double, as in ONNX's reference evaluator.
#include "graph/op/move.h"
#include "graph/op/number.h"

#include <math.h>
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

// ---- places and weights -------------------------------------------------------------------------

static double scale_of(const rn_resize_attrs *a, uint64_t length) {
    return a->scale > 0 ? a->scale : (double)a->length / (double)length;
}

// Where element i of the result lies in x, whose axis is `length` long.
static double place_of(const rn_resize_attrs *a, uint64_t i, uint64_t length) {
    double scale = scale_of(a, length), wide = scale * (double)length, last = (double)length - 1;
    double at = (double)i;
    switch (a->coordinates) {
    case RN_RESIZE_ALIGN_CORNERS:
        return wide == 1 ? 0 : at * last / (wide - 1);
    case RN_RESIZE_ASYMMETRIC:
        return at / scale;
    case RN_RESIZE_CROP:
        at = wide == 1 ? (a->to - a->from) * last / 2 : at * (a->to - a->from) * last / (wide - 1);
        return at + a->from * last;
    case RN_RESIZE_PYTORCH_HALF_PIXEL:
        if (wide == 1) return -0.5;
        break;
    case RN_RESIZE_HALF_PIXEL_SYMMETRIC:
        return (double)length / 2 * (1 - (double)a->length / wide) + (at + 0.5) / scale - 0.5;
    case RN_RESIZE_HALF_PIXEL:
        break;
    }
    return (at + 0.5) / scale - 0.5;
}

static double round_place(rn_resize_nearest nearest, double place) {
    switch (nearest) {
    case RN_RESIZE_ROUND_PREFER_FLOOR:
        return ceil(place - 0.5);
    case RN_RESIZE_ROUND_PREFER_CEIL:
        return floor(place + 0.5);
    case RN_RESIZE_FLOOR:
        return floor(place);
    case RN_RESIZE_CEIL:
        break;
    }
    return ceil(place);
}

// The weight of a tap at distance d.
static double weigh(const rn_resize_attrs *a, double d) {
    double k = a->cubic;
    d = fabs(d);
    if (a->function == RN_RESIZE_LINEAR) return d < 1 ? 1 - d : 0;
    if (d <= 1) return ((k + 2) * d - (k + 3)) * d * d + 1;
    return d < 2 ? ((k * d - 5 * k) * d + 8 * k) * d - 4 * k : 0;
}

// The taps of one element: `count` from `first` on, which may lie outside of x.
typedef struct taps {
    const rn_resize_attrs *attrs;
    uint64_t length;
    double place, shrink, total;
    int64_t first, count;
    bool filled; // CROP, outside of x
} taps;

static double weight_at(const taps *t, int64_t tap) {
    int64_t at = t->first + tap;
    if (t->attrs->function == RN_RESIZE_NEAREST) return 1;
    if (t->attrs->exclude_outside && (at < 0 || at >= (int64_t)t->length)) return 0;
    return weigh(t->attrs, ((double)at - t->place) * t->shrink);
}

static taps taps_of(const rn_resize_attrs *a, uint64_t i, uint64_t length) {
    taps t = {.attrs = a, .length = length, .place = place_of(a, i, length), .shrink = 1};
    double scale = scale_of(a, length), reach = a->function == RN_RESIZE_CUBIC ? 2 : 1;
    t.filled = a->coordinates == RN_RESIZE_CROP && !(t.place >= 0 && t.place <= (double)length - 1);
    if (a->antialias && scale < 1) t.shrink = scale;
    t.count = 1;
    if (a->function == RN_RESIZE_NEAREST) {
        t.first = (int64_t)round_place(a->nearest, t.place);
    } else {
        t.first = (int64_t)ceil(t.place - reach / t.shrink);
        t.count = (int64_t)floor(t.place + reach / t.shrink) - t.first + 1;
    }
    for (int64_t tap = 0; tap < t.count; tap++)
        t.total += weight_at(&t, tap);
    return t;
}

static uint64_t clamp_tap(const taps *t, int64_t tap) {
    int64_t at = t->first + tap, last = (int64_t)t->length - 1;
    return (uint64_t)(at < 0 ? 0 : at > last ? last : at);
}

// ---- the loop -----------------------------------------------------------------------------------

// `n` neighbours of the result: `from` is where their taps' place 0 is, `step` how far the next.
static void mix(const rn_call *call, const taps *t, uint64_t from, uint64_t step, uint64_t to,
                uint64_t n) {
    double sums[RN_NUMBERS] = {0};
    for (int64_t tap = 0; tap < t->count; tap++) {
        double weight = weight_at(t, tap) / t->total;
        uint64_t at = from + clamp_tap(t, tap) * step;
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
    taps t = taps_of(attrs, index, cut.length);
    uint64_t size = rn_element_bytes(x);
    for (uint64_t o = 0; o < cut.outer; o++) {
        uint64_t from = o * cut.length * cut.inner;
        uint64_t to = (o * attrs->length + index) * cut.inner;
        if (attrs->function == RN_RESIZE_NEAREST && !t.filled) {
            memcpy((char *)y->data + to * size,
                   (const char *)x->data + (from + clamp_tap(&t, 0) * cut.inner) * size,
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
    .reference = reference,
    .print = print,
};

rn_value rn_op_resize(rn_graph *g, rn_value x, rn_resize_attrs attrs) {
    return rn_graph_add(g, RN_OP_RESIZE, &x, 1, &attrs);
}
