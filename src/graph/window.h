// window.h — the windows of convolutions and pools over an image (N, H, W, C): where they lie, and
// how many there are.
#ifndef RN_GRAPH_WINDOW_H
#define RN_GRAPH_WINDOW_H

#include "graph/op.h"

typedef struct rn_window {
    uint64_t size_h, size_w, stride_h, stride_w;
    uint64_t pad_top, pad_left, pad_bottom, pad_right;
} rn_window;

rn_window rn_window_of_conv2d(const rn_conv2d_attrs *attrs, uint64_t kernel_h, uint64_t kernel_w);
rn_window rn_window_of_pool2d(const rn_pool2d_attrs *attrs);

// The shape (N, OH, OW, channels) over image `x`, input 0 of the node or one of the same kind.
// Refuses strides and sizes of 0 and windows larger than the padded image.
RN_MUST_USE rn_status rn_window_shape(const rn_shaping *s, const rn_window *window, rn_shape x,
                                      uint64_t channels, rn_shape *out);
// Also refuses padding that is not smaller than the window: each window then holds a pixel.
RN_MUST_USE rn_status rn_window_pool_shape(const rn_shaping *s, const rn_pool2d_attrs *attrs,
                                           rn_shape x, rn_shape *out);

// The part of a window along one axis that lies within the image: elements [first, end) of it.
typedef struct rn_window_range {
    uint64_t first, end; // of the image
    uint64_t skipped;    // elements of the window before `first`
} rn_window_range;
rn_window_range rn_window_at(uint64_t place, uint64_t stride, uint64_t size, uint64_t pad,
                             uint64_t extent);

// "3x3, stride 2, pad 1": for printing.
void rn_window_print(const rn_window *window, char *out, size_t bytes);

#endif
