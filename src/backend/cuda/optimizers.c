// optimizers.c — steps of optimisers: weights and states of f32 or bf16, or states of 8 bits;
// gradients of 32 or 16 bits.
//
// What is the same for all elements is computed in double and rounded to f32 once, as in the
// reference loops.
#include "backend/cuda/elements.h"
#include "backend/cuda/kernels/training_args.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/blocks8.h"

#include <math.h>

enum { WEIGHT, GRADIENT, STATE }; // inputs

// Of all that changes in place, the outputs' bytes are the inputs'. `guard`: the input's number.
static rn_status begin(const rn_call *call, uint32_t guard, rn_update_args *out) {
    out->g = call->inputs[GRADIENT].data;
    out->w = call->outputs[0].data;
    out->n = rn_tensor_elements(&call->outputs[0]);
    if (guard < call->input_count) out->guard = call->inputs[guard].data;
    out->state_type = RN_PLAIN_F32;
    RN_TRY(rn_cuda_value_type(call, &call->inputs[WEIGHT], &out->w_type));
    return rn_cuda_value_type(call, &call->inputs[GRADIENT], &out->g_type);
}

static void draw(const rn_call *call, uint32_t seed, uint32_t step, uint32_t stream,
                 rn_update_args *out) {
    rn_noise noise = rn_update_noise(call, seed, step, stream);
    out->seed = noise.seed;
    out->step = noise.step;
    out->stream = noise.stream;
}

static rn_status launch(const rn_call *call, rn_cuda_kernel kernel, const rn_update_args *args) {
    if (args->n == 0) return RN_OK;
    return rn_cuda_launch(call, kernel, rn_cuda_cover(rn_div_up(args->n, 8)), args);
}

rn_status rn_cuda_adamw(const rn_call *call) {
    const rn_adamw_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64, step = call->scalars[a->step].f64;
    if (!(step >= 1)) return rn_fail(RN_INVALID, "adamw: steps count from 1, this one is %g", step);
    rn_update_args args = {.m = call->outputs[1].data,
                           .v = call->outputs[2].data,
                           .keep = (float)(1 - rate * a->weight_decay),
                           .beta2 = (float)a->beta2,
                           .take1 = (float)(1 - a->beta1),
                           .take2 = (float)(1 - a->beta2),
                           .eps = (float)a->eps,
                           .pace = (float)(rate / (1 - pow(a->beta1, step))),
                           .spread = (float)sqrt(1 - pow(a->beta2, step))};
    draw(call, a->seed, a->step, a->stream, &args);
    RN_TRY(begin(call, 4, &args));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[STATE], &args.state_type));
    return launch(call, RN_CUDA_ADAMW, &args);
}

rn_status rn_cuda_sgd(const rn_call *call) {
    const rn_sgd_attrs *a = call->attrs;
    bool has_velocity = rn_tensor_given(&call->inputs[STATE]);
    rn_update_args args = {.m = has_velocity ? call->outputs[1].data : NULL,
                           .decay = a->weight_decay,
                           .momentum = a->momentum,
                           .pace = (float)call->scalars[a->rate].f64};
    draw(call, a->seed, a->step, a->stream, &args);
    RN_TRY(begin(call, 3, &args));
    return launch(call, RN_CUDA_SGD, &args);
}

rn_status rn_cuda_lion(const rn_call *call) {
    const rn_lion_attrs *a = call->attrs;
    double rate = call->scalars[a->rate].f64;
    rn_update_args args = {.m = call->outputs[1].data,
                           .keep = (float)(1 - rate * a->weight_decay),
                           .pace = (float)rate,
                           .beta1 = (float)a->beta1,
                           .take1 = (float)(1 - a->beta1),
                           .beta2 = (float)a->beta2,
                           .take2 = (float)(1 - a->beta2)};
    draw(call, a->seed, a->step, a->stream, &args);
    RN_TRY(begin(call, 3, &args));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[STATE], &args.state_type));
    return launch(call, RN_CUDA_LION, &args);
}

rn_status rn_cuda_average(const rn_call *call) {
    const rn_average_attrs *a = call->attrs;
    rn_update_args args = {.beta1 = a->keep, .take1 = 1 - a->keep};
    RN_TRY(begin(call, 2, &args));
    args.m = args.w;
    args.w = NULL;
    return launch(call, RN_CUDA_AVERAGE, &args);
}

// ---- 8 bits -------------------------------------------------------------------------------------

static void take_step8(const rn_step8 *s, rn_update_args *out) {
    out->beta1 = s->beta1;
    out->take1 = s->take1;
    out->beta2 = s->beta2;
    out->take2 = s->take2;
    out->pace = s->pace;
    out->eps = s->floor;
    out->keep = s->keep;
}

rn_status rn_cuda_adamw8(const rn_call *call) {
    const rn_adamw_attrs *a = call->attrs;
    double step = call->scalars[a->step].f64;
    if (!(step >= 1))
        return rn_fail(RN_INVALID, "adamw8: steps count from 1, this one is %g", step);
    rn_step8 s = rn_adamw8_step(a, call->scalars);
    rn_update_args args = {.m = call->outputs[1].data,
                           .v = call->outputs[2].data,
                           .m_scale = call->outputs[3].data,
                           .v_scale = call->outputs[4].data};
    take_step8(&s, &args);
    draw(call, a->seed, a->step, a->stream, &args);
    RN_TRY(begin(call, 6, &args));
    return launch(call, RN_CUDA_ADAMW8, &args);
}

rn_status rn_cuda_lion8(const rn_call *call) {
    const rn_lion_attrs *a = call->attrs;
    rn_step8 s = rn_lion8_step(a, call->scalars);
    rn_update_args args = {.m = call->outputs[1].data, .m_scale = call->outputs[2].data};
    take_step8(&s, &args);
    draw(call, a->seed, a->step, a->stream, &args);
    RN_TRY(begin(call, 4, &args));
    return launch(call, RN_CUDA_LION8, &args);
}
