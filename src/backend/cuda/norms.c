// norms.c — softmax, layer norm, RMS norm: one block a row.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/op/rows.h"

// The threads of a row, from its width alone: what is added with what must not depend on the rows.
static uint32_t threads_of(uint64_t width) {
    uint64_t wanted = rn_round_up(rn_div_up(width, 4), 32);
    return (uint32_t)rn_max_u64(rn_min_u64(wanted, 512), 32);
}

static rn_status begin(const rn_call *call, rn_norm_args *out) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    if (n.width > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a row of %llu elements is too long for %s",
                       (unsigned long long)n.width, rn_op_name(call->op));
    *out = (rn_norm_args){.x = call->inputs[0].data,
                          .y = call->outputs[0].data,
                          .rows = n.width ? n.rows : 0,
                          .width = (uint32_t)n.width};
    return RN_OK;
}

rn_status rn_cuda_softmax(const rn_call *call) {
    rn_norm_args args;
    RN_TRY(begin(call, &args));
    if (args.rows == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_SOFTMAX,
                          rn_cuda_row_grid(args.rows, threads_of(args.width)), &args);
}

rn_status rn_cuda_layernorm(const rn_call *call) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_norm_args args;
    RN_TRY(begin(call, &args));
    args.weight = call->inputs[1].data;
    args.bias = call->inputs[2].data;
    args.mean = call->outputs[1].data;
    args.rstd = call->outputs[2].data;
    args.eps = attrs->eps;
    if (args.rows == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_LAYERNORM,
                          rn_cuda_row_grid(args.rows, threads_of(args.width)), &args);
}

rn_status rn_cuda_rmsnorm(const rn_call *call) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_norm_args args;
    RN_TRY(begin(call, &args));
    args.weight = call->inputs[1].data;
    args.rstd = call->outputs[1].data;
    args.eps = attrs->eps;
    if (args.rows == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_RMSNORM, rn_cuda_row_grid(args.rows, RN_NORM_THREADS),
                          &args);
}
