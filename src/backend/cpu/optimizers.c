// optimizers.c — optimisers' steps: weights are cut into spans of a fixed length, which threads
// share out; no element depends on the cut.
//
// What is f32 throughout is updated where it lies. A weight or state of bf16 is widened piece by
// piece, updated by the same loops, and rounded stochastically on its way back.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "graph/blocks8.h"

enum { SPAN = 16384, PIECE = 1024 };

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// Elements of span number `index` of n.
static uint64_t span_at(uint64_t n, size_t index, uint64_t *out_count) {
    uint64_t start = (uint64_t)index * SPAN;
    *out_count = least(n - start, SPAN);
    return start;
}

static void each_span(const rn_call *call, rn_task fn, void *arg) {
    rn_call_each(call, (rn_tensor_elements(&call->outputs[0]) + SPAN - 1) / SPAN, fn, arg);
}

// ---- AdamW --------------------------------------------------------------------------------------

typedef struct adamw_work {
    const rn_call *call;
    rn_adamw_step step;
    rn_noise noise;
} adamw_work;

static void adamw_task(void *arg, size_t index) {
    const adamw_work *w = arg;
    const rn_tensor *out = w->call->outputs; // w, m, v: the inputs' own bytes
    uint64_t count = 0, start = span_at(rn_tensor_elements(&out[0]), index, &count);
    rn_spans_get()->adamw(
        (float *)out[0].data + start, (const float *)w->call->inputs[1].data + start,
        (float *)out[1].data + start, (float *)out[2].data + start, count, &w->step);
}

static void adamw_narrow_task(void *arg, size_t index) {
    const adamw_work *work = arg;
    const rn_tensor *out = work->call->outputs;
    uint64_t count = 0, start = span_at(rn_tensor_elements(&out[0]), index, &count), n = 0;
    for (uint64_t at = start; at < start + count; at += n) {
        float w[PIECE], m[PIECE], v[PIECE];
        uint32_t words[PIECE];
        n = least(start + count - at, PIECE);
        rn_noise_words(&work->noise, at, n, words);
        rn_update_get(&out[0], at, n, w);
        rn_update_get(&out[1], at, n, m);
        rn_update_get(&out[2], at, n, v);
        rn_spans_get()->adamw(w, (const float *)work->call->inputs[1].data + at, m, v, n,
                              &work->step);
        rn_update_put(&out[0], at, n, w, words, RN_NOISE_WEIGHT);
        rn_update_put(&out[1], at, n, m, words, RN_NOISE_FIRST);
        rn_update_put(&out[2], at, n, v, words, RN_NOISE_SECOND);
    }
}

// As op/adamw.c: what is the same for all elements is computed in double and rounded once.
rn_status rn_cpu_adamw(const rn_call *call) {
    const rn_adamw_attrs *a = call->attrs;
    const rn_tensor *out = call->outputs;
    double rate = call->scalars[a->rate].f64, step = call->scalars[a->step].f64;
    if (!(step >= 1)) return rn_fail(RN_INVALID, "adamw: steps count from 1, this one is %g", step);
    if (rn_update_skips(call, 4)) return RN_OK;
    adamw_work w = {.call = call,
                    .step = {.keep = (float)(1 - rate * a->weight_decay),
                             .take1 = (float)(1 - a->beta1),
                             .beta2 = (float)a->beta2,
                             .take2 = (float)(1 - a->beta2),
                             .pace = (float)(rate / (1 - pow(a->beta1, step))),
                             .spread = (float)sqrt(1 - pow(a->beta2, step)),
                             .eps = (float)a->eps},
                    .noise = rn_update_noise(call, a->seed, a->step, a->stream)};
    bool narrow = rn_is_bf16(&out[0]) || rn_is_bf16(&out[1]) || rn_is_bf16(&out[2]);
    each_span(call, narrow ? adamw_narrow_task : adamw_task, &w);
    return RN_OK;
}

// ---- Lion and SGD -------------------------------------------------------------------------------

typedef struct lion_work {
    const rn_call *call;
    float keep, pace, beta1, take1, beta2, take2;
    rn_noise noise;
} lion_work;

static void lion_span(float *w, const float *g, float *m, uint64_t n, const lion_work *s) {
    for (uint64_t i = 0; i < n; i++) {
        float mixed = m[i] * s->beta1 + s->take1 * g[i];
        float sign = mixed > 0 ? 1 : mixed < 0 ? -1 : mixed;
        m[i] = m[i] * s->beta2 + s->take2 * g[i];
        w[i] = w[i] * s->keep - s->pace * sign;
    }
}

