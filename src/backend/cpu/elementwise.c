// elementwise.c — ops that make each element from one place of their inputs: tensors are cut into
// spans of a fixed length, which threads share out.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"

#include "graph/op/tree_sum.h"

#include <math.h>
#include <string.h>

// Long enough to be worth a thread's while, short enough for its caches.
enum { SPAN = 16384 };

// ---- one input ----------------------------------------------------------------------------------

typedef struct map_work {
    rn_map_span *fn;
    const float *x; // (n)
    float *y;       // (n)
    uint64_t n;
    float a, b;
} map_work;

static uint64_t span_at(uint64_t n, size_t index, uint64_t *out_count) {
    uint64_t start = (uint64_t)index * SPAN;
    *out_count = n - start < SPAN ? n - start : SPAN;
    return start;
}

static uint64_t span_count(uint64_t n) {
    return (n + SPAN - 1) / SPAN;
}

static void map_task(void *arg, size_t index) {
    const map_work *w = arg;
    uint64_t count = 0, start = span_at(w->n, index, &count);
    w->fn(w->x + start, w->y + start, count, w->a, w->b);
}

static rn_status run_map(const rn_call *call, rn_map_span *fn, float a, float b) {
    map_work w = {fn, call->inputs[0].data, call->outputs[0].data, 0, a, b};
    w.n = rn_tensor_elements(&call->outputs[0]);
    rn_call_each(call, span_count(w.n), map_task, &w);
    return RN_OK;
}

#define MAP(name)                                                                                  \
    rn_status rn_cpu_##name(const rn_call *call) {                                                 \
        return run_map(call, rn_spans_get()->name, 0, 0);                                          \
    }
MAP(neg)
MAP(exp)
MAP(sqrt)
MAP(rsqrt)
MAP(relu)
MAP(sigmoid)
MAP(tanh)
MAP(silu)
MAP(gelu)
MAP(gelu_tanh)

rn_status rn_cpu_scale(const rn_call *call) {
    const rn_scale_attrs *a = call->attrs;
    return run_map(call, rn_spans_get()->scale, a->factor, a->offset);
}

rn_status rn_cpu_clamp(const rn_call *call) {
    const rn_clamp_attrs *a = call->attrs;
    return run_map(call, rn_spans_get()->clamp, a->low, a->high);
}

// ---- two inputs of one shape --------------------------------------------------------------------

typedef struct join_work {
    rn_join_span *fn;
    const float *x, *z; // (n)
    float *y;           // (n)
    uint64_t n;
    uint64_t period; // z has this many elements and begins again; n: it does not
    float a, b;
} join_work;

static void join_task(void *arg, size_t index) {
    const join_work *w = arg;
    uint64_t count = 0, start = span_at(w->n, index, &count);
    w->fn(w->x + start, w->z + start, w->y + start, count, w->a, w->b);
}

static rn_status run_join(const rn_call *call, rn_join_span *fn, float a, float b) {
    join_work w = {fn, call->inputs[0].data, call->inputs[1].data, call->outputs[0].data, 0, 0, a,
                   b};
    w.n = rn_tensor_elements(&call->outputs[0]);
    rn_call_each(call, span_count(w.n), join_task, &w);
    return RN_OK;
}

#define SLOPE(name)                                                                                \
    rn_status rn_cpu_##name(const rn_call *call) {                                                 \
        return run_join(call, rn_spans_get()->name, 0, 0);                                         \
    }
SLOPE(relu_grad)
SLOPE(silu_grad)
SLOPE(gelu_grad)
SLOPE(gelu_tanh_grad)

rn_status rn_cpu_clamp_grad(const rn_call *call) {
    const rn_clamp_attrs *a = call->attrs;
    return run_join(call, rn_spans_get()->clamp_grad, a->low, a->high);
}

rn_status rn_cpu_gated(const rn_call *call) {
    const rn_gated_attrs *a = call->attrs;
    return run_join(call, rn_spans_get()->gated[a->activation], 0, 0);
}

// Sums of bf16, a piece at a time.
static void accumulate_task(void *arg, size_t index) {
    enum { PIECE = 256 };
    const rn_call *call = arg;
    uint64_t count = 0, start = span_at(rn_tensor_elements(&call->inputs[0]), index, &count);
    const float *gradient = call->inputs[1].data;
    const uint16_t *sum = call->inputs[0].data;
    uint16_t *out = call->outputs[0].data;
    for (uint64_t at = start, n; at < start + count; at += n) {
        float piece[PIECE];
        n = start + count - at < PIECE ? start + count - at : PIECE;
        (void)!rn_dtype_to_f32(RN_DTYPE_BF16, sum + at, piece, n);
        rn_spans_get()->add(piece, gradient + at, piece, n, 0, 0);
        (void)!rn_dtype_from_f32(RN_DTYPE_BF16, piece, out + at, n);
    }
}

rn_status rn_cpu_accumulate(const rn_call *call) {
    if (call->inputs[0].dtype == RN_DTYPE_BF16) {
        rn_call_each(call, span_count(rn_tensor_elements(&call->inputs[0])), accumulate_task,
                     (void *)call);
        return RN_OK;
    }
    return run_join(call, rn_spans_get()->add, 0, 0);
}

typedef struct tree_work {
    const rn_call *call;
    rn_sum_step step;
} tree_work;

