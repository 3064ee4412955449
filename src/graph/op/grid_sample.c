// grid_sample.c — x (N, S..., C) at places that a grid (N, S'..., axes) names, between its pixels.
// Places are -1 to 1 along each spatial axis, the last axis first, as PyTorch has them.
#include "graph/op/spatial.h"

#include <math.h>
#include <stdio.h>

enum { TAPS = 4 };

static rn_status shape(rn_shaping *s) {
    const rn_grid_sample_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape, grid = s->in[1].shape;
    RN_TRY(rn_spatial_want_image(s, 0));
    RN_TRY(rn_shape_want_float(s, 0));
    RN_TRY(rn_shape_want_float(s, 1));
    if (x.rank < 4 || grid.rank != x.rank || grid.dims[0] != x.dims[0] ||
        grid.dims[grid.rank - 1] != x.rank - 2)
        return rn_shape_fail(s, "a grid is (N, S..., 2 or 3), as many as x has spatial axes");
    if ((unsigned)attrs->function > RN_RESIZE_CUBIC ||
        (unsigned)attrs->padding > RN_GRID_REFLECTION)
        return rn_shape_fail(s, "there is no such way to sample");
    s->out[0].dtype = s->in[0].dtype;
    s->out[0].shape = grid;
    s->out[0].shape.dims[grid.rank - 1] = x.dims[x.rank - 1];
    return RN_OK;
}

// Mirrors x at both ends until it is between them.
static double reflect(double x, double low, double high) {
    double range = high - low;
    if (!(range > 0)) return low;
    double beyond = x < low ? low - x : x > high ? x - high : -1;
    if (beyond < 0 || !isfinite(beyond)) return beyond < 0 ? x : low;
    double times = floor(beyond / range), rest = beyond - times * range;
    bool even = fmod(times, 2) == 0;
    return (x < low) == even ? low + rest : high - rest;
}

// The taps along one axis: pixels (-1: nothing is there) and weights.
typedef struct axis_taps {
    int count;
    int64_t pixel[TAPS];
    double weight[TAPS];
} axis_taps;

static int64_t find_pixel(const rn_grid_sample_attrs *a, double at, double low, double high,
                          uint64_t length) {
    double last = (double)length - 1;
    if (a->padding == RN_GRID_ZEROS) return at >= 0 && at <= last ? (int64_t)at : -1;
    if (a->padding == RN_GRID_REFLECTION) at = trunc(reflect(at, low, high));
    return at > 0 ? (int64_t)(at < last ? at : last) : 0; // NaN is 0
}

static double cubic(double d) {
    const double k = -0.75;
    d = fabs(d);
    if (d <= 1) return ((k + 2) * d - (k + 3)) * d * d + 1;
    return d < 2 ? ((k * d - 5 * k) * d + 8 * k) * d - 4 * k : 0;
}

static axis_taps taps_of(const rn_grid_sample_attrs *a, double place, uint64_t length) {
    axis_taps t = {.count = 1};
    double n = (double)length, low = a->align_corners ? 0 : -0.5;
    double high = a->align_corners ? n - 1 : n - 0.5;
    double at = a->align_corners ? (place + 1) / 2 * (n - 1) : ((place + 1) * n - 1) / 2;
    at = (float)at;
    if (a->function == RN_RESIZE_NEAREST) at = nearbyint(at);
    if (at < low || at > high) {
        if (a->padding == RN_GRID_BORDER) at = fmax(0, fmin(at, n - 1));
        if (a->padding == RN_GRID_REFLECTION) at = (float)reflect(at, low, high);
    }
    if (a->function == RN_RESIZE_NEAREST) {
        t.pixel[0] = find_pixel(a, trunc(at), low, high, length);
        t.weight[0] = 1;
        return t;
    }
    bool smooth = a->function == RN_RESIZE_CUBIC;
    double first = floor(at) - smooth;
    t.count = smooth ? 4 : 2;
    for (int i = 0; i < t.count; i++) {
        t.pixel[i] = find_pixel(a, first + i, low, high, length);
        t.weight[i] = smooth ? cubic(at - first - i) : 1 - fabs(at - first - i);
    }
    return t;
}

// Channel c of place `index` of the grid.
static double sample(const rn_call *call, const axis_taps taps[RN_MAX_SPATIAL], uint64_t n,
                     uint64_t c) {
    const rn_tensor *x = &call->inputs[0];
    const uint64_t *dims = x->shape.dims;
    uint64_t rank = x->shape.rank - 2, channels = dims[x->shape.rank - 1];
    int counts[RN_MAX_SPATIAL] = {1, 1, 1}, total = 1;
    double sum = 0;
    for (uint64_t i = 0; i < rank; i++)
        total *= counts[i] = taps[i].count;
    for (int e = 0; e < total; e++) {
        uint64_t pixel = n;
        double weight = 1;
        bool inside = true;
        int left = e, index[RN_MAX_SPATIAL] = {0};
        for (uint64_t i = rank; i-- > 0; left /= counts[i])
            index[i] = left % counts[i];
        for (uint64_t i = 0; i < rank; i++) {
            inside &= taps[i].pixel[index[i]] >= 0;
            weight *= taps[i].weight[index[i]];
            pixel = pixel * dims[1 + i] + (uint64_t)taps[i].pixel[index[i]];
        }
        if (inside) sum += weight * rn_real_at(x, pixel * channels + c);
    }
    return sum;
}

static void sample_place(void *arg, size_t index) {
    const rn_call *call = arg;
    rn_shape x = call->inputs[0].shape;
    uint64_t rank = x.rank - 2, channels = x.dims[x.rank - 1];
    uint64_t places = rn_tensor_elements(&call->inputs[1]) / rank / x.dims[0];
    axis_taps taps[RN_MAX_SPATIAL];
    for (uint64_t i = 0; i < rank; i++)
        taps[i] = taps_of(call->attrs, rn_real_at(&call->inputs[1], index * rank + rank - 1 - i),
                          x.dims[1 + i]);
    for (uint64_t c = 0; c < channels; c++)
        rn_real_put(&call->outputs[0], index * channels + c, sample(call, taps, index / places, c));
}

static rn_status reference(const rn_call *call) {
    uint64_t rank = call->inputs[0].shape.rank - 2;
    rn_call_each(call, rn_tensor_elements(&call->inputs[1]) / rank, sample_place,
                 (void *)(uintptr_t)call);
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 8.0 * (double)rn_tensor_elements(&call->outputs[0]);
}

static void print(const void *attrs, char *out, size_t bytes) {
    static const char *const names[] = {"nearest", "linear", "cubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    const rn_grid_sample_attrs *a = attrs;
    snprintf(out, bytes, "%s, %s%s", names[a->function], paddings[a->padding],
             a->align_corners ? ", corners aligned" : "");
}

extern const rn_op_info rn_grid_sample_op;
const rn_op_info rn_grid_sample_op = {
    .name = "grid_sample",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_grid_sample_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_grid_sample(rn_graph *g, rn_value x, rn_value grid, rn_grid_sample_attrs attrs) {
    return rn_graph_add(g, RN_OP_GRID_SAMPLE, (rn_value[]){x, grid}, 2, &attrs);
}
