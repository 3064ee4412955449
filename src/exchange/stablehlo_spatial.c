// stablehlo_spatial.c — convolutions and pools over images (N, S..., C) with 1 to 3 spatial axes.
#include "exchange/stablehlo_ops.h"
#include "graph/op/grads.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// How windows lie, axis by axis; what attributes leave 0 is 1.
typedef struct windows {
    uint32_t rank;
    uint64_t size[RN_MAX_SPATIAL], stride[RN_MAX_SPATIAL], dilation[RN_MAX_SPATIAL];
    int64_t before[RN_MAX_SPATIAL], after[RN_MAX_SPATIAL];
} windows;

static uint64_t at_least_1(uint32_t number) {
    return number ? number : 1;
}

static windows windows_of(uint32_t rank, const uint32_t *stride, const uint32_t *dilation,
                          const uint32_t *before, const uint32_t *after) {
    windows w = {.rank = rank};
    for (uint32_t i = 0; i < rank; i++) {
        w.stride[i] = at_least_1(stride[i]);
        w.dilation[i] = at_least_1(dilation[i]);
        w.before[i] = before[i];
        w.after[i] = after[i];
    }
    return w;
}

// From the first to the last element of a window.
static int64_t extent(const windows *w, uint32_t i) {
    return (int64_t)((w->size[i] - 1) * w->dilation[i] + 1);
}

// "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"; with `ends` for N and C, too.
static rn_hlo_text padding_of(const windows *w, bool ends) {
    rn_hlo_text out;
    size_t at = (size_t)snprintf(out.text, sizeof out.text, "dense<[%s", ends ? "[0, 0], " : "");
    for (uint32_t i = 0; i < w->rank; i++)
        at += (size_t)snprintf(out.text + at, sizeof out.text - at, "%s[%lld, %lld]", i ? ", " : "",
                               (long long)w->before[i], (long long)w->after[i]);
    snprintf(out.text + at, sizeof out.text - at, "%s]> : tensor<%ux2xi64>", ends ? ", [0, 0]" : "",
             w->rank + (ends ? 2 : 0));
    return out;
}

// ---- convolutions -------------------------------------------------------------------------------

// "[b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]"; of a turned kernel "x[0, 1, i, o]".
static rn_hlo_text dimensions_of(uint32_t rank, const char *kernel, bool turned) {
    static const char *const axes[] = {"", "0", "0, 1", "0, 1, 2"};
    rn_hlo_text out;
    snprintf(out.text, sizeof out.text, "[b, %s, f]x[%s, %s]->[b, %s, f]", axes[rank],
             turned ? axes[rank] : kernel, turned ? "i, o" : axes[rank], axes[rank]);
    return out;
}

typedef struct convolution {
    windows w;
    const char *kernel; // "o, i"
    uint64_t groups;
    uint64_t spread[RN_MAX_SPATIAL]; // pixels of x lie so far apart
    bool mirrored;                   // kernels are read backwards
} convolution;

static rn_hlo_value convolve(rn_hlo *h, const convolution *c, rn_hlo_value x, rn_hlo_value w,
                             rn_hlo_value bias, rn_shape shape) {
    static const char *const turned[2][4] = {{"", "false", "false, false", "false, false, false"},
                                             {"", "true", "true, true", "true, true, true"}};
    char attributes[1600];
    uint32_t rank = c->w.rank;
    bool turned_axes = w.turned;
    x = rn_hlo_operand(h, x);
    w = rn_hlo_operand(h, w);
    bool half = x.dtype == RN_DTYPE_F16 || x.dtype == RN_DTYPE_BF16;
    snprintf(attributes, sizeof attributes,
             "batch_group_count = 1 : i64, feature_group_count = %llu : i64, dimension_numbers = "
             "#stablehlo.conv<%s>, window_strides = %s, padding = %s, lhs_dilation = %s, "
             "rhs_dilation = %s, window_reversal = array<i1: %s>, %s",
             (unsigned long long)c->groups, dimensions_of(rank, c->kernel, turned_axes).text,
             rn_hlo_array(c->w.stride, rank).text, padding_of(&c->w, false).text,
             rn_hlo_array(c->spread, rank).text, rn_hlo_array(c->w.dilation, rank).text,
             turned[c->mirrored][rank], rn_hlo_precision(x));
    rn_hlo_value y = rn_hlo_op(h, "stablehlo.convolution", (rn_hlo_value[]){x, w}, 2, NULL,
                               attributes, half ? RN_DTYPE_F32 : x.dtype, shape);
    if (bias.id) y = rn_hlo_binary(h, "add", y, rn_hlo_expand(h, rn_hlo_widen(h, bias), y.shape));
    return y;
}

