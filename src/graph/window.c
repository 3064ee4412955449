// window.c — window p along an axis begins at p * stride - pad.
#include "graph/window.h"

#include "base/checked.h"

#include <stdio.h>

rn_window rn_window_of_conv2d(const rn_conv2d_attrs *a, uint64_t kernel_h, uint64_t kernel_w) {
    return (rn_window){kernel_h,   kernel_w,    a->stride_h,   a->stride_w,
                       a->pad_top, a->pad_left, a->pad_bottom, a->pad_right};
}

rn_window rn_window_of_pool2d(const rn_pool2d_attrs *a) {
    return (rn_window){a->size_h,  a->size_w,   a->stride_h,   a->stride_w,
                       a->pad_top, a->pad_left, a->pad_bottom, a->pad_right};
}

static rn_status count_places(const rn_shaping *s, const char *axis, uint64_t extent, uint64_t pad,
                              uint64_t size, uint64_t stride, uint64_t *out) {
    uint64_t padded = 0;
    if (size == 0 || stride == 0)
        return rn_shape_fail(s,
                             "window and stride must be at least 1 (%s: window %llu, stride %llu)",
                             axis, (unsigned long long)size, (unsigned long long)stride);
    if (!rn_add_u64(extent, pad, &padded) || padded < size)
        return rn_shape_fail(s, "a window of %llu does not fit into %llu + %llu padding (%s)",
                             (unsigned long long)size, (unsigned long long)extent,
                             (unsigned long long)pad, axis);
    *out = (padded - size) / stride + 1;
    return RN_OK;
}

rn_status rn_window_shape(const rn_shaping *s, const rn_window *w, rn_shape x, uint64_t channels,
                          rn_shape *out) {
    if (x.rank != 4)
        return rn_shape_fail(s, "an image is (N, H, W, C), not %s", rn_shape_format(x).text);
    uint64_t high = 0, wide = 0;
    RN_TRY(count_places(s, "height", x.dims[1], w->pad_top + w->pad_bottom, w->size_h, w->stride_h,
                        &high));
    RN_TRY(count_places(s, "width", x.dims[2], w->pad_left + w->pad_right, w->size_w, w->stride_w,
                        &wide));
    *out = RN_SHAPE(x.dims[0], high, wide, channels);
    return RN_OK;
}

rn_status rn_window_pool_shape(const rn_shaping *s, const rn_pool2d_attrs *a, rn_shape x,
                               rn_shape *out) {
    rn_window window = rn_window_of_pool2d(a);
    RN_TRY(rn_window_shape(s, &window, x, x.dims[3], out));
    if (a->pad_top >= a->size_h || a->pad_bottom >= a->size_h || a->pad_left >= a->size_w ||
        a->pad_right >= a->size_w)
        return rn_shape_fail(s, "padding must be smaller than the window");
    return RN_OK;
}

rn_window_range rn_window_at(uint64_t place, uint64_t stride, uint64_t size, uint64_t pad,
                             uint64_t extent) {
    uint64_t start = place * stride; // of the padded image, which begins `pad` before the image
    uint64_t skipped = start < pad ? rn_min_u64(pad - start, size) : 0;
    uint64_t first = start + skipped - rn_min_u64(pad, start + skipped);
    uint64_t stop = start + size > pad ? start + size - pad : 0;
    uint64_t end = rn_min_u64(stop, extent);
    return (rn_window_range){first, end < first ? first : end, skipped};
}

void rn_window_print(const rn_window *w, char *out, size_t bytes) {
    snprintf(out, bytes, "%llux%llu, stride %llux%llu, pad %llu %llu %llu %llu",
             (unsigned long long)w->size_h, (unsigned long long)w->size_w,
             (unsigned long long)w->stride_h, (unsigned long long)w->stride_w,
             (unsigned long long)w->pad_top, (unsigned long long)w->pad_left,
             (unsigned long long)w->pad_bottom, (unsigned long long)w->pad_right);
}
