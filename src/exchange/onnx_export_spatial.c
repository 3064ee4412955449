// onnx_export_spatial.c — convolutions, pools and resampling. ONNX has channels in front of the
// spatial axes: a Transpose on both sides, which runtimes cancel between neighbours.
#include "exchange/onnx_export_ops.h"

#include <math.h>

// What convolutions and pools share.
typedef struct windows {
    int64_t pads[2 * RN_MAX_SPATIAL], strides[RN_MAX_SPATIAL], dilations[RN_MAX_SPATIAL];
    int64_t sizes[RN_MAX_SPATIAL];
    uint32_t rank;
} windows;

static windows make_windows(uint32_t rank, const uint32_t *before, const uint32_t *after,
                            const uint32_t *stride, const uint32_t *dilation) {
    windows w = {.rank = rank};
    for (uint32_t i = 0; i < rank; i++) {
        w.pads[i] = before[i];
        w.pads[rank + i] = after[i];
        w.strides[i] = stride[i] ? stride[i] : 1;
        w.dilations[i] = dilation && dilation[i] ? dilation[i] : 1;
    }
    return w;
}

rn_shape rn_export_channels_first(rn_shape x) {
    rn_shape out = x;
    for (uint32_t i = 1; i < x.rank; i++)
        out.dims[i] = i == 1 ? x.dims[x.rank - 1] : x.dims[i - 1];
    return out;
}

static rn_export_value convolve(rn_export *h, const rn_call *call, const rn_export_value *in,
                                const windows *w, uint32_t groups) {
    rn_export_attr attrs[] = {RN_EXPORT_INTS("pads", w->pads, 2 * w->rank),
                              RN_EXPORT_INTS("strides", w->strides, w->rank),
                              RN_EXPORT_INTS("dilations", w->dilations, w->rank),
                              RN_EXPORT_INT("group", groups ? groups : 1)};
    rn_export_value all[] = {rn_export_to_channels_first(h, rn_export_widen(h, in[0])),
                             rn_export_widen(h, in[1]), in[2]};
    if (in[2].id) all[2] = rn_export_widen(h, in[2]);
    if (all[0].dtype != RN_DTYPE_F32) rn_export_refuse(h, "a convolution of whole numbers");
    rn_export_value y = rn_export_node(h, "Conv", all, 3, attrs, 4, RN_DTYPE_F32,
                                       rn_export_channels_first(call->outputs[0].shape));
    return rn_export_result(h, call, rn_export_to_channels_last(h, y));
}

RN_EXPORTER(conv2d) {
    const rn_conv2d_attrs *a = call->attrs;
    uint32_t before[] = {a->pad_top, a->pad_left}, after[] = {a->pad_bottom, a->pad_right};
    uint32_t stride[] = {a->stride_h, a->stride_w};
    windows w = make_windows(2, before, after, stride, NULL);
    out[0] = convolve(h, call, in, &w, 1);
}

RN_EXPORTER(conv) {
    const rn_conv_attrs *a = call->attrs;
    windows w =
        make_windows(in[0].shape.rank - 2, a->pad_before, a->pad_after, a->stride, a->dilation);
    out[0] = convolve(h, call, in, &w, a->groups);
}

