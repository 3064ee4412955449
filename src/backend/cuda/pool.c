// pool.c — pools and their gradients.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "backend/cuda/kernels/pool_args.h"
#include "base/checked.h"
#include "graph/op/grads.h"

static rn_status describe(const rn_call *call, const rn_pool2d_attrs *attrs, rn_shape image,
                          rn_shape windows, rn_pool_args *a) {
    for (uint32_t i = 0; i < 4; i++)
        if (image.dims[i] > INT32_MAX / 2 || windows.dims[i] > INT32_MAX / 2)
            return rn_fail(RN_UNSUPPORTED, "CUDA: %s of %s is too large", rn_op_name(call->op),
                           rn_shape_format(image).text);
    *a = (rn_pool_args){.n = (uint32_t)image.dims[0],
                        .h = (uint32_t)image.dims[1],
                        .w = (uint32_t)image.dims[2],
                        .c = (uint32_t)image.dims[3],
                        .out_h = (uint32_t)windows.dims[1],
                        .out_w = (uint32_t)windows.dims[2],
                        .size_h = attrs->size_h,
                        .size_w = attrs->size_w,
                        .stride_h = attrs->stride_h,
                        .stride_w = attrs->stride_w,
                        .pad_top = attrs->pad_top,
                        .pad_left = attrs->pad_left,
                        .is_max = call->op == RN_OP_MAX_POOL || call->op == RN_OP_MAX_POOL_GRAD};
    a->out = call->outputs[0].data;
    return rn_cuda_value_type(call, &call->outputs[0], &a->out_type);
}

rn_status rn_cuda_pool(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_pool_args a;
    RN_TRY(describe(call, call->attrs, x->shape, y->shape, &a));
    RN_TRY(rn_cuda_value_type(call, x, &a.x_type));
    a.x = x->data;
    return rn_cuda_launch(call, RN_CUDA_POOL, rn_cuda_spread(call, rn_tensor_elements(y)), &a);
}

rn_status rn_cuda_pool_grad(const rn_call *call) {
    const rn_avg_pool_grad_attrs *average = call->attrs;
    bool is_max = call->op == RN_OP_MAX_POOL_GRAD; // x, dy; else dy
    const rn_tensor *dx = &call->outputs[0], *dy = &call->inputs[is_max ? 1 : 0];
    rn_pool_args a;
    RN_TRY(describe(call, is_max ? call->attrs : &average->pool, dx->shape, dy->shape, &a));
    RN_TRY(rn_cuda_value_type(call, dy, &a.dy_type));
    a.dy = dy->data;
    if (is_max) {
        RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &a.x_type));
        a.x = call->inputs[0].data;
    }
    return rn_cuda_launch(call, RN_CUDA_POOL_GRAD, rn_cuda_spread(call, rn_tensor_elements(dx)),
                          &a);
}
