// head_loss.c — linear_cross_entropy: chunks of rows, their logits in the workspace.
//
//     x (chunk) ─ matmul ─▶ [logits] ─ head_loss ─▶ losses; [d logits] ─ matmul ─▶ dx (chunk)
//                                                             └─ matmul ─▶ dw +=
//
// Logits are of x's type. Gradients are made on the way, so logits are computed once; what is not
// wanted is not computed. A chunk is a function of the sizes alone: so are all sums. Whether a row
// counts is known on the device only, so rows that do not are computed, too, as zeros.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "backend/cuda/kernels/head_loss_args.h"
#include "base/checked.h"
#include "graph/linear_loss.h"

#define LOGITS_BYTES ((uint64_t)768 << 20)
enum { CHUNK_ROWS = 1024, ROW_UNIT = 128, PART_ALIGN = 256 };

typedef struct head_loss {
    const rn_call *call;
    rn_tensor x, w;                // w: in x's type where that is 16 bits and w is a plain float
    uint64_t rows, width, classes; // x (rows, width), w (classes, width)
    uint64_t chunk;
    bool converts; // w is rounded to x's type once, into the workspace
    // in the workspace
    uint8_t *weight, *losses, *rounded, *logits, *rest;
    uint64_t own_bytes;
} head_loss;

static uint8_t *take(head_loss *h, uint64_t bytes) {
    uint8_t *front = h->call->workspace, *part = front ? front + h->own_bytes : NULL;
    h->own_bytes += rn_round_up(bytes, PART_ALIGN);
    return part;
}

static void read_call(const rn_call *call, head_loss *h) {
    *h = (head_loss){.call = call, .x = call->inputs[RN_LCE_X], .w = call->inputs[RN_LCE_W]};
    h->rows = h->x.shape.dims[0];
    h->width = h->x.shape.dims[1];
    h->classes = h->w.shape.dims[0];
    uint64_t element = rn_dtype_get(h->x.dtype)->block_bytes;
    uint64_t most = LOGITS_BYTES / rn_max_u64(h->classes * element, 1) / ROW_UNIT * ROW_UNIT;
    h->chunk = rn_min_u64(rn_max_u64(rn_min_u64(most, CHUNK_ROWS), ROW_UNIT), h->rows);
    h->converts = rn_cuda_is_half(h->x.dtype) && h->w.dtype != h->x.dtype &&
                  rn_dtype_get(h->w.dtype)->is_float;
    h->weight = take(h, sizeof(float));
    h->losses = take(h, h->rows * sizeof(float));
    h->rounded = take(h, h->converts ? h->classes * h->width * element : 0);
    h->logits = take(h, h->chunk * h->classes * element);
    h->rest = take(h, 0);
}

// ---- products -----------------------------------------------------------------------------------

typedef struct chunk_product {
    rn_matmul_attrs attrs;
    rn_tensor tensors[4]; // x, w, no bias, y
} chunk_product;

static rn_tensor part_of(rn_tensor whole, uint64_t first, uint64_t rows) {
    uint64_t bytes = first * whole.shape.dims[1] * rn_dtype_get(whole.dtype)->block_bytes;
    if (whole.data) whole.data = (uint8_t *)whole.data + bytes;
    whole.shape.dims[0] = rows;
    return whole;
}

static rn_tensor logits_of(const head_loss *h, uint64_t rows) {
    return (rn_tensor){h->logits, h->x.dtype, RN_LAYOUT_PLAIN, RN_SHAPE(rows, h->classes)};
}

enum { FORWARD, BACK_TO_X, BACK_TO_W };

// One of the chunk's three products.
static void describe(const head_loss *h, int which, uint64_t first, uint64_t rows,
                     chunk_product *p) {
    rn_tensor x = part_of(h->x, first, rows), logits = logits_of(h, rows);
    rn_tensor w = h->w;
    if (h->converts) w = (rn_tensor){h->rounded, h->x.dtype, RN_LAYOUT_PLAIN, w.shape};
    *p = (chunk_product){.attrs = {.transpose_x = which == BACK_TO_W,
                                   .transpose_w = which != FORWARD,
                                   .unquantised_activations = true}};
    p->tensors[0] = which == FORWARD ? x : logits;
    p->tensors[1] = which == BACK_TO_W ? x : w;
    p->tensors[3] = which == FORWARD     ? logits
                    : which == BACK_TO_X ? part_of(h->call->outputs[RN_LCE_DX], first, rows)
                                         : h->call->outputs[RN_LCE_DW];
}

static rn_call call_of(const head_loss *h, const chunk_product *p) {
    rn_call call = *h->call;
    call.op = RN_OP_MATMUL;
    call.attrs = &p->attrs;
    call.inputs = p->tensors;
    call.outputs = &p->tensors[3];
    call.input_count = 3;
    call.output_count = 1;
    call.workspace = h->rest;
    call.workspace_bytes = h->call->workspace_bytes - h->own_bytes;
    return call;
}

