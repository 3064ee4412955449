// onnx_export_math.c — ops in which element i of the result depends on elements i of the inputs,
// and products. f16 and bf16 are computed in f32 and rounded once.
#include "exchange/onnx_export_ops.h"

#include <math.h>

static const char *const names[RN_OP_COUNT] = {
    [RN_OP_ADD] = "Add",   [RN_OP_SUB] = "Sub",         [RN_OP_MUL] = "Mul",
    [RN_OP_DIV] = "Div",   [RN_OP_NEG] = "Neg",         [RN_OP_EXP] = "Exp",
    [RN_OP_LOG] = "Log",   [RN_OP_SQRT] = "Sqrt",       [RN_OP_TANH] = "Tanh",
    [RN_OP_RELU] = "Relu", [RN_OP_SIGMOID] = "Sigmoid",
};

RN_EXPORTER(unary) {
    rn_export_value y = rn_export_unary(h, names[call->op], rn_export_widen(h, in[0]));
    out[0] = rn_export_result(h, call, y);
}

RN_EXPORTER(binary) {
    rn_export_value y =
        rn_export_binary(h, names[call->op], rn_export_widen(h, in[0]), rn_export_widen(h, in[1]));
    out[0] = rn_export_result(h, call, y);
}

RN_EXPORTER(rsqrt) {
    rn_export_value x = rn_export_unary(h, "Sqrt", rn_export_widen(h, in[0]));
    out[0] = rn_export_result(h, call, rn_export_unary(h, "Reciprocal", x));
}

RN_EXPORTER(pow) {
    const rn_pow_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]);
    out[0] = rn_export_result(h, call, rn_export_with(h, "Pow", x, (double)attrs->exponent));
}

static rn_export_value clip(rn_export *h, rn_export_value x, double low, double high) {
    rn_export_value ends[] = {x, rn_export_scalar(h, x.dtype, low),
                              rn_export_scalar(h, x.dtype, high)};
    return rn_export_node(h, "Clip", ends, 3, NULL, 0, x.dtype, x.shape);
}

RN_EXPORTER(clamp) {
    const rn_clamp_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]);
    out[0] = rn_export_result(h, call, clip(h, x, (double)attrs->low, (double)attrs->high));
}

RN_EXPORTER(scale) {
    const rn_scale_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_with(h, "Mul", rn_export_widen(h, in[0]), (double)attrs->factor);
    if (attrs->offset != 0) x = rn_export_with(h, "Add", x, (double)attrs->offset);
    out[0] = rn_export_result(h, call, x);
}

// ---- activations --------------------------------------------------------------------------------

// x (1 + inner) / 2
static rn_export_value gelu(rn_export *h, rn_export_value x, bool tanh) {
    rn_export_attr how = RN_EXPORT_TEXT("approximate", tanh ? "tanh" : "none");
    if (h->opset >= 20 && x.dtype == RN_DTYPE_F32)
        return rn_export_node(h, "Gelu", &x, 1, &how, 1, x.dtype, x.shape);
    rn_export_value inner;
    if (tanh) {
        inner = rn_export_binary(h, "Mul", rn_export_binary(h, "Mul", x, x), x);
        inner = rn_export_binary(h, "Add", x, rn_export_with(h, "Mul", inner, 0.044715));
        inner = rn_export_unary(h, "Tanh", rn_export_with(h, "Mul", inner, 0.79788456080286536));
    } else {
        inner = rn_export_unary(h, "Erf", rn_export_with(h, "Mul", x, 0.70710678118654752));
    }
    inner = rn_export_with(h, "Mul", rn_export_with(h, "Add", inner, 1), 0.5);
    return rn_export_binary(h, "Mul", x, inner);
}

static rn_export_value activate(rn_export *h, rn_export_value x, rn_activation activation) {
    switch (activation) {
    case RN_ACTIVATION_RELU:
        return rn_export_unary(h, "Relu", x);
    case RN_ACTIVATION_SIGMOID:
        return rn_export_unary(h, "Sigmoid", x);
    case RN_ACTIVATION_SILU:
        return rn_export_binary(h, "Mul", x, rn_export_unary(h, "Sigmoid", x));
    case RN_ACTIVATION_GELU:
        return gelu(h, x, false);
    case RN_ACTIVATION_GELU_TANH:
        return gelu(h, x, true);
    default:
        rn_export_refuse(h, "activation %d has no ONNX", (int)activation);
        return x;
    }
}

RN_EXPORTER(activation) {
    rn_activation which = call->op == RN_OP_SILU   ? RN_ACTIVATION_SILU
                          : call->op == RN_OP_GELU ? RN_ACTIVATION_GELU
                                                   : RN_ACTIVATION_GELU_TANH;
    out[0] = rn_export_result(h, call, activate(h, rn_export_widen(h, in[0]), which));
}

