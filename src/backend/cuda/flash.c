// flash.c — attention over whole tensors and its gradients: which kernels, how many blocks.
//
// q, k, v (and dy) of one 16-bit type go to the matrix units where the device has wgmma: heads of
// up to 256 dims, in whole eights; one head of more to products of matrices (attention_wide.h). All
// else is for the plain kernels, which sum in f32 and read tensors of any mix of types; they alone
// know masks that are added to scores. Both forms of the gradients are prepared by one kernel,
// whose results are the workspace.
#include "backend/cuda/attention_wide.h"
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "backend/cuda/kernels/attention_args.h"
#include "backend/cuda/kernels/flash_args.h"
#include "base/checked.h"
#include "graph/op/attention.h"

enum { MOST_DIMS = RN_ATTENTION_DIMS, MOST_TOKENS = 1 << 20, PREPARE_THREADS = 256 };

static const uint32_t shared_bytes[] = {
#define RN_CUDA_KERNEL(NAME, name, bytes) [RN_CUDA_##NAME] = bytes,
#include "backend/cuda/kernels.def"
#undef RN_CUDA_KERNEL
};

// ---- arguments ----------------------------------------------------------------------------------

static rn_status check_sizes(const rn_attention_sizes *of) {
    if (of->dims > MOST_DIMS)
        return rn_fail(RN_UNSUPPORTED,
                       "CUDA: attention has no kernel for heads of %llu dims, at most %d",
                       (unsigned long long)of->dims, MOST_DIMS);
    if (of->batch > INT32_MAX || of->heads > INT32_MAX || of->batch * of->heads > INT32_MAX ||
        of->queries > MOST_TOKENS || of->keys > MOST_TOKENS)
        return rn_fail(RN_UNSUPPORTED, "CUDA: attention of %llu queries to %llu keys is too large",
                       (unsigned long long)of->queries, (unsigned long long)of->keys);
    return RN_OK;
}

// What both ops have: q, k, v, mask.
static rn_status start(const rn_call *call, rn_flash_args *a) {
    const rn_attention_attrs *attrs = call->attrs;
    const rn_tensor *in = call->inputs;
    rn_attention_sizes of = rn_attention_sizes_of(in[0].shape, in[1].shape);
    RN_TRY(check_sizes(&of));
    *a = (rn_flash_args){.q = in[0].data,
                         .k = in[1].data,
                         .v = in[2].data,
                         .mask = in[3].dtype == RN_DTYPE_F32 ? in[3].data : NULL,
                         .documents = in[3].dtype == RN_DTYPE_I32 ? in[3].data : NULL,
                         .batch = (uint32_t)of.batch,
                         .queries = (uint32_t)of.queries,
                         .keys = (uint32_t)of.keys,
                         .heads = (uint32_t)of.heads,
                         .kv_heads = (uint32_t)of.kv_heads,
                         .head_dim = (uint32_t)of.dims,
                         .padded = (uint32_t)rn_round_up(of.queries, RN_FLASH_PAD),
                         .mask_of_batch = in[3].shape.rank == 3,
                         .causal = attrs->causal,
                         .window = attrs->window,
                         .scale = rn_attention_scale(attrs, of.dims)};
    RN_TRY(rn_cuda_value_type(call, &in[0], &a->q_type));
    RN_TRY(rn_cuda_value_type(call, &in[1], &a->k_type));
    return rn_cuda_value_type(call, &in[2], &a->v_type);
}

static bool is_matrix(const rn_call *call, const rn_flash_args *a) {
    if (!rn_cuda_traits_of(call)->has_wgmma || a->mask || !(a->scale > 0)) return false;
    if (a->q_type == RN_PLAIN_F32 || a->k_type != a->q_type || a->v_type != a->q_type) return false;
    if (a->dy && a->dy_type != a->q_type) return false;
    const void *all[] = {a->q, a->k, a->v, a->dy, a->out, a->dk, a->dv};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!rn_cuda_is_aligned(all[i], 16)) return false;
    return a->head_dim % 8 == 0 && a->head_dim <= MOST_DIMS;
}

