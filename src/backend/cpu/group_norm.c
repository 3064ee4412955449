// group_norm.c — group norm as one scale and shift a channel of an image, y = x scale + shift:
//     scale = weight rstd,   shift = bias - mean scale
// and its gradient as dx = dz scale + x b + c, with b and c those of a group.
//
// Sums over pixels are in double, over CHUNKS runs of pixels that depend on the picture's size
// alone, added in their order: neither threads nor the other images change a bit. The variance
// comes of the sums of x and x^2, which lose in double what the reference keeps by a second pass;
// f32 does not see it.
#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"
#include "graph/op/group_norm.h"

#include <math.h>
#include <string.h>

enum { CHUNKS = 16, TASK_ELEMENTS = 16384 };
enum { X, WEIGHT, BIAS, MEAN, RSTD, DY };

typedef struct groups {
    const rn_call *call;
    rn_group_sizes of;
    bool silu;
    const float *x, *dy;   // (images, pixels, channels); dy for the gradient
    float *out;            // the same: y or dx
    double *sums, *others; // (images, CHUNKS, channels) each: of x and x^2, or of dz and dz x
    float *scale, *shift;  // (images, channels)
    float *b, *c;          // (images, channels), for the gradient
    float *rows;           // (threads, 2, channels), for the gradient with silu
} groups;

// ---- workspace ----------------------------------------------------------------------------------

static uint64_t sums_bytes(rn_group_sizes of) {
    return rn_round_up(2 * CHUNKS * of.images * of.channels * sizeof(double), 64);
}

static uint64_t numbers_bytes(rn_group_sizes of) {
    return rn_round_up(of.images * of.channels * sizeof(float), 64);
}

uint64_t rn_cpu_group_norm_workspace(const rn_call *call) {
    rn_group_sizes of = rn_group_sizes_of(call->inputs[X].shape, call->attrs);
    return sums_bytes(of) + 2 * numbers_bytes(of);
}

uint64_t rn_cpu_group_norm_grad_workspace(const rn_call *call) {
    rn_group_sizes of = rn_group_sizes_of(call->inputs[X].shape, call->attrs);
    uint64_t rows = rn_round_up(2 * of.channels * sizeof(float), 64) * call->threads;
    return sums_bytes(of) + 4 * numbers_bytes(of) + rows;
}

static groups open_groups(const rn_call *call) {
    const rn_group_norm_attrs *attrs = call->attrs;
    groups g = {.call = call,
                .of = rn_group_sizes_of(call->inputs[X].shape, attrs),
                .silu = attrs->silu,
                .x = call->inputs[X].data,
                .out = call->outputs[0].data,
                .sums = call->workspace};
    char *numbers = (char *)call->workspace + sums_bytes(g.of);
    g.others = g.sums + CHUNKS * g.of.images * g.of.channels;
    g.scale = (float *)numbers;
    g.shift = (float *)(numbers + numbers_bytes(g.of));
    g.b = (float *)(numbers + 2 * numbers_bytes(g.of));
    g.c = (float *)(numbers + 3 * numbers_bytes(g.of));
    g.rows = (float *)(numbers + 4 * numbers_bytes(g.of));
    return g;
}

// dz of a row of channels: dy, or the slope of SiLU at z times it, in the slot's own row.
static const float *slope_row(const groups *g, uint32_t slot, uint64_t image, uint64_t at) {
    if (!g->silu) return g->dy + at;
    const rn_spans *s = rn_spans_get();
    uint64_t n = g->of.channels, step = rn_round_up(2 * n * sizeof(float), 64) / sizeof(float);
    float *z = g->rows + slot * step, *dz = z + n;
    s->affine(g->x + at, g->scale + image * n, g->shift + image * n, z, 1, n);
    s->silu_grad(z, g->dy + at, dz, n, 0, 0);
    return dz;
}

// ---- sums ---------------------------------------------------------------------------------------

static void sum_task(void *arg, uint32_t slot, size_t index) {
    const groups *g = arg;
    const rn_spans *s = rn_spans_get();
    uint64_t n = g->of.channels, pixels = rn_div_up(g->of.pixels, CHUNKS), image = index / CHUNKS;
    double *sum = g->sums + index * n, *other = g->others + index * n;
    uint64_t end = rn_min_u64((index % CHUNKS + 1) * pixels, g->of.pixels);
    memset(sum, 0, n * sizeof *sum);
    memset(other, 0, n * sizeof *other);
    for (uint64_t p = index % CHUNKS * pixels; p < end; p++) {
        uint64_t at = (image * g->of.pixels + p) * n;
        if (g->dy)
            s->channel_dots(g->x + at, slope_row(g, slot, image, at), sum, other, n);
        else
            s->channel_sums(g->x + at, sum, other, n);
    }
}

// The chunks' sums in their order, into the place of each image's first.
static void add_up(groups *g) {
    rn_share(g->call, g->of.images * CHUNKS, sum_task, g);
    uint64_t n = g->of.channels;
    for (uint64_t image = 0; image < g->of.images; image++) {
        double *sum = g->sums + image * CHUNKS * n, *other = g->others + image * CHUNKS * n;
        for (uint64_t i = n; i < CHUNKS * n; i++) {
            sum[i % n] += sum[i];
            other[i % n] += other[i];
        }
    }
}

// ---- forward ------------------------------------------------------------------------------------

