// conv2d.h — what a convolution and its two gradients share.
#ifndef RN_GRAPH_OP_CONV2D_H
#define RN_GRAPH_OP_CONV2D_H

#include "graph/window.h"

#include "tensor/small_float.h"

#include <stdio.h>

typedef struct rn_conv2d {
    rn_window window;
    rn_shape x, y;      // (N, H, W, C), (N, OH, OW, O)
    const float *image; // x's elements, or dy's
    rn_tensor weight;   // (O, C, KH, KW) of f32, f16 or bf16; of f32 where it is made
} rn_conv2d;

static inline uint64_t rn_image_at(rn_shape shape, uint64_t n, uint64_t h, uint64_t w, uint64_t c) {
    return ((n * shape.dims[1] + h) * shape.dims[2] + w) * shape.dims[3] + c;
}

static inline rn_window_range rn_conv2d_rows(const rn_conv2d *c, uint64_t oh) {
    return rn_window_at(oh, c->window.stride_h, c->window.size_h, c->window.pad_top, c->x.dims[1]);
}
static inline rn_window_range rn_conv2d_cols(const rn_conv2d *c, uint64_t ow) {
    return rn_window_at(ow, c->window.stride_w, c->window.size_w, c->window.pad_left, c->x.dims[2]);
}

static inline float rn_conv2d_weight_at(const rn_conv2d *c, uint64_t o, uint64_t i, uint64_t kh,
                                        uint64_t kw) {
    uint64_t at = ((o * c->x.dims[3] + i) * c->window.size_h + kh) * c->window.size_w + kw;
    if (c->weight.dtype == RN_DTYPE_F16)
        return rn_f16_widen(((const uint16_t *)c->weight.data)[at]);
    if (c->weight.dtype == RN_DTYPE_BF16)
        return rn_bf16_widen(((const uint16_t *)c->weight.data)[at]);
    return ((const float *)c->weight.data)[at];
}

static inline rn_status rn_conv2d_check_weight(const rn_shaping *s, uint32_t input) {
    rn_dtype dtype = s->in[input].dtype;
    if (dtype != RN_DTYPE_F32 && dtype != RN_DTYPE_F16 && dtype != RN_DTYPE_BF16)
        return rn_shape_fail(s, "kernels must be f32, f16 or bf16, they are %s",
                             rn_dtype_get(dtype)->name);
    if (s->in[input].shape.rank != 4) return rn_shape_fail(s, "kernels are (O, C, KH, KW)");
    return RN_OK;
}

// Each pixel of the output (of `pixels` numbers, O of them channels) takes C * KH * KW products.
static inline void rn_conv2d_cost(const rn_call *call, const rn_shape *kernel, uint64_t pixels,
                                  rn_cost *out) {
    rn_cost_bytes(call, out);
    out->flops += 2.0 * (double)pixels * (double)kernel->dims[1] * (double)kernel->dims[2] *
                  (double)kernel->dims[3];
}

static inline void rn_conv2d_print(const rn_conv2d_attrs *a, char *out, size_t bytes) {
    snprintf(out, bytes, "stride %ux%u, pad %u %u %u %u", a->stride_h, a->stride_w, a->pad_top,
             a->pad_left, a->pad_bottom, a->pad_right);
}

#endif
