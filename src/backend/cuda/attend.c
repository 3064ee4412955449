// attend.c — attention on the device: which kernel, how many blocks.
//
// By D, the dtype of KV and the device alone: f16 with a D of 64, 96, 128 or 256 goes to the matrix
// units, everything else to the plain kernels, which also want less shared memory. By the number of
// rows: the form for few rows has a block for each chunk of 256 keys and a workspace for their
// partial results; the form for many rows keeps a row's chunks in its block and needs none. The
// switch is at 16 rows, and for a batch that decodes higher: at 64 where the workspace stays below
// 16 MiB, at 256 where there is a sequence for each row and it stays below 64 MiB (a block for many
// rows walks along its rows' sequences one after the other). A row's bits are the same on both
// sides.
//
// Every kernel here waits by itself for those before it (early). Few rows that append by themselves
// read sequence, position, page_table and what older runs have appended before that wait: they are
// asked to where no kernel of the run makes any of these (steady_places).
#include "backend/cuda/launch.h"
#include "backend/cuda/rows.h"

#include "backend/cuda/kernels/args.h"
#include "backend/cuda/kernels/attention_args.h"
#include "base/checked.h"
#include "graph/attention_row.h"
#include "graph/op/attention.h"
#include "graph/rope_frequencies.h"
#include "graph/varlen.h"

#include <math.h>

enum {
    FEW_ROWS = 16,
    SOME_ROWS = 64,
    SOME_BYTES = 16 << 20,
    BATCH_ROWS = 256,
    BATCH_BYTES = 64 << 20,
    FEW_BLOCKS = 264, // that keep the device busy: more chunks than that share blocks
    FEW_THREADS = 256,
    MANY_THREADS = 128,
    MANY_PAIRS = 64, // (row, head) of a block of the matrix units
    MOST_DIMS = 256
};

static const uint32_t shared_bytes[] = {
#define RN_CUDA_KERNEL(NAME, name, bytes) [RN_CUDA_##NAME] = bytes,
#include "backend/cuda/kernels.def"
#undef RN_CUDA_KERNEL
};

// ---- which form ---------------------------------------------------------------------------------

static uint64_t count_chunks(const rn_tensor *kv, const rn_tensor *table) {
    return rn_div_up(table->shape.dims[1] * kv->shape.dims[3], RN_ATTEND_CHUNK);
}

// Values, top and sum of every chunk of q (rows, H, D).
static uint64_t count_partial_bytes(const rn_tensor *q, uint64_t chunks) {
    if (chunks < 2) return 0;
    return q->shape.dims[0] * q->shape.dims[1] * chunks * (q->shape.dims[2] + 2) * sizeof(float);
}

static bool is_few(const rn_tensor *q, uint64_t chunks, uint64_t sequences) {
    uint64_t rows = q->shape.dims[0], bytes = count_partial_bytes(q, chunks);
    return rows <= FEW_ROWS || (rows <= SOME_ROWS && bytes <= SOME_BYTES) ||
           (rows <= BATCH_ROWS && rows <= sequences && bytes <= BATCH_BYTES);
}

// A plan's workspace is for its most rows, and a run may have any number below.
static uint64_t find_workspace(const rn_tensor *q, const rn_tensor *kv, const rn_tensor *table) {
    uint64_t chunks = count_chunks(kv, table), sequences = table->shape.dims[0], most = 0;
    rn_tensor fewer = *q;
    for (uint64_t rows = rn_min_u64(q->shape.dims[0], BATCH_ROWS); rows > 0 && most == 0; rows--) {
        fewer.shape.dims[0] = rows;
        if (is_few(&fewer, chunks, sequences)) most = count_partial_bytes(&fewer, chunks);
        if (most == 0 && rows <= FEW_ROWS) break; // one chunk: none is needed
    }
    return most;
}

// The first of three kernels for D up to 64, 128, 256.
static rn_cuda_kernel by_dims(rn_cuda_kernel first, uint32_t dims) {
    return (rn_cuda_kernel)(first + (dims > 64) + (dims > 128));
}

