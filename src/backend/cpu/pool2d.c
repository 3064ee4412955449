// pool2d.c — pools over images (N, H, W, C): all channels of a pixel at a time.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "graph/window.h"

#include <string.h>

// One output pixel: the pixels of its window, joined.
static void pool_pixel(const rn_call *call, const float *image /* (H, W, C) */, uint64_t oh,
                       uint64_t ow, float *y /* (C) */) {
    const rn_spans *s = rn_spans_get();
    const rn_pool2d_attrs *a = call->attrs;
    rn_shape x = call->inputs[0].shape;
    uint64_t channels = x.dims[3];
    rn_window_range high = rn_window_at(oh, a->stride_h, a->size_h, a->pad_top, x.dims[1]);
    rn_window_range wide = rn_window_at(ow, a->stride_w, a->size_w, a->pad_left, x.dims[2]);
    bool first = true;
    for (uint64_t h = high.first; h < high.end; h++)
        for (uint64_t w = wide.first; w < wide.end; w++) {
            const float *pixel = image + (h * x.dims[2] + w) * channels;
            if (first)
                memcpy(y, pixel, channels * sizeof(float));
            else if (call->op == RN_OP_MAX_POOL)
                s->max_into(pixel, y, channels);
            else
                s->add_into(pixel, y, channels);
            first = false;
        }
    if (call->op == RN_OP_AVG_POOL)
        s->scale(y, y, channels, 1.0f / (float)((uint64_t)a->size_h * a->size_w), 0);
}

// Row `index` of all rows of y: (n, oh).
static void pool_row(void *arg, size_t index) {
    const rn_call *call = arg;
    rn_shape x = call->inputs[0].shape, y = call->outputs[0].shape;
    uint64_t n = index / y.dims[1], oh = index % y.dims[1], channels = x.dims[3];
    const float *image = (const float *)call->inputs[0].data + n * x.dims[1] * x.dims[2] * channels;
    float *out = (float *)call->outputs[0].data + index * y.dims[2] * channels; // (OW, C)
    for (uint64_t ow = 0; ow < y.dims[2]; ow++)
        pool_pixel(call, image, oh, ow, out + ow * channels);
}

rn_status rn_cpu_pool2d(const rn_call *call) {
    rn_shape y = call->outputs[0].shape;
    rn_call_each(call, y.dims[0] * y.dims[1], pool_row, (void *)call);
    return RN_OK;
}
