// group_norm.c — group norm, batch norm and their gradients: chunks of pixels are measured, then
// all is applied. To batch norm all rows are one image, whose groups are its channels.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "backend/cuda/kernels/group_norm_args.h"
#include "base/checked.h"
#include "graph/op/group_norm.h"
#include "graph/op/rows.h"

enum {
    CHUNK_ELEMENTS = 1 << 13,
    CHUNKS_MOST = 1024,
    GRAD_CHUNKS_MOST = 128,   // their sums are of channels
    APPLY_ELEMENTS = 1 << 14, // of a block
    IMAGES_MOST = 65535
};

static uint32_t count_parts(const rn_group_sizes *of, uint64_t most) {
    uint64_t chunks = rn_div_up(of->pixels * of->channels, CHUNK_ELEMENTS);
    return (uint32_t)rn_max_u64(rn_min_u64(rn_min_u64(chunks, most), of->pixels), 1);
}

static uint32_t count_chunks(const rn_group_sizes *of) {
    return count_parts(of, CHUNKS_MOST);
}

// The kernel of three, for any types, bf16 and f16, that serves images of `type` like these.
static rn_cuda_kernel pick(rn_cuda_kernel any, uint32_t type, const rn_group_sizes *of,
                           const void *x, const void *y) {
    bool whole = of->channels % 8 == 0 && rn_cuda_is_aligned(x, 16) && rn_cuda_is_aligned(y, 16);
    if (!whole || (type != RN_PLAIN_BF16 && type != RN_PLAIN_F16)) return any;
    return (rn_cuda_kernel)(any + (type == RN_PLAIN_BF16 ? 1 : 2));
}

static rn_cuda_grid apply_grid(const rn_group_sizes *of) {
    uint64_t blocks = rn_div_up(of->pixels * of->channels, APPLY_ELEMENTS);
    blocks = rn_max_u64(rn_min_u64(rn_min_u64(blocks, of->pixels), 1 << 16), 1);
    return (rn_cuda_grid){(uint32_t)blocks, (uint32_t)of->images, 1, .threads = RN_ROWS_THREADS,
                          .early = true};
}

static rn_status check(const rn_call *call, const rn_group_sizes *of) {
    if (of->channels <= RN_GROUP_CHANNELS && of->images <= IMAGES_MOST &&
        of->groups <= RN_GROUP_CHANNELS)
        return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "CUDA: %s of %llu images with %llu channels is too large",
                   rn_op_name(call->op), (unsigned long long)of->images,
                   (unsigned long long)of->channels);
}

// ---- forward ------------------------------------------------------------------------------------

uint64_t rn_cuda_group_norm_workspace(const rn_call *call) {
    rn_group_sizes of = rn_group_sizes_of(call->inputs[0].shape, call->attrs);
    if (rn_tensor_given(&call->inputs[3])) return 0;
    return of.images * (count_chunks(&of) * 3 + 2) * of.groups * sizeof(float);
}

// Statistics that are given are what is told, too, where somebody asks.
static rn_status hand_on(const rn_call *call, const rn_group_norm_args *a) {
    const void *from[] = {a->mean, a->rstd};
    void *to[] = {a->out_mean, a->out_rstd};
    for (uint32_t i = 0; i < 2; i++) {
        rn_map_args copy = {.x = from[i],
                            .y = to[i],
                            .n = (uint64_t)a->images * a->groups,
                            .fn = RN_MAP_SCALE,
                            .p = 1,
                            .x_type = RN_PLAIN_F32,
                            .y_type = RN_PLAIN_F32};
        if (to[i]) RN_TRY(rn_cuda_launch(call, RN_CUDA_MAP, rn_cuda_spread(call, copy.n), &copy));
    }
    return RN_OK;
}

// By an image's sizes alone: a group is so small that one block both measures and applies it. Of
// larger ones chunks are measured side by side.
static bool is_small(const rn_group_sizes *of, const rn_group_norm_args *a) {
    enum { SMALL_ELEMENTS = 96 << 10 };
    bool half = a->x_type == a->y_type && (a->x_type == RN_PLAIN_BF16 || a->x_type == RN_PLAIN_F16);
    return half && of->each % 2 == 0 && of->pixels * of->each <= SMALL_ELEMENTS &&
           rn_cuda_is_aligned(a->x, 4) && rn_cuda_is_aligned(a->y, 4);
}

static rn_status norm_small(const rn_call *call, const rn_group_sizes *of,
                            const rn_group_norm_args *a) {
    enum { PAIRS_EACH = 8, THREADS_LEAST = 128, THREADS_MOST = 1024 };
    uint64_t threads = rn_round_up(rn_div_up(of->pixels * of->each / 2, PAIRS_EACH), 32);
    threads = rn_max_u64(rn_min_u64(threads, THREADS_MOST), THREADS_LEAST);
    rn_cuda_grid grid = {a->groups, a->images, 1, .threads = (uint32_t)threads, .early = true};
    return rn_cuda_launch(call,
                          a->x_type == RN_PLAIN_BF16 ? RN_CUDA_GROUP_NORM_SMALL_BF16
                                                     : RN_CUDA_GROUP_NORM_SMALL_F16,
                          grid, a);
}

