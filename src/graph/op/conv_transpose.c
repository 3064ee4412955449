// conv_transpose.c — the gradient of a convolution by its input: pixel p of x adds x[p] * w[c, o,
// e] to pixel p * stride + e * dilation - pad of the result. Computed from the result's side: each
// of its pixels asks for the pixels of x whose windows it lies in.
#include "graph/op/grads.h"
#include "graph/op/spatial.h"

#include "base/checked.h"

#include <stdio.h>

static uint64_t groups_of(const rn_conv_transpose_attrs *attrs) {
    return attrs->conv.groups ? attrs->conv.groups : 1;
}

static rn_spatial_windows windows_of(const rn_conv_transpose_attrs *attrs, rn_shape w) {
    const rn_conv_attrs *a = &attrs->conv;
    rn_spatial_windows windows = {a->stride, a->dilation, a->pad_before, a->pad_after, {0}, false};
    for (uint32_t i = 0; i + 2 < w.rank && i < RN_MAX_SPATIAL; i++)
        windows.size[i] = w.dims[2 + i];
    return windows;
}

// The result's length along an axis where none was given; false where it overflows or is empty.
static bool measure(const rn_conv_attrs *a, uint32_t i, uint64_t length, uint64_t size,
                    uint64_t *out) {
    uint64_t reach, dilation = a->dilation[i] ? a->dilation[i] : 1;
    uint64_t pads = (uint64_t)a->pad_before[i] + a->pad_after[i];
    if (length == 0 || size == 0 || !rn_mul_u64(length - 1, a->stride[i] ? a->stride[i] : 1, out) ||
        !rn_mul_u64(size - 1, dilation, &reach) || !rn_add_u64(*out, reach, out) ||
        !rn_add_u64(*out, 1, out) || *out <= pads)
        return false;
    *out -= pads;
    return true;
}

static rn_status shape(rn_shaping *s) {
    const rn_conv_transpose_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape, w = s->in[1].shape, *out = &s->out[0].shape;
    uint64_t groups = groups_of(attrs);
    RN_TRY(rn_spatial_want_image(s, 0));
    RN_TRY(rn_shape_want_float(s, 0));
    RN_TRY(rn_shape_want(s, 1, s->in[0].dtype));
    if (w.rank != x.rank) return rn_shape_fail(s, "kernels are (C, O, K...)");
    if (x.dims[x.rank - 1] != w.dims[0] || w.dims[0] % groups || w.dims[1] > UINT32_MAX)
        return rn_shape_fail(s, "the channels in %llu groups do not fit the kernels",
                             (unsigned long long)groups);
    *out = x;
    out->dims[x.rank - 1] = w.dims[1] * groups;
    for (uint32_t i = 0; i + 2 < x.rank; i++) {
        uint64_t full;
        if (!measure(&attrs->conv, i, x.dims[1 + i], w.dims[2 + i], &full))
            return rn_shape_fail(s, "spatial axis %u of the result has no length", i);
        out->dims[1 + i] = attrs->size[i] ? attrs->size[i] : full;
    }
    s->out[0].dtype = s->in[0].dtype;
    if (s->in[2].dtype == RN_DTYPE_NONE) return RN_OK;
    RN_TRY(rn_shape_want(s, 2, s->in[0].dtype));
    if (!rn_shape_equal(s->in[2].shape, RN_SHAPE(w.dims[1] * groups)))
        return rn_shape_fail(s, "bias must be (O)");
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_shape w = call->inputs[1].shape;
    rn_cost_bytes(call, out);
    out->flops += 2.0 * (double)rn_tensor_elements(&call->inputs[0]) *
                  (double)(rn_tensor_elements(&call->inputs[1]) / w.dims[0]);
}

// Windows lie on the result; which one's element `element` is at pixel `at` of it? False: none.
static bool find(const rn_spatial *s, const uint64_t at[RN_MAX_SPATIAL], uint64_t element,
                 uint64_t *out_pixel) {
    uint64_t pixel = 0, factor = 1;
    for (uint32_t i = RN_MAX_SPATIAL; i-- > 0;) {
        uint64_t place = at[i] + s->before[i], offset = element % s->size[i] * s->dilation[i];
        if (place < offset || (place - offset) % s->stride[i]) return false;
        uint64_t window = (place - offset) / s->stride[i];
        if (window >= s->out[i]) return false;
        pixel += window * factor;
        factor *= s->out[i];
        element /= s->size[i];
    }
    *out_pixel = pixel;
    return true;
}

// All channels of pixel `index` of the result.
static void make_pixel(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1], *bias = &call->inputs[2];
    const rn_tensor *y = &call->outputs[0];
    rn_spatial_windows windows = windows_of(call->attrs, w->shape);
    rn_spatial s = rn_spatial_of(y->shape, x->shape, &windows); // x has one pixel a window
    uint64_t groups = groups_of(call->attrs), out = s.in_channels, in = s.out_channels;
    uint64_t elements = rn_spatial_pixels(s.size), pixels = rn_spatial_pixels(s.in), at[3], from;
    uint64_t left = index % pixels, image = index / pixels * rn_spatial_pixels(s.out);
    for (uint32_t i = RN_MAX_SPATIAL; i-- > 0; left /= s.in[i])
        at[i] = left % s.in[i];
    for (uint64_t o = 0; o < out; o++) {
        uint64_t group = o / (out / groups), each = out / groups;
        double sum = 0;
        for (uint64_t e = 0; e < elements; e++) {
            if (!find(&s, at, e, &from)) continue;
            for (uint64_t c = group * (in / groups); c < (group + 1) * (in / groups); c++)
                sum += rn_real_at(x, (image + from) * in + c) *
                       rn_real_at(w, (c * each + o % each) * elements + e);
        }
        if (rn_tensor_given(bias)) sum += rn_real_at(bias, o);
        rn_real_put(y, index * out + o, sum);
    }
}

