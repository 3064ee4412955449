// attention_wide.c — attention of one head of many dims, as a VAE's middle has it: some queries at
// a time, by products of whole matrices and a softmax between them.
//
//     scores (rows, keys) = q kᵀ  ─▶  softmax  ─▶  p (rows, keys)  ─▶  y = p v
//
// How many queries depends on the number of keys alone. The products are matmuls (product.c,
// matmul_half.c); p is of q's type, as in the kernels for narrower heads.
#include "backend/cuda/attention_wide.h"
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "backend/cuda/kernels/wide_args.h"
#include "base/checked.h"
#include "graph/op/attention.h"

enum { SCORE_BYTES = 64 << 20, ROWS_STEP = 128, PART_ALIGN = 256 };

// The parts of the workspace: scores, p, and what the larger product wants.
typedef struct wide {
    uint64_t rows; // of queries at a time
    uint64_t score_bytes, p_bytes, product_bytes;
    rn_attention_sizes of;
} wide;

// A part of q, k, v or y as a matrix.
static rn_tensor matrix(const rn_tensor *t, uint64_t first, uint64_t rows, uint64_t cols) {
    uint64_t width = rn_dtype_get(t->dtype)->block_bytes;
    rn_tensor part = {NULL, t->dtype, RN_LAYOUT_PLAIN, RN_SHAPE(rows, cols)};
    if (t->data) part.data = (uint8_t *)t->data + first * cols * width;
    return part;
}

typedef struct product {
    rn_tensor in[3], out;
    rn_matmul_attrs attrs;
    rn_call call;
} product;

static void describe(const rn_call *call, rn_tensor x, rn_tensor w, rn_tensor y,
                     rn_matmul_attrs attrs, product *p) {
    *p = (product){.in = {x, w, {0}}, .out = y, .attrs = attrs};
    p->call = *call;
    p->call.op = RN_OP_MATMUL;
    p->call.attrs = &p->attrs;
    p->call.inputs = p->in;
    p->call.outputs = &p->out;
    p->call.input_count = 3;
    p->call.output_count = 1;
    p->call.workspace = NULL;
    p->call.workspace_bytes = 0;
}

// The two products of `rows` queries from `first` on, of image `b`.
static void describe_both(const rn_call *call, const wide *w, uint64_t b, uint64_t first,
                          uint64_t rows, uint8_t *workspace, product *scores, product *sums) {
    const rn_tensor *q = &call->inputs[0], *k = &call->inputs[1], *v = &call->inputs[2];
    uint64_t keys = w->of.keys, dims = w->of.dims, at = b * w->of.queries + first;
    rn_tensor s = {workspace, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(rows, keys)};
    rn_tensor p = {workspace ? workspace + w->score_bytes : NULL, q->dtype, RN_LAYOUT_PLAIN,
                   RN_SHAPE(rows, keys)};
    describe(call, matrix(q, at, rows, dims), matrix(k, b * keys, keys, dims), s,
             (rn_matmul_attrs){0}, scores);
    describe(call, p, matrix(v, b * keys, keys, dims), matrix(&call->outputs[0], at, rows, dims),
             (rn_matmul_attrs){.transpose_w = true}, sums);
}

static wide divide(const rn_call *call) {
    wide w = {.of = rn_attention_sizes_of(call->inputs[0].shape, call->inputs[1].shape)};
    uint64_t keys = rn_max_u64(w.of.keys, 1);
    w.rows = rn_max_u64(SCORE_BYTES / (keys * sizeof(float)) / ROWS_STEP, 1) * ROWS_STEP;
    w.rows = rn_min_u64(w.rows, w.of.queries);
    w.score_bytes = rn_round_up(w.rows * keys * sizeof(float), PART_ALIGN);
    w.p_bytes =
        rn_round_up(w.rows * keys * rn_dtype_get(call->inputs[0].dtype)->block_bytes, PART_ALIGN);
    product scores, sums;
    describe_both(call, &w, 0, 0, w.rows, NULL, &scores, &sums);
    w.product_bytes =
        rn_max_u64(rn_cuda_matmul_workspace(&scores.call), rn_cuda_matmul_workspace(&sums.call));
    return w;
}

