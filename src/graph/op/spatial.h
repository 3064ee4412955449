// spatial.h — windows over images with 1 to 3 spatial axes, (N, S..., C), for convolutions and
// pools of any kind. Axes that an image does not have are of 1.
#ifndef RN_GRAPH_OP_SPATIAL_H
#define RN_GRAPH_OP_SPATIAL_H

#include "graph/op/number.h"

typedef struct rn_spatial {
    uint32_t rank; // spatial axes
    uint64_t n, in_channels, out_channels;
    uint64_t in[RN_MAX_SPATIAL];   // the image that windows lie on
    uint64_t out[RN_MAX_SPATIAL];  // windows
    uint64_t size[RN_MAX_SPATIAL]; // of a window
    uint64_t stride[RN_MAX_SPATIAL], dilation[RN_MAX_SPATIAL], before[RN_MAX_SPATIAL];
} rn_spatial;

// How windows lie, as an op's attributes have it. `ceil` as rn_pool_attrs has it.
typedef struct rn_spatial_windows {
    const uint32_t *stride, *dilation, *pad_before, *pad_after; // (RN_MAX_SPATIAL)
    uint64_t size[RN_MAX_SPATIAL];
    bool ceil;
} rn_spatial_windows;

// Refuses an image that is not (N, S..., C) of 1 to 3 spatial axes.
rn_status rn_spatial_want_image(const rn_shaping *s, uint32_t input);
// The windows over an image of this shape; out: (N, windows..., channels). Refuses sizes of 0,
// windows larger than the padded image, and what overflows.
rn_status rn_spatial_shape(const rn_shaping *s, rn_shape image, const rn_spatial_windows *windows,
                           uint64_t channels, rn_shape *out);
// The same of a bound call: `image` is what windows lie on, `made` has one pixel a window.
rn_spatial rn_spatial_of(rn_shape image, rn_shape made, const rn_spatial_windows *windows);

// Element `element` of the window at `at`: true where it lies within the image, and at which pixel.
bool rn_spatial_find(const rn_spatial *s, const uint64_t at[RN_MAX_SPATIAL], uint64_t element,
                     uint64_t *out_pixel);
// Window number `i` of an image as its place along each axis.
void rn_spatial_place(const rn_spatial *s, uint64_t i, uint64_t at[RN_MAX_SPATIAL]);
// Pixels of the image, windows, elements of a window.
uint64_t rn_spatial_pixels(const uint64_t axes[RN_MAX_SPATIAL]);

void rn_spatial_print(const uint32_t *stride, const uint32_t *dilation, char *out, size_t bytes);

#endif