RN_HLO_EMITTER(conv2d) {
    const rn_conv2d_attrs *a = call->attrs;
    convolution c = {.kernel = "o, i", .groups = 1, .spread = {1, 1, 1}};
    c.w = windows_of(2, (uint32_t[]){a->stride_h, a->stride_w}, (uint32_t[]){1, 1},
                     (uint32_t[]){a->pad_top, a->pad_left},
                     (uint32_t[]){a->pad_bottom, a->pad_right});
    out[0] = rn_hlo_result(h, call, convolve(h, &c, in[0], in[1], in[2], call->outputs[0].shape));
}

RN_HLO_EMITTER(conv) {
    const rn_conv_attrs *a = call->attrs;
    convolution c = {.kernel = "o, i", .groups = at_least_1(a->groups), .spread = {1, 1, 1}};
    c.w = windows_of(in[0].shape.rank - 2, a->stride, a->dilation, a->pad_before, a->pad_after);
    out[0] = rn_hlo_result(h, call, convolve(h, &c, in[0], in[1], in[2], call->outputs[0].shape));
}

// w (C, O / groups, K...) as (C / groups, O, K...).
static rn_hlo_value regroup(rn_hlo *h, rn_hlo_value w, uint64_t groups) {
    rn_shape split = {.rank = w.shape.rank + 1}, joined = w.shape;
    uint64_t axes[RN_MAX_RANK] = {1, 0};
    split.dims[0] = groups;
    split.dims[1] = joined.dims[0] = w.shape.dims[0] / groups;
    joined.dims[1] *= groups;
    for (uint32_t i = 1; i < w.shape.rank; i++) {
        split.dims[i + 1] = w.shape.dims[i];
        axes[i + 1] = i + 1;
    }
    if (groups == 1) return w;
    return rn_hlo_reshape(h, rn_hlo_transpose(h, rn_hlo_reshape(h, w, split), axes), joined);
}

// The gradient of a convolution by its input, as a convolution: pixels of x lie a stride apart, and
// kernels are mirrored. `of` is how windows of that convolution lie on the result.
static rn_hlo_value transpose(rn_hlo *h, const windows *of, uint64_t groups, rn_hlo_value x,
                              rn_hlo_value w, rn_hlo_value bias, rn_shape shape) {
    convolution c = {.w = *of, .kernel = "i, o", .groups = groups, .mirrored = true};
    for (uint32_t i = 0; i < of->rank; i++) {
        c.w.size[i] = w.shape.dims[2 + i];
        int64_t reach = extent(&c.w, i) - 1;
        int64_t spread = (int64_t)((x.shape.dims[1 + i] - 1) * of->stride[i] + 1);
        c.spread[i] = of->stride[i];
        c.w.stride[i] = 1;
        c.w.before[i] = reach - of->before[i];
        c.w.after[i] = (int64_t)shape.dims[1 + i] - spread - c.w.before[i] + reach;
    }
    return convolve(h, &c, x, regroup(h, w, groups), bias, shape);
}

RN_HLO_EMITTER(conv_transpose) {
    const rn_conv_attrs *a = &((const rn_conv_transpose_attrs *)call->attrs)->conv;
    windows w =
        windows_of(in[0].shape.rank - 2, a->stride, a->dilation, a->pad_before, a->pad_after);
    rn_shape shape = call->outputs[0].shape;
    out[0] =
        rn_hlo_result(h, call, transpose(h, &w, at_least_1(a->groups), in[0], in[1], in[2], shape));
}

RN_HLO_EMITTER(conv2d_grad_input) {
    const rn_conv2d_attrs *a = &((const rn_conv2d_grad_input_attrs *)call->attrs)->conv;
    windows w = windows_of(2, (uint32_t[]){a->stride_h, a->stride_w}, (uint32_t[]){1, 1},
                           (uint32_t[]){a->pad_top, a->pad_left},
                           (uint32_t[]){a->pad_bottom, a->pad_right});
    rn_hlo_value none = {0};
    out[0] =
        rn_hlo_result(h, call, transpose(h, &w, 1, in[1], in[0], none, call->outputs[0].shape));
}

// ---- pools --------------------------------------------------------------------------------------

