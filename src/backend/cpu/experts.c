// experts.c — mixture of experts: the router, rows by the matrices that they chose, their sum.
//
// A product of experts is many small products. The choices are sorted by expert; the rows of an
// expert, up to BATCH at once, by some rows of its matrix are a task, which one thread does alone:
//
//     choices   r0: 3 7   r1: 7 1        by expert   1: r1   3: r0   7: r0 r1
//     tasks     (1, rows 0..) (3, rows 0..) (7, rows 0..)      matrices are cut where threads are
//     many
//
// A task gathers its rows of x, multiplies them by the kernel that any product of this dtype and
// layout has, and scatters what comes out; a single row is taken and left where it is. So each row
// has the bits of a product alone, whoever its neighbours are.
#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"
#include "backend/cpu/spans.h"

#include "base/checked.h"
#include "graph/op/route.h"
#include "tensor/panels.h"

#include <string.h>

// ---- the router ---------------------------------------------------------------------------------

enum { LOGITS, BIAS, SCALE };

static void route_row(void *arg, uint32_t slot, size_t row) {
    const rn_call *call = arg;
    const rn_route_attrs *a = call->attrs;
    uint64_t experts = call->inputs[LOGITS].shape.dims[1];
    char *room = (char *)call->workspace + slot * rn_route_room_bytes(experts);
    rn_route_row(a, (const float *)call->inputs[LOGITS].data + row * experts,
                 call->inputs[BIAS].data, call->inputs[SCALE].data, experts, (float *)(void *)room,
                 (int32_t *)call->outputs[0].data + row * a->chosen,
                 (float *)call->outputs[1].data + row * a->chosen);
}

uint64_t rn_cpu_route_workspace(const rn_call *call) {
    return call->threads * rn_route_room_bytes(call->inputs[LOGITS].shape.dims[1]);
}

rn_status rn_cpu_route(const rn_call *call) {
    rn_share(call, call->inputs[LOGITS].shape.dims[0], route_row, (void *)(uintptr_t)call);
    return RN_OK;
}

// ---- products -----------------------------------------------------------------------------------

enum {
    BATCH = 128,     // rows of an expert at once
    SHARES = 4,      // tasks a thread, where matrices are large enough to be cut
    LEAST_ROWS = 64, // of a matrix in a task
    ALONE = 1 << 16, // products up to which threads are not worth waking
};

// Rows of an expert by some rows of its matrix.
typedef struct task {
    uint32_t expert, first, count; // choices [first, first + count) of `places`
    uint64_t row, rows;            // of the matrix, from e.first on
} task;

typedef struct product {
    const rn_call *call;
    rn_expert_call e;
    uint64_t choices, all; // of a row; of all rows
    uint64_t shared;       // choices that have a row of x in common
    uint64_t k, batch;     // columns; rows of the largest task
    uint64_t record_bytes; // of a matrix
    uint32_t *first;       // (experts + 1): an expert's first place
    uint32_t *places;      // (all): choices by expert, in rising order
    char *rooms;           // (threads, room_bytes)
    uint64_t x_bytes, y_bytes, room_bytes;
    uint64_t parts;        // of a matrix
    uint32_t expert, end;  // of the run of tasks
    const uint32_t *tasks; // (experts of the run + 1): an expert's first task
} product;

bool rn_cpu_experts_take_panels(const rn_expert_call *e) {
    return e->record_rows % RN_PANEL_ROWS == 0 && e->first % RN_PANEL_ROWS == 0 &&
           e->count % RN_PANEL_ROWS == 0;
}

// A product of `rows` rows of x by `count` rows of a matrix.
typedef struct single {
    rn_tensor in[3], out[1];
    rn_matmul_attrs attrs;
    rn_call call;
} single;

static void set_single(const product *p, uint64_t rows, uint64_t count, single *s) {
    const rn_tensor *w = &p->call->inputs[p->e.weight];
    *s = (single){.in = {{.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(rows, p->k)},
                         {.dtype = w->dtype, .layout = w->layout, .shape = RN_SHAPE(count, p->k)},
                         {.dtype = p->e.bias == RN_NO_INPUT ? RN_DTYPE_NONE : RN_DTYPE_F32,
                          .shape = RN_SHAPE(count)}},
                  .out = {{.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(rows, count)}},
                  .attrs = {.unquantised_activations = p->e.unquantised_activations},
                  .call = {.op = RN_OP_MATMUL, .input_count = 3, .output_count = 1, .threads = 1}};
    s->call.attrs = &s->attrs;
    s->call.inputs = s->in;
    s->call.outputs = s->out;
}

