// conv.h — the product of an image's windows by panels of weights, without ever laying windows out.
//
// In (N, H, W, C) the window of the next output pixel begins stride * C floats further, and its
// taps are runs of C floats. Rows of a tile (tile.h) are neighbouring output pixels, its segments
// the taps: the tile reads the image itself, or a copy of a band of it where there is padding.
//
//     y[n, r, c, o] = sum over (i, j, k) of x[n, r * stride_h + i - top, c * stride_w + j - left,
//     k]
//                                           * panels[o / 16, (i, j, k), o % 16]   (+ bias[o])
//
// The sum is one chain in that order (tile.h), padding included as zeros: bands, images beside it
// and threads do not change a bit.
#ifndef RN_BACKEND_CPU_CONV_H
#define RN_BACKEND_CPU_CONV_H

#include "graph/op.h"

typedef struct rn_conv {
    const float *x;                         // (images, height, width, channels)
    size_t images, height, width, channels; //
    size_t taps_h, taps_w;                  // may be 0: sums of nothing
    size_t stride_h, stride_w;              //
    ptrdiff_t top, left;                    // padding; below 0: the first windows begin inside
    float *y;                               // where output (0, 0, 0, 0) goes
    size_t rows, cols;                      // of an image of outputs
    size_t y_image, y_row, y_pixel;         // floats from one to the next
    size_t outputs;                         // channels of y
    const void *panels;                     // (outputs / 16, taps_h * taps_w * channels, 16)
    rn_dtype dtype;                         // of panels: f16 or bf16, which are widened; else f32
    const float *bias;                      // (outputs) or NULL
    const rn_clamp_attrs *clamp;            // what y is kept within, or NULL
} rn_conv;

// Bytes, a multiple of 64; pure in the sizes and threads.
uint64_t rn_conv_workspace(const rn_conv *conv, uint32_t threads);
// On the call's workers, with `workspace` for call->threads.
void rn_conv_run(const rn_conv *conv, const rn_call *call, void *workspace);

#endif