// What is beyond the sum of its windows is output_padding.
RN_EXPORTER(conv_transpose) {
    const rn_conv_transpose_attrs *own = call->attrs;
    const rn_conv_attrs *a = &own->conv;
    rn_shape shape = call->outputs[0].shape;
    int64_t more[RN_MAX_SPATIAL];
    windows w =
        make_windows(in[0].shape.rank - 2, a->pad_before, a->pad_after, a->stride, a->dilation);
    for (uint32_t i = 0; i < w.rank; i++) {
        int64_t reach = w.dilations[i] * ((int64_t)in[1].shape.dims[2 + i] - 1) + 1;
        int64_t length = w.strides[i] * ((int64_t)in[0].shape.dims[1 + i] - 1) + reach - w.pads[i] -
                         w.pads[w.rank + i];
        more[i] = (int64_t)shape.dims[1 + i] - length;
        if (more[i] < 0 || (more[i] >= w.strides[i] && more[i] >= w.dilations[i]))
            rn_export_refuse(h, "a result of another size than its windows give");
    }
    rn_export_attr attrs[] = {RN_EXPORT_INTS("pads", w.pads, 2 * w.rank),
                              RN_EXPORT_INTS("strides", w.strides, w.rank),
                              RN_EXPORT_INTS("dilations", w.dilations, w.rank),
                              RN_EXPORT_INTS("output_padding", more, w.rank),
                              RN_EXPORT_INT("group", a->groups ? a->groups : 1)};
    rn_export_value all[] = {rn_export_to_channels_first(h, rn_export_widen(h, in[0])),
                             rn_export_widen(h, in[1]), in[2]};
    if (in[2].id) all[2] = rn_export_widen(h, in[2]);
    rn_export_value y = rn_export_node(h, "ConvTranspose", all, 3, attrs, 5, RN_DTYPE_F32,
                                       rn_export_channels_first(shape));
    out[0] = rn_export_result(h, call, rn_export_to_channels_last(h, y));
}

// ---- pools --------------------------------------------------------------------------------------

RN_EXPORTER(pool2d) {
    const rn_pool2d_attrs *a = call->attrs;
    uint32_t before[] = {a->pad_top, a->pad_left}, after[] = {a->pad_bottom, a->pad_right};
    uint32_t stride[] = {a->stride_h, a->stride_w};
    bool average = call->op == RN_OP_AVG_POOL;
    windows w = make_windows(2, before, after, stride, NULL);
    int64_t sizes[] = {a->size_h, a->size_w};
    rn_export_attr attrs[] = {
        RN_EXPORT_INTS("kernel_shape", sizes, 2), RN_EXPORT_INTS("pads", w.pads, 4),
        RN_EXPORT_INTS("strides", w.strides, 2), RN_EXPORT_INT("count_include_pad", 1)};
    rn_export_value x = rn_export_to_channels_first(h, rn_export_widen(h, in[0]));
    if (call->output_count > 1 && call->outputs[1].data)
        rn_export_refuse(h, "places of the largest elements");
    rn_export_value y =
        rn_export_node(h, average ? "AveragePool" : "MaxPool", &x, 1, attrs, average ? 4 : 3,
                       RN_DTYPE_F32, rn_export_channels_first(call->outputs[0].shape));
    out[0] = rn_export_result(h, call, rn_export_to_channels_last(h, y));
}

RN_EXPORTER(pool) {
    static const char *const names[] = {
        [RN_POOL_MAX] = "MaxPool", [RN_POOL_AVERAGE] = "AveragePool", [RN_POOL_LP] = "LpPool"};
    const rn_pool_attrs *a = call->attrs;
    windows w =
        make_windows(in[0].shape.rank - 2, a->pad_before, a->pad_after, a->stride, a->dilation);
    for (uint32_t i = 0; i < w.rank; i++)
        w.sizes[i] = a->size[i];
    rn_export_attr attrs[7] = {
        RN_EXPORT_INTS("kernel_shape", w.sizes, w.rank), RN_EXPORT_INTS("pads", w.pads, 2 * w.rank),
        RN_EXPORT_INTS("strides", w.strides, w.rank),
        RN_EXPORT_INTS("dilations", w.dilations, w.rank), RN_EXPORT_INT("ceil_mode", a->ceil)};
    uint32_t count = 5;
    if (a->function == RN_POOL_AVERAGE)
        attrs[count++] = RN_EXPORT_INT("count_include_pad", a->count_pad);
    if (a->function == RN_POOL_LP) attrs[count++] = RN_EXPORT_INT("p", a->p);
    if (a->function == RN_POOL_MAX)
        attrs[count++] = RN_EXPORT_INT("storage_order", a->column_major);
    rn_export_value x = rn_export_to_channels_first(h, rn_export_widen(h, in[0])), made[2] = {0};
    made[0] = rn_export_new(h, x.dtype, rn_export_channels_first(call->outputs[0].shape));
    if (call->output_count > 1 && call->outputs[1].data)
        made[1] = rn_export_new(h, RN_DTYPE_I64, made[0].shape);
    rn_export_write(h, names[a->function], &x, 1, attrs, count, made, made[1].id ? 2 : 1);
    out[0] = rn_export_result(h, call, rn_export_to_channels_last(h, made[0]));
    if (made[1].id) out[1] = rn_export_to_channels_last(h, made[1]);
}