RN_EXPORTER(gated) {
    const rn_gated_attrs *attrs = call->attrs;
    rn_export_value gate = activate(h, rn_export_widen(h, in[0]), attrs->activation);
    rn_export_value y = rn_export_binary(h, "Mul", gate, rn_export_widen(h, in[1]));
    out[0] = rn_export_result(h, call, y);
}

// ---- any plain dtype ----------------------------------------------------------------------------

static rn_export_value elu(rn_export *h, rn_export_value x, double factor, double by) {
    rn_export_value y = by == 1 ? x : rn_export_with(h, "Div", x, by);
    y = rn_export_with(h, "Sub", rn_export_unary(h, "Exp", y), 1);
    y = rn_export_with(h, "Mul", y, factor);
    rn_export_value zero = rn_export_scalar(h, x.dtype, 0);
    return rn_export_where(h, rn_export_compare(h, "Less", x, zero), y, x);
}

static rn_export_value with_attrs(rn_export *h, const char *op, rn_export_value x,
                                  const char *first, double a, const char *second, double b) {
    rn_export_attr attrs[] = {RN_EXPORT_FLOAT(first, (float)a), RN_EXPORT_FLOAT(second, (float)b)};
    return rn_export_node(h, op, &x, 1, attrs, second ? 2 : 1, x.dtype, x.shape);
}

static rn_export_value compose(rn_export *h, const rn_unary_attrs *attrs, rn_export_value x) {
    double a = attrs->a, b = attrs->b;
    rn_export_value y;
    rn_export_attr ends[] = {RN_EXPORT_INT("detect_positive", a != 0),
                             RN_EXPORT_INT("detect_negative", b != 0)};
    switch (attrs->function) {
    case RN_UNARY_GELU:
        return gelu(h, x, false);
    case RN_UNARY_GELU_TANH:
        return gelu(h, x, true);
    case RN_UNARY_MISH:
        y = rn_export_unary(h, "Tanh", rn_export_unary(h, "Softplus", x));
        return rn_export_binary(h, "Mul", x, y);
    case RN_UNARY_SWISH:
        y = rn_export_unary(h, "Sigmoid", rn_export_with(h, "Mul", x, a));
        return rn_export_binary(h, "Mul", x, y);
    case RN_UNARY_HARD_SIGMOID:
        return clip(h, rn_export_with(h, "Add", rn_export_with(h, "Mul", x, a), b), 0, 1);
    case RN_UNARY_HARD_SWISH:
        y = rn_export_with(h, "Add", rn_export_with(h, "Mul", x, 1.0 / 6), 0.5);
        return rn_export_binary(h, "Mul", x, clip(h, y, 0, 1));
    case RN_UNARY_ELU:
        return elu(h, x, a, 1);
    case RN_UNARY_SELU:
        return rn_export_with(h, "Mul", elu(h, x, a, 1), b);
    case RN_UNARY_CELU:
        return elu(h, x, a, a);
    case RN_UNARY_LEAKY_RELU:
        return with_attrs(h, "LeakyRelu", x, "alpha", a, NULL, 0);
    case RN_UNARY_THRESHOLDED_RELU:
        return with_attrs(h, "ThresholdedRelu", x, "alpha", a, NULL, 0);
    case RN_UNARY_SHRINK:
        return with_attrs(h, "Shrink", x, "lambd", a, "bias", b);
    case RN_UNARY_IS_INF:
        return rn_export_node(h, "IsInf", &x, 1, ends, 2, RN_DTYPE_BOOL, x.shape);
    default:
        rn_export_refuse(h, "function %d has no ONNX", (int)attrs->function);
        return x;
    }
}