enum { TREE_PIECE = 512 };

// sum += slot; of bf16, what a slot would hold of it.
static void join_slot(rn_dtype dtype, const void *slot, float *sum, uint64_t n) {
    float wide[TREE_PIECE];
    uint16_t narrow[TREE_PIECE];
    if (dtype == RN_DTYPE_F32) {
        rn_spans_get()->add(slot, sum, sum, n, 0, 0);
        return;
    }
    (void)!rn_dtype_from_f32(dtype, sum, narrow, n);
    (void)!rn_dtype_to_f32(dtype, narrow, sum, n);
    (void)!rn_dtype_to_f32(dtype, slot, wide, n);
    rn_spans_get()->add(wide, sum, sum, n, 0, 0);
}

static void tree_task(void *arg, size_t index) {
    const tree_work *w = arg;
    rn_dtype dtype = w->call->outputs[0].dtype;
    uint64_t size = rn_dtype_get(dtype)->block_bytes;
    uint64_t count = 0, start = span_at(rn_tensor_elements(&w->call->outputs[0]), index, &count);
    const float *gradient = w->call->inputs[RN_TREE_GRADIENT].data;
    uint8_t *into = rn_tree_sum_slot(w->call, w->step.into);
    for (uint64_t at = start, n; at < start + count; at += n) {
        float sum[TREE_PIECE];
        n = start + count - at < TREE_PIECE ? start + count - at : TREE_PIECE;
        memcpy(sum, gradient + at, n * sizeof *sum);
        for (uint32_t i = w->step.adds; i-- > 0;) {
            const uint8_t *slot = rn_tree_sum_slot(w->call, w->step.into + i);
            join_slot(dtype, slot + at * size, sum, n);
        }
        (void)!rn_dtype_from_f32(dtype, sum, into + at * size, n);
    }
}

rn_status rn_cpu_tree_sum(const rn_call *call) {
    tree_work w = {.call = call};
    RN_TRY(rn_tree_sum_step(call, &w.step));
    rn_call_each(call, span_count(rn_tensor_elements(&call->outputs[0])), tree_task, &w);
    return RN_OK;
}

static void gated_grad_task(void *arg, size_t index) {
    const rn_call *call = arg;
    const rn_gated_attrs *a = call->attrs;
    float *dgate = call->outputs[0].data, *dup = call->outputs[1].data; // (n) or NULL
    uint64_t count = 0, start = span_at(rn_tensor_elements(&call->inputs[0]), index, &count);
    rn_spans_get()->gated_grad[a->activation](
        (const float *)call->inputs[0].data + start, (const float *)call->inputs[1].data + start,
        (const float *)call->inputs[2].data + start, dgate ? dgate + start : NULL,
        dup ? dup + start : NULL, count);
}

rn_status rn_cpu_gated_grad(const rn_call *call) {
    uint64_t n = rn_tensor_elements(&call->inputs[0]);
    rn_call_each(call, span_count(n), gated_grad_task, (void *)call);
    return RN_OK;
}

// ---- broadcasting -------------------------------------------------------------------------------

// z is as long as x's last axes and is used again for each of the axes before: a bias, a row.
static void row_task(void *arg, size_t index) {
    const join_work *w = arg;
    uint64_t rows = SPAN / w->period + 1, row = index * rows, end = w->n / w->period;
    for (uint64_t last = row + rows < end ? row + rows : end; row < last; row++)
        w->fn(w->x + row * w->period, w->z, w->y + row * w->period, w->period, 0, 0);
}

static void one_task(void *arg, size_t index) {
    const join_work *w = arg;
    uint64_t count = 0, start = span_at(w->n, index, &count);
    w->fn(w->x + start, w->z, w->y + start, count, 0, 0);
}

// Whether z's axes are y's last ones; its leading ones may be 1.
static bool is_suffix(rn_shape z, rn_shape y) {
    uint32_t from = 0;
    while (from < z.rank && z.dims[from] == 1)
        from++;
    for (uint32_t i = from; i < z.rank; i++)
        if (z.dims[i] != y.dims[y.rank - z.rank + i]) return false;
    return true;
}

static rn_status run_broadcast(const rn_call *call, rn_join_span *fn, rn_join_span *one) {
    const rn_tensor *x = &call->inputs[0], *z = &call->inputs[1], *y = &call->outputs[0];
    join_work w = {fn, x->data, z->data, y->data, rn_tensor_elements(y), rn_tensor_elements(z),
                   0,  0};
    if (rn_tensor_elements(x) != w.n || !is_suffix(z->shape, y->shape))
        return rn_op_get(call->op)->reference(call);
    if (w.period == w.n) {
        rn_call_each(call, span_count(w.n), join_task, &w);
    } else if (w.period == 1) {
        w.fn = one;
        rn_call_each(call, span_count(w.n), one_task, &w);
    } else {
        uint64_t rows = w.n / w.period, group = SPAN / w.period + 1;
        rn_call_each(call, (rows + group - 1) / group, row_task, &w);
    }
    return RN_OK;
}

#define JOIN(name)                                                                                 \
    rn_status rn_cpu_##name(const rn_call *call) {                                                 \
        return run_broadcast(call, rn_spans_get()->name, rn_spans_get()->name##_one);              \
    }
JOIN(add)
JOIN(sub)
JOIN(mul)
JOIN(div)