bool rn_attention_is_wide(const rn_call *call) {
    rn_attention_sizes of = rn_attention_sizes_of(call->inputs[0].shape, call->inputs[1].shape);
    return of.dims > RN_ATTENTION_DIMS;
}

uint64_t rn_attention_wide_workspace(const rn_call *call) {
    wide w = divide(call);
    return w.score_bytes + w.p_bytes + w.product_bytes;
}

static rn_status attend_some(const rn_call *call, const wide *w, uint64_t b, uint64_t first,
                             uint64_t rows) {
    uint8_t *workspace = call->workspace, *rest = workspace + w->score_bytes + w->p_bytes;
    float *logsumexp = call->outputs[1].data; // (B, 1, T) or NULL
    product scores, sums;
    describe_both(call, w, b, first, rows, workspace, &scores, &sums);
    rn_wide_args args = {.scores = scores.out.data,
                         .out = sums.in[0].data,
                         .logsumexp = logsumexp ? logsumexp + b * w->of.queries + first : NULL,
                         .rows = rows,
                         .keys = (uint32_t)w->of.keys,
                         .type = rn_cuda_plain_type(sums.in[0].dtype),
                         .scale = rn_attention_scale(call->attrs, w->of.dims)};
    scores.call.workspace = sums.call.workspace = rest;
    scores.call.workspace_bytes = sums.call.workspace_bytes = w->product_bytes;
    RN_TRY(rn_cuda_matmul(&scores.call));
    RN_TRY(rn_cuda_launch(call, RN_CUDA_ATTENTION_WIDE, rn_cuda_row_grid(rows, RN_ROWS_THREADS),
                          &args));
    return rn_cuda_matmul(&sums.call);
}

static rn_status check(const rn_call *call, const rn_attention_sizes *of) {
    const rn_attention_attrs *attrs = call->attrs;
    bool masked = attrs->causal || attrs->window || rn_tensor_given(&call->inputs[3]);
    if (of->heads == 1 && of->kv_heads == 1 && !masked && of->keys <= INT32_MAX) return RN_OK;
    return rn_fail(RN_UNSUPPORTED,
                   "CUDA: attention with heads of %llu dims is for one head without a mask",
                   (unsigned long long)of->dims);
}

rn_status rn_attention_wide(const rn_call *call) {
    wide w = divide(call);
    RN_TRY(check(call, &w.of));
    for (uint64_t b = 0; b < w.of.batch; b++)
        for (uint64_t first = 0; first < w.of.queries; first += w.rows)
            RN_TRY(attend_some(call, &w, b, first, rn_min_u64(w.rows, w.of.queries - first)));
    return RN_OK;
}

// ---- gradients ----------------------------------------------------------------------------------

// Of an image: scores (later dy's products with values), p and ds, and what a product wants.
typedef struct wide_grad {
    rn_attention_sizes of;
    uint64_t score_bytes, p_bytes, product_bytes;
    product scores, values, dq, dk, dv;
} wide_grad;

static void describe_grad(const rn_call *call, uint64_t b, uint8_t *workspace, wide_grad *g) {
    const rn_tensor *in = call->inputs, *out = call->outputs; // q, k, v, mask, y, logsumexp, dy
    uint64_t t = g->of.queries, s = g->of.keys, d = g->of.dims;
    rn_matmul_attrs turned = {.transpose_w = true},
                    both = {.transpose_x = true, .transpose_w = true};
    rn_tensor q = matrix(&in[0], b * t, t, d), k = matrix(&in[1], b * s, s, d);
    rn_tensor v = matrix(&in[2], b * s, s, d), dy = matrix(&in[6], b * t, t, d);
    rn_tensor scores = {workspace, RN_DTYPE_F32, RN_LAYOUT_PLAIN, RN_SHAPE(t, s)};
    rn_tensor p = {NULL, in[0].dtype, RN_LAYOUT_PLAIN, RN_SHAPE(t, s)}, ds = p;
    if (workspace) {
        p.data = workspace + g->score_bytes;
        ds.data = workspace + g->score_bytes + g->p_bytes;
    }
    describe(call, q, k, scores, (rn_matmul_attrs){0}, &g->scores);
    describe(call, dy, v, scores, (rn_matmul_attrs){0}, &g->values);
    describe(call, ds, k, matrix(&out[0], b * t, t, d), turned, &g->dq);
    describe(call, ds, q, matrix(&out[1], b * s, s, d), both, &g->dk);
    describe(call, p, dy, matrix(&out[2], b * s, s, d), both, &g->dv);
}