RN_EXPORTER(unary_as) {
    static const char *const plain[RN_UNARY_COUNT] = {
        [RN_UNARY_ABS] = "Abs",           [RN_UNARY_NEG] = "Neg",
        [RN_UNARY_SIGN] = "Sign",         [RN_UNARY_RECIPROCAL] = "Reciprocal",
        [RN_UNARY_CEIL] = "Ceil",         [RN_UNARY_FLOOR] = "Floor",
        [RN_UNARY_ROUND] = "Round",       [RN_UNARY_SQRT] = "Sqrt",
        [RN_UNARY_EXP] = "Exp",           [RN_UNARY_LOG] = "Log",
        [RN_UNARY_SIN] = "Sin",           [RN_UNARY_COS] = "Cos",
        [RN_UNARY_TAN] = "Tan",           [RN_UNARY_ASIN] = "Asin",
        [RN_UNARY_ACOS] = "Acos",         [RN_UNARY_ATAN] = "Atan",
        [RN_UNARY_SINH] = "Sinh",         [RN_UNARY_COSH] = "Cosh",
        [RN_UNARY_ASINH] = "Asinh",       [RN_UNARY_ACOSH] = "Acosh",
        [RN_UNARY_ATANH] = "Atanh",       [RN_UNARY_ERF] = "Erf",
        [RN_UNARY_TANH] = "Tanh",         [RN_UNARY_SIGMOID] = "Sigmoid",
        [RN_UNARY_RELU] = "Relu",         [RN_UNARY_SOFTPLUS] = "Softplus",
        [RN_UNARY_SOFTSIGN] = "Softsign", [RN_UNARY_NOT] = "Not",
        [RN_UNARY_IS_NAN] = "IsNaN",      [RN_UNARY_BITWISE_NOT] = "BitwiseNot",
    };
    const rn_unary_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]);
    const char *name = (unsigned)attrs->function < RN_UNARY_COUNT ? plain[attrs->function] : NULL;
    rn_export_value y = name ? rn_export_unary(h, name, x) : compose(h, attrs, x);
    if (attrs->function == RN_UNARY_IS_NAN) y.dtype = RN_DTYPE_BOOL;
    out[0] = rn_export_result(h, call, y);
}

RN_EXPORTER(binary_as) {
    static const char *const plain[RN_BINARY_COUNT] = {
        [RN_BINARY_ADD] = "Add", [RN_BINARY_SUB] = "Sub",     [RN_BINARY_MUL] = "Mul",
        [RN_BINARY_DIV] = "Div", [RN_BINARY_POW] = "Pow",     [RN_BINARY_MOD] = "Mod",
        [RN_BINARY_MIN] = "Min", [RN_BINARY_MAX] = "Max",     [RN_BINARY_FMOD] = "Mod",
        [RN_BINARY_AND] = "And", [RN_BINARY_OR] = "Or",       [RN_BINARY_XOR] = "Xor",
        [RN_BINARY_PRELU] = "",  [RN_BINARY_SHIFT_LEFT] = "", [RN_BINARY_SHIFT_RIGHT] = ""};
    static const char *const bitwise[RN_BINARY_COUNT] = {[RN_BINARY_AND] = "BitwiseAnd",
                                                         [RN_BINARY_OR] = "BitwiseOr",
                                                         [RN_BINARY_XOR] = "BitwiseXor"};
    const rn_binary_attrs *attrs = call->attrs;
    rn_binary_function f = attrs->function;
    rn_export_value pair[] = {rn_export_widen(h, in[0]), rn_export_widen(h, in[1])}, y;
    rn_dtype dtype = pair[0].dtype;
    bool is_float = rn_dtype_get(dtype)->is_float;
    rn_export_attr fmod = RN_EXPORT_INT("fmod", 1);
    rn_export_attr direction =
        RN_EXPORT_TEXT("direction", f == RN_BINARY_SHIFT_LEFT ? "LEFT" : "RIGHT");
    if (f == RN_BINARY_PRELU) {
        rn_export_value zero = rn_export_scalar(h, dtype, 0);
        y = rn_export_binary(h, "Mul", pair[0], pair[1]);
        y = rn_export_where(h, rn_export_compare(h, "Less", pair[0], zero), y, pair[0]);
    } else if (f == RN_BINARY_SHIFT_LEFT || f == RN_BINARY_SHIFT_RIGHT) {
        y = rn_export_node(h, "BitShift", pair, 2, &direction, 1, dtype, call->outputs[0].shape);
    } else if (f == RN_BINARY_FMOD || (f == RN_BINARY_MOD && is_float)) {
        if (f == RN_BINARY_MOD) rn_export_refuse(h, "the remainder with b's sign of floats");
        y = rn_export_node(h, "Mod", pair, 2, &fmod, 1, dtype, call->outputs[0].shape);
    } else {
        const char *name = bitwise[f] && dtype != RN_DTYPE_BOOL ? bitwise[f] : plain[f];
        y = rn_export_binary(h, name, pair[0], pair[1]);
    }
    out[0] = rn_export_result(h, call, y);
}

RN_EXPORTER(compare) {
    static const char *const ops[RN_COMPARE_COUNT] = {
        [RN_COMPARE_EQUAL] = "Equal",     [RN_COMPARE_NOT_EQUAL] = "Equal",
        [RN_COMPARE_LESS] = "Less",       [RN_COMPARE_LESS_EQUAL] = "LessOrEqual",
        [RN_COMPARE_GREATER] = "Greater", [RN_COMPARE_GREATER_EQUAL] = "GreaterOrEqual"};
    const rn_compare_attrs *attrs = call->attrs;
    out[0] = rn_export_compare(h, ops[attrs->function], rn_export_widen(h, in[0]),
                               rn_export_widen(h, in[1]));
    if (attrs->function == RN_COMPARE_NOT_EQUAL) out[0] = rn_export_unary(h, "Not", out[0]);
}