// ---- launches -----------------------------------------------------------------------------------

// `first`: of the kernels for D up to 64, 96, 128, (forward: 160,) 256 in bf16, and then in f16.
static rn_status multiply(const rn_call *call, rn_cuda_kernel first, uint32_t x, uint32_t y,
                          const rn_flash_args *a) {
    bool forward = first == RN_CUDA_FLASH_BF16_64;
    rn_cuda_kernel kernel = (rn_cuda_kernel)(first + (a->head_dim > 64) + (a->head_dim > 96) +
                                             (a->head_dim > 128) + (forward && a->head_dim > 160) +
                                             (a->q_type == RN_PLAIN_F16 ? 4 + forward : 0));
    rn_cuda_grid grid = {
        x, y, 1, .threads = RN_FLASH_THREADS, .shared_bytes = shared_bytes[kernel], .early = true};
    return rn_cuda_launch(call, kernel, grid, a);
}

// Blocks of queries are worked on in rounds, by as many as the device has at once.
static rn_status multiply_queries(const rn_call *call, rn_cuda_kernel first,
                                  const rn_flash_args *a) {
    uint64_t blocks = (uint64_t)a->batch * a->heads * rn_div_up(a->queries, RN_FLASH_ROWS);
    uint32_t most = rn_cuda_traits_of(call)->multiprocessors;
    return multiply(call, first, (uint32_t)rn_min_u64(blocks, most), 1, a);
}

// Heads above 128 have a kernel for dk and one for dv: there are registers for one of both.
static rn_status multiply_keys(const rn_call *call, const rn_flash_args *a) {
    uint32_t heads = a->batch * a->kv_heads, tiles = (uint32_t)rn_div_up(a->keys, RN_FLASH_ROWS);
    if (a->head_dim <= 128 || a->dk)
        RN_TRY(multiply(call, RN_CUDA_FLASH_DKV_BF16_64, heads, tiles, a));
    if (a->head_dim <= 128 || !a->dv) return RN_OK;
    rn_cuda_kernel kernel =
        a->q_type == RN_PLAIN_F16 ? RN_CUDA_FLASH_DV_F16_256 : RN_CUDA_FLASH_DV_BF16_256;
    rn_cuda_grid grid = {
        heads,        tiles, 1, .threads = RN_FLASH_THREADS, .shared_bytes = shared_bytes[kernel],
        .early = true};
    return rn_cuda_launch(call, kernel, grid, a);
}

// `first`: of three kernels for D up to 64, 128, 256; `bytes` of shared memory.
static rn_status work_plainly(const rn_call *call, rn_cuda_kernel first, uint32_t heads,
                              uint32_t rows, uint32_t bytes, const rn_flash_args *a) {
    rn_cuda_kernel kernel = (rn_cuda_kernel)(first + (a->head_dim > 64) + (a->head_dim > 128));
    rn_cuda_grid grid = {a->batch * heads,
                         (uint32_t)rn_div_up(rows, RN_PLAIN_SLOTS),
                         1,
                         .threads = RN_PLAIN_THREADS,
                         .shared_bytes = bytes,
                         .early = true};
    return rn_cuda_launch(call, kernel, grid, a);
}

// ---- rows ---------------------------------------------------------------------------------------

rn_status rn_cuda_attention(const rn_call *call) {
    const rn_tensor *out = call->outputs; // y, logsumexp
    rn_flash_args a;
    if (rn_attention_is_wide(call)) return rn_attention_wide(call);
    RN_TRY(start(call, &a));
    RN_TRY(rn_cuda_value_type(call, &out[0], &a.out_type));
    a.out = out[0].data;
    a.out_logsumexp = out[1].data;
    if ((uint64_t)a.batch * a.heads * a.queries * a.head_dim == 0) return RN_OK;
    if (is_matrix(call, &a)) return multiply_queries(call, RN_CUDA_FLASH_BF16_64, &a);
    return work_plainly(call, RN_CUDA_ATTENTION_64, a.heads, a.queries,
                        (uint32_t)RN_PLAIN_BYTES(a.head_dim), &a);
}