static rn_status reference(const rn_call *call) {
    rn_shape y = call->outputs[0].shape;
    uint64_t pixels = rn_tensor_elements(&call->outputs[0]) / y.dims[y.rank - 1];
    rn_call_each(call, pixels, make_pixel, (void *)(uintptr_t)call);
    return RN_OK;
}

// The convolution whose gradient it is, of dy; and that one's gradient by its weight, in which dy
// is the image.
static rn_status gradient(rn_backward *b) {
    rn_graph *g = b->graph;
    rn_value x = b->node.inputs[0], w = b->node.inputs[1], dy = b->out_gradients[0];
    const rn_conv_transpose_attrs *a = b->node.attrs;
    rn_shape made = rn_graph_value(g, dy)->shape, image = rn_graph_value(g, x)->shape;
    rn_shape kernel = rn_graph_value(g, w)->shape;
    if (rn_graph_dtype(g, x) != RN_DTYPE_F32)
        return rn_fail(RN_UNSUPPORTED, "%s: conv_transpose has a gradient for f32 alone",
                       b->node.name);
    rn_conv_grad_weight_attrs back = {.conv = a->conv};
    for (uint32_t i = 0; i + 2 < image.rank; i++) {
        // Pads behind the image that give just x's pixels: a size may leave some of them out.
        uint64_t full, dilation = a->conv.dilation[i] ? a->conv.dilation[i] : 1;
        uint64_t stride = a->conv.stride[i] ? a->conv.stride[i] : 1;
        full = (image.dims[1 + i] - 1) * stride + (kernel.dims[2 + i] - 1) * dilation + 1;
        uint64_t has = made.dims[1 + i] + a->conv.pad_before[i];
        back.conv.pad_after[i] = full > has ? (uint32_t)(full - has) : 0;
        back.size[i] = kernel.dims[2 + i];
    }
    rn_value by_x = b->wanted[0] ? rn_op_conv(g, dy, w, RN_NO_VALUE, back.conv) : RN_NO_VALUE;
    if (by_x != RN_NO_VALUE && !rn_shape_equal(rn_graph_value(g, by_x)->shape, image))
        return rn_fail(RN_UNSUPPORTED, "%s: no gradient with a size beyond the windows",
                       b->node.name);
    b->in_gradients[0] = by_x;
    if (b->wanted[1]) b->in_gradients[1] = rn_op_conv_grad_weight(g, dy, x, &back);
    if (b->wanted[2]) b->in_gradients[2] = rn_op_sum(g, dy, (1u << (image.rank - 1)) - 1, false);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_conv_transpose_attrs *a = attrs;
    char windows[96];
    rn_spatial_print(a->conv.stride, a->conv.dilation, windows, sizeof windows);
    snprintf(out, bytes, "groups %llu, %s", (unsigned long long)groups_of(a), windows);
}

extern const rn_op_info rn_conv_transpose_op;
const rn_op_info rn_conv_transpose_op = {
    .name = "conv_transpose",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_conv_transpose_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

// Whether conv2d_grad_input has it: f32, two spatial axes, one group, not dilated, and a size that
// a convolution would have made x of.
static bool suits_grad_input(const rn_graph *g, rn_value x, rn_value w,
                             const rn_conv_transpose_attrs *a, rn_conv2d_grad_input_attrs *out) {
    const rn_conv_attrs *c = &a->conv;
    if (rn_graph_dtype(g, x) != RN_DTYPE_F32 || rn_graph_dtype(g, w) != RN_DTYPE_F32) return false;
    rn_shape image = rn_graph_value(g, x)->shape, kernel = rn_graph_value(g, w)->shape;
    if (image.rank != 4 || kernel.rank != 4 || groups_of(a) != 1) return false;
    out->shape = image;
    out->shape.dims[3] = kernel.dims[1];
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t full, stride = c->stride[i] ? c->stride[i] : 1;
        if (c->dilation[i] > 1 || !measure(c, i, image.dims[1 + i], kernel.dims[2 + i], &full))
            return false;
        uint64_t size = a->size[i] ? a->size[i] : full;
        if (size < full || size - full >= stride) return false;
        out->shape.dims[1 + i] = size;
    }
    out->conv = (rn_conv2d_attrs){.stride_h = c->stride[0] ? c->stride[0] : 1,
                                  .stride_w = c->stride[1] ? c->stride[1] : 1,
                                  .pad_top = c->pad_before[0],
                                  .pad_left = c->pad_before[1],
                                  .pad_bottom = c->pad_after[0],
                                  .pad_right = c->pad_after[1]};
    return true;
}

rn_value rn_op_conv_transpose(rn_graph *g, rn_value x, rn_value w, rn_value bias,
                              rn_conv_transpose_attrs attrs) {
    rn_conv2d_grad_input_attrs gradient;
    if (!suits_grad_input(g, x, w, &attrs, &gradient))
        return rn_graph_add(g, RN_OP_CONV_TRANSPOSE, (rn_value[]){x, w, bias}, 3, &attrs);
    rn_value y = rn_op_conv2d_grad_input(g, w, x, &gradient);
    return bias == RN_NO_VALUE ? y : rn_op_add(g, y, bias);
}
