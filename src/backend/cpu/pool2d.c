// pool2d.c — pools over images (N, H, W, C): all channels of a pixel at a time.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "graph/window.h"

#include <string.h>

// The pixels of a window, in pieces of this many.
enum { PIECE = 16 };

// y = the largest of y and some pixels, or their sum; `first`: of the pixels alone.
static void join(rn_op op, const float **pixels, uint64_t count, bool first, float *y,
                 uint64_t channels) {
    const rn_spans *s = rn_spans_get();
    if (op == RN_OP_MAX_POOL) {
        if (!first) pixels[count++] = y;
        s->max_of(pixels, count, y, channels);
        return;
    }
    if (first) memset(y, 0, channels * sizeof(float));
    for (uint64_t i = 0; i < count; i++)
        s->add_into(pixels[i], y, channels);
}

// One output pixel.
static void pool_pixel(const rn_call *call, const float *image /* (H, W, C) */, uint64_t oh,
                       uint64_t ow, float *y /* (C) */) {
    const rn_pool2d_attrs *a = call->attrs;
    rn_shape x = call->inputs[0].shape;
    uint64_t channels = x.dims[3], count = 0;
    rn_window_range high = rn_window_at(oh, a->stride_h, a->size_h, a->pad_top, x.dims[1]);
    rn_window_range wide = rn_window_at(ow, a->stride_w, a->size_w, a->pad_left, x.dims[2]);
    const float *pixels[PIECE + 1];
    bool first = true;
    for (uint64_t h = high.first; h < high.end; h++)
        for (uint64_t w = wide.first; w < wide.end; w++) {
            pixels[count++] = image + (h * x.dims[2] + w) * channels;
            if (count < PIECE) continue;
            join(call->op, pixels, count, first, y, channels);
            first = false;
            count = 0;
        }
    if (count) join(call->op, pixels, count, first, y, channels);
    if (call->op == RN_OP_AVG_POOL)
        rn_spans_get()->scale(y, y, channels, 1.0f / (float)((uint64_t)a->size_h * a->size_w), 0);
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
