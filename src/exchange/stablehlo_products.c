// stablehlo_products.c — products of matrices, and tables.
#include "exchange/stablehlo_ops.h"

rn_hlo_value rn_hlo_multiply(rn_hlo *h, rn_hlo_value x, rn_hlo_value w) {
    return rn_hlo_product(h, x, w,
                          &(rn_hlo_dot){.sum_a = {x.shape.rank - 1}, .sum_b = {1}, .sum_count = 1});
}

rn_hlo_value rn_hlo_add_bias(rn_hlo *h, const rn_call *call, rn_hlo_value y, rn_hlo_value bias) {
    if (bias.id) y = rn_hlo_binary(h, "add", y, rn_hlo_expand(h, rn_hlo_widen(h, bias), y.shape));
    return rn_hlo_result(h, call, y);
}

// Weights are read as they lie in files, (N, K): compilers are faster with it than with (K, N).
RN_HLO_EMITTER(matmul) {
    const rn_matmul_attrs *attrs = call->attrs;
    rn_hlo_value x = in[0], w = in[1];
    uint32_t rank = x.shape.rank;
    rn_hlo_dot axes = {.sum_count = 1};
    axes.sum_a[0] = attrs->transpose_x ? rank - 2 : rank - 1;
    if (w.shape.rank > 2) { // as many axes as x: batches
        rn_shape all = x.shape;
        all.dims[rank - 2] = w.shape.dims[rank - 2];
        all.dims[rank - 1] = w.shape.dims[rank - 1];
        w = rn_hlo_expand(h, w, all);
        for (uint32_t i = 0; i + 2 < rank; i++)
            axes.batch_a[i] = axes.batch_b[i] = axes.batch_count++;
    }
    axes.sum_b[0] = attrs->transpose_w ? w.shape.rank - 2 : w.shape.rank - 1;
    out[0] = rn_hlo_add_bias(h, call, rn_hlo_product(h, x, w, &axes), in[2]);
}

// A byte without its zero point, which is one for all, a row's (operand 0) or a column's.
static rn_hlo_value take_zero(rn_hlo *h, rn_hlo_value x, rn_hlo_value zero, int operand) {
    rn_hlo_value wide = rn_hlo_convert(h, x, RN_DTYPE_I32);
    if (!zero.id) return wide;
    uint64_t count = rn_shape_elements(zero.shape, 1);
    zero = rn_hlo_reshape(h, rn_hlo_convert(h, zero, RN_DTYPE_I32),
                          operand ? RN_SHAPE(1, count) : RN_SHAPE(count, 1));
    return rn_hlo_binary(h, "subtract", wide, rn_hlo_expand(h, zero, wide.shape));
}

// Batches are stretched to each other.
RN_HLO_EMITTER(product) {
    rn_shape shape = call->outputs[0].shape;
    uint32_t rank = shape.rank;
    rn_hlo_dot axes = {.sum_a = {rank - 1}, .sum_b = {rank - 2}, .sum_count = 1};
    rn_hlo_value operands[2];
    for (int i = 0; i < 2; i++) {
        rn_shape all = shape, own = in[i].shape;
        all.dims[rank - 2] = own.dims[own.rank - 2];
        all.dims[rank - 1] = own.dims[own.rank - 1];
        bool byte = in[i].dtype == RN_DTYPE_I8 || in[i].dtype == RN_DTYPE_U8;
        rn_hlo_value x = byte ? take_zero(h, in[i], in[2 + i], i) : in[i];
        operands[i] = rn_hlo_expand(h, x, all);
    }
    for (uint32_t i = 0; i + 2 < rank; i++)
        axes.batch_a[i] = axes.batch_b[i] = axes.batch_count++;
    out[0] = rn_hlo_result(h, call, rn_hlo_product(h, operands[0], operands[1], &axes));
}

RN_HLO_EMITTER(embedding) {
    out[0] = rn_hlo_result(h, call, rn_hlo_take(h, in[0], in[1], 0));
}