static rn_status multiply(const head_loss *h, int which, uint64_t first, uint64_t rows) {
    chunk_product p;
    describe(h, which, first, rows, &p);
    rn_call call = call_of(h, &p);
    const void *addend = which == BACK_TO_W && first ? p.tensors[3].data : NULL;
    if (rn_cuda_is_half(h->x.dtype)) return rn_cuda_matmul_half_add(&call, addend);
    return rn_cuda_matmul_plain_add(&call, addend != NULL);
}

static rn_status round_weight(const head_loss *h) {
    rn_call call = *h->call;
    rn_tensor out = {h->rounded, h->x.dtype, RN_LAYOUT_PLAIN, h->w.shape};
    call.op = RN_OP_CAST;
    call.inputs = &h->w;
    call.outputs = &out;
    call.input_count = call.output_count = 1;
    return rn_cuda_cast(&call);
}

// ---- losses -------------------------------------------------------------------------------------

static rn_status find_losses(const head_loss *h, uint64_t first, uint64_t rows, bool wanted) {
    const rn_cross_entropy_attrs *attrs = h->call->attrs;
    rn_head_loss_args args = {
        .logits = h->logits,
        .targets = (const int32_t *)h->call->inputs[RN_LCE_TARGETS].data + first,
        .weight = (const float *)(const void *)h->weight,
        .losses = (float *)(void *)h->losses + first,
        .rows = rows,
        .classes = h->classes,
        .is_aligned = h->classes * rn_dtype_get(h->x.dtype)->block_bytes % 16 == 0,
        .type = rn_cuda_plain_type(h->x.dtype),
        .ignore = attrs->ignore,
        .differentiates = wanted,
    };
    return rn_cuda_launch(h->call, RN_CUDA_HEAD_LOSS, rn_cuda_row_grid(rows, RN_HEAD_THREADS),
                          &args);
}

static rn_status sum_up(const head_loss *h, rn_cuda_kernel kernel) {
    const rn_cross_entropy_attrs *attrs = h->call->attrs;
    rn_head_sum_args args = {
        .targets = h->call->inputs[RN_LCE_TARGETS].data,
        .losses = (const float *)(const void *)h->losses,
        .weight = (float *)(void *)h->weight,
        .loss = h->call->outputs[RN_LCE_LOSS].data,
        .rows = h->rows,
        .ignore = attrs->ignore,
        .is_mean = attrs->normalizer == RN_NO_SCALAR,
    };
    if (!args.is_mean) args.factor = (float)h->call->scalars[attrs->normalizer].f64;
    return rn_cuda_launch(h->call, kernel, rn_cuda_row_grid(1, RN_HEAD_SUM_THREADS), &args);
}

// ---- the row ------------------------------------------------------------------------------------

// Products of f32 make f32.
static rn_status check_types(const rn_call *call) {
    for (uint32_t i = RN_LCE_DX; i <= RN_LCE_DW; i++)
        if (call->outputs[i].data && !rn_cuda_is_half(call->inputs[RN_LCE_X].dtype) &&
            call->outputs[i].dtype != RN_DTYPE_F32)
            return rn_fail(RN_UNSUPPORTED,
                           "CUDA: linear_cross_entropy of f32 has gradients in f32");
    return RN_OK;
}

rn_status rn_cuda_linear_cross_entropy(const rn_call *call) {
    bool dx = call->outputs[RN_LCE_DX].data, dw = call->outputs[RN_LCE_DW].data;
    head_loss h;
    RN_TRY(check_types(call));
    read_call(call, &h);
    RN_TRY(sum_up(&h, RN_CUDA_HEAD_BEGIN));
    if (h.converts) RN_TRY(round_weight(&h));
    for (uint64_t first = 0; first < h.rows; first += h.chunk) {
        uint64_t rows = rn_min_u64(h.chunk, h.rows - first);
        RN_TRY(multiply(&h, FORWARD, first, rows));
        RN_TRY(find_losses(&h, first, rows, dx || dw));
        if (dw) RN_TRY(multiply(&h, BACK_TO_W, first, rows));
        if (dx) RN_TRY(multiply(&h, BACK_TO_X, first, rows));
    }
    return sum_up(&h, RN_CUDA_HEAD_END);
}

uint64_t rn_cuda_linear_cross_entropy_workspace(const rn_call *call) {
    rn_call planned = *call;
    head_loss h;
    uint64_t most = 0;
    planned.workspace = NULL;
    read_call(&planned, &h);
    for (int which = FORWARD; which <= BACK_TO_W; which++) {
        chunk_product p;
        describe(&h, which, 0, h.chunk, &p);
        rn_call part = call_of(&h, &p);
        most = rn_max_u64(most, rn_cuda_matmul_workspace(&part));
    }
    return h.own_bytes + most;
}
