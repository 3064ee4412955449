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

static void describe(const rn_call *call, rn_tensor x, rn_tensor w, rn_tensor y, bool transpose_w,
                     product *p) {
    *p = (product){.in = {x, w, {0}}, .out = y, .attrs = {.transpose_w = transpose_w}};
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
    describe(call, matrix(q, at, rows, dims), matrix(k, b * keys, keys, dims), s, false, scores);
    describe(call, p, matrix(v, b * keys, keys, dims), matrix(&call->outputs[0], at, rows, dims),
             true, sums);
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

rn_status rn_attention_wide(const rn_call *call) {
    const rn_attention_attrs *attrs = call->attrs;
    wide w = divide(call);
    bool masked = attrs->causal || attrs->window || rn_tensor_given(&call->inputs[3]);
    if (w.of.heads != 1 || w.of.kv_heads != 1 || masked || w.of.keys > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED,
                       "CUDA: attention with heads of %llu dims is for one head without a mask",
                       (unsigned long long)w.of.dims);
    for (uint64_t b = 0; b < w.of.batch; b++)
        for (uint64_t first = 0; first < w.of.queries; first += w.rows)
            RN_TRY(attend_some(call, &w, b, first, rn_min_u64(w.rows, w.of.queries - first)));
    return RN_OK;
}
