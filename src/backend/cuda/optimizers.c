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

// No more blocks than run at once: each begins by making tables.
static rn_status launch8(const rn_call *call, rn_cuda_kernel kernel, const rn_update_args *args) {
    enum { LANES = 32 };
    if (args->n == 0) return RN_OK;
    uint64_t warps = rn_div_up(args->n, RN_STATE_BLOCK);
    uint64_t blocks = rn_div_up(warps, RN_UPDATE8_THREADS / LANES);
    uint64_t most = (uint64_t)rn_cuda_traits_of(call)->multiprocessors * RN_UPDATE8_BLOCKS;
    rn_cuda_grid grid = rn_cuda_row_grid(rn_min_u64(blocks, most), RN_UPDATE8_THREADS);
    return rn_cuda_launch(call, kernel, grid, args);
}

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
    return launch8(call, RN_CUDA_ADAMW8, &args);
}

rn_status rn_cuda_lion8(const rn_call *call) {
    const rn_lion_attrs *a = call->attrs;
    rn_step8 s = rn_lion8_step(a, call->scalars);
    rn_update_args args = {.m = call->outputs[1].data, .m_scale = call->outputs[2].data};
    take_step8(&s, &args);
    draw(call, a->seed, a->step, a->stream, &args);
    RN_TRY(begin(call, 4, &args));
    return launch8(call, RN_CUDA_LION8, &args);
}

// ---- Adafactor ----------------------------------------------------------------------------------

enum { COLUMN_PARTS = 64, MEASURE_BLOCKS = 1024, TOTALS_BYTES = 64 };

// Rows and columns of a matrix; all else is one row.
static void cut_factors(const rn_call *call, rn_adafactor_args *out) {
    const rn_shape *of = &call->outputs[0].shape;
    bool matrix = of->rank == 2;
    out->rows = matrix ? of->dims[0] : 1;
    out->cols = matrix ? of->dims[1] : rn_tensor_elements(&call->outputs[0]);
    out->part = rn_max_u64(rn_div_up(out->rows, COLUMN_PARTS), 1);
    out->parts = rn_div_up(out->rows, out->part);
    out->measured = (uint32_t)rn_min_u64(out->rows, MEASURE_BLOCKS);
}

uint64_t rn_cuda_adafactor_workspace(const rn_call *call) {
    rn_adafactor_args args;
    cut_factors(call, &args);
    uint64_t sums = call->outputs[0].shape.rank == 2 ? args.parts * args.cols : 0;
    return TOTALS_BYTES +
           rn_round_up(rn_max_u64(sums, 2 * (uint64_t)args.measured) * sizeof(double), 64);
}

static rn_status find_factors(const rn_call *call, const rn_adafactor_args *args) {
    rn_cuda_grid columns = rn_cuda_cover(args->cols);
    RN_TRY(rn_cuda_launch(call, RN_CUDA_ADAFACTOR_ROWS,
                          rn_cuda_row_grid(args->rows, RN_ROWS_THREADS), args));
    rn_cuda_grid join = columns;
    columns.y = (uint32_t)args->parts;
    RN_TRY(rn_cuda_launch(call, RN_CUDA_ADAFACTOR_COLUMNS, columns, args));
    join.x++;
    return rn_cuda_launch(call, RN_CUDA_ADAFACTOR_JOIN, join, args);
}

rn_status rn_cuda_adafactor(const rn_call *call) {
    const rn_adafactor_attrs *a = call->attrs;
    double step = call->scalars[a->step].f64;
    bool matrix = call->outputs[0].shape.rank == 2;
    if (!(step >= 1))
        return rn_fail(RN_INVALID, "adafactor: steps count from 1, this one is %g", step);
    rn_adafactor_args args = {.row = call->outputs[1].data,
                              .column = matrix ? call->outputs[2].data : NULL,
                              .partial = (double *)((uint8_t *)call->workspace + TOTALS_BYTES),
                              .totals = call->workspace,
                              .keep = 1 - pow(step, -0.8),
                              .rate = call->scalars[a->rate].f64,
                              .decay = a->weight_decay};
    draw(call, a->seed, a->step, a->stream, &args.base);
    RN_TRY(begin(call, 4, &args.base));
    if (args.base.n == 0) return RN_OK;
    cut_factors(call, &args);
    if (matrix) RN_TRY(find_factors(call, &args));
    RN_TRY(rn_cuda_launch(call, RN_CUDA_ADAFACTOR_MEASURE,
                          rn_cuda_row_grid(args.measured, RN_ROWS_THREADS), &args));
    RN_TRY(rn_cuda_launch(call, RN_CUDA_ADAFACTOR_SETTLE, rn_cuda_row_grid(1, RN_ROWS_THREADS),
                          &args));
    return rn_cuda_launch(call, RN_CUDA_ADAFACTOR_UPDATE, rn_cuda_cover(args.base.n), &args);
}
