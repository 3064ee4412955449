// onnx_export_rows.c — softmax, norms, reductions, positions of the largest.
#include "exchange/onnx_export_ops.h"
#include "graph/op/group_norm.h"

static uint32_t last_axis(rn_export_value x) {
    return 1u << (x.shape.rank - 1);
}

static rn_export_value along(rn_export *h, const char *op, rn_export_value x, int64_t axis) {
    rn_export_attr at = RN_EXPORT_INT("axis", axis);
    return rn_export_node(h, op, &x, 1, &at, 1, x.dtype, x.shape);
}

RN_EXPORTER(softmax) {
    rn_export_value x = rn_export_widen(h, in[0]);
    out[0] = rn_export_result(h, call, along(h, "Softmax", x, x.shape.rank - 1));
}

RN_EXPORTER(soft) {
    static const char *const names[] = {[RN_SOFT_MAX] = "Softmax",
                                        [RN_SOFT_LOG_MAX] = "LogSoftmax",
                                        [RN_SOFT_HARD_MAX] = "Hardmax"};
    const rn_soft_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]);
    out[0] = rn_export_result(h, call, along(h, names[attrs->function], x, attrs->axis));
}

// 1 / sqrt(x + eps)
static rn_export_value invert_root(rn_export *h, rn_export_value x, float eps) {
    x = rn_export_unary(h, "Sqrt", rn_export_with(h, "Add", x, (double)eps));
    return rn_export_unary(h, "Reciprocal", x);
}

static rn_export_value without_last(rn_export *h, rn_export_value x) {
    rn_shape shape = x.shape;
    shape.rank--;
    return rn_export_reshape(h, x, shape);
}

RN_EXPORTER(layernorm) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]);
    rn_export_value middle = rn_export_reduce(h, "ReduceMean", x, last_axis(x), true);
    x = rn_export_binary(h, "Sub", x, middle);
    rn_export_value squares =
        rn_export_reduce(h, "ReduceMean", rn_export_binary(h, "Mul", x, x), last_axis(x), true);
    rn_export_value rstd = invert_root(h, squares, attrs->eps);
    x = rn_export_binary(h, "Mul", x, rstd);
    if (in[1].id) x = rn_export_binary(h, "Mul", x, rn_export_widen(h, in[1]));
    if (in[2].id) x = rn_export_binary(h, "Add", x, rn_export_widen(h, in[2]));
    out[0] = rn_export_result(h, call, x);
    if (call->outputs[1].data) out[1] = without_last(h, middle);
    if (call->outputs[2].data) out[2] = without_last(h, rstd);
}

RN_EXPORTER(rmsnorm) {
    const rn_norm_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]);
    rn_export_value squares =
        rn_export_reduce(h, "ReduceMean", rn_export_binary(h, "Mul", x, x), last_axis(x), true);
    rn_export_value rstd = invert_root(h, squares, attrs->eps);
    x = rn_export_binary(h, "Mul", x, rstd);
    if (in[1].id) x = rn_export_binary(h, "Mul", x, rn_export_widen(h, in[1]));
    out[0] = rn_export_result(h, call, x);
    if (call->output_count > 1 && call->outputs[1].data) out[1] = without_last(h, rstd);
}

// As (N, pixels, groups, each): statistics go over pixels and a group's channels. N may be RN_ROWS.
RN_EXPORTER(group_norm) {
    const rn_group_norm_attrs *attrs = call->attrs;
    rn_group_sizes of = rn_group_sizes_of(call->inputs[0].shape, attrs);
    uint64_t n = in[0].shape.dims[0];
    rn_shape given = in[0].shape, kept = RN_SHAPE(n, 1, of.groups, 1);
    rn_export_value x =
        rn_export_reshape(h, rn_export_widen(h, in[0]), RN_SHAPE(n, of.pixels, of.groups, of.each));
    rn_export_value middle, rstd;
    if (in[3].id) {
        middle = rn_export_reshape(h, in[3], kept);
        rstd = rn_export_reshape(h, in[4], kept);
        x = rn_export_binary(h, "Sub", x, middle);
    } else {
        uint32_t axes = 1u << 1 | 1u << 3;
        middle = rn_export_reduce(h, "ReduceMean", x, axes, true);
        x = rn_export_binary(h, "Sub", x, middle);
        rn_export_value squares =
            rn_export_reduce(h, "ReduceMean", rn_export_binary(h, "Mul", x, x), axes, true);
        rstd = invert_root(h, squares, attrs->eps);
    }
    x = rn_export_reshape(h, rn_export_binary(h, "Mul", x, rstd), given);
    if (in[1].id) x = rn_export_binary(h, "Mul", x, rn_export_widen(h, in[1]));
    if (in[2].id) x = rn_export_binary(h, "Add", x, rn_export_widen(h, in[2]));
    if (attrs->silu) x = rn_export_binary(h, "Mul", x, rn_export_unary(h, "Sigmoid", x));
    out[0] = rn_export_result(h, call, x);
    if (call->outputs[1].data) out[1] = rn_export_reshape(h, middle, RN_SHAPE(n, of.groups));
    if (call->outputs[2].data) out[2] = rn_export_reshape(h, rstd, RN_SHAPE(n, of.groups));
}