// "window_dimensions = ..., padding = ..." over all axes of an image.
static void describe_windows(const windows *w, char *attributes, size_t bytes) {
    uint64_t size[RN_MAX_RANK] = {1}, stride[RN_MAX_RANK] = {1}, dilation[RN_MAX_RANK] = {1};
    uint64_t base[RN_MAX_RANK] = {1};
    uint32_t rank = w->rank + 2;
    for (uint32_t i = 1; i < rank; i++) {
        bool last = i + 1 == rank;
        size[i] = last ? 1 : w->size[i - 1];
        stride[i] = last ? 1 : w->stride[i - 1];
        dilation[i] = last ? 1 : w->dilation[i - 1];
        base[i] = 1;
    }
    snprintf(attributes, bytes,
             "window_dimensions = %s, window_strides = %s, base_dilations = %s, "
             "window_dilations = %s, padding = %s",
             rn_hlo_array(size, rank).text, rn_hlo_array(stride, rank).text,
             rn_hlo_array(base, rank).text, rn_hlo_array(dilation, rank).text,
             padding_of(w, true).text);
}

static rn_hlo_value reduce_windows(rn_hlo *h, const char *name, rn_hlo_value x, const windows *w,
                                   rn_shape shape) {
    char attributes[1600];
    rn_hlo_value first = rn_hlo_neutral(h, name, x.dtype);
    if (h->status != RN_OK) return x;
    describe_windows(w, attributes, sizeof attributes);
    shape.dims[0] = x.shape.dims[0];
    shape.dims[shape.rank - 1] = x.shape.dims[shape.rank - 1];
    return rn_hlo_op(h, "stablehlo.reduce_window", (rn_hlo_value[]){x, first}, 2,
                     rn_hlo_combine(name, x.dtype).text, attributes, x.dtype, shape);
}

RN_HLO_EMITTER(pool2d) {
    const rn_pool2d_attrs *a = call->attrs;
    bool max = call->op == RN_OP_MAX_POOL;
    windows w = windows_of(2, (uint32_t[]){a->stride_h, a->stride_w}, (uint32_t[]){1, 1},
                           (uint32_t[]){a->pad_top, a->pad_left},
                           (uint32_t[]){a->pad_bottom, a->pad_right});
    w.size[0] = a->size_h;
    w.size[1] = a->size_w;
    rn_hlo_value y = reduce_windows(h, max ? "maximum" : "add", rn_hlo_widen(h, in[0]), &w,
                                    call->outputs[0].shape);
    if (!max) y = rn_hlo_binary(h, "divide", y, rn_hlo_like(h, y, (double)a->size_h * a->size_w));
    out[0] = rn_hlo_result(h, call, y);
}

// Where the last window of an axis ends beyond the padded image, there is more padding.
static windows pool_windows(const rn_pool_attrs *a, rn_shape x, rn_shape y) {
    windows w = windows_of(x.rank - 2, a->stride, a->dilation, a->pad_before, a->pad_after);
    for (uint32_t i = 0; i < w.rank; i++) {
        w.size[i] = at_least_1(a->size[i]);
        int64_t end = (int64_t)((y.dims[1 + i] - 1) * w.stride[i]) + extent(&w, i);
        int64_t needed = end - (int64_t)x.dims[1 + i] - w.before[i];
        if (needed > w.after[i]) w.after[i] = needed;
    }
    return w;
}

// Elements of window `at` along axis i that count: within the image, or also in its padding.
static uint64_t count_along(const rn_pool_attrs *a, const windows *w, uint32_t i, uint64_t length,
                            uint64_t at) {
    int64_t low = a->count_pad ? -w->before[i] : 0;
    int64_t high = (int64_t)length + (a->count_pad ? (int64_t)a->pad_after[i] : 0);
    int64_t place = (int64_t)(at * w->stride[i]) - w->before[i];
    uint64_t count = 0;
    for (uint64_t e = 0; e < w->size[i]; e++, place += (int64_t)w->dilation[i])
        count += place >= low && place < high;
    return count;
}

