// reduce.c — sums and means: threads share out the results, or the elements where there is only one
// result. As in the reference, sums are in double; a column's in the order of its rows, a row's in
// lanes.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"
#include "graph/op/reduce.h"

enum { SPAN = 16384, COLUMNS = 64, TASK_ELEMENTS = 16384 };

// ---- one number ---------------------------------------------------------------------------------

typedef struct whole {
    const rn_call *call;
    uint64_t n;
} whole;

static void sum_span(void *arg, size_t index) {
    const whole *w = arg;
    const float *x = (const float *)w->call->inputs[0].data + index * SPAN;
    uint64_t n = rn_min_u64(SPAN, w->n - index * SPAN);
    double *sums = w->call->workspace; // (spans)
    bool squares = w->call->op == RN_OP_SUM_SQUARES;
    sums[index] = (squares ? rn_spans_get()->squares_wide : rn_spans_get()->sum_wide)(x, n);
}

static uint64_t whole_workspace(const rn_call *call) {
    return rn_round_up(rn_div_up(rn_tensor_elements(&call->inputs[0]), SPAN) * sizeof(double), 64);
}

static double sum_whole(const rn_call *call) {
    whole w = {call, rn_tensor_elements(&call->inputs[0])};
    const double *sums = call->workspace; // (spans)
    double sum = 0;
    rn_call_each(call, rn_div_up(w.n, SPAN), sum_span, &w);
    for (uint64_t i = 0; i < rn_div_up(w.n, SPAN); i++)
        sum += sums[i];
    return sum;
}

uint64_t rn_cpu_sum_squares_workspace(const rn_call *call) {
    return whole_workspace(call);
}

rn_status rn_cpu_sum_squares(const rn_call *call) {
    *(float *)call->outputs[0].data = (float)sum_whole(call);
    return RN_OK;
}

// ---- several ------------------------------------------------------------------------------------

// y (results): each the sum of a group of elements. The walks are those of rn_reduce.
typedef struct sums {
    const rn_call *call;
    rn_walk group, kept;
    uint64_t results;
    uint64_t together; // results of a task
    double divisor;
} sums;

static double add(double sum, float x) {
    return sum + x;
}

// Where result `index` begins in x.
static uint64_t find(const rn_walk *kept, uint64_t index) {
    uint64_t at = index % kept->count * kept->step[0];
    index /= kept->count;
    for (uint32_t axis = 0; axis < kept->rank; axis++) {
        at += index % kept->dims[axis] * kept->strides[0][axis];
        index /= kept->dims[axis];
    }
    return at;
}

static double sum_group(const float *x, rn_walk group) {
    double sum = 0;
    do {
        if (group.step[0] == 1)
            sum += rn_spans_get()->sum_wide(x + group.at[0], group.count);
        else
            for (uint64_t i = 0; i < group.count; i++)
                sum += x[group.at[0] + i * group.step[0]];
    } while (rn_walk_next(&group));
    return sum;
}

// Neighbouring results side by side.
static void sum_columns(const sums *s, uint64_t first, uint64_t n) {
    const float *x = (const float *)s->call->inputs[0].data + find(&s->kept, first);
    float *y = (float *)s->call->outputs[0].data + first;
    double totals[COLUMNS] = {0};
    rn_reduce_group(x, s->group, totals, n, add);
    for (uint64_t i = 0; i < n; i++)
        y[i] = (float)(totals[i] / s->divisor);
}

static void sum_some(void *arg, size_t task) {
    const sums *s = arg;
    const float *x = s->call->inputs[0].data;
    float *y = s->call->outputs[0].data; // (results)
    uint64_t i = task * s->together, end = rn_min_u64(i + s->together, s->results);
    if (s->kept.step[0] == 1 && s->kept.count > 1) {
        while (i < end) {
            uint64_t row_end = (i / s->kept.count + 1) * s->kept.count;
            uint64_t n = rn_min_u64(rn_min_u64(row_end, end) - i, COLUMNS);
            sum_columns(s, i, n);
            i += n;
        }
        return;
    }
    for (; i < end; i++)
        y[i] = (float)(sum_group(x + find(&s->kept, i), s->group) / s->divisor);
}

static bool is_whole(const rn_call *call) {
    return rn_tensor_elements(&call->outputs[0]) == 1;
}

uint64_t rn_cpu_sum_workspace(const rn_call *call) {
    return is_whole(call) ? whole_workspace(call) : 0;
}

rn_status rn_cpu_sum(const rn_call *call) {
    const rn_reduce_attrs *attrs = call->attrs;
    rn_shape shape = call->inputs[0].shape, group = rn_reduce_axes(shape, attrs->axes);
    rn_strides strides = rn_strides_of(shape);
    uint64_t terms = rn_shape_elements(group, 0);
    sums s = {.call = call,
              .group = rn_walk_begin(group, strides, strides),
              .kept = rn_walk_begin(rn_reduce_axes(shape, ~attrs->axes), strides, strides),
              .results = rn_tensor_elements(&call->outputs[0]),
              .divisor = call->op == RN_OP_MEAN ? (double)terms : 1};
    if (is_whole(call)) {
        *(float *)call->outputs[0].data = (float)(sum_whole(call) / s.divisor);
        return RN_OK;
    }
    s.together = rn_max_u64(COLUMNS, TASK_ELEMENTS / (terms + 1) / COLUMNS * COLUMNS);
    if (s.kept.count == 1 || s.kept.step[0] != 1) s.together = TASK_ELEMENTS / (terms + 1) + 1;
    rn_call_each(call, rn_div_up(s.results, s.together), sum_some, &s);
    return RN_OK;
}