static rn_cuda_kernel by_matrix(rn_cuda_kernel first, uint32_t dims) {
    return (rn_cuda_kernel)(first + (dims > 64) + (dims > 96) + (dims > 128));
}

// The same for few rows and for many, so that a row's bits are, too.
static bool is_matrix(const rn_call *call, rn_dtype kv, uint32_t dims) {
    if (kv != RN_DTYPE_F16 || (dims != 64 && dims != 96 && dims != 128 && dims != 256))
        return false;
    uint32_t most = rn_cuda_traits_of(call)->shared_most;
    return shared_bytes[by_matrix(RN_CUDA_ATTEND_FEW_64, dims)] <= most &&
           shared_bytes[by_matrix(RN_CUDA_ATTEND_MANY_64, dims)] <= most;
}

// ---- arguments ----------------------------------------------------------------------------------

static rn_status check(const rn_call *call, const rn_tensor *kv, const rn_tensor *table) {
    rn_shape s = kv->shape, t = table->shape;
    uint64_t rows = 0, tokens = 0;
    if (s.dims[1] != 2)
        return rn_fail(RN_UNSUPPORTED, "CUDA: %s has no kernel for a KV cache of keys only",
                       rn_op_name(call->op));
    if (s.dims[4] > MOST_DIMS)
        return rn_fail(RN_UNSUPPORTED, "CUDA: %s has no kernel for heads of %llu dims, at most %d",
                       rn_op_name(call->op), (unsigned long long)s.dims[4], MOST_DIMS);
    bool fits = rn_mul_u64(s.dims[0] * 2, s.dims[2], &rows) && rn_mul_u64(rows, s.dims[3], &rows) &&
                rows < UINT32_MAX && rn_mul_u64(t.dims[1], s.dims[3], &tokens) &&
                tokens <= INT32_MAX && t.dims[0] <= INT32_MAX;
    if (!fits)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a KV cache of %s is too large for %s",
                       rn_shape_format(s).text, rn_op_name(call->op));
    return RN_OK;
}

// `kv` and the three inputs from `first` on: sequence, position, page_table.
static rn_attend_args start(const rn_tensor *kv, const rn_tensor *first) {
    rn_shape s = kv->shape, table = first[2].shape;
    return (rn_attend_args){.kv = kv->data,
                            .sequence = first[0].data,
                            .position = first[1].data,
                            .pages = first[2].data,
                            .rows = (uint32_t)first[0].shape.dims[0],
                            .heads = (uint32_t)s.dims[2],
                            .kv_heads = (uint32_t)s.dims[2],
                            .head_dim = (uint32_t)s.dims[4],
                            .page_tokens = (uint32_t)s.dims[3],
                            .table_pages = (uint32_t)table.dims[1],
                            .sequences = (uint32_t)table.dims[0],
                            .page_count = (uint32_t)s.dims[0],
                            .kv_type = kv->dtype == RN_DTYPE_Q8_0  ? 2
                                       : kv->dtype == RN_DTYPE_F16 ? 1
                                                                   : 0,
                            .chunks = (uint32_t)count_chunks(kv, &first[2])};
}

static void ask(rn_attend_args *a, const rn_call *call, const rn_tensor *q, const rn_tensor *out,
                const rn_attention_attrs *attrs) {
    a->q = q->data;
    a->out = out->data;
    a->partial = call->workspace;
    a->heads = (uint32_t)q->shape.dims[1];
    a->window = attrs->window;
    a->scale = rn_attention_scale(attrs, a->head_dim);
    a->cap = attrs->cap;
}

static void set_rope(rn_rope_table *rope, const rn_rope_attrs *attrs, uint32_t head_dim) {
    double frequencies[RN_ROPE_MOST / 2], factor;
    rope->dims = (uint32_t)rn_rope_dims(attrs, head_dim);
    rn_rope_frequencies(attrs, head_dim, frequencies, &factor);
    for (uint32_t i = 0; i < rope->dims / 2; i++)
        rope->turns[i] = frequencies[i] / (2 * M_PI);
    rope->factor = (float)factor;
    rope->neighbours = attrs->pairing == RN_ROPE_NEIGHBOURS;
    rope->inverse = attrs->inverse;
}

