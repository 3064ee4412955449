// embedding.c — rows of a table, and the table's gradient.
//
// Ids are on the device and are not looked at here: the kernel writes NaN for one that is no row,
// and the gradient leaves it out.
#include "backend/cuda/elements.h"
#include "backend/cuda/kernels/training_args.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"

enum { GRID_ROWS = 65535 }; // the most of a grid's second axis

rn_status rn_cuda_embedding(const rn_call *call) {
    rn_embedding_args args = {.ids = call->inputs[1].data,
                              .y = call->outputs[0].data,
                              .count = rn_tensor_elements(&call->inputs[1])};
    RN_TRY(rn_cuda_plain(&call->inputs[0], &args.table));
    RN_TRY(rn_cuda_value_type(call, &call->outputs[0], &args.y_type));
    uint64_t cols = args.table.cols;
    args.fours =
        cols % 4 == 0 && rn_cuda_is_aligned(args.table.data, 16) && rn_cuda_is_aligned(args.y, 16);
    if (args.count == 0 || cols == 0) return RN_OK;
    rn_cuda_grid grid = rn_cuda_spread(call, args.fours ? cols / 4 : cols);
    grid.y = (uint32_t)rn_min_u64(args.count, GRID_ROWS);
    return rn_cuda_launch(call, RN_CUDA_EMBEDDING, grid, &args);
}

// Which places an id has.
uint64_t rn_cuda_embedding_grad_workspace(const rn_call *call) {
    return rn_round_up(rn_tensor_elements(&call->inputs[0]) * sizeof(uint32_t), 64);
}

// Places are sorted by their ids, so that each id's are added by one block, in their order.
rn_status rn_cuda_embedding_grad(const rn_call *call) {
    const rn_tensor *table = &call->outputs[0];
    rn_embedding_grad_args args = {.ids = call->inputs[0].data,
                                   .dy = call->inputs[1].data,
                                   .d_table = table->data,
                                   .order = call->workspace,
                                   .count = rn_tensor_elements(&call->inputs[0]),
                                   .rows = table->shape.dims[0],
                                   .cols = (uint32_t)table->shape.dims[1]};
    rn_fill_args zero = {.to = table->data, .bytes = rn_tensor_bytes(table)};
    if (args.count > INT32_MAX || table->shape.dims[1] > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: %llu ids of rows of %llu are too many for %s",
                       (unsigned long long)args.count, (unsigned long long)table->shape.dims[1],
                       rn_op_name(call->op));
    RN_TRY(rn_cuda_value_type(call, &call->inputs[1], &args.dy_type));
    RN_TRY(rn_cuda_value_type(call, table, &args.d_type));
    if (zero.bytes == 0) return RN_OK;
    RN_TRY(
        rn_cuda_launch(call, RN_CUDA_FILL, rn_cuda_spread(call, rn_div_up(zero.bytes, 16)), &zero));
    if (args.count == 0) return RN_OK;
    RN_TRY(rn_cuda_launch(call, RN_CUDA_EMBEDDING_ORDER,
                          rn_cuda_cover(rn_div_up(args.count, 8) * 32), &args));
    rn_cuda_grid grid = rn_cuda_row_grid(args.count, RN_ROWS_THREADS);
    grid.y = (uint32_t)rn_div_up(args.cols, 8 * RN_ROWS_THREADS);
    if (grid.y > GRID_ROWS)
        return rn_fail(RN_UNSUPPORTED, "CUDA: rows of %u are too long for %s", args.cols,
                       rn_op_name(call->op));
    return rn_cuda_launch(call, RN_CUDA_EMBEDDING_GRAD, grid, &args);
}