static wide_grad divide_grad(const rn_call *call) {
    wide_grad g = {.of = rn_attention_sizes_of(call->inputs[0].shape, call->inputs[1].shape)};
    uint64_t scores = g.of.queries * g.of.keys;
    g.score_bytes = rn_round_up(scores * sizeof(float), PART_ALIGN);
    g.p_bytes = rn_round_up(scores * rn_dtype_get(call->inputs[0].dtype)->block_bytes, PART_ALIGN);
    describe_grad(call, 0, NULL, &g);
    const product *all[] = {&g.scores, &g.values, &g.dq, &g.dk, &g.dv};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        if (rn_tensor_given(&all[i]->out))
            g.product_bytes = rn_max_u64(g.product_bytes, rn_cuda_matmul_workspace(&all[i]->call));
    return g;
}

uint64_t rn_attention_wide_grad_workspace(const rn_call *call) {
    wide_grad g = divide_grad(call);
    return g.score_bytes + 2 * g.p_bytes + g.product_bytes;
}

static rn_status multiply(const wide_grad *g, product *p, uint8_t *workspace) {
    p->call.inputs = p->in;
    p->call.outputs = &p->out;
    p->call.attrs = &p->attrs;
    p->call.workspace = workspace;
    p->call.workspace_bytes = g->product_bytes;
    return p->out.data ? rn_cuda_matmul(&p->call) : RN_OK;
}

static rn_status differentiate(const rn_call *call, wide_grad *g, uint64_t b) {
    const rn_tensor *in = call->inputs;
    uint8_t *workspace = call->workspace, *rest = workspace + g->score_bytes + 2 * g->p_bytes;
    uint64_t rows = g->of.queries;
    describe_grad(call, b, workspace, g);
    rn_tensor y = matrix(&in[4], b * rows, rows, g->of.dims);
    rn_wide_grad_args args = {.scores = g->scores.out.data,
                              .logsumexp = (const float *)in[5].data + b * rows,
                              .y = y.data,
                              .dy = g->values.in[0].data,
                              .p = g->dv.in[0].data,
                              .ds = g->dq.in[0].data,
                              .rows = rows,
                              .keys = (uint32_t)g->of.keys,
                              .dims = (uint32_t)g->of.dims,
                              .type = rn_cuda_plain_type(in[0].dtype),
                              .scale = rn_attention_scale(call->attrs, g->of.dims)};
    RN_TRY(rn_cuda_value_type(call, &in[4], &args.y_type));
    RN_TRY(rn_cuda_value_type(call, &in[6], &args.dy_type));
    rn_cuda_grid grid = rn_cuda_row_grid(rows, RN_ROWS_THREADS);
    RN_TRY(multiply(g, &g->scores, rest));
    RN_TRY(rn_cuda_launch(call, RN_CUDA_ATTENTION_WIDE_POWER, grid, &args));
    RN_TRY(multiply(g, &g->values, rest));
    RN_TRY(rn_cuda_launch(call, RN_CUDA_ATTENTION_WIDE_SLOPE, grid, &args));
    RN_TRY(multiply(g, &g->dq, rest));
    RN_TRY(multiply(g, &g->dk, rest));
    return multiply(g, &g->dv, rest);
}

rn_status rn_attention_wide_grad(const rn_call *call) {
    wide_grad g = divide_grad(call);
    RN_TRY(check(call, &g.of));
    if (g.of.queries * g.of.keys * g.of.dims == 0)
        return rn_fail(RN_UNSUPPORTED, "CUDA: attention of nothing has no gradient");
    for (uint64_t b = 0; b < g.of.batch; b++)
        RN_TRY(differentiate(call, &g, b));
    return RN_OK;
}
