// conv_args.h — what the kernels of convolutions and their gradients are told. Read by C and by
// CUDA C.
//
// All of them see images of channels last: x (N, H, W, C), y (N, OH, OW, O). A *tap* is an element
// of the kernel: output place p reads x at p stride + tap. So a gradient by x is a convolution too,
// over dy with the taps turned round (and in phases, where the stride is not 1).
#ifndef RN_CUDA_KERNELS_CONV_ARGS_H
#define RN_CUDA_KERNELS_CONV_ARGS_H

#include "map_args.h"
#include "rows_args.h"

enum {
    RN_CONV_TAPS = 64,     // at most, on matrix units
    RN_CONV_THREADS = 384, // two warpgroups that multiply and one that brings boxes
    RN_CONV_CLUSTER = 2,   // blocks with the same outputs of neighbouring pixels share the weights
    RN_CONV_STEP = 64,     // channels that are brought at a time
};

// ---- on matrix units (conv.cu) ------------------------------------------------------------------

// A block has a box of pixels (n, h, w) and some outputs of one group. Sums go over taps, then over
// channels in steps of 64. Grid: (boxes in pairs x tiles of outputs x 2, 1, splits).
typedef struct rn_conv_args {
    rn_tensor_map
        x; // (C of a group, groups, W, H, N), in boxes of 64 channels of the block's pixels
    rn_tensor_map
        w; // (C of a group, taps, O), in boxes of 64 channels of one tap, half the outputs
    const void *bias;   // (O) or NULL
    const void *addend; // as y, of its type, or NULL; it may be y; NULL where split
    void *y;            // pixel (n, h, w) at n y_n + h y_h + w y_w, in elements; f32 where split
    uint64_t y_n, y_h, y_w;
    uint64_t y_split;             // from one split's sums to the next
    uint32_t batch, out_h, out_w; // pixels that are made
    uint32_t box_n, box_h, box_w; // of a block
    uint32_t tiles_n, tiles_h, tiles_w;
    uint32_t outputs, outputs_each; // O; of a group
    uint32_t output_tiles;          // of a group
    uint32_t groups;
    uint32_t channel_steps, taps;
    uint32_t splits;
    uint32_t stride_h, stride_w;
    uint32_t y_type, bias_type; // rn_plain_type
    int16_t tap_h[RN_CONV_TAPS], tap_w[RN_CONV_TAPS];
} rn_conv_args;

// The sums of splits, in their order, and the bias: partial (splits, pixels, O) -> y.
typedef struct rn_conv_total_args {
    const float *partial;
    const void *bias;   // (O) or NULL
    const void *addend; // as y, of its type, or NULL
    void *y;
    uint64_t y_n, y_h, y_w;
    uint64_t pixels; // N OH OW
    uint32_t out_h, out_w, outputs, splits, y_type, bias_type;
} rn_conv_total_args;

// ---- weights (conv_weights.cu) ------------------------------------------------------------------

// (O, C of a group, K) as files have it, in another order and type:
//     conv_weights_along     of each output on its own, channels innermost
//         forward            (O, taps, C of a group)
//         turned, plain      (groups, K, O of a group, C of a group)
//     conv_weights_across    outputs innermost
//         turned             (C, taps, O of a group)
//         plain              (groups, K, C of a group, O of a group)
// "turned": for the gradient by x; "plain": for conv_plain.cu.
typedef struct rn_conv_weights_args {
    const void *w;
    void *out;
    uint32_t outputs_each, channels_each, kernel, groups, taps;
    uint32_t row; // numbers of a row of the result, at least as many as there are; zeros behind
    uint32_t type, out_type;
    uint32_t channels_last; // w is (O, K, C of a group)
    uint32_t turned, plain;
    uint16_t tap_of[RN_CONV_TAPS]; // (K): which tap, or RN_CONV_NO_TAP; of plain ones it is itself
} rn_conv_weights_args;

enum { RN_CONV_NO_TAP = 0xffff };

// x (pixels, channels) -> out (pixels, row), zeros behind: images whose channels are no whole
// eights.
typedef struct rn_conv_pad_args {
    const uint16_t *x;
    uint16_t *out;
    uint64_t pixels;
    uint32_t channels, row;
} rn_conv_pad_args;

// ---- in f32 (conv_plain.cu) ---------------------------------------------------------------------

enum { RN_CONV_PLAIN_PIXELS = 128, RN_CONV_PLAIN_OUTPUTS = 64, RN_CONV_PLAIN_STEP = 16 };

// y[p, o] = bias[o] + sum over (tap, c) of x[place, c] w[g, tap, c, o]. Along axis i, output place
// p reads x at (p times[i] + tap[i] dilation[i] - before[i]) / divisor[i], where that is whole and
// within. Grid: (tiles of pixels, tiles of outputs of a group x groups, splits).
typedef struct rn_conv_plain_args {
    const void *x;    // (N, in..., C)
    const void *w;    // (groups, taps, C of a group, O of a group)
    const void *bias; // (O) or NULL
    void *y;          // (N, out..., O)
    uint64_t pixels;  // N out...
    uint32_t in[3], out[3], size[3];
    int32_t times[3], dilation[3], before[3], divisor[3];
    uint32_t channels_each, outputs_each, groups;
    uint32_t x_type, w_type, y_type, bias_type;
    float *partial;  // (splits, N, out..., O): sums of each split, without bias; NULL: y
    uint32_t splits; // of (tap, step of channels)
} rn_conv_plain_args;

// dw[split, g, tap, o, c] = sum over the split's pixels of x[place, c] dy[p, o]. Grid: (tiles of C
// x tiles of O, taps x groups, splits), tiles of RN_CONV_PLAIN_OUTPUTS both ways.
typedef struct rn_conv_plain_grad_args {
    const void *x;  // (N, in..., C)
    const void *dy; // (N, out..., O)
    float *partial; // (splits, groups, taps, O of a group, C of a group)
    uint64_t pixels;
    uint32_t in[3], out[3], size[3];
    int32_t times[3], dilation[3], before[3];
    uint32_t channels_each, outputs_each, groups, splits;
    uint32_t x_type, dy_type;
} rn_conv_plain_grad_args;

// ---- the gradient by the weights on matrix units (conv_grad.cu)
// -----------------------------------

// dw of one tap: (O, C) = sum over pixels of dy (pixels, O) and x (pixels, C). Grid: (tiles of C x
// tiles of O, taps x groups, splits), tiles of RN_CONV_GRAD_TILE both ways: partial (splits,
// groups, taps, O of a group, C of a group).
enum { RN_CONV_GRAD_TILE = 128, RN_CONV_GRAD_PIXELS = 64 };

typedef struct rn_conv_grad_args {
    rn_tensor_map x;  // (C of a group, groups, W, H, N), in boxes of 64 channels of 64 pixels
    rn_tensor_map dy; // (O of a group, groups, OW, OH, N), likewise
    float *partial;
    uint32_t tiles_n, tiles_h, tiles_w, box_n, box_h, box_w;
    uint32_t channels_each, outputs_each, groups, splits;
    uint32_t stride_h, stride_w, taps;
    int16_t tap_h[RN_CONV_TAPS], tap_w[RN_CONV_TAPS];
} rn_conv_grad_args;

// partial (splits, groups, taps, O of a group, C of a group), summed in order -> (O, C of a group,
// taps).
typedef struct rn_conv_grad_total_args {
    const float *partial;
    void *dw;
    uint32_t channels_each, outputs_each, groups, taps, splits, type;
} rn_conv_grad_total_args;

#endif
