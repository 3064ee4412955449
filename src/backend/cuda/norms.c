// norms.c — softmax, layer norm, RMS norm and their gradients: a block or a warp a row.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/op/rows.h"

// The threads of a row, from its width alone: what is added with what must not depend on the rows.
static uint32_t threads_of(uint64_t width) {
    uint64_t wanted = rn_round_up(rn_div_up(width, 4), 32);
    return (uint32_t)rn_max_u64(rn_min_u64(wanted, 512), 32);
}

// Lanes of a row in the kernels for any types; from its width alone, too.
static uint32_t lanes_of(uint64_t width) {
    return width <= 512 ? 32 : RN_ROWS_THREADS;
}

static rn_status check_width(const rn_call *call, rn_row_count n) {
    if (n.width <= INT32_MAX) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "CUDA: a row of %llu elements is too long for %s",
                   (unsigned long long)n.width, rn_op_name(call->op));
}

static rn_status begin(const rn_call *call, rn_norm_args *out) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    RN_TRY(check_width(call, n));
    *out = (rn_norm_args){.x = call->inputs[0].data,
                          .y = call->outputs[0].data,
                          .rows = n.width ? n.rows : 0,
                          .width = (uint32_t)n.width,
                          .lanes = lanes_of(n.width)};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &out->x_type));
    return rn_cuda_value_type(call, &call->outputs[0], &out->y_type);
}

// x and y of bf16 in whole eights, and all aligned.
static bool is_whole(const rn_norm_args *args) {
    return args->x_type == RN_PLAIN_BF16 && args->y_type == RN_PLAIN_BF16 && args->width % 8 == 0 &&
           rn_cuda_is_aligned(args->x, 16) && rn_cuda_is_aligned(args->y, 16) &&
           rn_cuda_is_aligned(args->weight, 16) && rn_cuda_is_aligned(args->bias, 16);
}

static rn_status launch(const rn_call *call, rn_cuda_kernel f32, uint32_t threads,
                        rn_cuda_kernel bf16, rn_cuda_kernel any, const rn_norm_args *args) {
    enum { BLOCKS_EACH = 4 };
    const rn_cuda_traits *traits = rn_cuda_traits_of(call);
    if (args->rows == 0) return RN_OK;
    if (rn_cuda_all_f32(call))
        return rn_cuda_launch(call, f32, rn_cuda_row_grid(args->rows, threads), args);
    bool both = is_whole(args);
    uint64_t blocks = rn_div_up(args->rows, RN_ROWS_THREADS / args->lanes);
    // As many as there are at once: a block fetches its next row while it works on one.
    if (both) blocks = rn_min_u64(blocks, (uint64_t)BLOCKS_EACH * traits->multiprocessors);
    return rn_cuda_launch(call, both ? bf16 : any, rn_cuda_row_grid(blocks, RN_ROWS_THREADS), args);
}

rn_status rn_cuda_softmax(const rn_call *call) {
    rn_norm_args args;
    RN_TRY(begin(call, &args));
    return launch(call, RN_CUDA_SOFTMAX, threads_of(args.width), RN_CUDA_SOFTMAX_BF16,
                  RN_CUDA_SOFTMAX_ANY, &args);
}

rn_status rn_cuda_layernorm(const rn_call *call) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_norm_args args;
    RN_TRY(begin(call, &args));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[1], &args.weight_type));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[2], &args.bias_type));
    RN_TRY(rn_cuda_want_f32(call, &call->outputs[1], "means"));
    RN_TRY(rn_cuda_want_f32(call, &call->outputs[2], "deviations"));
    args.weight = call->inputs[1].data;
    args.bias = call->inputs[2].data;
    args.mean = call->outputs[1].data;
    args.rstd = call->outputs[2].data;
    args.eps = attrs->eps;
    if (args.rows && is_whole(&args) &&
        args.width <= 256 * 8) { // of longer ones a warp holds too much
        uint64_t deep = rn_div_up(args.width, 256), rows = RN_ROWS_THREADS / 32;
        rn_cuda_kernel kernel = deep <= 3   ? RN_CUDA_LAYERNORM_WARP_3
                                : deep <= 5 ? RN_CUDA_LAYERNORM_WARP_5
                                            : RN_CUDA_LAYERNORM_WARP_8;
        return rn_cuda_launch(call, kernel,
                              rn_cuda_row_grid(rn_div_up(args.rows, rows), RN_ROWS_THREADS), &args);
    }
    return launch(call, RN_CUDA_LAYERNORM, threads_of(args.width), RN_CUDA_LAYERNORM_BF16,
                  RN_CUDA_LAYERNORM_ANY, &args);
}

