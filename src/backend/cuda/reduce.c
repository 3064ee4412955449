// reduce.c — sums and maxima over axes. How a group is cut follows from its size and from which
// axes it has, so that a row's result does not depend on how many rows there are, not even on
// whether there are others.
#include "backend/cuda/elements.h"
#include "backend/cuda/kernels/training_args.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"
#include "graph/op/reduce.h"
#include "graph/op/rows.h"

enum {
    WARP_GROUP = 1024,   // elements that a warp folds alone
    ROW_PART = 65536,    // elements of a group that lies together, by one block
    ROW_PARTS = 1024,    // at most
    COLUMN_PART = 256,   // elements of a group that lies across, by one thread
    COLUMN_PARTS = 32,   // at most
    HALF_PART = 64,      // the same of 16-bit elements: threads have eight columns each, so that
    HALF_PARTS = 128,    // there are fewer of them
    SQUARES_PART = 8192, // elements of a sum of squares, by one block: it has one output, so that
    SQUARES_PARTS = 512  // its parts are all that is under way at once
};

typedef enum fold_form { FORM_SHORT, FORM_ROW, FORM_COLUMN } fold_form;

static void cut(rn_reduce_args *args, uint64_t wanted, uint64_t most) {
    uint64_t parts = rn_max_u64(rn_min_u64(rn_div_up(args->elements, wanted), most), 1);
    args->part = rn_max_u64(rn_div_up(args->elements, parts), 1);
    args->parts = (uint32_t)parts;
}

// `across`: groups lie side by side, where there are several.
static fold_form choose(rn_reduce_args *args, bool across, bool halves) {
    if (across) {
        cut(args, halves ? HALF_PART : COLUMN_PART, halves ? HALF_PARTS : COLUMN_PARTS);
        return FORM_COLUMN;
    }
    cut(args, ROW_PART, ROW_PARTS);
    return args->elements <= WARP_GROUP ? FORM_SHORT : FORM_ROW;
}

// The groups of a call by its shapes alone.
static fold_form plan(const rn_call *call, rn_reduce_args *out) {
    rn_shape shape = call->inputs[0].shape;
    uint32_t axes = UINT32_MAX; // sum_squares has no attributes: all of them
    if (call->op != RN_OP_SUM_SQUARES) axes = ((const rn_reduce_attrs *)call->attrs)->axes;
    rn_strides strides = rn_strides_of(shape);
    rn_walk kept = rn_walk_begin(rn_reduce_axes(shape, ~axes), strides, strides);
    rn_walk group = rn_walk_begin(rn_reduce_axes(shape, axes), strides, strides);
    *out = (rn_reduce_args){.kept = rn_cuda_walk(&kept),
                            .group = rn_cuda_walk(&group),
                            .outputs = rn_tensor_elements(&call->outputs[0]),
                            .elements = rn_cuda_walk_elements(&group),
                            .divisor = 1};
    if (call->op != RN_OP_SUM_SQUARES)
        return choose(out, shape.rank > 0 && !(axes >> (shape.rank - 1) & 1),
                      call->inputs[0].dtype != RN_DTYPE_F32);
    cut(out, SQUARES_PART, SQUARES_PARTS);
    out->part = rn_round_up(out->part, 8);
    return out->elements <= WARP_GROUP ? FORM_SHORT : FORM_ROW;
}

uint64_t rn_cuda_reduce_workspace(const rn_call *call) {
    rn_reduce_args args;
    plan(call, &args);
    return args.parts > 1 ? rn_round_up(args.outputs * args.parts * sizeof(double), 64) : 0;
}

// Blocks for one part of all groups.
static rn_cuda_grid grid_of(const rn_call *call, const rn_reduce_args *args, fold_form form) {
    static const uint32_t threads[] = {
        [FORM_SHORT] = 32, [FORM_ROW] = RN_ROWS_THREADS, [FORM_COLUMN] = 1};
    uint64_t most = UINT64_MAX / RN_ROWS_THREADS; // of groups, so that the product is one
    rn_cuda_grid grid = rn_cuda_spread(call, rn_min_u64(args->outputs, most) * threads[form]);
    grid.y = args->parts;
    return grid;
}

// Groups of 16-bit elements that lie side by side in whole eights, their elements one step apart.
static bool is_in_eights(const rn_reduce_args *args, fold_form form) {
    return form == FORM_COLUMN && args->x_type != RN_PLAIN_F32 && args->kept.rank == 0 &&
           args->kept.step[0] == 1 && args->group.rank == 0 && args->group.step[0] % 8 == 0 &&
           args->outputs % 8 == 0 && rn_cuda_is_aligned(args->x, 16);
}

