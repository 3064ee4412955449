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

static rn_status launch(const rn_call *call, rn_cuda_kernel f32, uint32_t threads,
                        rn_cuda_kernel bf16, rn_cuda_kernel any, const rn_norm_args *args) {
    if (args->rows == 0) return RN_OK;
    if (rn_cuda_all_f32(call))
        return rn_cuda_launch(call, f32, rn_cuda_row_grid(args->rows, threads), args);
    bool both = args->x_type == RN_PLAIN_BF16 && args->y_type == RN_PLAIN_BF16 &&
                args->width % 8 == 0 && rn_cuda_is_aligned(args->x, 16) &&
                rn_cuda_is_aligned(args->y, 16) && rn_cuda_is_aligned(args->weight, 16) &&
                rn_cuda_is_aligned(args->bias, 16);
    uint64_t blocks = rn_div_up(args->rows, RN_ROWS_THREADS / args->lanes);
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
    return launch(call, RN_CUDA_RMSNORM, RN_NORM_THREADS, RN_CUDA_RMSNORM_BF16, RN_CUDA_RMSNORM_ANY,
                  &args);
}

// ---- gradients ----------------------------------------------------------------------------------

// Sums over the rows are made part by part. More parts are more rows at once, and more to add at
// the end: so many sums in all, and parts that fill a large device.
enum { SUMS_MOST = 1 << 21, PARTS_MOST = 512, SHARED_MOST = 98304 };

static uint64_t parts_most(uint64_t rows, uint64_t width) {
    uint64_t teams = RN_ROWS_THREADS / lanes_of(width);
    uint64_t most = rn_max_u64(SUMS_MOST / rn_max_u64(width, 1), 1);
    return rn_min_u64(rows, rn_min_u64(PARTS_MOST * teams, most));
}

static void cut_rows(uint64_t rows, uint64_t width, rn_norm_grad_args *out) {
    out->part = rn_max_u64(rn_div_up(rows, rn_max_u64(parts_most(rows, width), 1)), 1);
    out->parts = rn_div_up(rows, out->part);
}

// For these rows and for fewer, which may be cut into more parts.
uint64_t rn_cuda_norm_grad_workspace(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    uint64_t sums = call->output_count - 1;
    return rn_round_up(parts_most(n.rows, n.width) * sums * n.width * sizeof(float), 64);
}

// `dy`: the number of that input. What is not said of a norm is left out.
static rn_status begin_grad(const rn_call *call, uint32_t dy, rn_norm_grad_args *out) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    RN_TRY(check_width(call, n));
    *out = (rn_norm_grad_args){.x = call->inputs[0].data,
                               .dy = call->inputs[dy].data,
                               .dx = call->outputs[0].data,
                               .rows = n.width ? n.rows : 0,
                               .part = 1,
                               .parts = n.rows,
                               .width = (uint32_t)n.width,
                               .lanes = lanes_of(n.width)};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &out->x_type));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[dy], &out->dy_type));
    return rn_cuda_value_type(call, &call->outputs[0], &out->dx_type);
}

static rn_status launch_grad(const rn_call *call, rn_cuda_kernel bf16, rn_cuda_kernel any,
                             rn_norm_grad_args *args, uint32_t sums) {
    uint32_t teams = RN_ROWS_THREADS / args->lanes;
    bool all = args->x_type == RN_PLAIN_BF16 && args->dy_type == RN_PLAIN_BF16 &&
               args->dx_type == RN_PLAIN_BF16 && args->width % 8 == 0 &&
               rn_cuda_is_aligned(args->x, 16) && rn_cuda_is_aligned(args->dy, 16) &&
               rn_cuda_is_aligned(args->dx, 16) && rn_cuda_is_aligned(args->weight, 16);
    rn_cuda_grid grid = rn_cuda_row_grid(rn_div_up(args->parts, teams), RN_ROWS_THREADS);
    uint64_t bytes = (uint64_t)teams * sums * args->width * sizeof(float);
    args->in_shared = args->partial && bytes <= SHARED_MOST;
    grid.shared_bytes = args->in_shared ? (uint32_t)bytes : 0;
    return rn_cuda_launch(call, all ? bf16 : any, grid, args);
}

// d weight and d bias: where one is wanted, rows go in parts.
static rn_status sum_parts(const rn_call *call, rn_norm_grad_args *args, uint32_t sums) {
    args->d_weight = call->outputs[1].data;
    args->d_bias = sums > 1 ? call->outputs[2].data : NULL;
    RN_TRY(rn_cuda_value_type(call, &call->outputs[1], &args->d_weight_type));
    if (sums > 1) RN_TRY(rn_cuda_value_type(call, &call->outputs[2], &args->d_bias_type));
    if (!args->d_weight && !args->d_bias) return RN_OK;
    cut_rows(args->rows, args->width, args);
    args->partial = call->workspace;
    return RN_OK;
}

static rn_status norm_grad(const rn_call *call, rn_cuda_kernel bf16, rn_cuda_kernel any,
                           rn_norm_grad_args *args, uint32_t sums) {
    args->weight = call->inputs[1].data;
    RN_TRY(rn_cuda_value_type(call, &call->inputs[1], &args->weight_type));
    RN_TRY(sum_parts(call, args, sums));
    if (args->width == 0 || (!args->dx && !args->partial)) return RN_OK;
    if (args->rows > 0) RN_TRY(launch_grad(call, bf16, any, args, sums));
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
    return norm_grad(call, RN_CUDA_RMSNORM_GRAD_BF16, RN_CUDA_RMSNORM_GRAD_ANY, &args, 1);
}

rn_status rn_cuda_layernorm_grad(const rn_call *call) {
    rn_norm_grad_args args;
    RN_TRY(begin_grad(call, 4, &args));
    RN_TRY(rn_cuda_want_f32(call, &call->inputs[2], "means"));
    RN_TRY(rn_cuda_want_f32(call, &call->inputs[3], "deviations"));
    args.mean = call->inputs[2].data;
    args.rstd = call->inputs[3].data;
    return norm_grad(call, RN_CUDA_LAYERNORM_GRAD_BF16, RN_CUDA_LAYERNORM_GRAD_ANY, &args, 2);
}

rn_status rn_cuda_softmax_grad(const rn_call *call) {
    rn_norm_grad_args args;
    RN_TRY(begin_grad(call, 1, &args));
    if (args.rows == 0) return RN_OK;
    return launch_grad(call, RN_CUDA_SOFTMAX_GRAD_ANY, RN_CUDA_SOFTMAX_GRAD_ANY, &args, 0);
}
