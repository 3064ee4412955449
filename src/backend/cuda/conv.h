// conv.h — a convolution as the rows of conv.c and conv_grad.c see it, and how it runs on matrix
// units.
#ifndef RN_BACKEND_CUDA_CONV_H
#define RN_BACKEND_CUDA_CONV_H

#include "backend/cuda/elements.h"
#include "backend/cuda/kernels/conv_args.h"

enum { RN_CONV_AXES = 3 };

// Spatial axes stand at the end: an image has axes 1 and 2.
typedef struct rn_conv_sizes {
    uint64_t batch, in[RN_CONV_AXES], out[RN_CONV_AXES], size[RN_CONV_AXES];
    uint64_t channels_each, outputs_each, groups;
    int32_t stride[RN_CONV_AXES], dilation[RN_CONV_AXES], before[RN_CONV_AXES];
} rn_conv_sizes;

// The convolution that the call is, or whose gradient it makes: of CONV, CONV2D,
// CONV2D_GRAD_INPUT, CONV2D_GRAD_WEIGHT. RN_UNSUPPORTED: too large to be counted.
RN_MUST_USE rn_status rn_conv_read(const rn_call *call, rn_conv_sizes *out);
uint64_t rn_conv_kernel(const rn_conv_sizes *of); // elements of a kernel
uint64_t rn_conv_pixels(const rn_conv_sizes *of); // of y
// Whether images of `each` channels in `groups` can be brought in boxes, and kernels fit.
bool rn_conv_suits_boxes(const rn_conv_sizes *of);

// ---- products of boxes (conv_boxes.c)
// ------------------------------------------------------------

// A convolution in one piece, on matrix units: x (N, H, W, groups x channels), w (groups x outputs,
// taps, channels).
typedef struct rn_conv_product {
    rn_dtype type; // of x and w: bf16 or f16
    const void *x, *w;
    uint64_t batch, in_h, in_w, out_h, out_w; // y's pixels that are made
    uint64_t channels, outputs, groups;       // channels and outputs of a group
    uint32_t stride_h, stride_w, taps;
    int16_t tap_h[RN_CONV_TAPS], tap_w[RN_CONV_TAPS];
    const rn_tensor *bias; // or NULL
    const void *addend;    // as y, or NULL; it may be y
    rn_dtype y_type;
    void *y;
    uint64_t y_n, y_h, y_w; // elements from one to the next
    float *partial;         // rn_conv_product_workspace bytes
} rn_conv_product;

// By its sizes alone.
uint64_t rn_conv_product_workspace(const rn_conv_product *product);
RN_MUST_USE rn_status rn_conv_product_run(const rn_call *call, const rn_conv_product *product);

// The box of at most `pixels` pixels, of (n, h, w), of which the fewest cover the image; `most`: of
// the sides of h and w.
typedef struct rn_conv_box {
    uint32_t n, h, w;
    uint64_t tiles_n, tiles_h, tiles_w;
} rn_conv_box;
rn_conv_box rn_conv_choose_box(uint64_t n, uint64_t h, uint64_t w, uint32_t pixels, uint32_t most_h,
                               uint32_t most_w);

// Weights in another order (kernels/conv_args.h), of the call's weight tensor.
RN_MUST_USE rn_status rn_conv_order_weights(const rn_call *call, const rn_tensor *w,
                                            const rn_conv_sizes *of, rn_conv_weights_args *args);

#endif