rn_status rn_cuda_rmsnorm(const rn_call *call) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_norm_args args;
    RN_TRY(begin(call, &args));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[1], &args.weight_type));
    RN_TRY(rn_cuda_want_f32(call, &call->outputs[1], "deviations"));
    args.weight = call->inputs[1].data;
    args.rstd = call->outputs[1].data;
    args.eps = attrs->eps;
    if (args.rows && is_whole(&args) && args.width <= 256) {
        enum { EACH = 4 }; // rows of a thread
        uint32_t lanes = args.width <= 64 ? 8 : args.width <= 128 ? 16 : 32;
        rn_cuda_kernel kernel = lanes == 8    ? RN_CUDA_RMSNORM_NARROW_8
                                : lanes == 16 ? RN_CUDA_RMSNORM_NARROW_16
                                              : RN_CUDA_RMSNORM_NARROW_32;
        uint64_t blocks = rn_div_up(args.rows, (uint64_t)EACH * RN_ROWS_THREADS / lanes);
        return rn_cuda_launch(call, kernel, rn_cuda_row_grid(blocks, RN_ROWS_THREADS), &args);
    }
    return launch(call, RN_CUDA_RMSNORM, RN_NORM_THREADS, RN_CUDA_RMSNORM_BF16, RN_CUDA_RMSNORM_ANY,
                  &args);
}

// ---- gradients ----------------------------------------------------------------------------------

// Sums over the rows are made part by part: as many parts as fill a large device with the teams of
// lanes that a row of this width has, where there are enough rows.
enum { PARTS_NARROW = 2048, PARTS_MIDDLE = 256, PARTS_WIDE = 128 };

// Lanes of a row of bf16 in whole eights, of which each lane has two; 0: it is too long.
static uint32_t lanes_of_two(uint64_t width) {
    if (width <= 512) return 32;
    if (width <= 4096) return 256;
    if (width <= 8192) return 512;
    return width <= 16384 ? 1024 : 0;
}

static uint64_t parts_most(uint64_t rows, uint64_t width) {
    uint64_t most = width <= 512 ? PARTS_NARROW : width <= 4096 ? PARTS_MIDDLE : PARTS_WIDE;
    return rn_min_u64(rows, most);
}

static void cut_rows(rn_norm_grad_args *out) {
    uint64_t parts = rn_max_u64(parts_most(out->rows, out->width), 1);
    out->part = rn_max_u64(rn_div_up(out->rows, parts), 1);
    out->parts = rn_div_up(out->rows, out->part);
}

// For these rows and for fewer, which may be cut into more parts.
uint64_t rn_cuda_norm_grad_workspace(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    uint64_t sums = call->output_count - 1;
    return rn_round_up(parts_most(n.rows, n.width) * sums * n.width * sizeof(float), 64);
}

// `dy`: the number of that input.
static rn_status begin_grad(const rn_call *call, uint32_t dy, rn_norm_grad_args *out) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    RN_TRY(check_width(call, n));
    *out = (rn_norm_grad_args){.x = call->inputs[0].data,
                               .dy = call->inputs[dy].data,
                               .dx = call->outputs[0].data,
                               .rows = n.width ? n.rows : 0,
                               .width = (uint32_t)n.width,
                               .lanes = lanes_of(n.width)};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &out->x_type));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[dy], &out->dy_type));
    return rn_cuda_value_type(call, &call->outputs[0], &out->dx_type);
}

static rn_cuda_grid grid_of(uint64_t rows, uint32_t lanes) {
    uint32_t threads = lanes > RN_ROWS_THREADS ? lanes : RN_ROWS_THREADS;
    return rn_cuda_row_grid(rn_div_up(rows, threads / lanes), threads);
}