static rn_status reduce(const rn_call *call, rn_fold fold) {
    static const rn_cuda_kernel kernels[][2] = {
        [FORM_SHORT] = {RN_CUDA_REDUCE_SHORT, RN_CUDA_REDUCE_SHORT_ANY},
        [FORM_ROW] = {RN_CUDA_REDUCE_ROW, RN_CUDA_REDUCE_ROW_ANY},
        [FORM_COLUMN] = {RN_CUDA_REDUCE_COLUMN, RN_CUDA_REDUCE_COLUMN_ANY}};
    rn_reduce_args args;
    fold_form form = plan(call, &args);
    args.x = call->inputs[0].data;
    args.y = call->outputs[0].data;
    args.partial = args.parts > 1 ? call->workspace : NULL;
    args.fold = fold;
    if (call->op == RN_OP_MEAN) args.divisor = (double)args.elements;
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &args.x_type));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args.y_type));
    if (args.outputs == 0) return RN_OK;
    rn_cuda_kernel kernel = kernels[form][args.x_type != RN_PLAIN_F32];
    rn_cuda_grid grid = grid_of(call, &args, form);
    if (is_in_eights(&args, form)) {
        kernel = RN_CUDA_REDUCE_EIGHTS;
        grid.x = (uint32_t)rn_div_up(args.outputs / 8, grid.threads = 128);
    }
    RN_TRY(rn_cuda_launch(call, kernel, grid, &args));
    if (args.parts == 1) return RN_OK;
    if (fold == RN_FOLD_SQUARES)
        return rn_cuda_launch(call, RN_CUDA_REDUCE_TOTAL, rn_cuda_row_grid(1, RN_ROWS_THREADS),
                              &args);
    return rn_cuda_launch(call, RN_CUDA_REDUCE_PARTS, rn_cuda_spread(call, args.outputs), &args);
}

rn_status rn_cuda_sum(const rn_call *call) {
    return reduce(call, RN_FOLD_SUM);
}

rn_status rn_cuda_max(const rn_call *call) {
    return reduce(call, RN_FOLD_MAX);
}

rn_status rn_cuda_sum_squares(const rn_call *call) {
    return reduce(call, RN_FOLD_SQUARES);
}

rn_status rn_cuda_argmax(const rn_call *call) {
    rn_row_count n = rn_rows_of(&call->inputs[0]);
    if (n.width > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: argmax of %llu elements: the result is an i32",
                       (unsigned long long)n.width);
    rn_argmax_args args = {.x = call->inputs[0].data,
                           .y = call->outputs[0].data,
                           .rows = n.rows,
                           .width = (uint32_t)n.width};
    if (n.rows == 0) return RN_OK;
    return rn_cuda_launch(call, RN_CUDA_ARGMAX,
                          rn_cuda_row_grid(n.rows, n.width > 4096 ? 1024 : RN_ROWS_THREADS), &args);
}

rn_status rn_cuda_max_grad(const rn_call *call) {
    const rn_reduce_attrs *attrs = call->attrs;
    rn_shape shape = call->inputs[0].shape;
    rn_strides strides = rn_strides_of(shape);
    rn_walk kept = rn_walk_begin(rn_reduce_axes(shape, ~attrs->axes), strides, strides);
    rn_walk group = rn_walk_begin(rn_reduce_axes(shape, attrs->axes), strides, strides);
    rn_max_grad_args args = {.x = call->inputs[0].data,
                             .dy = call->inputs[1].data,
                             .dx = call->outputs[0].data,
                             .kept = rn_cuda_walk(&kept),
                             .group = rn_cuda_walk(&group),
                             .groups = rn_cuda_walk_elements(&kept),
                             .elements = rn_cuda_walk_elements(&group)};
    RN_TRY(rn_cuda_value_type(call, &call->inputs[0], &args.x_type));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[1], &args.dy_type));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args.dx_type));
    if (args.elements > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a group of %llu elements is too large for %s",
                       (unsigned long long)args.elements, rn_op_name(call->op));
    if (args.groups == 0 || args.elements == 0) return RN_OK;
    uint64_t most = UINT64_MAX / RN_ROWS_THREADS; // of groups, so that the product is one
    return rn_cuda_launch(call, RN_CUDA_MAX_GRAD,
                          rn_cuda_spread(call, rn_min_u64(args.groups, most) * 32), &args);
}