RN_EXPORTER(resize) {
    static const char *const functions[] = {[RN_RESIZE_NEAREST] = "nearest",
                                            [RN_RESIZE_LINEAR] = "linear",
                                            [RN_RESIZE_CUBIC] = "cubic"};
    static const char *const coordinates[] = {[RN_RESIZE_HALF_PIXEL] = "half_pixel",
                                              [RN_RESIZE_HALF_PIXEL_SYMMETRIC] =
                                                  "half_pixel_symmetric",
                                              [RN_RESIZE_PYTORCH_HALF_PIXEL] = "pytorch_half_pixel",
                                              [RN_RESIZE_ALIGN_CORNERS] = "align_corners",
                                              [RN_RESIZE_ASYMMETRIC] = "asymmetric",
                                              [RN_RESIZE_CROP] = "tf_crop_and_resize"};
    static const char *const nearest[] = {[RN_RESIZE_ROUND_PREFER_FLOOR] = "round_prefer_floor",
                                          [RN_RESIZE_ROUND_PREFER_CEIL] = "round_prefer_ceil",
                                          [RN_RESIZE_FLOOR] = "floor",
                                          [RN_RESIZE_CEIL] = "ceil"};
    const rn_resize_attrs *a = call->attrs;
    rn_shape x = in[0].shape, y = call->outputs[0].shape, flat = RN_SHAPE(RN_ROWS, 1, 0, 1);
    int64_t sizes[4] = {0};
    double ratio = (double)a->length / (double)x.dims[a->axis];
    if (a->coordinates == RN_RESIZE_CROP || a->axis == 0 ||
        (a->scale != 0 && fabs(a->scale - ratio) > 1e-9 * ratio)) {
        rn_export_refuse(h, "a crop, or a scale that is not that of both lengths");
        return;
    }
    // Runtimes resample images: the axis as one of (outer, 1, length, inner).
    uint64_t inner = 1;
    for (uint32_t i = a->axis + 1; i < x.rank; i++)
        inner *= x.dims[i];
    flat.dims[2] = x.dims[a->axis];
    flat.dims[3] = inner;
    rn_export_value image = rn_export_reshape(h, rn_export_widen(h, in[0]), flat);
    rn_export_value front = rn_export_size(h, image, 0);
    sizes[0] = 1;
    sizes[1] = (int64_t)a->length;
    sizes[2] = (int64_t)inner;
    rn_export_value ends[] = {front, rn_export_ints(h, sizes, 3)};
    rn_export_value all[] = {image, {0}, {0}, rn_export_concat(h, ends, 2, 0)};
    rn_export_attr attrs[] = {
        RN_EXPORT_TEXT("mode", functions[a->function]),
        RN_EXPORT_TEXT("coordinate_transformation_mode", coordinates[a->coordinates]),
        RN_EXPORT_TEXT("nearest_mode", nearest[a->nearest]),
        RN_EXPORT_FLOAT("cubic_coeff_a", (float)a->cubic),
        RN_EXPORT_INT("exclude_outside", a->exclude_outside),
        RN_EXPORT_INT("antialias", a->antialias)};
    flat.dims[2] = a->length;
    image = rn_export_node(h, "Resize", all, 4, attrs, 6, image.dtype, flat);
    out[0] = rn_export_result(h, call, rn_export_reshape(h, image, y));
}