// x scale + shift, both of a channel.
RN_EXPORTER(batchnorm) {
    const rn_batchnorm_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]);
    if (attrs->training) {
        rn_export_refuse(h, "statistics of the batch are for training");
        return;
    }
    rn_export_value rstd = invert_root(h, rn_export_widen(h, in[4]), attrs->eps);
    rn_export_value scale = rn_export_binary(h, "Mul", rn_export_widen(h, in[1]), rstd);
    rn_export_value shift = rn_export_binary(h, "Mul", rn_export_widen(h, in[3]), scale);
    shift = rn_export_binary(h, "Sub", rn_export_widen(h, in[2]), shift);
    x = rn_export_binary(h, "Add", rn_export_binary(h, "Mul", x, scale), shift);
    out[0] = rn_export_result(h, call, x);
    out[1] = in[3];
    out[2] = rstd;
    out[3] = in[3];
    out[4] = in[4];
}

// ---- reductions ---------------------------------------------------------------------------------

RN_EXPORTER(reduce) {
    const rn_reduce_attrs *attrs = call->attrs;
    const char *name = call->op == RN_OP_MEAN  ? "ReduceMean"
                       : call->op == RN_OP_MAX ? "ReduceMax"
                                               : "ReduceSum";
    rn_export_value x = rn_export_widen(h, in[0]);
    out[0] = rn_export_result(h, call, rn_export_reduce(h, name, x, attrs->axes, attrs->keep));
}

RN_EXPORTER(sum_squares) {
    rn_export_value x = rn_export_widen(h, in[0]);
    uint32_t all = (1u << x.shape.rank) - 1;
    out[0] = rn_export_result(h, call, rn_export_reduce(h, "ReduceSumSquare", x, all, false));
}

RN_EXPORTER(reduce_as) {
    static const char *const names[RN_REDUCE_COUNT] = {[RN_REDUCE_SUM] = "ReduceSum",
                                                       [RN_REDUCE_MEAN] = "ReduceMean",
                                                       [RN_REDUCE_MAX] = "ReduceMax",
                                                       [RN_REDUCE_MIN] = "ReduceMin",
                                                       [RN_REDUCE_PROD] = "ReduceProd",
                                                       [RN_REDUCE_L1] = "ReduceL1",
                                                       [RN_REDUCE_L2] = "ReduceL2",
                                                       [RN_REDUCE_LOG_SUM] = "ReduceLogSum",
                                                       [RN_REDUCE_LOG_SUM_EXP] = "ReduceLogSumExp",
                                                       [RN_REDUCE_SUM_SQUARE] = "ReduceSumSquare"};
    const rn_reduce_as_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]);
    out[0] = rn_export_result(
        h, call,
        rn_export_reduce(h, names[attrs->function], x, attrs->over.axes, attrs->over.keep));
}

RN_EXPORTER(argmax) {
    rn_export_value x = rn_export_widen(h, in[0]);
    rn_export_attr attrs[] = {RN_EXPORT_INT("axis", x.shape.rank - 1),
                              RN_EXPORT_INT("keepdims", 0)};
    rn_export_value y =
        rn_export_node(h, "ArgMax", &x, 1, attrs, 2, RN_DTYPE_I64, call->outputs[0].shape);
    out[0] = rn_export_result(h, call, y);
}

RN_EXPORTER(arg_reduce) {
    const rn_arg_reduce_attrs *own = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]);
    rn_export_attr attrs[] = {RN_EXPORT_INT("axis", own->axis),
                              RN_EXPORT_INT("keepdims", own->keep),
                              RN_EXPORT_INT("select_last_index", own->last)};
    out[0] = rn_export_node(h, own->smallest ? "ArgMin" : "ArgMax", &x, 1, attrs, 3, RN_DTYPE_I64,
                            call->outputs[0].shape);
}

RN_EXPORTER(top_k) {
    const rn_top_k_attrs *own = call->attrs;
    rn_export_attr attrs[] = {RN_EXPORT_INT("axis", own->axis),
                              RN_EXPORT_INT("largest", !own->smallest), RN_EXPORT_INT("sorted", 1)};
    rn_export_value count = rn_export_int(h, (int64_t)own->count);
    out[0] = rn_export_new(h, in[0].dtype, call->outputs[0].shape);
    out[1] = rn_export_new(h, RN_DTYPE_I64, call->outputs[1].shape);
    rn_export_write(h, "TopK", (rn_export_value[]){in[0], count}, 2, attrs, 3, out, 2);
}

RN_EXPORTER(cumulate) {
    const rn_cumulate_attrs *own = call->attrs;
    rn_export_attr attrs[] = {RN_EXPORT_INT("exclusive", own->exclusive),
                              RN_EXPORT_INT("reverse", own->reverse)};
    rn_export_value pair[] = {rn_export_widen(h, in[0]),
                              rn_export_scalar(h, RN_DTYPE_I64, own->axis)};
    if (own->product) rn_export_refuse(h, "running products have no ONNX op before opset 26");
    rn_export_value y =
        rn_export_node(h, "CumSum", pair, 2, attrs, 2, pair[0].dtype, pair[0].shape);
    out[0] = rn_export_result(h, call, y);
}
