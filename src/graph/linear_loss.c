// linear_loss.c — chunks of rows, one after the other: see linear_loss.h.
//
// The sum of a weight's gradient over chunks is made slice by slice of its rows, so that no second
// gradient is needed: the chunk's columns of d logits are copied together, multiplied, and added.
#include "graph/linear_loss.h"

#include "base/checked.h"
#include "graph/op/targets.h"

#include <string.h>

enum { ALIGN = 64, LEAST_ROWS = 64, SLICE = 4096 };

typedef struct linear_loss {
    const rn_call *call;
    uint64_t rows, width, classes; // x (rows, width), w (classes, width)
    uint64_t chunk, slice;         // rows and classes at a time
    bool has_chunks;               // more than one may be needed
    // in the workspace
    float *x;                    // (chunk, width); then dx
    float *logits;               // (chunk, classes); then d logits
    float *logsumexp;            // (chunk)
    int32_t *targets, *places;   // (chunk): of the rows gathered, and where they were
    float *columns;              // (chunk, slice) of d logits
    float *sums;                 // (slice, width)
    float *loss, *count, *dloss; // ()
    uint64_t own_bytes;          // of all these
} linear_loss;

// A part of the workspace; NULL while planning.
static void *take(linear_loss *l, uint64_t count, uint64_t bytes) {
    uint8_t *front = l->call->workspace;
    void *part = front ? front + l->own_bytes : NULL;
    l->own_bytes += rn_round_up(count * bytes, ALIGN);
    return part;
}

static void begin(const rn_call *call, linear_loss *l) {
    const rn_shape *x = &call->inputs[RN_LCE_X].shape, *w = &call->inputs[RN_LCE_W].shape;
    *l =
        (linear_loss){.call = call, .rows = x->dims[0], .width = x->dims[1], .classes = w->dims[0]};
    uint64_t row_bytes = rn_max_u64(l->classes * sizeof(float), 1);
    uint64_t most = rn_max_u64(RN_LINEAR_LOSS_BYTES / row_bytes, LEAST_ROWS);
    uint64_t chunks = rn_div_up(l->rows, most);
    l->has_chunks = chunks > 1;
    l->chunk = chunks ? rn_div_up(l->rows, chunks) : 0;
    l->slice = l->has_chunks ? rn_min_u64(SLICE, l->classes) : 0;
    l->x = take(l, l->chunk * l->width, sizeof(float));
    l->logits = take(l, l->chunk * l->classes, sizeof(float));
    l->logsumexp = take(l, l->chunk, sizeof(float));
    l->targets = take(l, l->chunk, sizeof(int32_t));
    l->places = take(l, l->chunk, sizeof(int32_t));
    l->columns = take(l, l->chunk * l->slice, sizeof(float));
    l->sums = take(l, l->slice * l->width, sizeof(float));
    l->loss = take(l, 1, sizeof(float));
    l->count = take(l, 1, sizeof(float));
    l->dloss = take(l, 1, sizeof(float));
}

// ---- the calls ----------------------------------------------------------------------------------

typedef rn_status each_part(void *self, const rn_call *part);

typedef struct parts {
    const linear_loss *l;
    each_part *each;
    void *self;
    rn_scalar factor; // of every row's loss
} parts;

static rn_tensor floats(void *data, rn_shape shape) {
    return (rn_tensor){data, RN_DTYPE_F32, RN_LAYOUT_PLAIN, shape};
}

static rn_status add(const parts *p, rn_op op, const void *attrs, const rn_tensor *inputs,
                     uint32_t input_count, const rn_tensor *outputs, uint32_t output_count) {
    rn_call part = *p->l->call; // its workers and threads
    part.op = op;
    part.attrs = attrs;
    part.inputs = inputs;
    part.outputs = outputs;
    part.input_count = input_count;
    part.output_count = output_count;
    part.scalars = &p->factor;
    part.workspace_bytes = p->l->call->workspace_bytes - p->l->own_bytes;
    part.workspace = NULL;
    if (p->l->call->workspace && part.workspace_bytes)
        part.workspace = (uint8_t *)p->l->call->workspace + p->l->own_bytes;
    return p->each(p->self, &part);
}

