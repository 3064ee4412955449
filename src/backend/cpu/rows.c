// rows.c — ops along the last axis: softmax, norms, cross-entropy. Threads share out the rows.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"
#include "graph/op/rows.h"
#include "graph/op/targets.h"

#include <math.h>
#include <string.h>

// Rows in groups whose number depends on the shape alone, so that sums over rows do, too.
enum { GROUPS = 16 };

static uint64_t group_rows(rn_row_count n) {
    return rn_max_u64(rn_div_up(n.rows, GROUPS), 1);
}

static size_t group_count(rn_row_count n) {
    return (size_t)rn_div_up(n.rows, group_rows(n));
}

static uint64_t group_end(rn_row_count n, size_t group) {
    return rn_min_u64((group + 1) * group_rows(n), n.rows);
}

// ---- softmax ------------------------------------------------------------------------------------

static void softmax_task(void *arg, size_t group) {
    const rn_call *call = arg;
    const rn_spans *s = rn_spans_get();
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    for (uint64_t row = group * group_rows(n); row < group_end(n, group); row++) {
        const float *x = (const float *)call->inputs[0].data + row * n.width;
        float *y = (float *)call->outputs[0].data + row * n.width;
        float sum = s->exp_sum(x, s->largest(x, n.width), y, n.width);
        s->div_one(y, &sum, y, n.width, 0, 0);
    }
}

rn_status rn_cpu_softmax(const rn_call *call) {
    rn_call_each(call, group_count(rn_rows_of(&call->inputs[0])), softmax_task, (void *)call);
    return RN_OK;
}

static void softmax_grad_task(void *arg, size_t group) {
    const rn_call *call = arg;
    const rn_spans *s = rn_spans_get();
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    for (uint64_t row = group * group_rows(n); row < group_end(n, group); row++) {
        const float *y = (const float *)call->inputs[0].data + row * n.width;
        const float *dy = (const float *)call->inputs[1].data + row * n.width;
        float *dx = (float *)call->outputs[0].data + row * n.width;
        s->softmax_grad(y, dy, s->dot(y, dy, n.width), dx, n.width);
    }
}

rn_status rn_cpu_softmax_grad(const rn_call *call) {
    rn_call_each(call, group_count(rn_rows_of(&call->inputs[0])), softmax_grad_task, (void *)call);
    return RN_OK;
}

// ---- norms --------------------------------------------------------------------------------------

static void norm_task(void *arg, size_t group) {
    const rn_call *call = arg;
    const rn_spans *s = rn_spans_get();
    const rn_norm_attrs *attrs = call->attrs;
    bool centred = call->op == RN_OP_LAYERNORM;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *weight = call->inputs[1].data, *bias = centred ? call->inputs[2].data : NULL;
    float *means = centred ? call->outputs[1].data : NULL; // (rows) or NULL
    float *rstds = call->outputs[centred ? 2 : 1].data;    // (rows) or NULL
    for (uint64_t row = group * group_rows(n); row < group_end(n, group); row++) {
        const float *x = (const float *)call->inputs[0].data + row * n.width;
        float mean = centred ? s->sum(x, n.width) / (float)n.width : 0;
        float variance = s->squares(x, mean, n.width) / (float)n.width;
        float rstd = 1.0f / sqrtf(variance + attrs->eps);
        s->normalize(x, weight, bias, mean, rstd, (float *)call->outputs[0].data + row * n.width,
                     n.width);
        if (means) means[row] = mean;
        if (rstds) rstds[row] = rstd;
    }
}

rn_status rn_cpu_norm(const rn_call *call) {
    rn_call_each(call, group_count(rn_rows_of(&call->inputs[0])), norm_task, (void *)call);
    return RN_OK;
}

// x, weight, [mean], rstd, dy -> dx, d weight, [d bias]
typedef struct norm_grad {
    const rn_call *call;
    const float *x, *dy;        // (rows, width)
    const float *weight;        // (width) or NULL
    const float *means, *rstds; // (rows); means NULL for rmsnorm
    float *dx;                  // (rows, width) or NULL
    double *dweight, *dbias;    // (groups, width); dbias NULL for rmsnorm
    rn_row_count n;
} norm_grad;

static void differentiate_row(const norm_grad *g, uint64_t row) {
    const rn_spans *s = rn_spans_get();
    uint64_t at = row * g->n.width;
    float mean = g->means ? g->means[row] : 0, sum = 0, dot = 0;
    s->norm_sums(g->x + at, g->dy + at, g->weight, mean, g->rstds[row], g->n.width, &sum, &dot);
    float shift = g->means ? sum / (float)g->n.width : 0;
    s->norm_dx(g->x + at, g->dy + at, g->weight, mean, g->rstds[row], shift,
               dot / (float)g->n.width, g->dx + at, g->n.width);
}

static void norm_grad_task(void *arg, size_t group) {
    const norm_grad *g = arg;
    const rn_spans *s = rn_spans_get();
    double *dweight = g->dweight + group * g->n.width;
    double *dbias = g->dbias ? g->dbias + group * g->n.width : NULL;
    memset(dweight, 0, g->n.width * sizeof(double));
    if (dbias) memset(dbias, 0, g->n.width * sizeof(double));
    for (uint64_t row = group * group_rows(g->n); row < group_end(g->n, group); row++) {
        uint64_t at = row * g->n.width;
        s->norm_add(g->x + at, g->dy + at, g->means ? g->means[row] : 0, g->rstds[row], dweight,
                    dbias, g->n.width); // before dx overwrites dy
        if (g->dx) differentiate_row(g, row);
    }
}

