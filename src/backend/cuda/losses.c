// losses.c — cross entropy and mean squares, and their gradients.
//
// Targets are on the device and are not looked at here: one that is no class gives NaN.
#include "backend/cuda/elements.h"
#include "backend/cuda/kernels/training_args.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/op/rows.h"

// ---- cross entropy ------------------------------------------------------------------------------

static rn_status begin(const rn_call *call, rn_cross_entropy_args *out) {
    const rn_cross_entropy_attrs *attrs = call->attrs;
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    if (n.width > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: %llu classes are too many for %s",
                       (unsigned long long)n.width, rn_op_name(call->op));
    *out = (rn_cross_entropy_args){.logits = call->inputs[0].data,
                                   .targets = call->inputs[1].data,
                                   .rows = n.rows,
                                   .width = (uint32_t)n.width,
                                   .ignore = attrs->ignore,
                                   .has_factor = attrs->normalizer != RN_NO_SCALAR};
    if (out->has_factor) out->factor = call->scalars[attrs->normalizer].f64;
    return rn_cuda_value_type(call, &call->inputs[0], &out->type);
}

// Blocks of a row, by its width alone.
static rn_cuda_grid row_grid(const rn_cross_entropy_args *args) {
    return rn_cuda_row_grid(args->rows, args->width > 8192 ? 512 : RN_ROWS_THREADS);
}

uint64_t rn_cuda_cross_entropy_workspace(const rn_call *call) {
    return rn_round_up(rn_tensor_elements(&call->inputs[1]) * sizeof(double), 64);
}

rn_status rn_cuda_cross_entropy(const rn_call *call) {
    rn_cross_entropy_args args;
    RN_TRY(begin(call, &args));
    for (uint32_t i = 0; i < call->output_count; i++)
        RN_TRY(rn_cuda_want_f32(call, &call->outputs[i], "its results"));
    args.loss = call->outputs[0].data;
    args.logsumexp = call->outputs[1].data;
    args.count = call->outputs[2].data;
    args.row_loss = call->workspace;
    if (args.rows > 0) RN_TRY(rn_cuda_launch(call, RN_CUDA_CROSS_ENTROPY, row_grid(&args), &args));
    return rn_cuda_launch(call, RN_CUDA_CROSS_ENTROPY_TOTAL, rn_cuda_row_grid(1, 1024), &args);
}

rn_status rn_cuda_cross_entropy_grad(const rn_call *call) {
    rn_cross_entropy_args args;
    RN_TRY(begin(call, &args));
    for (uint32_t i = 2; i < call->input_count; i++)
        RN_TRY(rn_cuda_want_f32(call, &call->inputs[i], "statistics and the loss"));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args.d_type));
    args.row_logsumexp = call->inputs[2].data;
    args.counted = call->inputs[3].data;
    args.d_loss = call->inputs[4].data;
    args.d_logits = call->outputs[0].data;
    if (args.rows == 0 || args.width == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_CROSS_ENTROPY_GRAD, row_grid(&args), &args);
}

// ---- mean squares -------------------------------------------------------------------------------

enum { MSE_PART = 65536, MSE_PARTS = 1024 }; // elements of a part, at least; parts, at most

static void cut(uint64_t n, rn_mse_args *out) {
    uint64_t parts = rn_max_u64(rn_min_u64(rn_div_up(n, MSE_PART), MSE_PARTS), 1);
    out->n = n;
    out->part = rn_round_up(rn_div_up(n, parts), 8);
    out->parts = (uint32_t)parts;
}

static rn_status begin_mse(const rn_call *call, rn_mse_args *out) {
    *out = (rn_mse_args){.a = call->inputs[0].data, .b = call->inputs[1].data};
    cut(rn_tensor_elements(&call->inputs[0]), out);
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &out->a_type));
    return rn_cuda_value_type(call, &call->inputs[1], &out->b_type);
}

uint64_t rn_cuda_mse_workspace(const rn_call *call) {
    rn_mse_args args = {0};
    cut(rn_tensor_elements(&call->inputs[0]), &args);
    return rn_round_up(args.parts * sizeof(double), 64);
}

rn_status rn_cuda_mse(const rn_call *call) {
    rn_mse_args args;
    RN_TRY(begin_mse(call, &args));
    RN_TRY(rn_cuda_want_f32(call, &call->outputs[0], "its loss"));
    args.loss = call->outputs[0].data;
    args.partial = call->workspace;
    RN_TRY(rn_cuda_launch(call, RN_CUDA_MSE, rn_cuda_row_grid(args.parts, RN_ROWS_THREADS), &args));
    return rn_cuda_launch(call, RN_CUDA_MSE_TOTAL, rn_cuda_row_grid(1, RN_ROWS_THREADS), &args);
}

rn_status rn_cuda_mse_grad(const rn_call *call) {
    rn_mse_args args;
    RN_TRY(begin_mse(call, &args));
    RN_TRY(rn_cuda_want_f32(call, &call->inputs[2], "the loss"));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args.d_type));
    args.d_loss = call->inputs[2].data;
    args.d_a = call->outputs[0].data;
    if (args.n == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_MSE_GRAD, rn_cuda_cover(rn_div_up(args.n, 8)), &args);
}