static rn_status multiply(const parts *p, rn_tensor x, rn_tensor w, rn_matmul_attrs attrs,
                          rn_tensor y) {
    attrs.unquantised_activations = true;
    return add(p, RN_OP_MATMUL, &attrs, (rn_tensor[]){x, w, {0}}, 3, &y, 1);
}

// The logits of `rows` rows, their loss, and the gradient in the logits' place.
static rn_status find_loss(const parts *p, uint64_t rows, bool differentiates) {
    const linear_loss *l = p->l;
    const rn_cross_entropy_attrs *given = l->call->attrs;
    rn_cross_entropy_attrs attrs = {.ignore = given->ignore, .normalizer = 0};
    rn_tensor logits = floats(l->logits, RN_SHAPE(rows, l->classes));
    rn_tensor targets = {l->targets, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(rows)};
    rn_tensor made[] = {floats(l->loss, RN_SCALAR), floats(l->logsumexp, RN_SHAPE(rows)),
                        floats(l->count, RN_SCALAR)};
    RN_TRY(multiply(p, floats(l->x, RN_SHAPE(rows, l->width)), l->call->inputs[RN_LCE_W],
                    (rn_matmul_attrs){0}, logits));
    RN_TRY(add(p, RN_OP_CROSS_ENTROPY, &attrs, (rn_tensor[]){logits, targets}, 2, made, 3));
    if (!differentiates) return RN_OK;
    return add(p, RN_OP_CROSS_ENTROPY_GRAD, &attrs,
               (rn_tensor[]){logits, targets, made[1], made[2], floats(l->dloss, RN_SCALAR)}, 5,
               &logits, 1);
}

static rn_status multiply_slice(const parts *p, uint64_t rows, uint64_t count, rn_tensor x) {
    const linear_loss *l = p->l;
    rn_tensor columns = floats(l->columns, RN_SHAPE(rows, count));
    rn_tensor sums = floats(l->sums, RN_SHAPE(count, l->width));
    return multiply(p, columns, x, (rn_matmul_attrs){.transpose_x = true, .transpose_w = true},
                    sums);
}

// dw, a slice of classes at a time.
static rn_status add_slices(const parts *p, uint64_t rows, float *dw) {
    const linear_loss *l = p->l;
    rn_tensor x = floats(l->x, RN_SHAPE(rows, l->width));
    for (uint64_t first = 0; first < l->classes; first += l->slice) {
        uint64_t count = rn_min_u64(l->slice, l->classes - first);
        for (uint64_t row = 0; row < rows; row++)
            memcpy(l->columns + row * count, l->logits + row * l->classes + first,
                   count * sizeof(float));
        RN_TRY(multiply_slice(p, rows, count, x));
        for (uint64_t i = 0; i < count * l->width; i++)
            dw[first * l->width + i] += l->sums[i];
    }
    return RN_OK;
}

// dw = d logitsᵀ x, all of it.
static rn_status multiply_whole(const parts *p, uint64_t rows, float *dw) {
    const linear_loss *l = p->l;
    return multiply(p, floats(l->logits, RN_SHAPE(rows, l->classes)),
                    floats(l->x, RN_SHAPE(rows, l->width)),
                    (rn_matmul_attrs){.transpose_x = true, .transpose_w = true},
                    floats(dw, RN_SHAPE(l->classes, l->width)));
}

// dx = d logits w, in the place of x.
static rn_status multiply_back(const parts *p, uint64_t rows) {
    const linear_loss *l = p->l;
    return multiply(p, floats(l->logits, RN_SHAPE(rows, l->classes)), l->call->inputs[RN_LCE_W],
                    (rn_matmul_attrs){.transpose_w = true}, floats(l->x, RN_SHAPE(rows, l->width)));
}

// ---- running ------------------------------------------------------------------------------------

typedef struct runner {
    rn_status (*run)(const rn_call *part);
} runner;

static rn_status run_part(void *self, const rn_call *part) {
    return ((const runner *)self)->run(part);
}

static rn_status count_targets(const linear_loss *l, uint64_t *out) {
    const rn_cross_entropy_attrs *attrs = l->call->attrs;
    const int32_t *targets = l->call->inputs[RN_LCE_TARGETS].data; // (rows)
    *out = 0;
    for (uint64_t row = 0; row < l->rows; row++) {
        bool counts = false;
        RN_TRY(rn_target_check(row, targets[row], attrs->ignore, l->classes, &counts));
        *out += counts;
    }
    return RN_OK;
}