RN_EXPORTER(select) {
    out[0] = rn_export_where(h, in[0], in[1], in[2]);
    (void)call;
}

// ---- products -----------------------------------------------------------------------------------

static rn_export_value swap_last(rn_export *h, rn_export_value x) {
    uint8_t axes[RN_MAX_RANK];
    uint32_t rank = x.shape.rank;
    for (uint32_t i = 0; i < rank; i++)
        axes[i] = (uint8_t)i;
    axes[rank - 1] = (uint8_t)(rank - 2);
    axes[rank - 2] = (uint8_t)(rank - 1);
    return rn_export_transpose(h, x, axes);
}

// One matrix for all rows: Gemm takes it as it lies in files, (N, K).
static rn_export_value by_matrix(rn_export *h, const rn_matmul_attrs *attrs, rn_export_value x,
                                 rn_export_value w, rn_export_value bias, rn_shape shape) {
    uint64_t outputs = shape.dims[shape.rank - 1];
    rn_export_attr turned[] = {RN_EXPORT_INT("transA", attrs->transpose_x),
                               RN_EXPORT_INT("transB", !attrs->transpose_w)};
    if (x.shape.rank > 2)
        x = rn_export_reshape(h, x, RN_SHAPE(RN_ROWS, x.shape.dims[x.shape.rank - 1]));
    uint64_t rows = attrs->transpose_x ? x.shape.dims[1] : x.shape.dims[0];
    rn_export_value y = rn_export_node(h, "Gemm", (rn_export_value[]){x, w, bias}, 3, turned, 2,
                                       RN_DTYPE_F32, RN_SHAPE(rows, outputs));
    return rn_export_reshape(h, y, shape);
}

RN_EXPORTER(matmul) {
    const rn_matmul_attrs *attrs = call->attrs;
    rn_export_value x = rn_export_widen(h, in[0]), w = rn_export_widen(h, in[1]);
    rn_export_value bias = in[2].id ? rn_export_widen(h, in[2]) : in[2];
    rn_shape shape = call->outputs[0].shape;
    if (w.shape.rank == 2 && x.shape.rank >= 2 && (x.shape.rank == 2 || !attrs->transpose_x)) {
        out[0] = rn_export_result(h, call, by_matrix(h, attrs, x, w, bias, shape));
        return;
    }
    if (attrs->transpose_x) x = swap_last(h, x);
    if (!attrs->transpose_w) w = swap_last(h, w);
    rn_export_value y =
        rn_export_node(h, "MatMul", (rn_export_value[]){x, w}, 2, NULL, 0, RN_DTYPE_F32, shape);
    if (bias.id) y = rn_export_binary(h, "Add", y, bias);
    out[0] = rn_export_result(h, call, y);
}

// A zero of each row of a is not what every runtime takes: then differences are multiplied, as i32.
static rn_export_value multiply_bytes(rn_export *h, const rn_export_value *in, rn_shape shape) {
    if (!in[2].id || rn_shape_elements(in[2].shape, 0) == 1)
        return rn_export_node(h, "MatMulInteger", in, 4, NULL, 0, RN_DTYPE_I32, shape);
    rn_export_value pair[2];
    for (int i = 0; i < 2; i++) {
        pair[i] = rn_export_cast(h, in[i], RN_DTYPE_I32);
        if (!in[2 + i].id) continue;
        rn_export_value zero = rn_export_cast(h, in[2 + i], RN_DTYPE_I32);
        if (i == 0) zero = rn_export_reshape(h, zero, RN_SHAPE(in[2].shape.dims[0], 1));
        pair[i] = rn_export_binary(h, "Sub", pair[i], zero);
    }
    return rn_export_node(h, "MatMul", pair, 2, NULL, 0, RN_DTYPE_I32, shape);
}

RN_EXPORTER(product) {
    rn_shape shape = call->outputs[0].shape;
    if (in[0].dtype == RN_DTYPE_I8 || in[0].dtype == RN_DTYPE_U8) {
        out[0] = rn_export_result(h, call, multiply_bytes(h, in, shape));
        return;
    }
    rn_export_value pair[] = {rn_export_widen(h, in[0]), rn_export_widen(h, in[1])};
    rn_export_value y = rn_export_node(h, "MatMul", pair, 2, NULL, 0, pair[0].dtype, shape);
    out[0] = rn_export_result(h, call, y);
}

RN_EXPORTER(embedding) {
    out[0] = rn_export_result(h, call, rn_export_gather(h, in[0], in[1], 0));
}