static void lion_task(void *arg, size_t index) {
    const lion_work *work = arg;
    const rn_tensor *out = work->call->outputs;
    const float *g = work->call->inputs[1].data;
    uint64_t count = 0, start = span_at(rn_tensor_elements(&out[0]), index, &count), n = 0;
    if (!rn_is_bf16(&out[0]) && !rn_is_bf16(&out[1])) {
        lion_span((float *)out[0].data + start, g + start, (float *)out[1].data + start, count,
                  work);
        return;
    }
    for (uint64_t at = start; at < start + count; at += n) {
        float w[PIECE], m[PIECE];
        uint32_t words[PIECE];
        n = least(start + count - at, PIECE);
        rn_noise_words(&work->noise, at, n, words);
        rn_update_get(&out[0], at, n, w);
        rn_update_get(&out[1], at, n, m);
        lion_span(w, g + at, m, n, work);
        rn_update_put(&out[0], at, n, w, words, RN_NOISE_WEIGHT);
        rn_update_put(&out[1], at, n, m, words, RN_NOISE_FIRST);
    }
}

rn_status rn_cpu_lion(const rn_call *call) {
    const rn_lion_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64;
    if (rn_update_skips(call, 3)) return RN_OK;
    lion_work w = {.call = call,
                   .keep = (float)(1 - rate * a->weight_decay),
                   .pace = (float)rate,
                   .beta1 = (float)a->beta1,
                   .take1 = (float)(1 - a->beta1),
                   .beta2 = (float)a->beta2,
                   .take2 = (float)(1 - a->beta2),
                   .noise = rn_update_noise(call, a->seed, a->step, a->stream)};
    each_span(call, lion_task, &w);
    return RN_OK;
}

typedef struct sgd_work {
    const rn_call *call;
    float rate;
    rn_noise noise;
} sgd_work;

static void sgd_task(void *arg, size_t index) {
    const sgd_work *work = arg;
    const rn_sgd_attrs *a = work->call->attrs;
    const rn_tensor *out = work->call->outputs;
    const float *g = work->call->inputs[1].data;
    float *velocity = rn_tensor_given(&work->call->inputs[2]) ? out[1].data : NULL;
    uint64_t count = 0, start = span_at(rn_tensor_elements(&out[0]), index, &count), n = 0;
    for (uint64_t at = start; at < start + count; at += n) {
        float piece[PIECE], *w = piece;
        uint32_t words[PIECE];
        n = least(start + count - at, PIECE);
        if (rn_is_bf16(&out[0])) {
            rn_noise_words(&work->noise, at, n, words);
            rn_update_get(&out[0], at, n, w);
        } else {
            w = (float *)out[0].data + at;
        }
        for (uint64_t i = 0; velocity && i < n; i++)
            velocity[at + i] =
                velocity[at + i] * a->momentum + (g[at + i] + a->weight_decay * w[i]);
        for (uint64_t i = 0; i < n; i++)
            w[i] = w[i] -
                   work->rate * (velocity ? velocity[at + i] : g[at + i] + a->weight_decay * w[i]);
        if (w == piece) rn_update_put(&out[0], at, n, w, words, RN_NOISE_WEIGHT);
    }
}

rn_status rn_cpu_sgd(const rn_call *call) {
    const rn_sgd_attrs *a = call->attrs;
    if (rn_update_skips(call, 3)) return RN_OK;
    sgd_work w = {.call = call,
                  .rate = (float)call->scalars[a->rate].f64,
                  .noise = rn_update_noise(call, a->seed, a->step, a->stream)};
    each_span(call, sgd_task, &w);
    return RN_OK;
}

// ---- 8 bits -------------------------------------------------------------------------------------

typedef struct work8 {
    const rn_call *call;
    rn_step8 step;
    rn_noise noise;
} work8;