// The groups' sums, added in their order.
static void add_groups(const double *sums /* (groups, width) */, rn_row_count n, float *out) {
    for (uint64_t c = 0; out && c < n.width; c++) {
        double sum = 0;
        for (size_t group = 0; group < group_count(n); group++)
            sum += sums[group * n.width + c];
        out[c] = (float)sum;
    }
}

// As many groups as there may be with so many rows or fewer.
uint64_t rn_cpu_norm_grad_workspace(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    uint64_t sums = call->op == RN_OP_LAYERNORM_GRAD ? 2 : 1;
    return rn_round_up(sums * rn_min_u64(n.rows, GROUPS) * n.width * sizeof(double), 64);
}

rn_status rn_cpu_norm_grad(const rn_call *call) {
    bool centred = call->op == RN_OP_LAYERNORM_GRAD;
    const rn_tensor *in = call->inputs;
    norm_grad g = {.call = call,
                   .x = in[0].data,
                   .weight = in[1].data,
                   .means = centred ? in[2].data : NULL,
                   .rstds = in[centred ? 3 : 2].data,
                   .dy = in[centred ? 4 : 3].data,
                   .dx = call->outputs[0].data,
                   .dweight = call->workspace,
                   .n = rn_rows_of(&in[0])};
    if (centred) g.dbias = g.dweight + group_count(g.n) * g.n.width;
    rn_call_each(call, group_count(g.n), norm_grad_task, &g);
    add_groups(g.dweight, g.n, call->outputs[1].data);
    if (centred) add_groups(g.dbias, g.n, call->outputs[2].data);
    return RN_OK;
}

// ---- cross-entropy ------------------------------------------------------------------------------

static rn_status check_targets(const rn_call *call, double *out_counted) {
    const rn_cross_entropy_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const int32_t *targets = call->inputs[1].data; // (rows)
    *out_counted = 0;
    for (uint64_t row = 0; row < n.rows; row++) {
        bool counts = false;
        RN_TRY(rn_target_check(row, targets[row], attrs->ignore, n.width, &counts));
        if (counts) ++*out_counted;
    }
    return RN_OK;
}

static void logsumexp_task(void *arg, size_t group) {
    const rn_call *call = arg;
    const rn_spans *s = rn_spans_get();
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    double *out = call->workspace; // (rows)
    for (uint64_t row = group * group_rows(n); row < group_end(n, group); row++) {
        const float *x = (const float *)call->inputs[0].data + row * n.width;
        float most = s->largest(x, n.width);
        out[row] = most + log((double)s->exp_total(x, most, n.width));
    }
}

uint64_t rn_cpu_cross_entropy_workspace(const rn_call *call) {
    return rn_round_up(rn_rows_of(&call->inputs[0]).rows * sizeof(double), 64);
}

rn_status rn_cpu_cross_entropy(const rn_call *call) {
    const rn_cross_entropy_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const float *logits = call->inputs[0].data;    // (rows, width)
    const int32_t *targets = call->inputs[1].data; // (rows)
    float *loss = call->outputs[0].data, *rows = call->outputs[1].data,
          *count = call->outputs[2].data;
    const double *lse = call->workspace; // (rows)
    double counted = 0, sum = 0;
    RN_TRY(check_targets(call, &counted));
    rn_call_each(call, group_count(n), logsumexp_task, (void *)call);
    for (uint64_t row = 0; row < n.rows; row++) {
        if (rows) rows[row] = (float)lse[row];
        if (targets[row] != attrs->ignore)
            sum += lse[row] - logits[row * n.width + (uint64_t)targets[row]];
    }
    bool mean = attrs->normalizer == RN_NO_SCALAR;
    double factor = mean ? (counted > 0 ? 1 / counted : 0) : call->scalars[attrs->normalizer].f64;
    *loss = (float)(sum * factor);
    if (count) *count = (float)counted;
    return RN_OK;
}

typedef struct entropy_grad {
    const rn_call *call;
    float weight; // of a row that counts
} entropy_grad;

static void entropy_grad_task(void *arg, size_t group) {
    const entropy_grad *e = arg;
    const rn_call *call = e->call;
    const rn_cross_entropy_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    const int32_t *targets = call->inputs[1].data; // (rows)
    const float *lse = call->inputs[2].data;       // (rows)
    for (uint64_t row = group * group_rows(n); row < group_end(n, group); row++) {
        const float *x = (const float *)call->inputs[0].data + row * n.width;
        float *dx = (float *)call->outputs[0].data + row * n.width;
        if (targets[row] == attrs->ignore) {
            memset(dx, 0, n.width * sizeof(float));
            continue;
        }
        rn_spans_get()->exp_scaled(x, lse[row], e->weight, dx, n.width);
        dx[targets[row]] -= e->weight;
    }
}

rn_status rn_cpu_cross_entropy_grad(const rn_call *call) {
    const rn_cross_entropy_attrs *attrs = call->attrs;
    const float *count = call->inputs[3].data, *dloss = call->inputs[4].data; // ()
    double counted = 0, factor = *count > 0 ? 1 / (double)*count : 0;
    RN_TRY(check_targets(call, &counted));
    if (attrs->normalizer != RN_NO_SCALAR) factor = call->scalars[attrs->normalizer].f64;
    entropy_grad e = {call, (float)(*dloss * factor)};
    rn_call_each(call, group_count(rn_rows_of(&call->inputs[0])), entropy_grad_task, &e);
    return RN_OK;
}
