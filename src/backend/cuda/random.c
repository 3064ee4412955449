// random.c — random numbers by place, and dropout.
#include "backend/cuda/elements.h"
#include "backend/cuda/kernels/training_args.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/op/random.h"

static rn_status launch(const rn_call *call, rn_cuda_kernel kernel, uint32_t seed,
                        rn_random_args *args) {
    args->y = call->outputs[0].data;
    args->n = rn_tensor_elements(&call->outputs[0]);
    RN_TRY(rn_random_seed(call, seed, &args->seed));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args->y_type));
    if (args->n == 0) return RN_OK;
    return rn_cuda_launch(call, kernel, rn_cuda_cover(rn_div_up(args->n, 8)), args);
}

rn_status rn_cuda_random(const rn_call *call) {
    const rn_random_attrs *a = &((const rn_random_shape_attrs *)call->attrs)->random;
    rn_random_args args = {.stream = a->stream, .low = a->low, .high = a->high};
    bool normal = call->op == RN_OP_RANDOM_NORMAL;
    return launch(call, normal ? RN_CUDA_RANDOM_NORMAL : RN_CUDA_RANDOM_UNIFORM, a->seed, &args);
}

rn_status rn_cuda_dropout(const rn_call *call) {
    const rn_dropout_attrs *a = call->attrs;
    rn_random_args args = {.x = call->inputs[0].data,
                           .stream = a->stream,
                           .low = a->probability,
                           .high = 1 - a->probability};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &args.x_type));
    return launch(call, RN_CUDA_DROPOUT, a->seed, &args);
}