static product read_call(const rn_call *call) {
    product p = {.call = call};
    if (!rn_call_experts(call, &p.e)) return p; // the shape rule has refused it
    const rn_tensor *x = &call->inputs[p.e.x], *w = &call->inputs[p.e.weight];
    p.choices = call->inputs[p.e.ids].shape.dims[1];
    p.all = rn_tensor_elements(&call->inputs[p.e.ids]);
    p.shared = x->shape.rank == 2 ? p.choices : 1;
    p.k = w->shape.dims[1];
    p.batch = rn_min_u64(call->inputs[p.e.ids].shape.dims[0], BATCH);
    p.record_bytes = rn_tensor_bytes(w) / p.e.experts;
    p.x_bytes = rn_round_up(p.batch * p.k * sizeof(float), 64);
    p.y_bytes = rn_round_up(p.batch * p.e.count * sizeof(float), 64);
    single s;
    set_single(&p, rn_max_u64(p.batch, 1), p.e.count, &s);
    p.room_bytes = p.x_bytes + p.y_bytes + rn_round_up(rn_cpu_matmul_workspace(&s.call), 64);
    return p;
}

static uint64_t lists_bytes(const product *p) {
    return rn_round_up((2 * (p->e.experts + 1) + p->all) * sizeof(uint32_t), 64);
}

uint64_t rn_cpu_expert_product_workspace(const rn_call *call) {
    product p = read_call(call);
    return lists_bytes(&p) + call->threads * p.room_bytes;
}

// Choices by expert; rows of nobody become zeros.
static rn_status sort_choices(product *p) {
    const int32_t *ids = p->call->inputs[p->e.ids].data; // (all)
    memset(p->first, 0, (p->e.experts + 1) * sizeof *p->first);
    for (uint64_t i = 0; i < p->all; i++) {
        if (ids[i] >= (int32_t)p->e.experts)
            return rn_fail(RN_INVALID, "there is no expert %d", ids[i]);
        if (ids[i] >= 0)
            p->first[ids[i] + 1]++;
        else
            memset((float *)p->call->outputs[0].data + i * p->e.count, 0,
                   p->e.count * sizeof(float));
    }
    for (uint32_t e = 0; e < p->e.experts; e++)
        p->first[e + 1] += p->first[e];
    for (uint64_t i = 0; i < p->all; i++) // first[e] runs to where e + 1 begins ...
        if (ids[i] >= 0) p->places[p->first[ids[i]]++] = (uint32_t)i;
    for (uint32_t e = p->e.experts; e > 0; e--) // ... and goes back
        p->first[e] = p->first[e - 1];
    p->first[0] = 0;
    return RN_OK;
}

// ---- a task -------------------------------------------------------------------------------------

static const float *x_of(const product *p, uint32_t choice) {
    return (const float *)p->call->inputs[p->e.x].data + choice / p->shared * p->k;
}

static float *y_of(const product *p, uint32_t choice) {
    return (float *)p->call->outputs[0].data + choice * p->e.count;
}

// Bytes before row `row` of a matrix.
static uint64_t row_offset(const product *p, uint64_t row) {
    return p->record_bytes / p->e.record_rows * row;
}

// Row `row` of those that the call is of.
static uint8_t *row_of(const product *p, uint32_t expert, uint64_t row) {
    const rn_expert_slots *slots = p->call->slots;
    if (slots) return (uint8_t *)(uintptr_t)slots->matrix[expert] + row_offset(p, row);
    return (uint8_t *)p->call->inputs[p->e.weight].data + expert * p->record_bytes +
           row_offset(p, p->e.first + row);
}

static void run_task(const product *p, uint32_t slot, task t) {
    char *room = p->rooms + slot * p->room_bytes;
    float *x = (float *)(void *)room, *y = (float *)(void *)(room + p->x_bytes);
    const uint32_t *places = p->places + t.first;
    single s;
    set_single(p, t.count, t.rows, &s);
    for (uint32_t i = 0; t.count > 1 && i < t.count; i++)
        memcpy(x + i * p->k, x_of(p, places[i]), p->k * sizeof *x);
    s.in[0].data = t.count > 1 ? x : (void *)(uintptr_t)x_of(p, places[0]);
    s.in[1].data = row_of(p, t.expert, t.row);
    if (p->e.bias != RN_NO_INPUT)
        s.in[2].data = (float *)p->call->inputs[p->e.bias].data + t.expert * p->e.record_rows +
                       p->e.first + t.row;
    s.out[0].data = t.count > 1 ? y : y_of(p, places[0]) + t.row;
    s.call.workspace = room + p->x_bytes + p->y_bytes;
    s.call.workspace_bytes = p->room_bytes - p->x_bytes - p->y_bytes;
    rn_status status = rn_cpu_matmul(&s.call);
    (void)status; // the dtype and the layout are those that the plan was made for
    for (uint32_t i = 0; t.count > 1 && i < t.count; i++)
        memcpy(y_of(p, places[i]) + t.row, y + i * t.rows, t.rows * sizeof *y);
}

