// conv2d_grad_weight.c — dw as a product over pixels: dyᵀ (O, pixels) by the windows of x (pixels,
// taps * C), some columns at a time.
//
// Windows are packed straight from the image. A panel's 16 columns are neighbours in memory:
// channels of one tap, or, where there are fewer than 16 channels, of the taps of a row. The
// product of these columns is put together in the workspace and then written in the order of w.
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"

#include "base/checked.h"
#include "graph/op/grads.h"

#include <string.h>

enum { SUM_FLOATS = 1 << 18 }; // of dw that are put together at once, about

typedef struct windows {
    const float *x; // (N, H, W, C)
    size_t height, width, channels;
    size_t rows, cols; // of dy
    size_t kernel_h, kernel_w;
    rn_conv2d_attrs attrs;
    size_t run;        // columns that are neighbours: C, or KW * C
    size_t run_panels; // panels of a run
    size_t first;      // panel of the columns at hand
} windows;

static windows read_windows(const rn_call *call) {
    const rn_conv2d_grad_weight_attrs *a = call->attrs;
    const rn_shape *x = &call->inputs[0].shape, *dy = &call->inputs[1].shape;
    windows s = {.x = call->inputs[0].data,
                 .height = x->dims[1],
                 .width = x->dims[2],
                 .channels = x->dims[3],
                 .rows = dy->dims[1],
                 .cols = dy->dims[2],
                 .kernel_h = a->kernel_h,
                 .kernel_w = a->kernel_w,
                 .attrs = a->conv};
    s.run = s.channels >= RN_PANEL ? s.channels : s.kernel_w * s.channels;
    s.run_panels = (size_t)rn_div_up(s.run, RN_PANEL);
    return s;
}

static size_t count_panels(const windows *s) {
    return s->run_panels * s->kernel_h * (s->channels >= RN_PANEL ? s->kernel_w : 1);
}

// ---- columns ------------------------------------------------------------------------------------

// What a panel sees.
typedef struct columns {
    size_t kh, kw; // the run's first tap
    size_t at;     // of the panel in its run
    size_t count;  // at most 16
} columns;

static columns find_columns(const windows *s, size_t panel) {
    size_t run = panel / s->run_panels, at = panel % s->run_panels * RN_PANEL;
    size_t across = s->channels >= RN_PANEL ? s->kernel_w : 1;
    return (columns){run / across, run % across, at, rn_min_u64(s->run - at, RN_PANEL)};
}

// The columns of one window: floats from the image, zeros outside of it.
static void pack_window(const windows *s, const columns *c, const float *line, size_t col,
                        float *to) {
    ptrdiff_t first = (ptrdiff_t)(col * s->attrs.stride_w + c->kw) - (ptrdiff_t)s->attrs.pad_left;
    ptrdiff_t at = first * (ptrdiff_t)s->channels + (ptrdiff_t)c->at;
    ptrdiff_t end = (ptrdiff_t)(s->width * s->channels);
    if (line && c->count == RN_PANEL && at >= 0 && at + RN_PANEL <= end) {
        memcpy(to, line + at, RN_PANEL * sizeof *to);
        return;
    }
    for (size_t i = 0; i < RN_PANEL; i++, at++)
        to[i] = line && i < c->count && at >= 0 && at < end ? line[at] : 0;
}

// Pixels [k, k + depth) in the order (n, oh, ow).
static void pack(const void *source, size_t panel, size_t k, size_t depth, float *to) {
    const windows *s = source;
    columns c = find_columns(s, s->first + panel);
    size_t col = k % s->cols, row = k / s->cols % s->rows, image = k / s->cols / s->rows;
    while (depth > 0) {
        size_t h = row * s->attrs.stride_h + c.kh - s->attrs.pad_top; // above the image it wraps
        const float *line = NULL;
        if (h < s->height) line = s->x + (image * s->height + h) * s->width * s->channels;
        for (; col < s->cols && depth > 0; col++, depth--, to += RN_PANEL)
            pack_window(s, &c, line, col, to);
        col = 0;
        if (++row == s->rows) row = 0, image++;
    }
}

// ---- dw -----------------------------------------------------------------------------------------

typedef struct writing {
    const windows *windows;
    const float *sums; // (O, columns)
    size_t columns;    // 16 * panels
    float *dw;         // (O, C, KH, KW)
} writing;

// One output's columns, to their places.
static void write_output(void *arg, size_t output) {
    const writing *w = arg;
    const windows *s = w->windows;
    size_t taps = s->kernel_h * s->kernel_w;
    const float *sums = w->sums + output * w->columns;
    float *dw = w->dw + output * s->channels * taps;
    for (size_t panel = 0; panel < w->columns / RN_PANEL; panel++) {
        columns c = find_columns(s, s->first + panel);
        for (size_t i = 0; i < c.count; i++) {
            size_t kw = c.kw + (c.at + i) / s->channels, channel = (c.at + i) % s->channels;
            if (s->channels >= RN_PANEL) kw = c.kw, channel = c.at + i;
            dw[channel * taps + c.kh * s->kernel_w + kw] = sums[panel * RN_PANEL + i];
        }
    }
}

static rn_gemm some_columns(const rn_call *call, const windows *s) {
    const rn_shape *dy = &call->inputs[1].shape;
    size_t outputs = dy->dims[3], pixels = dy->dims[0] * dy->dims[1] * dy->dims[2];
    size_t panels = rn_min_u64(count_panels(s), SUM_FLOATS / RN_PANEL / rn_max_u64(outputs, 1) + 2);
    return (rn_gemm){.m = outputs,
                     .n = panels * RN_PANEL,
                     .k = pixels,
                     .a = {call->inputs[1].data, 1, outputs},
                     .pack = pack,
                     .source = s,
                     .c_row = panels * RN_PANEL};
}

rn_status rn_cpu_conv2d_grad_weight(const rn_call *call) {
    windows s = read_windows(call);
    rn_gemm g = some_columns(call, &s);
    const size_t panels = g.n / RN_PANEL, all = count_panels(&s);
    g.c = call->workspace;
    writing w = {&s, g.c, g.c_row, call->outputs[0].data};
    for (; s.first < all; s.first += panels) {
        g.n = g.c_row = w.columns = rn_min_u64(panels, all - s.first) * RN_PANEL;
        rn_gemm_run(&g, call, g.c + g.m * panels * RN_PANEL);
        rn_call_each(call, g.m, write_output, &w);
    }
    return RN_OK;
}

uint64_t rn_cpu_conv2d_grad_weight_workspace(const rn_call *call) {
    windows s = read_windows(call);
    rn_gemm g = some_columns(call, &s);
    return g.m * g.n * sizeof(float) + rn_gemm_workspace(&g, call->threads);
}
