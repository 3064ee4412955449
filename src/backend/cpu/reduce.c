// reduce.c — sums and means: threads share out the results, or the elements where there is only one
// result. As in the reference, sums are in double; a column's in the order of its rows; a row's in
// lanes, and in pieces whose length depends on the row's alone.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"
#include "graph/op/reduce.h"

enum { PIECES = 64, PIECE = 16384, COLUMNS = 64, TASK_ELEMENTS = 16384 };

// ---- one row ------------------------------------------------------------------------------------

typedef double row_sum(const float *x, uint64_t n);

typedef struct row {
    const float *x; // (n)
    uint64_t n, piece;
    row_sum *add;
    double sums[PIECES];
} row;

static row open_row(const float *x, uint64_t n, row_sum *add) {
    uint64_t piece = rn_max_u64(PIECE, rn_round_up(rn_div_up(n, PIECES), 16));
    return (row){.x = x, .n = n, .piece = piece, .add = add};
}

static void sum_piece(void *arg, size_t index) {
    row *r = arg;
    uint64_t first = index * r->piece;
    r->sums[index] = r->add(r->x + first, rn_min_u64(r->piece, r->n - first));
}

// With `call` by its workers, else here: the same sum.
static double sum_row(row *r, const rn_call *call) {
    uint64_t pieces = rn_div_up(r->n, r->piece);
    rn_call alone = {.threads = 1};
    double sum = 0;
    rn_call_each(call ? call : &alone, pieces, sum_piece, r);
    for (uint64_t i = 0; i < pieces; i++)
        sum += r->sums[i];
    return sum;
}

static double sum_whole(const rn_call *call, row_sum *add) {
    row r = open_row(call->inputs[0].data, rn_tensor_elements(&call->inputs[0]), add);
    return sum_row(&r, call);
}

rn_status rn_cpu_sum_squares(const rn_call *call) {
    *(float *)call->outputs[0].data = (float)sum_whole(call, rn_spans_get()->squares_wide);
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
        if (group.step[0] == 1) {
            row r = open_row(x + group.at[0], group.count, rn_spans_get()->sum_wide);
            sum += sum_row(&r, NULL);
        } else
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
    if (s.results == 1) {
        double sum = sum_whole(call, rn_spans_get()->sum_wide);
        *(float *)call->outputs[0].data = (float)(sum / s.divisor);
        return RN_OK;
    }
    s.together = rn_max_u64(COLUMNS, TASK_ELEMENTS / (terms + 1) / COLUMNS * COLUMNS);
    if (s.kept.count == 1 || s.kept.step[0] != 1) s.together = TASK_ELEMENTS / (terms + 1) + 1;
    rn_call_each(call, rn_div_up(s.results, s.together), sum_some, &s);
    return RN_OK;
}