// Divides sums (N, windows..., C) by how many elements each window has: axes are independent of
// each other, so it is one number an index of each.
static rn_hlo_value divide_by_counts(rn_hlo *h, const rn_pool_attrs *a, const windows *w,
                                     rn_shape x, rn_hlo_value y) {
    for (uint32_t i = 0; i < w->rank && h->status == RN_OK; i++) {
        double *counts;
        uint64_t places = y.shape.dims[1 + i];
        h->status = rn_arena_array(h->memory, places, sizeof *counts, (void **)&counts);
        if (h->status != RN_OK) break;
        for (uint64_t at = 0; at < places; at++)
            counts[at] = (double)count_along(a, w, i, x.dims[1 + i], at);
        rn_hlo_value by = rn_hlo_bytes(h, RN_DTYPE_F64, RN_SHAPE(places), counts);
        by = rn_hlo_broadcast(h, rn_hlo_convert(h, by, y.dtype), y.shape, (uint64_t[]){1 + i});
        y = rn_hlo_binary(h, "divide", y, by);
    }
    return y;
}

// Places whose pixel's number has the first spatial axis counting fastest.
static rn_hlo_value turn_places(rn_hlo *h, rn_hlo_value best, const windows *w, rn_shape x,
                                uint64_t pixels) {
    rn_hlo_value image = rn_hlo_like(h, best, (double)pixels), sum = {0};
    rn_hlo_value pixel = rn_hlo_binary(h, "remainder", best, image);
    rn_hlo_value base = rn_hlo_binary(h, "subtract", best, pixel);
    uint64_t fast = pixels, slow = 1;
    for (uint32_t i = 0; i < w->rank; i++) {
        fast /= x.dims[1 + i];
        rn_hlo_value at = rn_hlo_binary(h, "divide", pixel, rn_hlo_like(h, pixel, (double)fast));
        at = rn_hlo_binary(h, "remainder", at, rn_hlo_like(h, at, (double)x.dims[1 + i]));
        at = rn_hlo_binary(h, "multiply", at, rn_hlo_like(h, at, (double)slow));
        sum = sum.id ? rn_hlo_binary(h, "add", sum, at) : at;
        slow *= x.dims[1 + i];
    }
    return rn_hlo_binary(h, "add", base, sum);
}

// The places of the largest elements, among all elements as (N, C, S...).
static rn_hlo_value find_places(rn_hlo *h, const rn_pool_attrs *a, rn_hlo_value x, const windows *w,
                                rn_shape shape) {
    rn_hlo_value place = {0};
    char attributes[1600];
    uint32_t last = x.shape.rank - 1;
    uint64_t pixels = 1, stride = 1;
    for (uint32_t i = 0; i < w->rank; i++)
        pixels *= x.shape.dims[1 + i];
    for (uint32_t k = 0; k < x.shape.rank; k++) {
        // From the axis that counts fastest to the slowest.
        uint32_t axis = k < w->rank ? w->rank - k : k == w->rank ? last : 0;
        rn_hlo_value at = rn_hlo_iota(h, RN_DTYPE_I64, x.shape, axis);
        at = rn_hlo_binary(h, "multiply", at, rn_hlo_like(h, at, (double)stride));
        place = place.id ? rn_hlo_binary(h, "add", place, at) : at;
        stride *= x.shape.dims[axis];
    }
    rn_hlo_value best = rn_hlo_new(h, RN_DTYPE_I64, shape);
    best.part = 2;
    rn_hlo_value first = rn_hlo_neutral(h, "maximum", x.dtype);
    rn_hlo_value none = rn_hlo_whole(h, RN_DTYPE_I64, INT64_MAX, RN_SCALAR);
    if (h->status != RN_OK) return best;
    rn_hlo_print(h, "    %%v%u:2 = \"stablehlo.reduce_window\"(%s, %s, %s, %s) ", best.id,
                 rn_hlo_name(x).text, rn_hlo_name(place).text, rn_hlo_name(first).text,
                 rn_hlo_name(none).text);
    rn_hlo_print_beats(h, x.dtype, RN_DTYPE_I64, false, false);
    describe_windows(w, attributes, sizeof attributes);
    rn_hlo_print(h, " {%s} : (%s, %s", attributes, rn_hlo_type(x.dtype, x.shape).text,
                 rn_hlo_type(RN_DTYPE_I64, x.shape).text);
    rn_hlo_print(h, ", tensor<%s>, tensor<i64>) -> (%s, %s)\n", rn_hlo_element(x.dtype),
                 rn_hlo_type(x.dtype, shape).text, rn_hlo_type(RN_DTYPE_I64, shape).text);
    return a->column_major ? turn_places(h, best, w, x.shape, pixels) : best;
}

