// resize.c — one axis to another length.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "backend/cuda/kernels/resize_args.h"
#include "graph/op/resize.h"

rn_status rn_cuda_resize(const rn_call *call) {
    const rn_resize_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_resize_args a = {.x = x->data,
                        .y = y->data,
                        .outer = 1,
                        .inner = 1,
                        .length = x->shape.dims[attrs->axis],
                        .made = attrs->length,
                        .from = attrs->from,
                        .to = attrs->to,
                        .fill = attrs->fill,
                        .cubic = attrs->cubic,
                        .function = attrs->function,
                        .coordinates = attrs->coordinates,
                        .nearest = attrs->nearest,
                        .exclude_outside = attrs->exclude_outside,
                        .antialias = attrs->antialias};
    for (uint32_t i = 0; i < x->shape.rank; i++) {
        if (i < attrs->axis) a.outer *= x->shape.dims[i];
        if (i > attrs->axis) a.inner *= x->shape.dims[i];
    }
    if (rn_tensor_elements(y) == 0 || a.length == 0) return RN_OK;
    a.scale = rn_resize_scale(attrs, a.length);
    bool moves = attrs->function == RN_RESIZE_NEAREST && attrs->coordinates != RN_RESIZE_CROP;
    if (moves)
        a.width = (uint32_t)rn_dtype_get(x->dtype)->block_bytes;
    else
        RN_TRY(rn_cuda_value_type(call, x, &a.type));
    return rn_cuda_launch(call, RN_CUDA_RESIZE, rn_cuda_spread(call, rn_tensor_elements(y)), &a);
}
