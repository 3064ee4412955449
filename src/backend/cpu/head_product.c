// head_product.c — a product of each head's rows by the head's matrix: a task is a head and some
// rows, which one thread does alone with the kernel that any product of this dtype has.
#include "graph/op/head_product.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/share.h"
#include "base/checked.h"

#include <string.h>

enum { X, W, BATCH = 64 };

typedef struct product {
    const rn_call *call;
    uint64_t rows, heads, in, out;
    uint64_t batch; // rows of the largest task
    uint64_t x_bytes, y_bytes, room_bytes;
} product;

// A product of `rows` rows of x by a head's matrix.
typedef struct single {
    rn_tensor in[3], out[1];
    rn_matmul_attrs attrs;
    rn_call call;
} single;

static void set_single(const product *p, uint64_t head, uint64_t rows, single *s) {
    const rn_head_product_attrs *a = p->call->attrs;
    *s = (single){.in = {{.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(rows, p->in)},
                         rn_head_matrix(p->call, head),
                         {.dtype = RN_DTYPE_NONE}},
                  .out = {{.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(rows, p->out)}},
                  .attrs = {.unquantised_activations = a->unquantised_activations,
                            .transpose_w = a->transposed},
                  .call = {.op = RN_OP_MATMUL, .input_count = 3, .output_count = 1, .threads = 1}};
    s->call.attrs = &s->attrs;
    s->call.inputs = s->in;
    s->call.outputs = s->out;
}

static product read_call(const rn_call *call) {
    rn_shape x = call->inputs[X].shape;
    product p = {.call = call,
                 .rows = x.dims[0],
                 .heads = x.dims[1],
                 .in = x.dims[2],
                 .out = call->outputs[0].shape.dims[2]};
    single s;
    p.batch = rn_max_u64(rn_min_u64(p.rows, BATCH), 1);
    p.x_bytes = rn_round_up(p.batch * p.in * sizeof(float), 64);
    p.y_bytes = rn_round_up(p.batch * p.out * sizeof(float), 64);
    set_single(&p, 0, p.batch, &s);
    p.room_bytes = p.x_bytes + p.y_bytes + rn_round_up(rn_cpu_matmul_workspace(&s.call), 64);
    return p;
}

uint64_t rn_cpu_head_product_workspace(const rn_call *call) {
    return call->threads * read_call(call).room_bytes;
}

// Task `index` of all: (rows, head).
static void take_task(void *arg, uint32_t slot, size_t index) {
    const product *p = arg;
    char *room = (char *)p->call->workspace + slot * p->room_bytes;
    float *x = (float *)(void *)room, *y = (float *)(void *)(room + p->x_bytes);
    uint64_t head = index % p->heads, row = index / p->heads * p->batch;
    uint64_t rows = rn_min_u64(p->batch, p->rows - row), at = row * p->heads + head;
    const float *from = (const float *)p->call->inputs[X].data + at * p->in;
    float *to = (float *)p->call->outputs[0].data + at * p->out;
    single s;
    set_single(p, head, rows, &s);
    for (uint64_t i = 0; rows > 1 && i < rows; i++)
        memcpy(x + i * p->in, from + i * p->heads * p->in, p->in * sizeof *x);
    s.in[0].data = rows > 1 ? x : (void *)(uintptr_t)from;
    s.out[0].data = rows > 1 ? y : to;
    s.call.workspace = room + p->x_bytes + p->y_bytes;
    s.call.workspace_bytes = p->room_bytes - p->x_bytes - p->y_bytes;
    rn_status status = rn_cpu_matmul(&s.call);
    (void)status; // the dtype is one that the plan was made for
    for (uint64_t i = 0; rows > 1 && i < rows; i++)
        memcpy(to + i * p->heads * p->out, y + i * p->out, p->out * sizeof *y);
}

rn_status rn_cpu_head_product(const rn_call *call) {
    product p = read_call(call);
    rn_share(call, rn_div_up(p.rows, p.batch) * p.heads, take_task, &p);
    return RN_OK;
}
