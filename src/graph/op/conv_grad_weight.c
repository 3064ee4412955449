// conv_grad_weight.c — x, dy -> dw (O, C / groups, K...) of a convolution over 1 to 3 spatial axes,
// in groups, dilated: dw[o, c, e] = sum over images and windows of dy[n, at, o] * x[n, pixel of
// (at, e), c], in that order, in double.
//
// What conv2d has (one group, not dilated) is conv2d_grad_weight's.
#include "graph/op/grads.h"
#include "graph/op/spatial.h"

#include <stdio.h>

static uint64_t groups_of(const rn_conv_grad_weight_attrs *attrs) {
    return attrs->conv.groups ? attrs->conv.groups : 1;
}

static rn_spatial_windows windows_of(const rn_conv_grad_weight_attrs *attrs) {
    const rn_conv_attrs *a = &attrs->conv;
    rn_spatial_windows windows = {a->stride, a->dilation, a->pad_before, a->pad_after, {0}, false};
    for (uint32_t i = 0; i < RN_MAX_SPATIAL; i++)
        windows.size[i] = attrs->size[i];
    return windows;
}

static rn_status shape(rn_shaping *s) {
    const rn_conv_grad_weight_attrs *attrs = s->attrs;
    rn_shape x = s->in[0].shape, dy = s->in[1].shape, made;
    RN_TRY(rn_spatial_want_image(s, 0));
    RN_TRY(rn_shape_want(s, 0, RN_DTYPE_F32));
    RN_TRY(rn_shape_want(s, 1, RN_DTYPE_F32));
    uint64_t groups = groups_of(attrs), channels = x.dims[x.rank - 1];
    if (dy.rank != x.rank || channels % groups || dy.dims[dy.rank - 1] % groups)
        return rn_shape_fail(s, "the channels do not stand in %llu groups",
                             (unsigned long long)groups);
    rn_spatial_windows windows = windows_of(attrs);
    RN_TRY(rn_spatial_shape(s, x, &windows, dy.dims[dy.rank - 1], &made));
    if (!rn_shape_equal(dy, made))
        return rn_shape_fail(s, "dy must be %s", rn_shape_format(made).text);
    s->out[0].shape = (rn_shape){x.rank, {dy.dims[dy.rank - 1], channels / groups}};
    for (uint32_t i = 0; i + 2 < x.rank; i++)
        s->out[0].shape.dims[2 + i] = attrs->size[i];
    return RN_OK;
}

static void cost(const rn_call *call, rn_cost *out) {
    rn_shape w = call->outputs[0].shape;
    rn_cost_bytes(call, out);
    out->flops += 2.0 * (double)rn_tensor_elements(&call->inputs[1]) *
                  (double)(rn_tensor_elements(&call->outputs[0]) / w.dims[0]);
}

// All channels of one kernel's element: index is (o, e).
static void gather(void *arg, size_t index) {
    const rn_call *call = arg;
    const float *x = call->inputs[0].data, *dy = call->inputs[1].data;
    float *dw = call->outputs[0].data;
    rn_spatial_windows windows = windows_of(call->attrs);
    rn_spatial s = rn_spatial_of(call->inputs[0].shape, call->inputs[1].shape, &windows);
    uint64_t groups = groups_of(call->attrs), each = s.in_channels / groups;
    uint64_t elements = rn_spatial_pixels(s.size), places = rn_spatial_pixels(s.out), at[3], pixel;
    uint64_t o = index / elements, e = index % elements;
    uint64_t first = o / (s.out_channels / groups) * each;
    for (uint64_t c = 0; c < each; c++) {
        double sum = 0;
        for (uint64_t i = 0; i < s.n * places; i++) {
            rn_spatial_place(&s, i % places, at);
            if (!rn_spatial_find(&s, at, e, &pixel)) continue;
            uint64_t from = i / places * rn_spatial_pixels(s.in) + pixel;
            sum += (double)x[from * s.in_channels + first + c] * dy[i * s.out_channels + o];
        }
        dw[(o * each + c) * elements + e] = (float)sum;
    }
}

static rn_status reference(const rn_call *call) {
    rn_shape w = call->outputs[0].shape;
    rn_call_each(call, rn_tensor_elements(&call->outputs[0]) / w.dims[1], gather,
                 (void *)(uintptr_t)call);
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_conv_grad_weight_attrs *a = attrs;
    char windows[96];
    rn_spatial_print(a->conv.stride, a->conv.dilation, windows, sizeof windows);
    snprintf(out, bytes, "groups %llu, %s", (unsigned long long)groups_of(a), windows);
}

extern const rn_op_info rn_conv_grad_weight_op;
const rn_op_info rn_conv_grad_weight_op = {
    .name = "conv_grad_weight",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_conv_grad_weight_attrs),
    .traits = RN_TRAIT_EXACT,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .print = print,
};

rn_value rn_op_conv_grad_weight(rn_graph *g, rn_value x, rn_value dy,
                                const rn_conv_grad_weight_attrs *attrs) {
    return rn_graph_add(g, RN_OP_CONV_GRAD_WEIGHT, (rn_value[]){x, dy}, 2, attrs);
}
