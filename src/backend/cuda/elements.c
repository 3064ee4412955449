// elements.c — see elements.h.
#include "backend/cuda/elements.h"

#include "base/checked.h"
#include "graph/plain_matrix.h"
#include "tensor/quant.h"

#include <string.h>

_Static_assert((int)RN_WALK_RANK == RN_MAX_RANK, "a walk has all axes of a shape");

// ---- grids --------------------------------------------------------------------------------------

enum { BLOCKS_EACH = 8, ROWS_MOST = 1 << 30 }; // blocks of a multiprocessor; of a grid

rn_cuda_grid rn_cuda_spread(const rn_call *call, uint64_t threads) {
    uint64_t blocks = rn_div_up(threads, RN_ROWS_THREADS);
    uint64_t most = (uint64_t)rn_cuda_traits_of(call)->multiprocessors * BLOCKS_EACH;
    blocks = rn_max_u64(rn_min_u64(blocks, most), 1);
    return (rn_cuda_grid){(uint32_t)blocks, 1, 1, .threads = RN_ROWS_THREADS, .early = true};
}

rn_cuda_grid rn_cuda_cover(uint64_t threads) {
    uint64_t blocks = rn_max_u64(rn_div_up(threads, RN_ROWS_THREADS), 1);
    return rn_cuda_row_grid(blocks, RN_ROWS_THREADS);
}

rn_cuda_grid rn_cuda_row_grid(uint64_t rows, uint32_t threads) {
    uint32_t blocks = (uint32_t)rn_min_u64(rows, ROWS_MOST);
    return (rn_cuda_grid){blocks, 1, 1, .threads = threads, .early = true};
}

// ---- walks --------------------------------------------------------------------------------------

uint64_t rn_cuda_walk_elements(const rn_walk *walk) {
    uint64_t n = walk->count;
    for (uint32_t i = 0; i < walk->rank; i++)
        n *= walk->dims[i];
    return n;
}

rn_walk_args rn_cuda_walk(const rn_walk *walk) {
    rn_walk_args args = {.count = walk->count, .rank = walk->rank};
    memcpy(args.step, walk->step, sizeof args.step);
    memcpy(args.dims, walk->dims, sizeof args.dims);
    memcpy(args.strides, walk->strides, sizeof args.strides);
    return args;
}

// ---- types of values ----------------------------------------------------------------------------

rn_status rn_cuda_value_type(const rn_call *call, const rn_tensor *tensor, uint32_t *out) {
    rn_dtype dtype = tensor->dtype;
    *out = RN_PLAIN_NONE;
    if (!rn_tensor_given(tensor)) return RN_OK;
    if (dtype != RN_DTYPE_F32 && dtype != RN_DTYPE_BF16 && dtype != RN_DTYPE_F16)
        return rn_fail(RN_UNSUPPORTED, "CUDA: %s takes and makes f32, bf16 and f16, not %s",
                       rn_op_name(call->op), rn_dtype_get(dtype)->name);
    *out = rn_cuda_plain_type(dtype);
    return RN_OK;
}

static bool are_all(const rn_tensor *tensors, uint32_t count, rn_dtype dtype) {
    for (uint32_t i = 0; i < count; i++)
        if (rn_tensor_given(&tensors[i]) && tensors[i].dtype != dtype) return false;
    return true;
}

bool rn_cuda_all_f32(const rn_call *call) {
    return are_all(call->inputs, call->input_count, RN_DTYPE_F32) &&
           are_all(call->outputs, call->output_count, RN_DTYPE_F32);
}

bool rn_cuda_all_bf16(const rn_call *call) {
    return are_all(call->inputs, call->input_count, RN_DTYPE_BF16) &&
           are_all(call->outputs, call->output_count, RN_DTYPE_BF16);
}

rn_status rn_cuda_want_f32(const rn_call *call, const rn_tensor *tensor, const char *what) {
    if (!rn_tensor_given(tensor) || tensor->dtype == RN_DTYPE_F32) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "CUDA: %s has %s in f32, not in %s", rn_op_name(call->op), what,
                   rn_dtype_get(tensor->dtype)->name);
}

// ---- plain weights ------------------------------------------------------------------------------

