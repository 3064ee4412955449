// product_finish.cuh — what is done to a product's sums: one rounding each, the same in all
// kernels.
#ifndef RN_CUDA_KERNELS_PRODUCT_FINISH_CUH
#define RN_CUDA_KERNELS_PRODUCT_FINISH_CUH

#include "activation.cuh"
#include "args.h"

// A row's own scale and bias; where a weight has none, those that change no bit of any sum. A
// kernel of this run may have made the bias, of 16 bits.
struct rn_row_finish {
    float scale, bias;
};
__device__ __forceinline__ rn_row_finish rn_row_finish_of(const rn_product_weight &w,
                                                          uint32_t row) {
    bool inside = row < w.rows;
    return {inside && w.row_scales ? w.row_scales[row] : 1.0f,
            inside && w.bias ? __ldcg(w.bias + row) : -0.0f};
}
__device__ __forceinline__ float rn_finish_row(rn_row_finish finish, float sum) {
    return __fadd_rn(__fmul_rn(sum, finish.scale), finish.bias);
}

__device__ __forceinline__ float rn_finish_gate(const rn_product_args &a, float gate, float up) {
    return __fmul_rn(rn_activate(a.activation, gate), up);
}

// To its place in the output of weight `which`, after the residual. What a kernel before has made
// is read past the L1, in all products: it may hold what was there before the kernel before.
__device__ __forceinline__ void rn_finish_put(const rn_product_args &a, uint32_t which,
                                              uint32_t token, uint32_t row, float value) {
    uint64_t at = (uint64_t)token * a.weights[which].rows + row;
    if (which == 0 && a.residual) value = __fadd_rn(value, __ldcg(a.residual + at));
    a.weights[which].out[at] = value;
}

// Where a row of the launch lies; rows of all weights are counted one after the other in groups of
// `unit`, or, gated, the same row of both.
struct rn_rows_found {
    uint32_t which, row; // of weight `which`; row may lie behind its last
};
__device__ __forceinline__ rn_rows_found rn_rows_find(const rn_product_args &a, uint32_t group,
                                                      uint32_t unit) {
    uint32_t which = 0;
    while (which + 1 < a.count) {
        uint32_t groups = (a.weights[which].rows + unit - 1) / unit;
        if (group < groups) break;
        group -= groups;
        which++;
    }
    return {which, group * unit};
}

#endif
