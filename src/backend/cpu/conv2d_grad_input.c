// conv2d_grad_input.c — dx as convolutions of dy: with stride s the pixels of x fall into s * s
// kinds, and those of a kind are seen by the same taps.
//
// Pixel h of x meets tap kh of output (h + pad - kh) / s, where that is whole. So h = s * q + phase
// meets the taps kh = meet, meet + s, ... with meet = (phase + pad) % s, in outputs
// q + (phase + pad) / s - 0, 1, ...: a convolution of stride 1 whose taps are taken backwards.
#include "backend/cpu/conv.h"
#include "backend/cpu/conv_weights.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/winograd.h"

#include "base/checked.h"
#include "graph/op/grads.h"

enum { PACKED_FLOATS = 1 << 19, LEAST_CHANNELS = 32 };

// One axis of a phase.
typedef struct axis {
    size_t pixels; // of this phase
    size_t taps;
    ptrdiff_t last_tap; // the first one to be taken
    ptrdiff_t before;   // padding of dy
} axis;

static axis find_axis(size_t size, size_t kernel, size_t stride, size_t pad, size_t phase) {
    size_t meet = (phase + pad) % stride, reach = (phase + pad) / stride;
    axis a = {.pixels = phase < size ? (size_t)rn_div_up(size - phase, stride) : 0};
    a.taps = meet < kernel ? (size_t)rn_div_up(kernel - meet, stride) : 0;
    a.last_tap = (ptrdiff_t)(meet + (a.taps ? a.taps - 1 : 0) * stride);
    a.before = (ptrdiff_t)(a.taps ? a.taps - 1 : 0) - (ptrdiff_t)reach;
    return a;
}

typedef struct phase {
    rn_conv conv;
    rn_conv_weights weights; // of as many channels as fit
} phase;

static void read_weights(const rn_call *call, phase *p, axis high, axis wide) {
    const rn_conv2d_attrs *a = &((const rn_conv2d_grad_input_attrs *)call->attrs)->conv;
    size_t depth = high.taps * wide.taps * p->conv.channels;
    size_t fit = rn_round_down(PACKED_FLOATS / rn_max_u64(depth, 1), LEAST_CHANNELS);
    p->weights =
        (rn_conv_weights){.w = &call->inputs[0],
                          .taps = {high.taps, wide.taps, high.last_tap, wide.last_tap,
                                   -(ptrdiff_t)a->stride_h, -(ptrdiff_t)a->stride_w},
                          .by_channel = true,
                          .count = rn_min_u64(rn_max_u64(fit, LEAST_CHANNELS), p->conv.outputs)};
}

static phase read_phase(const rn_call *call, size_t phase_h, size_t phase_w) {
    const rn_conv2d_attrs *a = &((const rn_conv2d_grad_input_attrs *)call->attrs)->conv;
    const rn_shape *w = &call->inputs[0].shape, *dy = &call->inputs[1].shape;
    const rn_shape *dx = &call->outputs[0].shape;
    axis high = find_axis(dx->dims[1], w->dims[2], a->stride_h, a->pad_top, phase_h);
    axis wide = find_axis(dx->dims[2], w->dims[3], a->stride_w, a->pad_left, phase_w);
    size_t line = dx->dims[2] * dx->dims[3];
    phase p = {.conv = {.x = call->inputs[1].data,
                        .images = dy->dims[0],
                        .height = dy->dims[1],
                        .width = dy->dims[2],
                        .channels = dy->dims[3],
                        .taps_h = high.taps,
                        .taps_w = wide.taps,
                        .stride_h = 1,
                        .stride_w = 1,
                        .top = high.before,
                        .left = wide.before,
                        .rows = high.pixels,
                        .cols = wide.pixels,
                        .y_image = dx->dims[1] * line,
                        .y_row = a->stride_h * line,
                        .y_pixel = a->stride_w * dx->dims[3],
                        .outputs = dx->dims[3]}};
    if (call->outputs[0].data)
        p.conv.y = (float *)call->outputs[0].data + phase_h * line + phase_w * dx->dims[3];
    read_weights(call, &p, high, wide);
    return p;
}

static void run_phase(const rn_call *call, phase *p) {
    rn_conv_weights *w = &p->weights;
    const size_t some = w->count;
    w->panels = call->workspace;
    void *rest = w->panels + rn_conv_weights_floats(w);
    for (; w->first < p->conv.outputs; w->first += some) {
        rn_conv part = p->conv;
        part.outputs = w->count = rn_min_u64(some, p->conv.outputs - w->first);
        part.panels = w->panels;
        part.y += w->first;
        rn_conv_weights_pack(w, call);
        rn_conv_run(&part, call, rest);
    }
}

rn_status rn_cpu_conv2d_grad_input(const rn_call *call) {
    const rn_conv2d_attrs *a = &((const rn_conv2d_grad_input_attrs *)call->attrs)->conv;
    for (size_t h = 0; h < a->stride_h; h++)
        for (size_t w = 0; w < a->stride_w; w++) {
            phase p = read_phase(call, h, w);
            if (p.conv.rows && p.conv.cols) run_phase(call, &p);
        }
    return RN_OK;
}

double rn_cpu_conv2d_grad_input_share(const rn_call *call) {
    const rn_conv2d_attrs *a = &((const rn_conv2d_grad_input_attrs *)call->attrs)->conv;
    if (a->stride_h > 1 || a->stride_w > 1) return 1;
    phase p = read_phase(call, 0, 0);
    return rn_winograd_share(&p.conv);
}

uint64_t rn_cpu_conv2d_grad_input_workspace(const rn_call *call) {
    const rn_conv2d_attrs *a = &((const rn_conv2d_grad_input_attrs *)call->attrs)->conv;
    uint64_t most = 0;
    for (size_t h = 0; h < a->stride_h; h++)
        for (size_t w = 0; w < a->stride_w; w++) {
            phase p = read_phase(call, h, w);
            if (!p.conv.rows || !p.conv.cols) continue;
            most = rn_max_u64(most, rn_conv_weights_floats(&p.weights) * sizeof(float) +
                                        rn_conv_workspace(&p.conv, call->threads));
        }
    return most;
}
