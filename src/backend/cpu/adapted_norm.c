// adapted_norm.c — a few rows of w + scale * up down at a time, in the workspace: a row of down is
// read once for all of them.
#include "backend/cpu/cpu.h"
#include "backend/cpu/spans.h"
#include "base/checked.h"
#include "graph/plain_matrix.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { TOGETHER = 8 }; // rows

typedef struct norms {
    const rn_call *call;
    rn_plain_matrix w;
    uint64_t rank, room; // floats of a task's part of the workspace
} norms;

static uint64_t count_tasks(const rn_call *call) {
    return call->threads ? call->threads : 1;
}

// Rows, and the same rows of scale * up.
static uint64_t room_of(const rn_call *call) {
    uint64_t cols = call->inputs[0].shape.dims[1], rank = call->inputs[1].shape.dims[0];
    return rn_round_up(TOGETHER * (cols + rank), 16);
}

uint64_t rn_cpu_adapted_norm_workspace(const rn_call *call) {
    return count_tasks(call) * room_of(call) * sizeof(float);
}

// Rows `first` .. `first` + `count`; `rows` is (count, cols), `up` (count, rank).
static void make_rows(const norms *s, uint64_t first, uint64_t count, float *rows, float *up) {
    const rn_adapted_norm_attrs *attrs = s->call->attrs;
    const float *down = s->call->inputs[1].data, *from = s->call->inputs[2].data;
    uint64_t cols = s->w.cols, rank = s->rank;
    for (uint64_t i = 0; i < count * rank; i++)
        up[i] = attrs->scale * from[first * rank + i];
    for (uint64_t i = 0; i < count; i++) {
        const float *row = rn_plain_row(&s->w, first + i, rows + i * cols);
        if (row != rows + i * cols) memcpy(rows + i * cols, row, cols * sizeof *rows);
    }
    rn_small part = {
        .a = up, .a_row = rank, .a_col = 1, .b = down, .b_row = cols, .c = rows, .c_row = cols};
    rn_spans_get()->product(&part, count, cols, rank, true);
}

static void run_task(void *arg, size_t task) {
    const norms *s = arg;
    uint64_t tasks = count_tasks(s->call), cols = s->w.cols;
    float *rows = (float *)s->call->workspace + task * s->room, *y = s->call->outputs[0].data;
    uint64_t end = (task + 1) * s->w.rows / tasks;
    for (uint64_t n = task * s->w.rows / tasks; n < end; n += TOGETHER) {
        uint64_t count = rn_min_u64(TOGETHER, end - n);
        make_rows(s, n, count, rows, rows + TOGETHER * cols);
        for (uint64_t i = 0; i < count; i++)
            y[n + i] =
                fmaxf((float)sqrt(rn_spans_get()->squares_wide(rows + i * cols, cols)), FLT_MIN);
    }
}

rn_status rn_cpu_adapted_norm(const rn_call *call) {
    norms s = {.call = call, .rank = call->inputs[1].shape.dims[0], .room = room_of(call)};
    RN_TRY(rn_plain_matrix_of(&call->inputs[0], &s.w));
    rn_call_each(call, count_tasks(call), run_task, &s);
    return RN_OK;
}