// ---- launches -----------------------------------------------------------------------------------

static rn_status launch(const rn_call *call, rn_cuda_kernel kernel, rn_cuda_grid grid,
                        const rn_attend_args *a) {
    grid.early = true;
    return rn_cuda_launch(call, kernel, grid, a);
}

static rn_status append(const rn_call *call, const rn_attend_args *a) {
    uint32_t blocks = (uint32_t)rn_div_up((uint64_t)a->rows * a->kv_heads, 4);
    return launch(call, RN_CUDA_ATTEND_APPEND, (rn_cuda_grid){blocks, 1, 1, .threads = 128}, a);
}

// `part`: heads of a group that a block works on at most.
static rn_status attend_few(const rn_call *call, const rn_attend_args *a, rn_cuda_kernel kernel,
                            uint32_t part, uint32_t bytes) {
    uint32_t parts = a->kv_heads * (uint32_t)rn_div_up(a->heads / a->kv_heads, part);
    uint32_t share = (uint32_t)rn_min_u64(a->chunks, rn_div_up(FEW_BLOCKS, parts * a->rows));
    share = share ? share : 1; // tables of no page: rows are blank
    rn_cuda_grid grid = {share, parts, a->rows, .threads = FEW_THREADS, .shared_bytes = bytes};
    RN_TRY(launch(call, kernel, grid, a));
    if (a->chunks < 2) return RN_OK;
    uint32_t threads = (uint32_t)rn_round_up(a->head_dim, 32);
    return launch(call, RN_CUDA_ATTEND_MERGE,
                  (rn_cuda_grid){a->heads, a->rows, 1, .threads = threads}, a);
}

static rn_status attend_many(const rn_call *call, const rn_attend_args *a, rn_cuda_kernel kernel,
                             uint32_t pairs, uint32_t threads, uint32_t bytes) {
    uint32_t group = a->heads / a->kv_heads;
    uint32_t heads = group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1; // share_heads of attend.cuh
    uint32_t tiles = (uint32_t)rn_div_up(a->rows, pairs / heads);
    return launch(
        call, kernel,
        (rn_cuda_grid){a->heads / heads, tiles, 1, .threads = threads, .shared_bytes = bytes}, a);
}

static rn_status attend(const rn_call *call, const rn_attend_args *a, const rn_tensor *q,
                        rn_dtype kv) {
    bool few = is_few(q, a->chunks, a->sequences);
    uint32_t dims = a->head_dim, bytes = (uint32_t)RN_PLAIN_BYTES(dims);
    if (a->cap == 0 && is_matrix(call, kv, dims)) {
        rn_cuda_kernel kernel =
            by_matrix(few ? RN_CUDA_ATTEND_FEW_64 : RN_CUDA_ATTEND_MANY_64, dims);
        bytes = shared_bytes[kernel];
        return few ? attend_few(call, a, kernel, 16, bytes)
                   : attend_many(call, a, kernel, MANY_PAIRS, MANY_THREADS, bytes);
    }
    rn_cuda_kernel kernel =
        by_dims(few ? RN_CUDA_ATTEND_PLAIN_FEW_64 : RN_CUDA_ATTEND_PLAIN_MANY_64, dims);
    return few ? attend_few(call, a, kernel, RN_PLAIN_SLOTS, bytes)
               : attend_many(call, a, kernel, RN_PLAIN_SLOTS, RN_PLAIN_THREADS, bytes);
}

// ---- rows ---------------------------------------------------------------------------------------

rn_status rn_cuda_attend(const rn_call *call) {
    const rn_attend_attrs *attrs = call->attrs;
    const rn_tensor *in = call->inputs, *kv = &call->outputs[0]; // q, k, v, kv, sequence, ...
    RN_TRY(check(call, kv, &in[6]));
    rn_attend_args a = start(kv, &in[4]);
    if (a.rows == 0) return RN_OK;
    ask(&a, call, &in[0], &call->outputs[1], &attrs->attention);
    a.k = in[1].data;
    a.v = in[2].data;
    set_rope(&a.rope, &attrs->rope, a.head_dim);
    bool by_itself = a.cap == 0 && is_matrix(call, kv->dtype, a.head_dim) &&
                     is_few(&in[0], a.chunks, a.sequences);
    if (!by_itself || !attrs->steady_places) {
        RN_TRY(append(call, &a));
        a.k = a.v = NULL;
    }
    return attend(call, &a, &in[0], kv->dtype);
}

