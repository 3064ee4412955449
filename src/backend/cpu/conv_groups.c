// conv_groups.c — convolutions in groups, dilated, over 1 to 3 spatial axes.
//
// Depthwise (a channel makes one output): in (N, S..., C) a tap is a run of channels, and all
// channels of a pixel are computed side by side; the kernels are turned to (taps, C) first. Any
// other: the windows of some lines of outputs are laid out as rows (element, channel) of one
// group, and multiplied by that group's panels as a convolution of one tap is (conv.h).
#include "backend/cpu/conv.h"
#include "backend/cpu/conv_weights.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"
#include "backend/cpu/spans.h"
#include "backend/cpu/tile.h"

#include "base/checked.h"
#include "graph/op/conv.h"
#include "graph/op/spatial.h"

#include <string.h>

enum {
    COLUMN_FLOATS = 1 << 19, // of windows laid out at once, about: the second cache
    MOST_TAPS = 64,          // of a depthwise kernel; more go by the reference loop
};

// ---- how it lies --------------------------------------------------------------------------------

typedef struct shape {
    rn_spatial s;
    uint32_t last;            // the innermost spatial axis
    uint64_t groups, in, out; // channels and outputs of a group
    uint64_t taps;
    uint64_t lines; // of outputs along the last axis: images and all other axes
} shape;

static shape read_call(const rn_call *call) {
    const rn_conv_attrs *a = call->attrs;
    rn_shape w = call->inputs[1].shape, y = call->outputs[0].shape;
    rn_spatial_windows windows = {a->stride, a->dilation, a->pad_before, a->pad_after, {0}, false};
    for (uint32_t i = 0; i + 2 < w.rank; i++)
        windows.size[i] = w.dims[2 + i];
    shape c = {.s = rn_spatial_of(call->inputs[0].shape, y, &windows), .last = w.rank - 3};
    c.groups = a->groups ? a->groups : 1;
    c.in = c.s.in_channels / c.groups;
    c.out = c.s.out_channels / c.groups;
    c.taps = rn_spatial_pixels(c.s.size);
    c.lines = c.s.n * rn_spatial_pixels(c.s.out) / c.s.out[c.last];
    return c;
}

static bool is_depthwise(const shape *c) {
    return c->in == 1 && c->out == 1 && c->taps <= MOST_TAPS;
}

// The elements of windows of line `line` that lie in the image on all axes but the last: where
// their row of pixels begins, in pixels, and their first tap. Returns how many; `element` goes over
// all that there are.
typedef struct tap_row {
    uint64_t pixel, tap;
} tap_row;

static bool find_row(const shape *c, uint64_t line, uint64_t element, tap_row *out) {
    const rn_spatial *s = &c->s;
    uint64_t at[RN_MAX_SPATIAL] = {0}, pixel = 0, factor = 1, left = line, e = element;
    for (uint32_t i = c->last; i-- > 0; left /= s->out[i])
        at[i] = left % s->out[i];
    for (uint32_t i = c->last; i-- > 0; e /= s->size[i]) {
        uint64_t place = at[i] * s->stride[i] + e % s->size[i] * s->dilation[i];
        if (place < s->before[i] || place - s->before[i] >= s->in[i]) return false;
        pixel += (place - s->before[i]) * factor;
        factor *= s->in[i];
    }
    out->pixel = (left * factor + pixel) * s->in[c->last];
    out->tap = element * s->size[c->last];
    return true;
}

// ---- depthwise ----------------------------------------------------------------------------------

typedef struct depthwise {
    const rn_call *call;
    shape c;
    float *kernels;              // (taps, C)
    uint64_t band;               // lines of a task: neighbours see the same rows of pixels
    const rn_clamp_attrs *clamp; // or NULL
} depthwise;

static void turn_kernels(const depthwise *d) {
    const rn_tile_set *set = rn_tile_set_get();
    const float *w = d->call->inputs[1].data; // (C, 1, taps)
    uint64_t channels = d->c.s.in_channels, taps = d->c.taps, i = 0;
    for (; i + set->lanes <= channels; i += set->lanes)
        set->pack_rows(w + i * taps, taps, set->lanes, taps, d->kernels + i, channels);
    for (; i < channels; i++)
        for (uint64_t t = 0; t < taps; t++)
            d->kernels[t * channels + i] = w[i * taps + t];
}

// The rows of pixels that windows of a line see, and where the line's outputs are.
typedef struct depthwise_row {
    const depthwise *d;
    tap_row rows[MOST_TAPS];
    uint64_t count;
    float *y; // (outputs of the line, C)
} depthwise_row;