rn_status rn_cuda_group_norm(const rn_call *call) {
    const rn_group_norm_attrs *attrs = call->attrs;
    const rn_tensor *in = call->inputs, *out = call->outputs; // x, weight, bias, mean, rstd
    rn_group_sizes of = rn_group_sizes_of(in[0].shape, attrs);
    rn_group_norm_args a = {.x = in[0].data,
                            .weight = in[1].data,
                            .bias = in[2].data,
                            .mean = in[3].data,
                            .rstd = in[4].data,
                            .partial = call->workspace,
                            .y = out[0].data,
                            .out_mean = out[1].data,
                            .out_rstd = out[2].data,
                            .pixels = of.pixels,
                            .images = (uint32_t)of.images,
                            .channels = (uint32_t)of.channels,
                            .groups = (uint32_t)of.groups,
                            .chunks = count_chunks(&of),
                            .silu = attrs->silu,
                            .eps = attrs->eps};
    RN_TRY(check(call, &of));
    RN_TRY(rn_cuda_value_type(call, &in[0], &a.x_type));
    RN_TRY(rn_cuda_value_type(call, &in[1], &a.weight_type));
    RN_TRY(rn_cuda_value_type(call, &in[2], &a.bias_type));
    RN_TRY(rn_cuda_value_type(call, &out[0], &a.y_type));
    if (of.images * of.pixels * of.channels == 0) return RN_OK;
    if (!a.mean && is_small(&of, &a)) return norm_small(call, &of, &a);
    rn_cuda_grid grid = {a.chunks, a.images, 1, .threads = RN_ROWS_THREADS, .early = true};
    if (!a.mean) {
        uint64_t groups = of.images * of.groups;
        a.statistics = a.partial + groups * a.chunks * 3;
        RN_TRY(rn_cuda_launch(call, pick(RN_CUDA_GROUP_NORM_MEASURE_ANY, a.x_type, &of, a.x, NULL),
                              grid, &a));
        grid.x = a.groups;
        RN_TRY(rn_cuda_launch(call, RN_CUDA_GROUP_NORM_TOTAL, grid, &a));
        a.mean = a.statistics;
        a.rstd = a.statistics + groups;
    } else {
        RN_TRY(hand_on(call, &a));
    }
    if (!a.y) return RN_OK;
    uint32_t type = a.x_type == a.y_type ? a.x_type : (uint32_t)RN_PLAIN_NONE;
    return rn_cuda_launch(call, pick(RN_CUDA_GROUP_NORM_APPLY_ANY, type, &of, a.x, a.y),
                          apply_grid(&of), &a);
}

// ---- gradients ----------------------------------------------------------------------------------

static uint64_t count_partial(const rn_group_sizes *of) {
    return of->images * count_parts(of, GRAD_CHUNKS_MOST) * of->channels * 2;
}

uint64_t rn_cuda_group_norm_grad_workspace(const rn_call *call) {
    rn_group_sizes of = rn_group_sizes_of(call->inputs[0].shape, call->attrs);
    return (count_partial(&of) + of.images * of.groups * 2) * sizeof(float);
}

// x, weight, mean, rstd, dy and all sizes are there; dx, d weight, d bias are the call's outputs.
static rn_status differentiate(const rn_call *call, const rn_group_sizes *of,
                               rn_group_norm_grad_args *a) {
    const rn_tensor *out = call->outputs;
    a->partial = call->workspace;
    a->sums = a->partial ? a->partial + count_partial(of) : NULL;
    a->dx = out[0].data;
    a->d_weight = out[1].data;
    a->d_bias = out[2].data;
    a->pixels = of->pixels;
    a->images = (uint32_t)of->images;
    a->channels = (uint32_t)of->channels;
    a->groups = (uint32_t)of->groups;
    a->chunks = count_parts(of, GRAD_CHUNKS_MOST);
    RN_TRY(check(call, of));
    RN_TRY(rn_cuda_value_type(call, &out[0], &a->dx_type));
    RN_TRY(rn_cuda_value_type(call, &out[1], &a->d_weight_type));
    RN_TRY(rn_cuda_value_type(call, &out[2], &a->d_bias_type));
    if (of->images * of->pixels * of->channels == 0) return RN_OK;
    rn_cuda_grid grid = {a->chunks, a->images, 1, .threads = RN_ROWS_THREADS, .early = true};
    RN_TRY(rn_cuda_launch(call, RN_CUDA_GROUP_NORM_GRAD_MEASURE, grid, a));
    grid.x = a->groups;
    RN_TRY(rn_cuda_launch(call, RN_CUDA_GROUP_NORM_GRAD_TOTAL, grid, a));
    if (!a->dx) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_GROUP_NORM_GRAD_APPLY, apply_grid(of), a);
}

