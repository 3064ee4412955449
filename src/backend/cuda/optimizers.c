// optimizers.c — steps of optimisers: f32 weights and states, gradients of 32 or 16 bits.
//
// What is the same for all elements is computed in double and rounded to f32 once, as in the
// reference loops.
#include "backend/cuda/elements.h"
#include "backend/cuda/kernels/training_args.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"

#include <math.h>

enum { GRADIENT = 1 }; // the input

// Everything but the gradient is f32.
static rn_status check(const rn_call *call, uint32_t *out_gradient) {
    for (uint32_t i = 0; i < call->input_count; i++)
        if (i != GRADIENT) RN_TRY(rn_cuda_want_f32(call, &call->inputs[i], "weights and states"));
    return rn_cuda_value_type(call, &call->inputs[GRADIENT], out_gradient);
}

static rn_status launch(const rn_call *call, rn_cuda_kernel kernel, uint64_t n, const void *args) {
    if (n == 0) return RN_OK;
    return rn_cuda_launch(call, kernel, rn_cuda_cover(rn_div_up(n, 4)), args);
}

rn_status rn_cuda_adamw(const rn_call *call) {
    const rn_adamw_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64, step = call->scalars[a->step].f64;
    if (!(step >= 1)) return rn_fail(RN_INVALID, "adamw: steps count from 1, this one is %g", step);
    rn_adamw_args args = {.w = call->inputs[0].data,
                          .g = call->inputs[GRADIENT].data,
                          .m = call->inputs[2].data,
                          .v = call->inputs[3].data,
                          .new_w = call->outputs[0].data,
                          .new_m = call->outputs[1].data,
                          .new_v = call->outputs[2].data,
                          .n = rn_tensor_elements(&call->outputs[0]),
                          .keep = (float)(1 - rate * a->weight_decay),
                          .beta2 = (float)a->beta2,
                          .take1 = (float)(1 - a->beta1),
                          .take2 = (float)(1 - a->beta2),
                          .eps = (float)a->eps,
                          .pace = (float)(rate / (1 - pow(a->beta1, step))),
                          .spread = (float)sqrt(1 - pow(a->beta2, step))};
    RN_TRY(check(call, &args.g_type));
    return launch(call, RN_CUDA_ADAMW, args.n, &args);
}

rn_status rn_cuda_sgd(const rn_call *call) {
    const rn_sgd_attrs *a = call->attrs;
    rn_sgd_args args = {.w = call->inputs[0].data,
                        .g = call->inputs[GRADIENT].data,
                        .velocity = call->inputs[2].data,
                        .new_w = call->outputs[0].data,
                        .new_velocity = call->outputs[1].data,
                        .n = rn_tensor_elements(&call->outputs[0]),
                        .decay = a->weight_decay,
                        .momentum = a->momentum,
                        .rate = (float)call->scalars[a->rate].f64};
    RN_TRY(check(call, &args.g_type));
    return launch(call, RN_CUDA_SGD, args.n, &args);
}

rn_status rn_cuda_lion(const rn_call *call) {
    const rn_lion_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64;
    rn_lion_args args = {.w = call->inputs[0].data,
                         .g = call->inputs[GRADIENT].data,
                         .m = call->inputs[2].data,
                         .new_w = call->outputs[0].data,
                         .new_m = call->outputs[1].data,
                         .n = rn_tensor_elements(&call->outputs[0]),
                         .keep = (float)(1 - rate * a->weight_decay),
                         .pace = (float)rate,
                         .beta1 = (float)a->beta1,
                         .take1 = (float)(1 - a->beta1),
                         .beta2 = (float)a->beta2,
                         .take2 = (float)(1 - a->beta2)};
    RN_TRY(check(call, &args.g_type));
    return launch(call, RN_CUDA_LION, args.n, &args);
}
