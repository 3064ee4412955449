// batchnorm.c — one scale and shift a channel: y = x scale + shift, with
//     scale = weight rstd,   shift = bias - mean scale
// In training the statistics come from sums in double over groups of rows that depend on the shape
// alone; the gradient is dx = dy a + x b + c with three numbers a channel.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"
#include "graph/op/rows.h"

#include <math.h>
#include <string.h>

enum { GROUPS = 16, TASK_ELEMENTS = 16384 };

typedef struct channels {
    const rn_call *call;
    rn_row_count n;
    const float *x, *dy;   // (rows, width); dy for the gradient
    float *out;            // (rows, width): y or dx
    double *sums, *others; // (GROUPS, width) each: of x and x^2, or of dy and dy x
    float *a, *b, *c;      // (width): scale and shift, or the gradient's three
} channels;

// ---- workspace ----------------------------------------------------------------------------------

static uint64_t numbers_bytes(rn_row_count n, uint64_t count) {
    return rn_round_up(count * n.width * sizeof(float), 64);
}

static uint64_t sums_bytes(rn_row_count n) {
    return rn_round_up(2 * GROUPS * n.width * sizeof(double), 64);
}

uint64_t rn_cpu_batchnorm_workspace(const rn_call *call) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    return numbers_bytes(n, 2) + (attrs->training ? sums_bytes(n) : 0);
}

uint64_t rn_cpu_batchnorm_grad_workspace(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    return numbers_bytes(n, 3) + sums_bytes(n);
}

static channels open_channels(const rn_call *call, uint64_t numbers) {
    channels k = {.call = call, .n = rn_rows_of(&call->inputs[0]), .x = call->inputs[0].data};
    k.a = call->workspace;
    k.b = k.a + k.n.width;
    k.c = k.b + k.n.width;
    k.sums = (double *)((char *)call->workspace + numbers_bytes(k.n, numbers));
    k.others = k.sums + GROUPS * k.n.width;
    return k;
}

// ---- sums over rows -----------------------------------------------------------------------------

static void sum_task(void *arg, size_t group) {
    const channels *k = arg;
    const rn_spans *s = rn_spans_get();
    uint64_t width = k->n.width, rows = rn_div_up(k->n.rows, GROUPS);
    double *sum = k->sums + group * width, *other = k->others + group * width;
    uint64_t end = rn_min_u64((group + 1) * rows, k->n.rows);
    memset(sum, 0, width * sizeof(double));
    memset(other, 0, width * sizeof(double));
    for (uint64_t row = group * rows; row < end; row++) {
        const float *x = k->x + row * width;
        if (k->dy)
            s->channel_dots(x, k->dy + row * width, sum, other, width);
        else
            s->channel_sums(x, sum, other, width);
    }
}

// The groups' sums in their order, into the first group's place.
static void add_up(const channels *k) {
    rn_call_each(k->call, GROUPS, sum_task, (void *)k);
    uint64_t width = k->n.width;
    for (uint64_t i = width; i < GROUPS * width; i++) {
        k->sums[i % width] += k->sums[i];
        k->others[i % width] += k->others[i];
    }
}

// ---- forward ------------------------------------------------------------------------------------

static void rows_task(void *arg, size_t index) {
    const channels *k = arg;
    const rn_spans *s = rn_spans_get();
    uint64_t width = k->n.width, rows = TASK_ELEMENTS / width + 1, row = index * rows;
    uint64_t end = rn_min_u64(row + rows, k->n.rows);
    if (!k->dy) s->affine(k->x + row * width, k->a, k->b, k->out + row * width, end - row, width);
    for (; k->dy && row < end; row++) {
        uint64_t at = row * width;
        s->channel_dx(k->x + at, k->dy + at, k->a, k->b, k->c, k->out + at, width);
    }
}

static void each_row(channels *k) {
    rn_call_each(k->call, rn_div_up(k->n.rows, TASK_ELEMENTS / k->n.width + 1), rows_task, k);
}

// From a channel's statistics to its scale and shift, and what the gradient and later runs read.
static void set_channel(const channels *k, uint64_t c, double mean, double variance) {
    const rn_call *call = k->call;
    const rn_batchnorm_attrs *attrs = call->attrs;
    const float *weight = call->inputs[1].data, *bias = call->inputs[2].data; // (width)
    float *means = call->outputs[1].data, *rstds = call->outputs[2].data;     // (width) or NULL
    double rstd = 1 / sqrt(variance + attrs->eps);
    k->a[c] = (float)(weight[c] * rstd);
    k->b[c] = (float)(bias[c] - mean * weight[c] * rstd);
    if (means) means[c] = (float)mean;
    if (rstds) rstds[c] = (float)rstd;
}

static void learn(channels *k) {
    const rn_batchnorm_attrs *attrs = k->call->attrs;
    float *mean = k->call->outputs[3].data, *variance = k->call->outputs[4].data; // (width)
    double rows = (double)k->n.rows, momentum = attrs->momentum;
    add_up(k);
    for (uint64_t c = 0; c < k->n.width; c++) {
        double m = k->sums[c] / rows, v = k->others[c] / rows - m * m;
        if (v < 0) v = 0; // rounding
        set_channel(k, c, m, v);
        mean[c] += (float)(momentum * (m - mean[c]));
        variance[c] += (float)(momentum * (v * rows / (rows - 1) - variance[c]));
    }
}

static void recall(channels *k) {
    const float *mean = k->call->inputs[3].data, *variance = k->call->inputs[4].data; // (width)
    for (uint64_t c = 0; c < k->n.width; c++)
        set_channel(k, c, mean[c], variance[c]);
}

rn_status rn_cpu_batchnorm(const rn_call *call) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    channels k = open_channels(call, 2);
    k.out = call->outputs[0].data;
    if (attrs->training && k.n.rows < 2)
        return rn_hint(rn_fail(RN_INVALID, "batchnorm has %llu value a channel to learn from",
                               (unsigned long long)k.n.rows),
                       "train with a larger batch");
    if (attrs->training)
        learn(&k);
    else
        recall(&k);
    each_row(&k);
    return RN_OK;
}

// ---- backward -----------------------------------------------------------------------------------

// With u = (x - mean) rstd: d weight = sum of dy u, d bias = sum of dy, and
//     dx = weight rstd (dy - share (d bias + u d weight)),   share = 1 / rows in training, else 0
rn_status rn_cpu_batchnorm_grad(const rn_call *call) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    const float *weight = call->inputs[1].data, *mean = call->inputs[2].data;
    const float *rstd = call->inputs[3].data;
    float *dweight = call->outputs[1].data, *dbias = call->outputs[2].data; // (width) or NULL
    channels k = open_channels(call, 3);
    k.dy = call->inputs[4].data;
    k.out = call->outputs[0].data;
    add_up(&k);
    double share = attrs->training ? 1 / (double)k.n.rows : 0;
    for (uint64_t c = 0; c < k.n.width; c++) {
        double db = k.sums[c], dw = (k.others[c] - mean[c] * db) * rstd[c];
        double scale = (double)weight[c] * rstd[c], slope = share * dw * rstd[c];
        k.a[c] = (float)scale;
        k.b[c] = (float)(-scale * slope);
        k.c[c] = (float)(scale * (slope * mean[c] - share * db));
        if (dweight) dweight[c] = (float)dw;
        if (dbias) dbias[c] = (float)db;
    }
    if (k.out) each_row(&k);
    return RN_OK;
}
