// stablehlo_products.c — products of matrices, convolutions, pools, tables.
#include "exchange/stablehlo_ops.h"
#include "graph/window.h"

#include <stdio.h>

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
        if (rank - 2 > 4) rn_hlo_refuse(h, "a product of more than four axes of batches");
        w = rn_hlo_expand(h, w, all);
        for (uint32_t i = 0; i + 2 < rank && i < 4; i++)
            axes.batch_a[i] = axes.batch_b[i] = axes.batch_count++;
    }
    axes.sum_b[0] = attrs->transpose_w ? w.shape.rank - 2 : w.shape.rank - 1;
    if (h->status != RN_OK) return;
    rn_hlo_value y = rn_hlo_product(h, x, w, &axes);
    if (in[2].id) y = rn_hlo_binary(h, "add", y, rn_hlo_expand(h, rn_hlo_widen(h, in[2]), y.shape));
    out[0] = rn_hlo_result(h, call, y);
}

RN_HLO_EMITTER(conv2d) {
    const rn_conv2d_attrs *a = call->attrs;
    rn_hlo_value x = rn_hlo_operand(h, in[0]), w = rn_hlo_operand(h, in[1]);
    char attributes[900];
    snprintf(attributes, sizeof attributes,
             "batch_group_count = 1 : i64, feature_group_count = %llu : i64, dimension_numbers = "
             "#stablehlo.conv<[b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]>, "
             "window_strides = array<i64: %u, %u>, "
             "padding = dense<[[%u, %u], [%u, %u]]> : tensor<2x2xi64>, "
             "lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, "
             "window_reversal = array<i1: false, false>, %s",
             (unsigned long long)(x.shape.dims[3] / w.shape.dims[1]), a->stride_h, a->stride_w,
             a->pad_top, a->pad_bottom, a->pad_left, a->pad_right, rn_hlo_precision(x));
    rn_hlo_value y = rn_hlo_op(h, "stablehlo.convolution", (rn_hlo_value[]){x, w}, 2, NULL,
                               attributes, RN_DTYPE_F32, call->outputs[0].shape);
    if (in[2].id) y = rn_hlo_binary(h, "add", y, rn_hlo_expand(h, rn_hlo_widen(h, in[2]), y.shape));
    out[0] = rn_hlo_result(h, call, y);
}

RN_HLO_EMITTER(pool) {
    const rn_pool2d_attrs *a = call->attrs;
    const char *name = call->op == RN_OP_MAX_POOL ? "maximum" : "add";
    rn_hlo_value x = rn_hlo_widen(h, in[0]), first = rn_hlo_neutral(h, name, x.dtype);
    char attributes[600];
    if (h->status != RN_OK) return;
    snprintf(attributes, sizeof attributes,
             "window_dimensions = array<i64: 1, %u, %u, 1>, "
             "window_strides = array<i64: 1, %u, %u, 1>, "
             "base_dilations = array<i64: 1, 1, 1, 1>, window_dilations = array<i64: 1, 1, 1, 1>, "
             "padding = dense<[[0, 0], [%u, %u], [%u, %u], [0, 0]]> : tensor<4x2xi64>",
             a->size_h, a->size_w, a->stride_h, a->stride_w, a->pad_top, a->pad_bottom, a->pad_left,
             a->pad_right);
    rn_hlo_value y =
        rn_hlo_op(h, "stablehlo.reduce_window", (rn_hlo_value[]){x, first}, 2,
                  rn_hlo_combine(name, x.dtype).text, attributes, x.dtype, call->outputs[0].shape);
    if (call->op == RN_OP_AVG_POOL)
        y = rn_hlo_binary(h, "divide", y, rn_hlo_like(h, y, (double)a->size_h * a->size_w));
    out[0] = rn_hlo_result(h, call, y);
}

RN_HLO_EMITTER(embedding) {
    out[0] = rn_hlo_result(h, call, rn_hlo_take(h, in[0], in[1], 0));
}