rn_plain_type rn_cuda_plain_type(rn_dtype dtype) {
    static const uint8_t types[RN_DTYPE_COUNT] = {
        [RN_DTYPE_F64] = RN_PLAIN_F64,         [RN_DTYPE_F32] = RN_PLAIN_F32,
        [RN_DTYPE_F16] = RN_PLAIN_F16,         [RN_DTYPE_BF16] = RN_PLAIN_BF16,
        [RN_DTYPE_F8_E4M3] = RN_PLAIN_E4M3,    [RN_DTYPE_F8_E5M2] = RN_PLAIN_E5M2,
        [RN_DTYPE_F8_E8M0] = RN_PLAIN_E8M0,    [RN_DTYPE_I64] = RN_PLAIN_I64,
        [RN_DTYPE_I32] = RN_PLAIN_I32,         [RN_DTYPE_I16] = RN_PLAIN_I16,
        [RN_DTYPE_I8] = RN_PLAIN_I8,           [RN_DTYPE_U64] = RN_PLAIN_U64,
        [RN_DTYPE_U32] = RN_PLAIN_U32,         [RN_DTYPE_U16] = RN_PLAIN_U16,
        [RN_DTYPE_U8] = RN_PLAIN_U8,           [RN_DTYPE_BOOL] = RN_PLAIN_BOOL,
        [RN_DTYPE_Q1_0] = RN_PLAIN_Q1_0,       [RN_DTYPE_Q2_0] = RN_PLAIN_Q2_0,
        [RN_DTYPE_Q4_0] = RN_PLAIN_Q4_0,       [RN_DTYPE_Q4_1] = RN_PLAIN_Q4_1,
        [RN_DTYPE_Q5_0] = RN_PLAIN_Q5_0,       [RN_DTYPE_Q5_1] = RN_PLAIN_Q5_1,
        [RN_DTYPE_Q8_0] = RN_PLAIN_Q8_0,       [RN_DTYPE_Q8_1] = RN_PLAIN_Q8_1,
        [RN_DTYPE_IQ4_NL] = RN_PLAIN_IQ4_NL,   [RN_DTYPE_MXFP4] = RN_PLAIN_MXFP4,
        [RN_DTYPE_NVFP4] = RN_PLAIN_NVFP4,     [RN_DTYPE_Q2_K] = RN_PLAIN_Q2_K,
        [RN_DTYPE_Q3_K] = RN_PLAIN_Q3_K,       [RN_DTYPE_Q4_K] = RN_PLAIN_Q4_K,
        [RN_DTYPE_Q5_K] = RN_PLAIN_Q5_K,       [RN_DTYPE_Q6_K] = RN_PLAIN_Q6_K,
        [RN_DTYPE_Q8_K] = RN_PLAIN_Q8_K,       [RN_DTYPE_IQ4_XS] = RN_PLAIN_IQ4_XS,
        [RN_DTYPE_TQ1_0] = RN_PLAIN_TQ1_0,     [RN_DTYPE_TQ2_0] = RN_PLAIN_TQ2_0,
        [RN_DTYPE_IQ1_S] = RN_PLAIN_IQ1_S,     [RN_DTYPE_IQ1_M] = RN_PLAIN_IQ1_M,
        [RN_DTYPE_IQ2_XXS] = RN_PLAIN_IQ2_XXS, [RN_DTYPE_IQ2_XS] = RN_PLAIN_IQ2_XS,
        [RN_DTYPE_IQ2_S] = RN_PLAIN_IQ2_S,     [RN_DTYPE_IQ3_XXS] = RN_PLAIN_IQ3_XXS,
        [RN_DTYPE_IQ3_S] = RN_PLAIN_IQ3_S,     [RN_DTYPE_F8_B128] = RN_PLAIN_F8_B128,
        [RN_DTYPE_F8_B32] = RN_PLAIN_F8_B32,   [RN_DTYPE_FP4_B64] = RN_PLAIN_FP4_B64,
        [RN_DTYPE_U4_B32] = RN_PLAIN_U4_B32,   [RN_DTYPE_INT8] = RN_PLAIN_INT8,
        [RN_DTYPE_INT4] = RN_PLAIN_INT4,       [RN_DTYPE_NF4] = RN_PLAIN_NF4,
        [RN_DTYPE_NF4_DQ] = RN_PLAIN_NF4, // with codes
    };
    return (unsigned)dtype < RN_DTYPE_COUNT ? (rn_plain_type)types[dtype] : RN_PLAIN_NONE;
}

rn_status rn_cuda_plain(const rn_tensor *tensor, rn_plain_args *out) {
    rn_plain_matrix m;
    rn_plain_type type = rn_cuda_plain_type(tensor->dtype);
    if (tensor->layout != RN_LAYOUT_PLAIN || type == RN_PLAIN_NONE)
        return rn_fail(RN_UNSUPPORTED, "CUDA: there is no reading of %s in the layout %s",
                       rn_dtype_get(tensor->dtype)->name, rn_layout_name(tensor->layout));
    RN_TRY(rn_plain_matrix_of(tensor, &m));
    *out = (rn_plain_args){.data = m.data,
                           .scale = m.scale,
                           .shift = m.shift,
                           .codes = m.codes,
                           .nested_count = m.nested_count,
                           .rows = m.rows,
                           .cols = m.cols,
                           .type = type};
    if (type == RN_PLAIN_INT4) {
        out->group = rn_quant_int4_group(m.cols);
        out->half = rn_div_up(m.rows * (m.cols / out->group), 2);
    }
    return RN_OK;
}