static void task8(void *arg, size_t index) {
    const work8 *work = arg;
    const rn_tensor *out = work->call->outputs;
    const float *g = work->call->inputs[1].data;
    bool adamw = work->call->op == RN_OP_ADAMW8, narrow = rn_is_bf16(&out[0]);
    uint64_t count = 0, start = span_at(rn_tensor_elements(&out[0]), index, &count);
    for (uint64_t at = start; at < start + count; at += RN_STATE_BLOCK) {
        float piece[RN_STATE_BLOCK], *w = narrow ? piece : (float *)out[0].data + at;
        uint32_t words[RN_STATE_BLOCK], n = (uint32_t)least(start + count - at, RN_STATE_BLOCK);
        uint64_t block = at / RN_STATE_BLOCK;
        if (narrow) rn_update_get(&out[0], at, n, w);
        if (adamw)
            rn_spans_get()->adamw8(w, g + at, (uint8_t *)out[1].data + at,
                                   (float *)out[3].data + block, (uint8_t *)out[2].data + at,
                                   (float *)out[4].data + block, n, &work->step);
        else
            rn_spans_get()->lion8(w, g + at, (uint8_t *)out[1].data + at,
                                  (float *)out[2].data + block, n, &work->step);
        if (!narrow) continue;
        rn_noise_words(&work->noise, at, n, words);
        rn_update_put(&out[0], at, n, w, words, RN_NOISE_WEIGHT);
    }
}

rn_status rn_cpu_adamw8(const rn_call *call) {
    const rn_adamw_attrs *a = call->attrs;
    double step = call->scalars[a->step].f64;
    if (!(step >= 1))
        return rn_fail(RN_INVALID, "adamw8: steps count from 1, this one is %g", step);
    if (rn_update_skips(call, 6)) return RN_OK;
    work8 w = {call, rn_adamw8_step(a, call->scalars),
               rn_update_noise(call, a->seed, a->step, a->stream)};
    w.step.steps = rn_state_steps_get();
    each_span(call, task8, &w);
    return RN_OK;
}

rn_status rn_cpu_lion8(const rn_call *call) {
    const rn_lion_attrs *a = call->attrs;
    if (rn_update_skips(call, 4)) return RN_OK;
    work8 w = {call, rn_lion8_step(a, call->scalars),
               rn_update_noise(call, a->seed, a->step, a->stream)};
    w.step.steps = rn_state_steps_get();
    each_span(call, task8, &w);
    return RN_OK;
}

// ---- Adafactor ----------------------------------------------------------------------------------

// Rows and columns are averaged, measured and updated by tasks of a fixed number of them; sums of
// rows are kept, and added up in their order.
enum { ROWS_TOGETHER = 16, COLS_TOGETHER = 256 };
typedef struct factored {
    const rn_call *call;
    uint64_t m, n;
    double keep;
    float root, pace, rest;
    double *squares, *sizes; // (m) sums of a row: of u, of the weight
    rn_noise noise;
} factored;

static void average_rows(void *arg, size_t index) {
    const factored *f = arg;
    const float *g = f->call->inputs[1].data;
    float *rows = f->call->outputs[1].data;
    for (uint64_t r = index * ROWS_TOGETHER; r < least((index + 1) * ROWS_TOGETHER, f->m); r++) {
        double sum = 0;
        for (uint64_t c = 0; c < f->n; c++)
            sum += (double)(g[r * f->n + c] * g[r * f->n + c]) + 1e-30;
        rows[r] = (float)(f->keep * rows[r] + (1 - f->keep) * (sum / (double)f->n));
    }
}

static void average_columns(void *arg, size_t index) {
    const factored *f = arg;
    uint64_t first = index * COLS_TOGETHER, count = least(f->n - first, COLS_TOGETHER);
    const float *g = (const float *)f->call->inputs[1].data + first;
    float *cols = (float *)f->call->outputs[2].data + first;
    double sums[COLS_TOGETHER] = {0};
    for (uint64_t r = 0; r < f->m; r++)
        for (uint64_t c = 0; c < count; c++)
            sums[c] += (double)(g[r * f->n + c] * g[r * f->n + c]) + 1e-30;
    for (uint64_t c = 0; c < count; c++)
        cols[c] = (float)(f->keep * cols[c] + (1 - f->keep) * (sums[c] / (double)f->m));
}

// One row of weights and of u, a piece at a time.
static void look(const factored *f, uint64_t r, uint64_t first, uint64_t count, float *w,
                 float *u) {
    const float *g = (const float *)f->call->inputs[1].data + r * f->n + first;
    const float *rows = f->call->outputs[1].data, *cols = f->call->outputs[2].data;
    float row = f->root / sqrtf(rows[r]);
    rn_update_get(&f->call->outputs[0], r * f->n + first, count, w);
    for (uint64_t c = 0; c < count; c++)
        u[c] = g[c] * row / sqrtf(cols[first + c]);
}

