// conv.c — convolutions over 1 to 3 spatial axes, in groups, dilated, of floats or i32:
// y[n, at, o] = bias[o] + sum over (c, element) of x[n, pixel, c] * w[o, c, element], where c runs
// over the channels of o's group. The sum is in double, in the order of (element, c).
#include "graph/op/conv.h"
#include "graph/op/grads.h"
#include "graph/op/spatial.h"

#include <stdio.h>

static uint64_t groups_of(const rn_conv_attrs *attrs) {
    return attrs->groups ? attrs->groups : 1;
}

static rn_spatial_windows windows_of(const rn_conv_attrs *attrs, rn_shape w) {
    rn_spatial_windows windows = {
        attrs->stride, attrs->dilation, attrs->pad_before, attrs->pad_after, {0}, false};
    for (uint32_t i = 0; i + 2 < w.rank && i < RN_MAX_SPATIAL; i++)
        windows.size[i] = w.dims[2 + i];
    return windows;
}

static rn_status shape(rn_shaping *s) {
    const rn_conv_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape, w = s->in[1].shape;
    uint64_t groups = groups_of(attrs);
    RN_TRY(rn_spatial_want_image(s, 0));
    if (s->in[0].dtype != RN_DTYPE_I32) RN_TRY(rn_shape_want_float(s, 0));
    RN_TRY(rn_shape_want(s, 1, s->in[0].dtype));
    if (w.rank != x.rank) return rn_shape_fail(s, "kernels are (O, C, K...)");
    uint64_t channels = x.dims[x.rank - 1];
    if (channels % groups || w.dims[0] % groups || w.dims[1] != channels / groups)
        return rn_shape_fail(s, "%llu channels in %llu groups do not fit the kernels",
                             (unsigned long long)channels, (unsigned long long)groups);
    rn_spatial_windows windows = windows_of(attrs, w);
    RN_TRY(rn_spatial_shape(s, x, &windows, w.dims[0], &s->out[0].shape));
    s->out[0].dtype = s->in[0].dtype;
    if (s->in[2].dtype == RN_DTYPE_NONE) return RN_OK;
    RN_TRY(rn_shape_want(s, 2, s->in[0].dtype));
    if (!rn_shape_equal(s->in[2].shape, RN_SHAPE(w.dims[0])))
        return rn_shape_fail(s, "bias must be (O)");
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_shape w = call->inputs[1].shape;
    rn_cost_bytes(call, out);
    out->flops += 2.0 * (double)rn_tensor_elements(&call->outputs[0]) *
                  (double)(rn_tensor_elements(&call->inputs[1]) / w.dims[0]);
}

// All channels of one window: (n, window).
static void convolve(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1], *bias = &call->inputs[2];
    rn_spatial_windows windows = windows_of(call->attrs, w->shape);
    rn_spatial s = rn_spatial_of(x->shape, call->outputs[0].shape, &windows);
    uint64_t groups = groups_of(call->attrs), each = s.in_channels / groups;
    uint64_t elements = rn_spatial_pixels(s.size), places = rn_spatial_pixels(s.out), at[3], pixel;
    uint64_t image = index / places * rn_spatial_pixels(s.in);
    rn_spatial_place(&s, index % places, at);
    for (uint64_t o = 0; o < s.out_channels; o++) {
        uint64_t first = o / (s.out_channels / groups) * each;
        double sum = 0;
        for (uint64_t e = 0; e < elements; e++) {
            if (!rn_spatial_find(&s, at, e, &pixel)) continue;
            for (uint64_t c = 0; c < each; c++)
                sum += rn_real_at(x, (image + pixel) * s.in_channels + first + c) *
                       rn_real_at(w, (o * each + c) * elements + e);
        }
        if (rn_tensor_given(bias)) sum += rn_real_at(bias, o);
        rn_real_put(&call->outputs[0], index * s.out_channels + o, sum);
    }
}

static rn_status reference(const rn_call *call) {
    rn_shape y = call->outputs[0].shape;
    uint64_t windows = rn_tensor_elements(&call->outputs[0]) / y.dims[y.rank - 1];
    rn_call_each(call, windows, convolve, (void *)(uintptr_t)call);
    return RN_OK;
}

