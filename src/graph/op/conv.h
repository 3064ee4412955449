// conv.h — which convolutions are conv2d's, for the builder and for conv_clamp.
#ifndef RN_GRAPH_OP_CONV_H
#define RN_GRAPH_OP_CONV_H

#include "graph/op.h"

// One group, not dilated, over images of this rank: two spatial axes.
static inline bool rn_conv_is_conv2d(const rn_conv_attrs *a, uint32_t rank) {
    return a->groups <= 1 && rank == 4 && a->dilation[0] <= 1 && a->dilation[1] <= 1;
}

static inline rn_conv2d_attrs rn_conv_as_conv2d(const rn_conv_attrs *a) {
    return (rn_conv2d_attrs){.stride_h = a->stride[0] ? a->stride[0] : 1,
                             .stride_w = a->stride[1] ? a->stride[1] : 1,
                             .pad_top = a->pad_before[0],
                             .pad_left = a->pad_before[1],
                             .pad_bottom = a->pad_after[0],
                             .pad_right = a->pad_after[1]};
}

static inline rn_conv_attrs rn_conv_from_conv2d(const rn_conv2d_attrs *a) {
    return (rn_conv_attrs){.stride = {a->stride_h, a->stride_w},
                           .pad_before = {a->pad_top, a->pad_left},
                           .pad_after = {a->pad_bottom, a->pad_right}};
}

#endif