// The next rows that count, up to a chunk of them, from row *at on.
static uint64_t gather(const linear_loss *l, uint64_t *at) {
    const rn_cross_entropy_attrs *attrs = l->call->attrs;
    const float *x = l->call->inputs[RN_LCE_X].data;               // (rows, width)
    const int32_t *targets = l->call->inputs[RN_LCE_TARGETS].data; // (rows)
    uint64_t count = 0;
    for (; *at < l->rows && count < l->chunk; ++*at) {
        if (targets[*at] == attrs->ignore) continue;
        memcpy(l->x + count * l->width, x + *at * l->width, l->width * sizeof(float));
        l->targets[count] = targets[*at];
        l->places[count++] = (int32_t)*at;
    }
    return count;
}

static void scatter(const linear_loss *l, uint64_t rows, float *dx) {
    for (uint64_t i = 0; i < rows; i++)
        memcpy(dx + (uint64_t)l->places[i] * l->width, l->x + i * l->width,
               l->width * sizeof(float));
}

static rn_status run_chunk(const parts *p, uint64_t rows, bool first) {
    const linear_loss *l = p->l;
    float *dx = l->call->outputs[RN_LCE_DX].data, *dw = l->call->outputs[RN_LCE_DW].data;
    RN_TRY(find_loss(p, rows, dx || dw));
    if (dw) RN_TRY(first ? multiply_whole(p, rows, dw) : add_slices(p, rows, dw));
    if (!dx) return RN_OK;
    RN_TRY(multiply_back(p, rows));
    scatter(l, rows, dx);
    return RN_OK;
}

rn_status rn_linear_loss_run(const rn_call *call, rn_status (*run)(const rn_call *part)) {
    const rn_cross_entropy_attrs *attrs = call->attrs;
    rn_tensor outputs[] = {call->outputs[RN_LCE_DX], call->outputs[RN_LCE_DW]};
    runner self = {run};
    uint64_t counted = 0;
    linear_loss l;
    double loss = 0;
    begin(call, &l);
    RN_TRY(count_targets(&l, &counted));
    parts p = {&l, run_part, &self, {counted ? 1 / (double)counted : 0}};
    if (attrs->normalizer != RN_NO_SCALAR) p.factor = call->scalars[attrs->normalizer];
    if (outputs[0].data && counted < l.rows)
        memset(outputs[0].data, 0, rn_tensor_bytes(&outputs[0]));
    if (outputs[1].data && counted == 0) memset(outputs[1].data, 0, rn_tensor_bytes(&outputs[1]));
    *l.dloss = 1;
    for (uint64_t at = 0, rows, done = 0; (rows = gather(&l, &at)) > 0; done += rows) {
        RN_TRY(run_chunk(&p, rows, done == 0));
        loss += *l.loss;
    }
    *(float *)call->outputs[RN_LCE_LOSS].data = (float)loss;
    return RN_OK;
}

// ---- workspace ----------------------------------------------------------------------------------

typedef struct measurer {
    uint64_t (*workspace)(const rn_call *part);
    uint64_t most;
} measurer;

static rn_status measure_part(void *self, const rn_call *part) {
    measurer *m = self;
    m->most = rn_max_u64(m->most, m->workspace(part));
    return RN_OK;
}

// Whatever is wanted: while planning nobody knows.
uint64_t rn_linear_loss_workspace(const rn_call *call, uint64_t (*workspace)(const rn_call *part)) {
    rn_call planned = *call;
    linear_loss l;
    measurer self = {workspace, 0};
    planned.workspace = NULL;
    planned.workspace_bytes = 0;
    begin(&planned, &l);
    parts p = {&l, measure_part, &self, {0}};
    (void)!find_loss(&p, l.chunk, true);
    (void)!multiply_whole(&p, l.chunk, NULL);
    if (l.slice)
        (void)!multiply_slice(&p, l.chunk, l.slice, floats(NULL, RN_SHAPE(l.chunk, l.width)));
    (void)!multiply_back(&p, l.chunk);
    return l.own_bytes + self.most;
}