// Outputs [at, at + pixels), whose windows all have the elements that the first one's has.
static void depthwise_pixels(const depthwise_row *r, uint64_t at, uint64_t pixels) {
    const rn_spatial *s = &r->d->c.s;
    const float *x = r->d->call->inputs[0].data;
    uint32_t last = r->d->c.last;
    uint64_t channels = s->in_channels, size = s->size[last], step = s->dilation[last];
    uint64_t begin = at * s->stride[last], first = 0, end = size; // from the padding on
    while (first < size && begin + first * step < s->before[last])
        first++;
    while (end > first && begin + (end - 1) * step - s->before[last] >= s->in[last])
        end--;
    const float *from[MOST_TAPS], *kernels[MOST_TAPS];
    uint64_t rows = first < end ? r->count : 0;
    for (uint64_t i = 0; i < rows; i++) {
        from[i] = x + (r->rows[i].pixel + begin + first * step - s->before[last]) * channels;
        kernels[i] = r->d->kernels + (r->rows[i].tap + first) * channels;
    }
    rn_spans_get()->depthwise(&(rn_depthwise){.x = from,
                                              .w = kernels,
                                              .rows = rows,
                                              .taps = end - first,
                                              .x_tap = step * channels,
                                              .w_tap = channels,
                                              .x_step = s->stride[last] * channels,
                                              .y_step = channels,
                                              .bias = r->d->call->inputs[2].data,
                                              .clamp = r->d->clamp,
                                              .y = r->y + at * channels,
                                              .n = channels,
                                              .pixels = pixels});
}

// Outputs at the ends of the line, whose windows reach into the padding, go one by one.
static void depthwise_line(const depthwise *d, uint64_t line) {
    const rn_spatial *s = &d->c.s;
    uint32_t last = d->c.last;
    uint64_t out = s->out[last], stride = s->stride[last], before = s->before[last];
    uint64_t reach = (s->size[last] - 1) * s->dilation[last]; // of a window behind its first
    depthwise_row r = {.d = d};
    r.y = (float *)d->call->outputs[0].data + line * out * s->in_channels;
    for (uint64_t e = 0; e < d->c.taps / s->size[last]; e++)
        r.count += find_row(&d->c, line, e, &r.rows[r.count]);
    uint64_t begin = rn_min_u64(rn_div_up(before, stride), out), end = 0;
    if (s->in[last] + before > reach)
        end = rn_min_u64((s->in[last] + before - reach - 1) / stride + 1, out);
    if (end < begin) end = begin;
    for (uint64_t at = 0; at < begin; at++)
        depthwise_pixels(&r, at, 1);
    if (end > begin) depthwise_pixels(&r, begin, end - begin);
    for (uint64_t at = end; at < out; at++)
        depthwise_pixels(&r, at, 1);
}

static void depthwise_band(void *arg, uint32_t slot, size_t band) {
    const depthwise *d = arg;
    (void)slot;
    uint64_t end = rn_min_u64((band + 1) * d->band, d->c.lines);
    for (uint64_t line = band * d->band; line < end; line++)
        depthwise_line(d, line);
}

static void run_depthwise(const rn_call *call, const shape *c, const rn_clamp_attrs *clamp) {
    depthwise d = {call, *c, call->workspace, rn_div_up(c->lines, 4 * (uint64_t)call->threads),
                   clamp};
    turn_kernels(&d);
    if (c->lines) rn_share_runs(call, rn_div_up(c->lines, d.band), depthwise_band, &d);
}

// ---- groups -------------------------------------------------------------------------------------

// Some lines of a group's windows as a convolution of one tap.
typedef struct columns {
    const rn_call *call;
    shape c;
    uint64_t group, first; // line
    float *rows;           // (lines, outputs of a line, taps * in)
} columns;

// Lines at once: pixels a multiple of 4 KiB apart would be copied once more by conv.c, in a
// workspace that depends on how many lines there are: those go one by one.
static uint64_t lines_at_once(const shape *c) {
    uint64_t line = c->s.out[c->last] * c->taps * c->in;
    if (c->taps * c->in % 1024 == 0) return 1;
    return rn_max_u64(1, rn_min_u64(c->lines, COLUMN_FLOATS / rn_max_u64(line, 1)));
}

static void lay_line(void *arg, size_t index) {
    const columns *l = arg;
    const shape *c = &l->c;
    const rn_spatial *s = &c->s;
    uint32_t last = c->last;
    uint64_t depth = c->taps * c->in, outputs = s->out[last], elements = c->taps / s->size[last];
    const float *x = (const float *)l->call->inputs[0].data + l->group * c->in;
    float *to = l->rows + index * outputs * depth;
    for (uint64_t e = 0; e < elements; e++) {
        tap_row row = {0, e * s->size[last]};
        bool inside = find_row(c, l->first + index, e, &row);
        for (uint64_t at = 0; at < outputs; at++)
            for (uint64_t k = 0; k < s->size[last]; k++) {
                uint64_t place = at * s->stride[last] + k * s->dilation[last] - s->before[last];
                float *tap = to + at * depth + (row.tap + k) * c->in;
                if (inside && place < s->in[last])
                    memcpy(tap, x + (row.pixel + place) * s->in_channels, c->in * sizeof *tap);
                else
                    memset(tap, 0, c->in * sizeof *tap);
            }
    }
}

static rn_conv one_tap(const shape *c, uint64_t lines) {
    uint64_t cols = c->s.out[c->last], depth = c->taps * c->in;
    return (rn_conv){.images = 1,
                     .height = lines,
                     .width = cols,
                     .channels = depth,
                     .taps_h = 1,
                     .taps_w = 1,
                     .stride_h = 1,
                     .stride_w = 1,
                     .rows = lines,
                     .cols = cols,
                     .y_image = lines * cols * c->s.out_channels,
                     .y_row = cols * c->s.out_channels,
                     .y_pixel = c->s.out_channels,
                     .outputs = c->out};
}