uint64_t rn_cuda_attend_workspace(const rn_call *call) {
    return find_workspace(&call->inputs[0], &call->inputs[3], &call->inputs[6]);
}

rn_status rn_cuda_kv_append(const rn_call *call) {
    const rn_tensor *in = call->inputs; // kv, k, v, sequence, position, page_table
    RN_TRY(check(call, &in[0], &in[5]));
    rn_attend_args a = start(&call->outputs[0], &in[3]);
    if (a.rows == 0) return RN_OK;
    a.k = in[1].data;
    a.v = in[2].data;
    return append(call, &a);
}

rn_status rn_cuda_paged_attention(const rn_call *call) {
    const rn_tensor *in = call->inputs; // q, kv, sequence, position, page_table
    if (call->input_count > 5)
        return rn_fail(RN_UNSUPPORTED, "CUDA: %s has no kernel for attention sinks",
                       rn_op_name(call->op));
    RN_TRY(check(call, &in[1], &in[4]));
    rn_attend_args a = start(&in[1], &in[2]);
    if (a.rows == 0) return RN_OK;
    ask(&a, call, &in[0], &call->outputs[0], call->attrs);
    return attend(call, &a, &in[0], in[1].dtype);
}

uint64_t rn_cuda_paged_attention_workspace(const rn_call *call) {
    return find_workspace(&call->inputs[0], &call->inputs[1], &call->inputs[4]);
}

// ---- attention within texts ---------------------------------------------------------------------

static rn_status check_sizes(const rn_attention_sizes *of) {
    if (of->dims > MOST_DIMS)
        return rn_fail(RN_UNSUPPORTED,
                       "CUDA: attention has no kernel for heads of %llu dims, at "
                       "most %d",
                       (unsigned long long)of->dims, MOST_DIMS);
    if (of->batch * of->heads > INT32_MAX || of->queries > 65535 * RN_PLAIN_SLOTS ||
        of->keys > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: attention of %llu queries to %llu keys is too large",
                       (unsigned long long)of->queries, (unsigned long long)of->keys);
    return RN_OK;
}

rn_status rn_cuda_varlen_attention(const rn_call *call) {
    const rn_attention_attrs *attrs = call->attrs;
    rn_varlen of = rn_varlen_of(call);
    rn_attention_sizes sizes = {.batch = 1,
                                .heads = of.heads,
                                .kv_heads = of.kv_heads,
                                .queries = of.rows,
                                .keys = of.rows,
                                .dims = of.dims};
    RN_TRY(check_sizes(&sizes));
    rn_varlen_args a = {.q = of.q,
                        .k = of.k,
                        .v = of.v,
                        .span = of.span,
                        .bias = of.bias,
                        .out = of.y,
                        .rows = (uint32_t)of.rows,
                        .heads = (uint32_t)of.heads,
                        .kv_heads = (uint32_t)of.kv_heads,
                        .head_dim = (uint32_t)of.dims,
                        .reach = (uint32_t)rn_min_u64(of.reach, INT32_MAX),
                        .causal = attrs->causal,
                        .window = attrs->window,
                        .scale = of.scale,
                        .cap = attrs->cap};
    if (of.rows * of.heads * of.dims == 0) return RN_OK;
    rn_cuda_grid grid = {a.heads,
                         (uint32_t)rn_div_up(of.rows, RN_PLAIN_SLOTS),
                         1,
                         .threads = RN_PLAIN_THREADS,
                         .shared_bytes = (uint32_t)RN_PLAIN_BYTES(of.dims),
                         .early = true};
    return rn_cuda_launch(call, by_dims(RN_CUDA_VARLEN_64, a.head_dim), grid, &a);
}