// The tasks of an expert: batches of its rows, by parts of its matrix.
static uint64_t count_batches(const product *p, uint32_t expert) {
    return rn_div_up(p->first[expert + 1] - p->first[expert], rn_max_u64(p->batch, 1));
}

static uint64_t part_rows(const product *p) {
    return rn_round_up(rn_div_up(p->e.count, p->parts), RN_PANEL_ROWS);
}

static void take_task(void *arg, uint32_t slot, size_t index) {
    const product *p = arg;
    uint32_t low = p->expert, high = p->end; // the expert whose tasks these are
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (p->tasks[middle - p->expert] <= index)
            low = middle;
        else
            high = middle;
    }
    uint64_t at = index - p->tasks[low - p->expert], batch = at / p->parts, part = at % p->parts;
    uint64_t row = part * part_rows(p), first = p->first[low] + batch * p->batch;
    if (row >= p->e.count) return;
    run_task(p, slot,
             (task){.expert = low,
                    .first = (uint32_t)first,
                    .count = (uint32_t)rn_min_u64(p->batch, p->first[low + 1] - first),
                    .row = row,
                    .rows = rn_min_u64(part_rows(p), p->e.count - row)});
}

// ---- the call -----------------------------------------------------------------------------------

static bool is_pending(const rn_call *call, uint32_t expert) {
    return call->slots && call->slots->pending && call->slots->pending[expert];
}

// Whether anybody chose it and it is in memory, or on its way.
static bool is_wanted(const product *p, uint32_t expert) {
    const rn_expert_slots *slots = p->call->slots;
    return p->first[expert + 1] > p->first[expert] &&
           (!slots || slots->matrix[expert] || is_pending(p->call, expert));
}

// The experts [expert, end) that are wanted; those still on their way are left out unless it is
// one of these alone.
static void run_experts(product *p, uint32_t expert, uint32_t end, uint32_t *tasks) {
    bool one = end - expert == 1;
    uint64_t batches = 0, choices = 0;
    p->expert = expert;
    p->end = end;
    p->tasks = tasks;
    for (uint32_t e = expert; e < end; e++)
        if (is_wanted(p, e) && (one || !is_pending(p->call, e))) {
            batches += count_batches(p, e);
            choices += p->first[e + 1] - p->first[e];
        }
    if (batches == 0) return;
    uint64_t most = rn_max_u64(p->e.count / LEAST_ROWS, 1);
    p->parts = rn_min_u64(rn_div_up((uint64_t)SHARES * p->call->threads, batches), most);
    uint32_t count = 0;
    for (uint32_t e = expert; e < end; e++) {
        tasks[e - expert] = count;
        if (is_wanted(p, e) && (one || !is_pending(p->call, e)))
            count += (uint32_t)(count_batches(p, e) * p->parts);
    }
    rn_call alone = *p->call;
    const rn_call *call = p->call;
    if (choices * p->e.count * p->k <= ALONE) alone.workers = NULL, call = &alone;
    rn_share(call, count, take_task, p);
}

rn_status rn_cpu_expert_product(const rn_call *call) {
    product p = read_call(call);
    p.first = call->workspace;
    uint32_t *tasks = p.first + p.e.experts + 1;
    p.places = tasks + p.e.experts + 1;
    p.rooms = (char *)call->workspace + lists_bytes(&p);
    RN_TRY(sort_choices(&p));
    run_experts(&p, 0, p.e.experts, tasks);
    for (uint32_t e = 0; call->slots && e < p.e.experts; e++) {
        if (!is_pending(call, e) || !is_wanted(&p, e)) continue;
        RN_TRY(call->slots->wait(call->slots->self, e));
        run_experts(&p, e, e + 1, tasks);
    }
    return RN_OK;
}

// ---- the sum ------------------------------------------------------------------------------------

enum { SUM_COLUMNS = 4096 };

static void sum_part(void *arg, size_t index) {
    const rn_call *call = arg;
    rn_shape y = call->inputs[0].shape;
    uint64_t k = y.dims[1], n = y.dims[2], parts = rn_div_up(n, SUM_COLUMNS);
    uint64_t row = index / parts, first = index % parts * SUM_COLUMNS;
    rn_small s = {.a = (const float *)call->inputs[1].data + row * k,
                  .a_row = k,
                  .a_col = 1,
                  .b = (const float *)call->inputs[0].data + row * k * n + first,
                  .b_row = n,
                  .c = (float *)call->outputs[0].data + row * n + first,
                  .c_row = n};
    rn_spans_get()->product(&s, 1, rn_min_u64(SUM_COLUMNS, n - first), k, false);
}

rn_status rn_cpu_expert_sum(const rn_call *call) {
    rn_shape y = call->inputs[0].shape;
    rn_call_each(call, y.dims[0] * rn_div_up(y.dims[2], SUM_COLUMNS), sum_part,
                 (void *)(uintptr_t)call);
    return RN_OK;
}