// Some rows of an image: its scales and shifts, then SiLU while they are in the cache.
static void rows_task(void *arg, uint32_t slot, size_t index) {
    const groups *g = arg;
    const rn_spans *s = rn_spans_get();
    uint64_t n = g->of.channels, pixels = TASK_ELEMENTS / n + 1;
    uint64_t tasks = rn_div_up(g->of.pixels, pixels), image = index / tasks;
    uint64_t p = index % tasks * pixels, end = rn_min_u64(p + pixels, g->of.pixels);
    uint64_t at = (image * g->of.pixels + p) * n;
    if (!g->dy) {
        s->affine(g->x + at, g->scale + image * n, g->shift + image * n, g->out + at, end - p, n);
        if (g->silu) s->silu(g->out + at, g->out + at, (end - p) * n, 0, 0);
        return;
    }
    for (; p < end; p++, at += n)
        s->channel_dx(g->x + at, slope_row(g, slot, image, at), g->scale + image * n,
                      g->b + image * n, g->c + image * n, g->out + at, n);
}

static void each_row(groups *g) {
    uint64_t pixels = TASK_ELEMENTS / g->of.channels + 1;
    rn_share(g->call, g->of.images * rn_div_up(g->of.pixels, pixels), rows_task, g);
}

// Group `index` of all images: its channels' scales and shifts.
static void set_scales(const groups *g, uint64_t index, double mean, double rstd) {
    const float *weight = g->call->inputs[WEIGHT].data, *bias = g->call->inputs[BIAS].data;
    uint64_t first = index % g->of.groups * g->of.each, image = index / g->of.groups;
    for (uint64_t c = first; c < first + g->of.each; c++) {
        double scale = rstd * (weight ? weight[c] : 1.0);
        g->scale[image * g->of.channels + c] = (float)scale;
        g->shift[image * g->of.channels + c] = (float)((bias ? bias[c] : 0.0) - mean * scale);
    }
}

static void measure(const groups *g, uint64_t index, double *out_mean, double *out_rstd) {
    const rn_group_norm_attrs *attrs = g->call->attrs;
    uint64_t at =
        index / g->of.groups * CHUNKS * g->of.channels + index % g->of.groups * g->of.each;
    double sum = 0, squares = 0, count = (double)(g->of.pixels * g->of.each);
    for (uint64_t c = at; c < at + g->of.each; c++) {
        sum += g->sums[c];
        squares += g->others[c];
    }
    double variance = squares / count - sum / count * (sum / count);
    *out_mean = sum / count;
    *out_rstd = 1 / sqrt((variance < 0 ? 0 : variance) + attrs->eps);
}

rn_status rn_cpu_group_norm(const rn_call *call) {
    groups g = open_groups(call);
    const float *mean = call->inputs[MEAN].data, *rstd = call->inputs[RSTD].data; // (N, groups)
    float *means = call->outputs[1].data, *rstds = call->outputs[2].data; // (N, groups) or NULL
    if (!mean) add_up(&g);
    for (uint64_t i = 0; i < g.of.images * g.of.groups; i++) {
        double m = mean ? mean[i] : 0, r = mean ? rstd[i] : 0;
        if (!mean) measure(&g, i, &m, &r);
        set_scales(&g, i, m, r);
        if (means) means[i] = (float)m;
        if (rstds) rstds[i] = (float)r;
    }
    if (g.out) each_row(&g);
    return RN_OK;
}

// ---- backward -----------------------------------------------------------------------------------

// b and c of a group, from the sums of its channels' dz and dz x, and what they add to the weight's
// and the bias's gradients: graph/op/group_norm_grad.c has the formula.
static void differentiate(const groups *g, uint64_t index, double mean, double rstd, float *dweight,
                          float *dbias) {
    const float *weight = g->call->inputs[WEIGHT].data;
    uint64_t first = index % g->of.groups * g->of.each, image = index / g->of.groups;
    const double *dz = g->sums + image * CHUNKS * g->of.channels;
    const double *dzx = g->others + image * CHUNKS * g->of.channels;
    double sum = 0, dot = 0, count = (double)(g->of.pixels * g->of.each);
    for (uint64_t c = first; c < first + g->of.each; c++) {
        double w = weight ? weight[c] : 1.0, dzu = (dzx[c] - mean * dz[c]) * rstd;
        sum += w * dz[c];
        dot += w * dzu;
        if (dweight) dweight[c] = (float)(image ? dweight[c] + dzu : dzu);
        if (dbias) dbias[c] = (float)(image ? dbias[c] + dz[c] : dz[c]);
    }
    for (uint64_t c = first; c < first + g->of.each; c++) {
        uint64_t at = image * g->of.channels + c;
        g->b[at] = (float)(-rstd * rstd * dot / count);
        g->c[at] = (float)(rstd * (mean * rstd * dot - sum) / count);
    }
}

rn_status rn_cpu_group_norm_grad(const rn_call *call) {
    groups g = open_groups(call);
    const float *mean = call->inputs[MEAN].data, *rstd = call->inputs[RSTD].data; // (N, groups)
    g.dy = call->inputs[DY].data;
    for (uint64_t i = 0; i < g.of.images * g.of.groups; i++)
        set_scales(&g, i, mean[i], rstd[i]);
    add_up(&g);
    for (uint64_t i = 0; i < g.of.images * g.of.groups; i++)
        differentiate(&g, i, mean[i], rstd[i], call->outputs[1].data, call->outputs[2].data);
    if (g.out) each_row(&g);
    return RN_OK;
}