static rn_status gradient(rn_backward *b) {
    rn_graph *g = b->graph;
    rn_value x = b->node.inputs[0], w = b->node.inputs[1], dy = b->out_gradients[0];
    const rn_conv_attrs *a = b->node.attrs;
    rn_shape image = rn_graph_value(g, x)->shape, kernel = rn_graph_value(g, w)->shape;
    if (rn_graph_dtype(g, x) != RN_DTYPE_F32)
        return rn_fail(RN_UNSUPPORTED, "%s: conv has a gradient for f32 alone", b->node.name);
    rn_conv_transpose_attrs back = {.conv = *a};
    rn_conv_grad_weight_attrs by_weight = {.conv = *a};
    for (uint32_t i = 0; i + 2 < image.rank; i++) {
        back.size[i] = image.dims[1 + i];
        by_weight.size[i] = kernel.dims[2 + i];
    }
    if (b->wanted[0]) b->in_gradients[0] = rn_op_conv_transpose(g, dy, w, RN_NO_VALUE, back);
    if (b->wanted[1]) b->in_gradients[1] = rn_op_conv_grad_weight(g, x, dy, &by_weight);
    if (b->wanted[2]) b->in_gradients[2] = rn_op_sum(g, dy, (1u << (image.rank - 1)) - 1, false);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_conv_attrs *a = attrs;
    char windows[96];
    rn_spatial_print(a->stride, a->dilation, windows, sizeof windows);
    snprintf(out, bytes, "groups %llu, %s", (unsigned long long)groups_of(a), windows);
}

extern const rn_op_info rn_conv_op;
const rn_op_info rn_conv_op = {
    .name = "conv",
    .min_inputs = 3,
    .max_inputs = 3,
    .optional_inputs = 1u << 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_conv_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .gradient = gradient,
    .reference = reference,
    .print = print,
};

// ---- building -----------------------------------------------------------------------------------

// Whether conv2d has it: f32, one group, not dilated, one or two spatial axes.
static bool suits_conv2d(const rn_graph *g, rn_value x, rn_value w, const rn_conv_attrs *attrs) {
    if (rn_graph_dtype(g, x) != RN_DTYPE_F32 || rn_graph_dtype(g, w) == RN_DTYPE_NONE) return false;
    uint32_t rank = rn_graph_value(g, x)->shape.rank;
    return groups_of(attrs) == 1 && (rank == 3 || rank == 4) && attrs->dilation[0] <= 1 &&
           attrs->dilation[1] <= 1 && rn_graph_value(g, w)->shape.rank == rank;
}

static uint32_t stride_of(const rn_conv_attrs *attrs, uint32_t axis) {
    return attrs->stride[axis] ? attrs->stride[axis] : 1;
}

// One spatial axis is the width of an image of height 1.
static rn_value conv_lines(rn_graph *g, rn_value x, rn_value w, rn_value bias,
                           const rn_conv_attrs *attrs) {
    rn_shape image = rn_graph_value(g, x)->shape, kernel = rn_graph_value(g, w)->shape;
    x = rn_op_reshape(g, x, RN_SHAPE(image.dims[0], 1, image.dims[1], image.dims[2]));
    w = rn_op_reshape(g, w, RN_SHAPE(kernel.dims[0], kernel.dims[1], 1, kernel.dims[2]));
    rn_value y = rn_op_conv2d(g, x, w, bias,
                              (rn_conv2d_attrs){.stride_h = 1,
                                                .stride_w = stride_of(attrs, 0),
                                                .pad_left = attrs->pad_before[0],
                                                .pad_right = attrs->pad_after[0]});
    if (y == RN_NO_VALUE) return y;
    rn_shape made = rn_graph_value(g, y)->shape;
    return rn_op_reshape(g, y, RN_SHAPE(made.dims[0], made.dims[2], made.dims[3]));
}

rn_value rn_op_conv(rn_graph *g, rn_value x, rn_value w, rn_value bias, rn_conv_attrs attrs) {
    if (!suits_conv2d(g, x, w, &attrs))
        return rn_graph_add(g, RN_OP_CONV, (rn_value[]){x, w, bias}, 3, &attrs);
    if (rn_graph_value(g, x)->shape.rank == 3) return conv_lines(g, x, w, bias, &attrs);
    return rn_op_conv2d(g, x, w, bias, rn_conv_as_conv2d(&attrs));
}
