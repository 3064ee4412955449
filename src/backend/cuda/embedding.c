// embedding.c — rows of a table.
//
// Ids are on the device and are not looked at here: the kernel writes NaN for one that is no row.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"

enum { GRID_ROWS = 65535 }; // the most of a grid's second axis

rn_status rn_cuda_embedding(const rn_call *call) {
    rn_embedding_args args = {.ids = call->inputs[1].data,
                              .y = call->outputs[0].data,
                              .count = rn_tensor_elements(&call->inputs[1])};
    RN_TRY(rn_cuda_plain(&call->inputs[0], &args.table));
    uint64_t cols = args.table.cols;
    args.fours =
        cols % 4 == 0 && rn_cuda_is_aligned(args.table.data, 16) && rn_cuda_is_aligned(args.y, 16);
    if (args.count == 0 || cols == 0) return RN_OK;
    rn_cuda_grid grid = rn_cuda_spread(call, args.fours ? cols / 4 : cols);
    grid.y = (uint32_t)rn_min_u64(args.count, GRID_ROWS);
    return rn_cuda_launch(call, RN_CUDA_EMBEDDING, grid, &args);
}
