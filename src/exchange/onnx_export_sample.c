// onnx_export_sample.c — reading images at computed places, windows added up, spectra.
#include "exchange/onnx_export_ops.h"

// Opset 20 has other names, and a third spatial axis.
RN_EXPORTER(grid_sample) {
    static const char *const paddings[] = {[RN_GRID_ZEROS] = "zeros",
                                           [RN_GRID_BORDER] = "border",
                                           [RN_GRID_REFLECTION] = "reflection"};
    const rn_grid_sample_attrs *own = call->attrs;
    bool old = h->opset < 20;
    const char *mode = own->function == RN_RESIZE_NEAREST  ? "nearest"
                       : own->function == RN_RESIZE_LINEAR ? (old ? "bilinear" : "linear")
                                                           : (old ? "bicubic" : "cubic");
    rn_export_attr attrs[] = {RN_EXPORT_TEXT("mode", mode),
                              RN_EXPORT_TEXT("padding_mode", paddings[own->padding]),
                              RN_EXPORT_INT("align_corners", own->align_corners)};
    rn_export_value all[] = {rn_export_to_channels_first(h, rn_export_widen(h, in[0])),
                             rn_export_widen(h, in[1])};
    if (old && in[0].shape.rank != 4) rn_export_refuse(h, "volumes, before opset 20");
    rn_export_value y = rn_export_node(h, "GridSample", all, 2, attrs, 3, all[0].dtype,
                                       rn_export_channels_first(call->outputs[0].shape));
    out[0] = rn_export_result(h, call, rn_export_to_channels_last(h, y));
}

RN_EXPORTER(roi_align) {
    const rn_roi_align_attrs *own = call->attrs;
    rn_export_attr attrs[] = {RN_EXPORT_TEXT("mode", own->max ? "max" : "avg"),
                              RN_EXPORT_TEXT("coordinate_transformation_mode",
                                             own->half_pixel ? "half_pixel" : "output_half_pixel"),
                              RN_EXPORT_INT("output_height", own->height),
                              RN_EXPORT_INT("output_width", own->width),
                              RN_EXPORT_INT("sampling_ratio", own->sampling),
                              RN_EXPORT_FLOAT("spatial_scale", (float)own->scale)};
    // ONNX Runtime's points of a maximum are weighed apart.
    if (own->max) rn_export_refuse(h, "the largest of a region's points");
    rn_export_value all[] = {in[0], in[1], rn_export_cast(h, in[2], RN_DTYPE_I64)};
    out[0] = rn_export_node(h, "RoiAlign", all, 3, attrs, 6, call->outputs[0].dtype,
                            call->outputs[0].shape);
}

RN_EXPORTER(col2im) {
    const rn_col2im_attrs *own = call->attrs;
    int64_t image[RN_MAX_SPATIAL], block[RN_MAX_SPATIAL], strides[RN_MAX_SPATIAL],
        dilations[RN_MAX_SPATIAL], pads[2 * RN_MAX_SPATIAL];
    for (uint32_t i = 0; i < own->rank; i++) {
        image[i] = (int64_t)own->image[i], block[i] = (int64_t)own->block[i];
        strides[i] = own->stride[i] ? own->stride[i] : 1;
        dilations[i] = own->dilation[i] ? own->dilation[i] : 1;
        pads[i] = own->pad_before[i], pads[own->rank + i] = own->pad_after[i];
    }
    rn_export_attr attrs[] = {RN_EXPORT_INTS("strides", strides, own->rank),
                              RN_EXPORT_INTS("dilations", dilations, own->rank),
                              RN_EXPORT_INTS("pads", pads, 2 * own->rank)};
    rn_export_value all[] = {rn_export_widen(h, in[0]), rn_export_ints(h, image, own->rank),
                             rn_export_ints(h, block, own->rank)};
    rn_export_value y =
        rn_export_node(h, "Col2Im", all, 3, attrs, 3, all[0].dtype, call->outputs[0].shape);
    out[0] = rn_export_result(h, call, y);
}

// The axis is an input since opset 20.
RN_EXPORTER(dft) {
    const rn_dft_attrs *own = call->attrs;
    rn_export_attr attrs[] = {RN_EXPORT_INT("inverse", own->inverse),
                              RN_EXPORT_INT("onesided", own->half),
                              RN_EXPORT_INT("axis", own->axis)};
    bool old = h->opset < 20;
    rn_export_value all[3] = {rn_export_widen(h, in[0])};
    if (own->length) all[1] = rn_export_scalar(h, RN_DTYPE_I64, (double)own->length);
    if (!old) all[2] = rn_export_scalar(h, RN_DTYPE_I64, own->axis);
    if (own->from_half) rn_export_refuse(h, "an inverse of half a spectrum");
    rn_export_value y = rn_export_node(h, "DFT", all, old ? 2 : 3, attrs, old ? 3 : 2, all[0].dtype,
                                       call->outputs[0].shape);
    out[0] = rn_export_result(h, call, y);
}
