// adapted_norm.c — what DoRA divides by: norms of the rows of a weight with its addition.
#include "backend/cuda/elements.h"
#include "backend/cuda/kernels/training_args.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"

enum { W, DOWN, UP };

static rn_cuda_kernel kernel_of(uint32_t type) {
    switch (type) {
    case RN_PLAIN_F32:
        return RN_CUDA_ADAPTED_NORM_F32;
    case RN_PLAIN_BF16:
        return RN_CUDA_ADAPTED_NORM_BF16;
    case RN_PLAIN_NF4:
        return RN_CUDA_ADAPTED_NORM_NF4;
    default:
        return RN_CUDA_ADAPTED_NORM_ANY;
    }
}

rn_status rn_cuda_adapted_norm(const rn_call *call) {
    const rn_adapted_norm_attrs *attrs = call->attrs;
    rn_adapted_norm_args args = {.down = call->inputs[DOWN].data,
                                 .up = call->inputs[UP].data,
                                 .y = call->outputs[0].data,
                                 .rank = (uint32_t)call->inputs[DOWN].shape.dims[0],
                                 .scale = attrs->scale};
    if (call->inputs[DOWN].shape.dims[0] > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a rank of %llu is too large for %s",
                       (unsigned long long)call->inputs[DOWN].shape.dims[0], rn_op_name(call->op));
    RN_TRY(rn_cuda_want_f32(call, &call->inputs[DOWN], "additions"));
    RN_TRY(rn_cuda_want_f32(call, &call->inputs[UP], "additions"));
    RN_TRY(rn_cuda_plain(&call->inputs[W], &args.w));
    if (args.w.rows == 0) return RN_OK;
    rn_cuda_grid grid = rn_cuda_row_grid(rn_div_up(args.w.rows, RN_ADAPTED_ROWS), RN_ROWS_THREADS);
    return rn_cuda_launch(call, kernel_of(args.w.type), grid, &args);
}