// A group's kernels, (out, in, taps) as conv_weights.h reads them.
static rn_tensor group_weight(const rn_call *call, const shape *c, uint64_t group) {
    rn_tensor w = call->inputs[1];
    w.shape = RN_SHAPE(c->out, c->in, 1, c->taps);
    if (w.data) w.data = (float *)w.data + group * c->out * c->in * c->taps;
    return w;
}

static rn_conv_weights panels_of(const rn_tensor *w, const shape *c, float *panels) {
    return (rn_conv_weights){
        .w = w, .taps = {1, c->taps, 0, 0, 1, 1}, .count = c->out, .panels = panels};
}

static void run_groups(const rn_call *call, const shape *c, const rn_clamp_attrs *clamp) {
    columns l = {.call = call, .c = *c};
    uint64_t some = lines_at_once(c), line = c->s.out[c->last];
    const float *bias = call->inputs[2].data;
    rn_tensor w = group_weight(call, c, 0);
    rn_conv_weights weights = panels_of(&w, c, call->workspace);
    l.rows = weights.panels + rn_conv_weights_floats(&weights);
    float *rest = l.rows + rn_round_up(some * line * c->taps * c->in, 16);
    for (l.group = 0; l.group < c->groups; l.group++) {
        w = group_weight(call, c, l.group);
        rn_conv_weights_pack(&weights, call);
        for (l.first = 0; l.first < c->lines; l.first += some) {
            uint64_t lines = rn_min_u64(some, c->lines - l.first);
            rn_conv conv = one_tap(c, lines);
            rn_call_each(call, lines, lay_line, &l);
            conv.x = l.rows;
            conv.clamp = clamp;
            conv.panels = weights.panels;
            conv.bias = bias ? bias + l.group * c->out : NULL;
            conv.y = (float *)call->outputs[0].data + l.first * line * c->s.out_channels +
                     l.group * c->out;
            rn_conv_run(&conv, call, rest);
        }
    }
}

// ---- the kernel ---------------------------------------------------------------------------------

uint64_t rn_cpu_conv_workspace(const rn_call *call) {
    shape c = read_call(call);
    if (call->inputs[0].dtype != RN_DTYPE_F32) return 0;
    if (is_depthwise(&c)) return rn_round_up(c.taps * c.s.in_channels * sizeof(float), 64);
    rn_tensor w = group_weight(call, &c, 0);
    rn_conv_weights weights = panels_of(&w, &c, NULL);
    rn_conv conv = one_tap(&c, lines_at_once(&c));
    uint64_t floats = rn_conv_weights_floats(&weights) +
                      rn_round_up(conv.height * conv.width * conv.channels, 16);
    return rn_round_up(floats * sizeof(float), 64) + rn_conv_workspace(&conv, call->threads);
}

static void run(const rn_call *call, const rn_clamp_attrs *clamp) {
    shape c = read_call(call);
    if (is_depthwise(&c))
        run_depthwise(call, &c, clamp);
    else
        run_groups(call, &c, clamp);
}

rn_status rn_cpu_conv(const rn_call *call) {
    if (call->inputs[0].dtype != RN_DTYPE_F32) return rn_op_get(call->op)->reference(call);
    run(call, NULL);
    return RN_OK;
}

// ---- within two ends ----------------------------------------------------------------------------

// A conv_clamp as the call of its convolution.
static rn_call convolution_of(const rn_call *call, rn_conv2d_attrs *conv2d) {
    const rn_conv_clamp_attrs *a = call->attrs;
    rn_call part = *call;
    *conv2d = rn_conv_as_conv2d(&a->conv);
    bool plain = rn_conv_is_conv2d(&a->conv, call->inputs[0].shape.rank);
    part.op = plain ? RN_OP_CONV2D : RN_OP_CONV;
    part.attrs = plain ? (const void *)conv2d : &a->conv;
    return part;
}

uint64_t rn_cpu_conv_clamp_workspace(const rn_call *call) {
    rn_conv2d_attrs conv2d;
    rn_call part = convolution_of(call, &conv2d);
    return part.op == RN_OP_CONV2D ? rn_cpu_conv2d_workspace(&part) : rn_cpu_conv_workspace(&part);
}

rn_status rn_cpu_conv_clamp(const rn_call *call) {
    const rn_conv_clamp_attrs *a = call->attrs;
    rn_conv2d_attrs conv2d;
    rn_call part = convolution_of(call, &conv2d);
    if (part.op == RN_OP_CONV2D) return rn_cpu_conv2d_within(&part, &a->clamp);
    run(&part, &a->clamp);
    return RN_OK;
}

double rn_cpu_conv_clamp_share(const rn_call *call) {
    rn_conv2d_attrs conv2d;
    rn_call part = convolution_of(call, &conv2d);
    return part.op == RN_OP_CONV2D ? rn_cpu_conv2d_share(&part) : 1;
}