static void measure_rows(void *arg, size_t index) {
    const factored *f = arg;
    float w[PIECE], u[PIECE];
    for (uint64_t r = index * ROWS_TOGETHER; r < least((index + 1) * ROWS_TOGETHER, f->m); r++) {
        double squares = 0, sizes = 0;
        for (uint64_t first = 0; first < f->n; first += PIECE) {
            uint64_t count = least(f->n - first, PIECE);
            look(f, r, first, count, w, u);
            for (uint64_t c = 0; c < count; c++) {
                squares += (double)u[c] * (double)u[c];
                sizes += (double)w[c] * (double)w[c];
            }
        }
        f->squares[r] = squares;
        f->sizes[r] = sizes;
    }
}

static void update_rows(void *arg, size_t index) {
    const factored *f = arg;
    float w[PIECE], u[PIECE];
    uint32_t words[PIECE];
    for (uint64_t r = index * ROWS_TOGETHER; r < least((index + 1) * ROWS_TOGETHER, f->m); r++)
        for (uint64_t first = 0; first < f->n; first += PIECE) {
            uint64_t count = least(f->n - first, PIECE), at = r * f->n + first;
            look(f, r, first, count, w, u);
            for (uint64_t c = 0; c < count; c++)
                w[c] = w[c] * f->rest - f->pace * u[c];
            if (rn_is_bf16(&f->call->outputs[0])) rn_noise_words(&f->noise, at, count, words);
            rn_update_put(&f->call->outputs[0], at, count, w, words, RN_NOISE_WEIGHT);
        }
}

uint64_t rn_cpu_adafactor_workspace(const rn_call *call) {
    const rn_shape *of = &call->inputs[0].shape;
    return of->rank == 2 ? (2 * of->dims[0] * sizeof(double) + 63) / 64 * 64 : 0;
}

rn_status rn_cpu_adafactor(const rn_call *call) {
    const rn_adafactor_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64, step = call->scalars[a->step].f64;
    double total = 0, squares = 0, sizes = 0;
    if (call->inputs[0].shape.rank != 2 || !(step >= 1))
        return rn_op_get(call->op)->reference(call);
    if (rn_update_skips(call, 4)) return RN_OK;
    factored f = {.call = call,
                  .m = call->inputs[0].shape.dims[0],
                  .n = call->inputs[0].shape.dims[1],
                  .keep = 1 - pow(step, -0.8),
                  .squares = call->workspace,
                  .noise = rn_update_noise(call, a->seed, a->step, a->stream)};
    size_t row_tasks = (f.m + ROWS_TOGETHER - 1) / ROWS_TOGETHER;
    f.sizes = f.squares + f.m;
    rn_call_each(call, row_tasks, average_rows, &f);
    rn_call_each(call, (f.n + COLS_TOGETHER - 1) / COLS_TOGETHER, average_columns, &f);
    for (uint64_t r = 0; r < f.m; r++)
        total += (double)((const float *)call->outputs[1].data)[r];
    f.root = (float)sqrt(total / (double)f.m);
    rn_call_each(call, row_tasks, measure_rows, &f);
    for (uint64_t r = 0; r < f.m; r++) {
        squares += f.squares[r];
        sizes += f.sizes[r];
    }
    double elements = (double)f.m * (double)f.n;
    double clip = fmax(1, sqrt(squares / elements)), size = fmax(1e-3, sqrt(sizes / elements));
    f.pace = (float)(rate * size / clip);
    f.rest = (float)(1 - rate * size * a->weight_decay);
    rn_call_each(call, row_tasks, update_rows, &f);
    return RN_OK;
}

// ---- averages -----------------------------------------------------------------------------------

static void average_task(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_average_attrs *a = call->attrs;
    uint64_t count = 0, start = span_at(rn_tensor_elements(&call->outputs[0]), index, &count);
    float *state = (float *)call->outputs[0].data + start, take = 1 - a->keep;
    const float *x = (const float *)call->inputs[1].data + start;
    for (uint64_t i = 0; i < count; i++)
        state[i] = state[i] * a->keep + take * x[i];
}

rn_status rn_cpu_average(const rn_call *call) {
    if (rn_update_skips(call, 2)) return RN_OK;
    each_span(call, average_task, (void *)(uintptr_t)call);
    return RN_OK;
}
