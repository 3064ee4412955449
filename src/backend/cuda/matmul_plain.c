// matmul_plain.c — products that tiles do not serve; which tile a product gets changes no bit.
#include "backend/cuda/elements.h"
#include "backend/cuda/rows.h"

#include "base/checked.h"

#include <string.h>

enum { GRID_BATCHES = 65535 }; // the most of a grid's third axis

static uint64_t axis(rn_shape shape, uint32_t from_end) {
    return shape.dims[shape.rank - from_end];
}

// The product's sizes and places (graph/op/matmul.c): all batches are rows where one w serves them.
static void describe(const rn_call *call, rn_matmul_args *out) {
    const rn_matmul_attrs *attrs = call->attrs;
    rn_shape x = call->inputs[0].shape, w = call->inputs[1].shape;
    out->m = axis(x, attrs->transpose_x ? 1 : 2);
    out->k = axis(x, attrs->transpose_x ? 2 : 1);
    out->n = axis(w, attrs->transpose_w ? 1 : 2);
    out->x_row = attrs->transpose_x ? 1 : out->k;
    out->x_col = attrs->transpose_x ? out->m : 1;
    out->transposed = attrs->transpose_w;
    out->batch = 1;
    for (uint32_t i = 0; i + 2 < x.rank; i++)
        out->batch *= x.dims[i];
    if (w.rank > 2) {
        out->leading = x.rank - 2;
        memcpy(out->x_dims, x.dims, out->leading * sizeof *x.dims);
        memcpy(out->w_dims, w.dims, out->leading * sizeof *w.dims);
    } else if (!attrs->transpose_x) {
        out->m *= out->batch;
        out->batch = 1;
    }
}

typedef struct tile_size {
    rn_cuda_kernel kernel;
    uint64_t m, n;
} tile_size;

static uint64_t count_tiles(const rn_matmul_args *args, tile_size tile) {
    return rn_div_up(args->m, tile.m) * rn_div_up(args->n, tile.n);
}

static tile_size choose(const rn_call *call, const rn_matmul_args *args) {
    static const tile_size large = {RN_CUDA_MATMUL_LARGE, 128, 64},
                           middle = {RN_CUDA_MATMUL_MIDDLE, 64, 64},
                           thin = {RN_CUDA_MATMUL_THIN, 8, 32},
                           middle_any = {RN_CUDA_MATMUL_MIDDLE_ANY, 64, 64},
                           thin_any = {RN_CUDA_MATMUL_THIN_ANY, 8, 32};
    bool is_f32 = args->w.type == RN_PLAIN_F32;
    if (args->m <= 8) return is_f32 ? thin : thin_any;
    if (!is_f32) return middle_any;
    bool fills = count_tiles(args, large) >= rn_cuda_traits_of(call)->multiprocessors;
    return fills ? large : middle;
}

rn_status rn_cuda_matmul_plain(const rn_call *call) {
    return rn_cuda_matmul_plain_add(call, false);
}

rn_status rn_cuda_matmul_plain_add(const rn_call *call, bool adds) {
    rn_matmul_args args = {.x = call->inputs[0].data,
                           .bias = call->inputs[2].data,
                           .y = call->outputs[0].data,
                           .adds = adds};
    RN_TRY(rn_cuda_plain(&call->inputs[1], &args.w));
    describe(call, &args);
    if (rn_tensor_elements(&call->outputs[0]) == 0) return RN_OK;
    tile_size tile = choose(call, &args);
    uint64_t tiles = count_tiles(&args, tile);
    if (tiles > INT32_MAX)
        return rn_fail(RN_UNSUPPORTED, "CUDA: a product of (%llu, %llu) is too large",
                       (unsigned long long)args.m, (unsigned long long)args.n);
    return rn_cuda_launch(call, tile.kernel,
                          (rn_cuda_grid){(uint32_t)tiles, 1,
                                         (uint32_t)rn_min_u64(args.batch, GRID_BATCHES),
                                         .threads = RN_ROWS_THREADS, .early = true},
                          &args);
}
