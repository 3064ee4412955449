// packed_generic.c — products with any readable weight as its file has it: rn_gemm_run asks for
// panels of f32, and a piece of 16 rows is dequantised at a time.
#include "backend/cpu/packed.h"

#include "backend/cpu/gemm.h"
#include "base/checked.h"
#include "graph/plain_matrix.h"
#include "graph/quantized_product.h"
#include "tensor/quant.h"

#include <assert.h>

// Columns of a piece: a whole number of blocks of every dtype.
enum { PIECE = 256 };

// ---- columns of a row ---------------------------------------------------------------------------

static float read_int4(const rn_plain_matrix *w, uint64_t row, uint64_t col) {
    uint64_t group = rn_quant_int4_group(w->cols), groups = w->rows * (w->cols / group);
    uint64_t g = (row * w->cols + col) / group, half = rn_div_up(groups, 2);
    uint8_t byte = w->data[g % half * group + col % group];
    return w->scale[g] * (float)(g < half ? byte & 15 : byte >> 4) - w->shift[g];
}

// Columns [col, col + count) of a row; col begins a block, count is at most PIECE.
static void read_columns(const rn_plain_matrix *w, uint64_t row, uint64_t col, uint64_t count,
                         float *to) {
    const rn_dtype_info *info = rn_dtype_get(w->dtype);
    if (w->dtype == RN_DTYPE_INT4) {
        for (uint64_t i = 0; i < count; i++)
            to[i] = read_int4(w, row, col + i);
    } else if (w->dtype == RN_DTYPE_NF4 || w->dtype == RN_DTYPE_NF4_DQ) {
        rn_plain_nf4_columns(w, row, col, count, to);
    } else if (w->dtype == RN_DTYPE_INT8) {
        rn_dequant_int8_rows((const int8_t *)w->data + row * w->cols + col, &w->scale[row], 1,
                             count, to);
    } else {
        const uint8_t *from =
            w->data + row * w->row_bytes + col / info->block_elements * info->block_bytes;
        rn_status s = rn_dtype_to_f32(w->dtype, from, to, count);
        assert(s == RN_OK); // a readable dtype in whole blocks: the shape rule saw to it
        (void)s;
    }
}

// ---- panels -------------------------------------------------------------------------------------

// Columns [k, k + depth) of up to 16 rows as [depth][16]: piece by piece, since blocks have to be
// read as a whole.
static void pack(const void *source, size_t panel, size_t k, size_t depth, float *to) {
    const rn_plain_matrix *w = source;
    const rn_tile_set *set = rn_tile_set_get();
    float rows[RN_PANEL][PIECE];
    uint64_t row = panel * RN_PANEL, count = rn_min_u64(RN_PANEL, w->rows - row);
    const uint64_t unit = rn_dtype_get(w->dtype)->block_elements;
    for (uint64_t col = k / unit * unit; col < k + depth; col += PIECE) {
        uint64_t first = rn_max_u64(col, k), end = rn_min_u64(col + PIECE, k + depth);
        for (uint64_t r = 0; r < count; r++)
            read_columns(w, row + r, col, rn_min_u64(PIECE, w->cols - col), rows[r]);
        for (uint64_t lane = 0; lane < RN_PANEL; lane += set->lanes) {
            uint64_t some = lane < count ? rn_min_u64(count - lane, set->lanes) : 0;
            set->pack_rows(&rows[lane][first - col], PIECE, (uint32_t)some, end - first,
                           to + (first - k) * RN_PANEL + lane, RN_PANEL);
        }
    }
}

// ---- the call -----------------------------------------------------------------------------------

static bool is_product_in_f32(const rn_call *call) {
    const rn_matmul_attrs *attrs = call->attrs;
    const rn_tensor *w = &call->inputs[1];
    return w->shape.rank == 2 && rn_plain_readable(w->dtype) &&
           (attrs->unquantised_activations || !rn_product_is_quantized(w->dtype));
}

// All but the weight itself.
static rn_gemm read_call(const rn_call *call) {
    const rn_tensor *x = &call->inputs[0], *w = &call->inputs[1];
    bool biased = call->input_count > 2 && rn_tensor_given(&call->inputs[2]);
    uint64_t n = w->shape.dims[0], k = w->shape.dims[1];
    return (rn_gemm){.m = k ? rn_tensor_elements(x) / k : 0,
                     .n = n,
                     .k = k,
                     .a = {x->data, k, 1},
                     .pack = pack,
                     .c = call->outputs[0].data,
                     .c_row = n,
                     .bias = biased ? call->inputs[2].data : NULL};
}

uint64_t rn_cpu_generic_matmul_workspace(const rn_call *call) {
    if (!is_product_in_f32(call)) return 0;
    rn_gemm gemm = read_call(call);
    return rn_gemm_workspace(&gemm, call->threads);
}

rn_status rn_cpu_generic_matmul(const rn_call *call) {
    const rn_tensor *weight = &call->inputs[1];
    rn_plain_matrix w;
    if (!is_product_in_f32(call))
        return rn_fail(RN_UNSUPPORTED, "a weight %s of %s has no product in f32",
                       rn_shape_format(weight->shape).text, rn_dtype_get(weight->dtype)->name);
    RN_TRY(rn_plain_matrix_of(weight, &w));
    rn_gemm gemm = read_call(call);
    gemm.source = &w;
    rn_gemm_run(&gemm, call, call->workspace);
    return RN_OK;
}