// The sum of |x|^p, to the power of 1 / p.
static rn_hlo_value pool_lp(rn_hlo *h, const rn_pool_attrs *a, rn_hlo_value x, const windows *w,
                            rn_shape shape) {
    x = rn_hlo_unary(h, "abs", x);
    if (a->p == 2)
        x = rn_hlo_binary(h, "multiply", x, x);
    else if (a->p != 1)
        x = rn_hlo_binary(h, "power", x, rn_hlo_like(h, x, (double)a->p));
    rn_hlo_value y = reduce_windows(h, "add", x, w, shape);
    if (a->p == 1) return y;
    return rn_hlo_binary(h, "power", y, rn_hlo_like(h, y, 1.0 / a->p));
}

RN_HLO_EMITTER(pool) {
    const rn_pool_attrs *a = call->attrs;
    rn_shape shape = call->outputs[0].shape;
    rn_hlo_value x = rn_hlo_widen(h, in[0]), y;
    windows w = pool_windows(a, x.shape, shape);
    if (a->function == RN_POOL_LP) {
        y = pool_lp(h, a, x, &w, shape);
    } else if (a->function == RN_POOL_AVERAGE) {
        y = reduce_windows(h, "add", x, &w, shape);
        y = divide_by_counts(h, a, &w, x.shape, y);
    } else {
        y = reduce_windows(h, "maximum", x, &w, shape);
        if (call->outputs[1].data && h->status == RN_OK) out[1] = find_places(h, a, x, &w, shape);
    }
    out[0] = rn_hlo_result(h, call, y);
}

// ---- windows as columns -------------------------------------------------------------------------

// x (N, C * block, windows): each element of the block is an image with gaps of a stride, moved to
// where it lies in the result, and all of them are added up.
RN_HLO_EMITTER(col2im) {
    const rn_col2im_attrs *a = call->attrs;
    rn_shape shape = call->outputs[0].shape, made = shape, columns = {.rank = 4};
    windows w = windows_of(a->rank, a->stride, a->dilation, a->pad_before, a->pad_after);
    rn_hlo_value x = rn_hlo_widen(h, in[0]), sum = {0};
    rn_hlo_value zero = rn_hlo_float(h, x.dtype, 0, RN_SCALAR);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < a->rank; i++) {
        w.size[i] = a->block[i];
        elements *= a->block[i];
        int64_t padded = (int64_t)a->image[i] + w.before[i] + w.after[i];
        made.dims[2 + i] = (uint64_t)(padded - extent(&w, i)) / w.stride[i] + 1;
    }
    if (elements > 1024) rn_hlo_refuse(h, "a block of more than 1024 elements");
    columns.dims[0] = shape.dims[0];
    columns.dims[1] = shape.dims[1];
    columns.dims[2] = elements;
    columns.dims[3] = x.shape.dims[2];
    x = rn_hlo_reshape(h, x, columns);
    for (uint64_t e = 0; e < elements && h->status == RN_OK; e++) {
        char attributes[800], low[200] = "0, 0", high[200] = "0, 0", between[200] = "0, 0";
        uint64_t left = e, place[RN_MAX_SPATIAL] = {0};
        for (uint32_t i = a->rank; i-- > 0; left /= a->block[i])
            place[i] = left % a->block[i] * w.dilation[i];
        for (uint32_t i = 0; i < a->rank; i++) {
            int64_t before = (int64_t)place[i] - w.before[i];
            int64_t spread = (int64_t)((made.dims[2 + i] - 1) * w.stride[i] + 1);
            size_t l = strlen(low), r = strlen(high), b = strlen(between);
            snprintf(low + l, sizeof low - l, ", %lld", (long long)before);
            snprintf(high + r, sizeof high - r, ", %lld",
                     (long long)((int64_t)a->image[i] - spread - before));
            snprintf(between + b, sizeof between - b, ", %llu",
                     (unsigned long long)w.stride[i] - 1);
        }
        snprintf(attributes, sizeof attributes,
                 "edge_padding_low = array<i64: %s>, edge_padding_high = array<i64: %s>, "
                 "interior_padding = array<i64: %s>",
                 low, high, between);
        rn_hlo_value one = rn_hlo_reshape(h, rn_hlo_slice(h, x, 2, e, 1), made);
        one = rn_hlo_op(h, "stablehlo.pad", (rn_hlo_value[]){one, zero}, 2, NULL, attributes,
                        x.dtype, shape);
        sum = sum.id ? rn_hlo_binary(h, "add", sum, one) : one;
    }
    out[0] = rn_hlo_result(h, call, sum);
}