rn_status rn_cuda_group_norm_grad(const rn_call *call) {
    const rn_group_norm_attrs *attrs = call->attrs;
    const rn_tensor *in = call->inputs;
    rn_group_sizes of = rn_group_sizes_of(in[0].shape, attrs);
    rn_group_norm_grad_args a = {.x = in[0].data,
                                 .weight = in[1].data,
                                 .bias = in[2].data,
                                 .mean = in[3].data,
                                 .rstd = in[4].data,
                                 .dy = in[5].data,
                                 .silu = attrs->silu};
    RN_TRY(rn_cuda_value_type(call, &in[0], &a.x_type));
    RN_TRY(rn_cuda_value_type(call, &in[1], &a.weight_type));
    RN_TRY(rn_cuda_value_type(call, &in[2], &a.bias_type));
    RN_TRY(rn_cuda_value_type(call, &in[5], &a.dy_type));
    return differentiate(call, &of, &a);
}

// ---- batch norm ---------------------------------------------------------------------------------

static rn_group_sizes sizes_of_rows(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    return (rn_group_sizes){
        .images = 1, .pixels = n.rows, .channels = n.width, .groups = n.width, .each = 1};
}

// The statistics that are used, (2, channels), then those of chunks.
uint64_t rn_cuda_batchnorm_workspace(const rn_call *call) {
    rn_group_sizes of = sizes_of_rows(call);
    return (2 + 3 * (uint64_t)count_parts(&of, GRAD_CHUNKS_MOST)) * of.channels * sizeof(float);
}

rn_status rn_cuda_batchnorm(const rn_call *call) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    const rn_tensor *in = call->inputs, *out = call->outputs;
    rn_group_sizes of = sizes_of_rows(call);
    rn_batchnorm_args a = {.x = in[0].data,
                           .weight = in[1].data,
                           .bias = in[2].data,
                           .running_mean = in[3].data,
                           .running_variance = in[4].data,
                           .statistics = call->workspace,
                           .y = out[0].data,
                           .out_mean = out[1].data,
                           .out_rstd = out[2].data,
                           .rows = of.pixels,
                           .channels = (uint32_t)of.channels,
                           .chunks = count_parts(&of, GRAD_CHUNKS_MOST),
                           .eps = attrs->eps,
                           .momentum = attrs->momentum};
    RN_TRY(check(call, &of));
    for (uint32_t i = 1; i < 5; i++)
        RN_TRY(rn_cuda_want_f32(call, &in[i], "weights and statistics"));
    RN_TRY(rn_cuda_value_type(call, &in[0], &a.x_type));
    RN_TRY(rn_cuda_value_type(call, &out[0], &a.y_type));
    if (attrs->training) {
        if (of.pixels < 2)
            return rn_hint(rn_fail(RN_INVALID,
                                   "batchnorm learns from 2 values a channel or more, not %llu",
                                   (unsigned long long)of.pixels),
                           "train with a larger batch");
        rn_group_norm_args measure = {.x = a.x,
                                      .partial = a.statistics + 2 * of.channels,
                                      .pixels = of.pixels,
                                      .images = 1,
                                      .channels = a.channels,
                                      .groups = a.channels,
                                      .chunks = a.chunks,
                                      .x_type = a.x_type};
        rn_cuda_grid grid = {a.chunks, 1, 1, .threads = RN_ROWS_THREADS, .early = true};
        RN_TRY(rn_cuda_launch(call, RN_CUDA_GROUP_NORM_MEASURE_ANY, grid, &measure));
        a.partial = measure.partial;
    }
    RN_TRY(rn_cuda_launch(call, RN_CUDA_BATCHNORM_LEARN, rn_cuda_spread(call, a.channels), &a));
    return rn_cuda_launch(call, RN_CUDA_BATCHNORM, rn_cuda_spread(call, a.rows * a.channels), &a);
}

uint64_t rn_cuda_batchnorm_grad_workspace(const rn_call *call) {
    rn_group_sizes of = sizes_of_rows(call);
    return (count_partial(&of) + of.groups * 2) * sizeof(float);
}

rn_status rn_cuda_batchnorm_grad(const rn_call *call) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    const rn_tensor *in = call->inputs; // x, weight, mean, rstd, dy
    rn_group_sizes of = sizes_of_rows(call);
    rn_group_norm_grad_args a = {.x = in[0].data,
                                 .weight = in[1].data,
                                 .mean = in[2].data,
                                 .rstd = in[3].data,
                                 .dy = in[4].data,
                                 .constant = !attrs->training};
    RN_TRY(rn_cuda_value_type(call, &in[0], &a.x_type));
    RN_TRY(rn_cuda_value_type(call, &in[1], &a.weight_type));
    RN_TRY(rn_cuda_value_type(call, &in[4], &a.dy_type));
    return differentiate(call, &of, &a);
}