uint64_t rn_cuda_attention_workspace(const rn_call *call) {
    return rn_attention_is_wide(call) ? rn_attention_wide_workspace(call) : 0;
}

// Of (B, H, padded): base and delta; then reach (B, padded / 64, 2).
static uint64_t count_rows(const rn_call *call, uint64_t *reach) {
    rn_shape q = call->inputs[0].shape;
    uint64_t padded = rn_round_up(q.dims[1], RN_FLASH_PAD);
    *reach = q.dims[0] * (padded / RN_FLASH_TILE) * 2;
    return q.dims[0] * q.dims[2] * padded;
}

uint64_t rn_cuda_attention_grad_workspace(const rn_call *call) {
    if (rn_attention_is_wide(call)) return rn_attention_wide_grad_workspace(call);
    uint64_t reach, rows = count_rows(call, &reach);
    return (2 * rows + reach) * sizeof(float);
}

static rn_status start_grad(const rn_call *call, rn_flash_args *a) {
    const rn_tensor *in = call->inputs, *out = call->outputs; // ..., y, logsumexp, dy; dq, dk, dv
    uint64_t reach, rows = count_rows(call, &reach);
    RN_TRY(start(call, a));
    RN_TRY(rn_cuda_value_type(call, &in[4], &a->y_type));
    RN_TRY(rn_cuda_value_type(call, &in[6], &a->dy_type));
    RN_TRY(rn_cuda_value_type(call, &out[0], &a->out_type));
    RN_TRY(rn_cuda_value_type(call, &out[1], &a->dk_type));
    RN_TRY(rn_cuda_value_type(call, &out[2], &a->dv_type));
    a->y = in[4].data;
    a->logsumexp = in[5].data;
    a->dy = in[6].data;
    a->out = out[0].data;
    a->dk = out[1].data;
    a->dv = out[2].data;
    a->base = call->workspace;
    a->delta = a->base ? a->base + rows : NULL;
    a->reach = a->base ? (int32_t *)(a->delta + rows) : NULL;
    return RN_OK;
}

rn_status rn_cuda_attention_grad(const rn_call *call) {
    rn_flash_args a;
    if (rn_attention_is_wide(call)) return rn_attention_wide_grad(call);
    RN_TRY(start_grad(call, &a));
    uint64_t tiles = (uint64_t)a.batch * a.heads * (a.padded / RN_FLASH_TILE);
    rn_cuda_grid grid = {(uint32_t)tiles, 1, 1, .threads = PREPARE_THREADS, .early = true};
    if (tiles > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: attention of %u queries and %u heads is too large",
                       a.queries, a.heads);
    RN_TRY(rn_cuda_launch(call, RN_CUDA_FLASH_PREPARE, grid, &a));
    bool wants_keys = (a.dk || a.dv) && (uint64_t)a.batch * a.keys * a.kv_heads * a.head_dim > 0;
    bool wants_queries = a.out && tiles * a.head_dim > 0;
    if (is_matrix(call, &a)) {
        if (wants_keys) RN_TRY(multiply_keys(call, &a));
        return wants_queries ? multiply_queries(call, RN_CUDA_FLASH_DQ_BF16_64, &a) : RN_OK;
    }
    // beside what the forward pass keeps, a second row for each slot: dy, or v
    uint32_t bytes = (uint32_t)(RN_PLAIN_BYTES(a.head_dim) + 4 * RN_PLAIN_SLOTS * a.head_dim);
    if (wants_keys)
        RN_TRY(work_plainly(call, RN_CUDA_ATTENTION_DKV_64, a.kv_heads, a.keys, bytes, &a));
    return wants_queries
               ? work_plainly(call, RN_CUDA_ATTENTION_DQ_64, a.heads, a.queries, bytes, &a)
               : RN_OK;
}