static bool are_whole_bf16(const rn_norm_grad_args *args) {
    return args->x_type == RN_PLAIN_BF16 && args->dy_type == RN_PLAIN_BF16 &&
           args->dx_type == RN_PLAIN_BF16 && args->width % 8 == 0 &&
           rn_cuda_is_aligned(args->x, 16) && rn_cuda_is_aligned(args->dy, 16) &&
           rn_cuda_is_aligned(args->dx, 16) && rn_cuda_is_aligned(args->weight, 16);
}

// dx and the parts' sums.
static rn_status launch_norm(const rn_call *call, rn_norm_grad_args *args) {
    bool layer = args->mean != NULL;
    uint32_t lanes = lanes_of_two(args->width);
    if (are_whole_bf16(args) && lanes) {
        rn_cuda_kernel kernel = layer ? RN_CUDA_LAYERNORM_GRAD_32 : RN_CUDA_RMSNORM_GRAD_32;
        kernel += lanes == 32 ? 0 : lanes == 256 ? 1 : lanes == 512 ? 2 : 3;
        args->lanes = lanes;
        return rn_cuda_launch(call, kernel, grid_of(args->parts, lanes), args);
    }
    if (args->partial) { // first: dx may be dy
        rn_cuda_grid grid = rn_cuda_cover(rn_div_up(args->width, 8));
        grid.y = (uint32_t)args->parts;
        RN_TRY(rn_cuda_launch(call, RN_CUDA_NORM_COLUMNS, grid, args));
    }
    if (!args->dx) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_NORM_GRAD_ANY, grid_of(args->rows, args->lanes), args);
}

static rn_status norm_grad(const rn_call *call, rn_norm_grad_args *args, uint32_t sums) {
    RN_TRY(rn_cuda_value_type(call, &call->inputs[1], &args->weight_type));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[1], &args->d_weight_type));
    if (sums > 1) RN_TRY(rn_cuda_value_type(call, &call->outputs[2], &args->d_bias_type));
    args->weight = call->inputs[1].data;
    args->d_weight = call->outputs[1].data;
    args->d_bias = sums > 1 ? call->outputs[2].data : NULL;
    if (args->d_weight || args->d_bias) args->partial = call->workspace;
    cut_rows(args);
    if (args->width == 0 || (!args->dx && !args->partial)) return RN_OK;
    if (args->rows > 0) RN_TRY(launch_norm(call, args));
    if (!args->partial) return RN_OK;
    rn_cuda_grid grid = rn_cuda_row_grid(rn_div_up(args->width, 32), 1024);
    grid.y = sums;
    return rn_cuda_launch(call, RN_CUDA_NORM_TOTAL, grid, args);
}

rn_status rn_cuda_rmsnorm_grad(const rn_call *call) {
    rn_norm_grad_args args;
    RN_TRY(begin_grad(call, 3, &args));
    RN_TRY(rn_cuda_want_f32(call, &call->inputs[2], "deviations"));
    args.rstd = call->inputs[2].data;
    return norm_grad(call, &args, 1);
}

rn_status rn_cuda_layernorm_grad(const rn_call *call) {
    rn_norm_grad_args args;
    RN_TRY(begin_grad(call, 4, &args));
    RN_TRY(rn_cuda_want_f32(call, &call->inputs[2], "means"));
    RN_TRY(rn_cuda_want_f32(call, &call->inputs[3], "deviations"));
    args.mean = call->inputs[2].data;
    args.rstd = call->inputs[3].data;
    return norm_grad(call, &args, 2);
}

rn_status rn_cuda_softmax_grad(const rn_call *call) {
    rn_norm_grad_args args;
    RN_TRY(begin_grad(call, 1, &args));
    if (args.rows == 0) return RN_OK;
    return rn_cuda_launch(
        call, are_whole_bf16(&args) ? RN_CUDA_SOFTMAX_GRAD_BF16 : RN_CUDA_SOFTMAX_GRAD_ANY,
        grid_of(args.rows, args.lanes), &args);
}
