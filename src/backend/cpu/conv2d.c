// conv2d.c — the forward convolution: panels that were packed once, or are packed here a few
// outputs at a time.
#include "backend/cpu/conv.h"
#include "backend/cpu/conv_weights.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/winograd.h"

#include "base/checked.h"

enum { PACKED_FLOATS = 1 << 19, LEAST_OUTPUTS = 32 };

static bool is_packed(const rn_call *call) {
    return call->inputs[1].layout == RN_LAYOUT_CONV_PANELS;
}

static rn_conv read_call(const rn_call *call) {
    const rn_conv2d_attrs *a = call->attrs;
    const rn_shape *x = &call->inputs[0].shape, *w = &call->inputs[1].shape;
    const rn_shape *y = &call->outputs[0].shape;
    size_t outputs = y->dims[3], cols = y->dims[2], rows = y->dims[1];
    return (rn_conv){.x = call->inputs[0].data,
                     .images = x->dims[0],
                     .height = x->dims[1],
                     .width = x->dims[2],
                     .channels = x->dims[3],
                     .taps_h = w->dims[2],
                     .taps_w = w->dims[3],
                     .stride_h = a->stride_h,
                     .stride_w = a->stride_w,
                     .top = a->pad_top,
                     .left = a->pad_left,
                     .y = call->outputs[0].data,
                     .rows = rows,
                     .cols = cols,
                     .y_image = rows * cols * outputs,
                     .y_row = cols * outputs,
                     .y_pixel = outputs,
                     .outputs = outputs,
                     .panels = call->inputs[1].data,
                     .dtype = is_packed(call) ? call->inputs[1].dtype : RN_DTYPE_F32,
                     .bias = call->input_count > 2 ? call->inputs[2].data : NULL};
}

// Outputs whose panels are in the workspace at once.
static rn_conv_weights some_weights(const rn_call *call, const rn_conv *c) {
    size_t depth = c->taps_h * c->taps_w * c->channels;
    size_t fit = rn_round_down(PACKED_FLOATS / rn_max_u64(depth, 1), LEAST_OUTPUTS);
    return (rn_conv_weights){.w = &call->inputs[1],
                             .taps = {c->taps_h, c->taps_w, 0, 0, 1, 1},
                             .count = rn_min_u64(rn_max_u64(fit, LEAST_OUTPUTS), c->outputs)};
}

rn_status rn_cpu_conv2d_within(const rn_call *call, const rn_clamp_attrs *clamp) {
    rn_conv whole = read_call(call);
    whole.clamp = clamp;
    if (is_packed(call)) {
        rn_conv_run(&whole, call, call->workspace);
        return RN_OK;
    }
    rn_conv_weights w = some_weights(call, &whole);
    const size_t some = w.count;
    w.panels = call->workspace;
    void *rest = w.panels + rn_conv_weights_floats(&w);
    for (; w.first < whole.outputs; w.first += some) {
        rn_conv part = whole;
        part.outputs = w.count = rn_min_u64(some, whole.outputs - w.first);
        part.panels = w.panels;
        part.y += w.first;
        if (part.bias) part.bias += w.first;
        rn_conv_weights_pack(&w, call);
        rn_conv_run(&part, call, rest);
    }
    return RN_OK;
}

rn_status rn_cpu_conv2d(const rn_call *call) {
    return rn_cpu_conv2d_within(call, NULL);
}

double rn_cpu_conv2d_share(const rn_call *call) {
    rn_conv c = read_call(call);
    return rn_winograd_share(&c);
}

uint64_t rn_cpu_conv2d_workspace(const rn_call *call) {
    rn_conv c = read_call(call);
    uint64_t bytes = rn_conv_workspace(&c, call->threads);
    if (is_packed(call)) return bytes;
    rn_conv_weights w = some_weights(call, &c);
    return bytes + rn_conv_weights_floats(&w) * sizeof(float);
}
