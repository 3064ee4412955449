// pool.c — pools over 1 to 3 spatial axes, dilated or with windows that reach beyond the image: all
// channels of a window at a time.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "graph/op/spatial.h"

#include <math.h>
#include <string.h>

enum { PIECE = 16 }; // pixels of a window at once

typedef struct pooling {
    const rn_call *call;
    rn_spatial s;
} pooling;

// y = the largest of y and some pixels, or their sum; `first`: of the pixels alone.
static void join(const pooling *p, const float **pixels, uint64_t count, bool first, float *y) {
    const rn_pool_attrs *a = p->call->attrs;
    if (a->function == RN_POOL_MAX) {
        if (!first) pixels[count++] = y;
        rn_spans_get()->max_of(pixels, count, y, p->s.in_channels);
        return;
    }
    if (first) memset(y, 0, p->s.in_channels * sizeof *y);
    for (uint64_t i = 0; i < count; i++)
        rn_spans_get()->add_into(pixels[i], y, p->s.in_channels);
}

static void pool_window(void *arg, size_t index) {
    const pooling *p = arg;
    const rn_pool_attrs *a = p->call->attrs;
    const rn_spatial *s = &p->s;
    uint64_t places = rn_spatial_pixels(s->out), image = index / places * rn_spatial_pixels(s->in);
    uint64_t at[RN_MAX_SPATIAL], pixel, count = 0, inside = 0;
    float *y = (float *)p->call->outputs[0].data + index * s->in_channels;
    const float *pixels[PIECE + 1];
    rn_spatial_place(s, index % places, at);
    for (uint64_t e = 0; e < rn_spatial_pixels(s->size); e++) {
        if (!rn_spatial_find(s, at, e, &pixel)) continue;
        pixels[count++] = (const float *)p->call->inputs[0].data + (image + pixel) * s->in_channels;
        if (count == PIECE) {
            join(p, pixels, count, inside == 0, y);
            inside += count;
            count = 0;
        }
    }
    if (count) join(p, pixels, count, inside == 0, y);
    inside += count;
    for (uint64_t c = 0; inside == 0 && c < s->in_channels; c++)
        y[c] = a->function == RN_POOL_MAX ? -INFINITY : 0;
    if (a->function == RN_POOL_AVERAGE)
        rn_spans_get()->scale(y, y, s->in_channels, 1.0f / (float)inside, 0);
}

// Means that count padding, norms and places are the reference's.
rn_status rn_cpu_pool(const rn_call *call) {
    const rn_pool_attrs *a = call->attrs;
    rn_shape y = call->outputs[0].shape;
    bool places = a->function == RN_POOL_MAX && call->outputs[1].data;
    if (call->inputs[0].dtype != RN_DTYPE_F32 || places || a->function == RN_POOL_LP ||
        (a->function == RN_POOL_AVERAGE && a->count_pad))
        return rn_op_get(call->op)->reference(call);
    rn_spatial_windows windows = {
        a->stride, a->dilation, a->pad_before, a->pad_after, {a->size[0], a->size[1], a->size[2]},
        a->ceil};
    if (call->outputs[1].data)
        memset(call->outputs[1].data, 0, rn_tensor_bytes(&call->outputs[1])); // means have none
    pooling p = {call, rn_spatial_of(call->inputs[0].shape, y, &windows)};
    rn_call_each(call, rn_tensor_elements(&call->outputs[0]) / y.dims[y.rank - 1], pool_window, &p);
    return RN_OK;
}
