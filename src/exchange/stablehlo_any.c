// stablehlo_any.c — the functions of one and two elements of any plain dtype.
#include "exchange/stablehlo_ops.h"

#include <math.h>

static rn_hlo_value constant(rn_hlo *h, rn_hlo_value x, double number) {
    return rn_hlo_like(h, x, number);
}

static rn_hlo_value binary(rn_hlo *h, const char *name, rn_hlo_value a, rn_hlo_value b) {
    return rn_hlo_binary(h, name, a, b);
}

static rn_hlo_value below(rn_hlo *h, rn_hlo_value x, double number) {
    return rn_hlo_compare(h, "LT", x, constant(h, x, number));
}

static rn_hlo_value above(rn_hlo *h, rn_hlo_value x, double number) {
    return rn_hlo_compare(h, "GT", x, constant(h, x, number));
}

// ---- one element --------------------------------------------------------------------------------

static const char *const plain[RN_UNARY_COUNT] = {
    [RN_UNARY_ABS] = "abs",          [RN_UNARY_NEG] = "negate",
    [RN_UNARY_SIGN] = "sign",        [RN_UNARY_CEIL] = "ceil",
    [RN_UNARY_FLOOR] = "floor",      [RN_UNARY_ROUND] = "round_nearest_even",
    [RN_UNARY_SQRT] = "sqrt",        [RN_UNARY_EXP] = "exponential",
    [RN_UNARY_LOG] = "log",          [RN_UNARY_SIN] = "sine",
    [RN_UNARY_COS] = "cosine",       [RN_UNARY_TAN] = "chlo.tan",
    [RN_UNARY_ASIN] = "chlo.asin",   [RN_UNARY_ACOS] = "chlo.acos",
    [RN_UNARY_ATAN] = "chlo.atan",   [RN_UNARY_SINH] = "chlo.sinh",
    [RN_UNARY_COSH] = "chlo.cosh",   [RN_UNARY_ASINH] = "chlo.asinh",
    [RN_UNARY_ACOSH] = "chlo.acosh", [RN_UNARY_ATANH] = "chlo.atanh",
    [RN_UNARY_ERF] = "chlo.erf",     [RN_UNARY_TANH] = "tanh",
    [RN_UNARY_SIGMOID] = "logistic", [RN_UNARY_NOT] = "not",
    [RN_UNARY_BITWISE_NOT] = "not",
};

// log(1 + e^x) without overflow
static rn_hlo_value softplus(rn_hlo *h, rn_hlo_value x) {
    rn_hlo_value away = rn_hlo_unary(h, "negate", rn_hlo_unary(h, "abs", x));
    rn_hlo_value rest = rn_hlo_unary(h, "log_plus_one", rn_hlo_unary(h, "exponential", away));
    return binary(h, "add", binary(h, "maximum", x, constant(h, x, 0)), rest);
}

// a x + b within 0 and 1
static rn_hlo_value hard_sigmoid(rn_hlo *h, rn_hlo_value x, double a, double b) {
    x = binary(h, "multiply", x, constant(h, x, a));
    x = binary(h, "add", x, constant(h, x, b));
    return binary(h, "maximum", binary(h, "minimum", x, constant(h, x, 1)), constant(h, x, 0));
}

// factor (e^(x / by) - 1) below 0
static rn_hlo_value elu(rn_hlo *h, rn_hlo_value x, double factor, double by) {
    rn_hlo_value y = by == 1 ? x : binary(h, "divide", x, constant(h, x, by));
    y = rn_hlo_unary(h, "exponential_minus_one", y);
    y = binary(h, "multiply", y, constant(h, x, factor));
    return rn_hlo_select(h, below(h, x, 0), y, x);
}

// x (1 + inner) / 2
static rn_hlo_value gelu(rn_hlo *h, rn_hlo_value x, rn_hlo_value inner) {
    inner = binary(h, "add", inner, constant(h, x, 1));
    return binary(h, "multiply", binary(h, "multiply", x, inner), constant(h, x, 0.5));
}

static rn_hlo_value gelu_tanh(rn_hlo *h, rn_hlo_value x) {
    rn_hlo_value cube = binary(h, "multiply", binary(h, "multiply", x, x), x);
    cube = binary(h, "multiply", cube, constant(h, x, 0.044715));
    rn_hlo_value inner =
        binary(h, "multiply", binary(h, "add", x, cube), constant(h, x, 0.79788456080286536));
    return gelu(h, x, rn_hlo_unary(h, "tanh", inner));
}

static rn_hlo_value shrink(rn_hlo *h, rn_hlo_value x, double a, double b) {
    rn_hlo_value up = binary(h, "subtract", x, constant(h, x, b));
    rn_hlo_value down = binary(h, "add", x, constant(h, x, b));
    rn_hlo_value y = rn_hlo_select(h, above(h, x, a), up, constant(h, x, 0));
    return rn_hlo_select(h, below(h, x, -a), down, y);
}

static rn_hlo_value is_infinite(rn_hlo *h, rn_hlo_value x, const rn_unary_attrs *attrs) {
    rn_hlo_value none = rn_hlo_whole(h, RN_DTYPE_BOOL, 0, x.shape);
    rn_hlo_value up = attrs->a != 0 ? rn_hlo_compare(h, "EQ", x, constant(h, x, INFINITY)) : none;
    rn_hlo_value down =
        attrs->b != 0 ? rn_hlo_compare(h, "EQ", x, constant(h, x, -INFINITY)) : none;
    return binary(h, "or", up, down);
}

// Functions that StableHLO has no operation for; those of floats alone but for RELU and SHRINK.
static rn_hlo_value compose(rn_hlo *h, const rn_unary_attrs *attrs, rn_hlo_value x) {
    double a = attrs->a, b = attrs->b;
    switch (attrs->function) {
    case RN_UNARY_RECIPROCAL:
        return binary(h, "divide", constant(h, x, 1), x);
    case RN_UNARY_RELU:
        return binary(h, "maximum", x, constant(h, x, 0));
    case RN_UNARY_GELU:
        return gelu(h, x,
                    rn_hlo_unary(h, "chlo.erf",
                                 binary(h, "multiply", x, constant(h, x, 0.70710678118654752))));
    case RN_UNARY_GELU_TANH:
        return gelu_tanh(h, x);
    case RN_UNARY_SOFTPLUS:
        return softplus(h, x);
    case RN_UNARY_SOFTSIGN:
        return binary(h, "divide", x,
                      binary(h, "add", rn_hlo_unary(h, "abs", x), constant(h, x, 1)));
    case RN_UNARY_MISH:
        return binary(h, "multiply", x, rn_hlo_unary(h, "tanh", softplus(h, x)));
    case RN_UNARY_SWISH:
        return binary(h, "multiply", x,
                      rn_hlo_unary(h, "logistic", binary(h, "multiply", x, constant(h, x, a))));
    case RN_UNARY_HARD_SIGMOID:
        return hard_sigmoid(h, x, a, b);
    case RN_UNARY_HARD_SWISH:
        return binary(h, "multiply", x, hard_sigmoid(h, x, 1.0 / 6, 0.5));
    case RN_UNARY_ELU:
        return elu(h, x, a, 1);
    case RN_UNARY_SELU:
        return binary(h, "multiply", elu(h, x, a, 1), constant(h, x, b));
    case RN_UNARY_CELU:
        return elu(h, x, a, a);
    case RN_UNARY_LEAKY_RELU:
        return rn_hlo_select(h, below(h, x, 0), binary(h, "multiply", x, constant(h, x, a)), x);
    case RN_UNARY_THRESHOLDED_RELU:
        return rn_hlo_select(h, above(h, x, a), x, constant(h, x, 0));
    case RN_UNARY_SHRINK:
        return shrink(h, x, a, b);
    case RN_UNARY_IS_NAN:
        return rn_hlo_compare(h, "NE", x, x);
    case RN_UNARY_IS_INF:
        return is_infinite(h, x, attrs);
    default:
        rn_hlo_refuse(h, "function %d has no StableHLO", (int)attrs->function);
        return x;
    }
}

static bool is_unsigned(rn_dtype dtype) {
    return rn_hlo_element(dtype) && rn_hlo_element(dtype)[0] == 'u';
}

rn_hlo_value rn_hlo_function(rn_hlo *h, const rn_unary_attrs *attrs, rn_hlo_value x) {
    bool whole = !rn_dtype_get(x.dtype)->is_float;
    if (attrs->function == RN_UNARY_ABS && is_unsigned(x.dtype)) return x;
    if (attrs->function == RN_UNARY_SIGN && is_unsigned(x.dtype))
        return binary(h, "minimum", x, constant(h, x, 1));
    if (attrs->function == RN_UNARY_SHRINK && whole) { // in f64, cut off
        rn_hlo_value wide = rn_hlo_convert(h, x, RN_DTYPE_F64);
        return rn_hlo_truncate(h, shrink(h, wide, attrs->a, attrs->b), RN_DTYPE_I64);
    }
    if ((unsigned)attrs->function < RN_UNARY_COUNT && plain[attrs->function])
        return rn_hlo_unary(h, plain[attrs->function], x);
    return compose(h, attrs, x);
}

RN_HLO_EMITTER(unary_as) {
    rn_hlo_value y = rn_hlo_function(h, call->attrs, rn_hlo_widen(h, in[0]));
    out[0] = rn_hlo_result(h, call, y);
}

// ---- two elements -------------------------------------------------------------------------------

// Of whole numbers by 0 it is 0.
static rn_hlo_value divide(rn_hlo *h, const char *name, rn_hlo_value a, rn_hlo_value b) {
    if (rn_dtype_get(a.dtype)->is_float) return binary(h, name, a, b);
    rn_hlo_value none = rn_hlo_compare(h, "EQ", b, constant(h, b, 0));
    rn_hlo_value y = binary(h, name, a, rn_hlo_select(h, none, constant(h, b, 1), b));
    return rn_hlo_select(h, none, constant(h, y, 0), y);
}

// The remainder with b's sign.
static rn_hlo_value modulo(rn_hlo *h, rn_hlo_value a, rn_hlo_value b) {
    rn_hlo_value r = divide(h, "remainder", a, b);
    if (is_unsigned(a.dtype)) return r;
    rn_hlo_value differs = rn_hlo_compare(h, "NE", below(h, r, 0), below(h, b, 0));
    rn_hlo_value some = rn_hlo_compare(h, "NE", r, constant(h, r, 0));
    return rn_hlo_select(h, binary(h, "and", differs, some), binary(h, "add", r, b), r);
}

static rn_hlo_value apply(rn_hlo *h, rn_binary_function function, rn_hlo_value a, rn_hlo_value b) {
    static const char *const names[RN_BINARY_COUNT] = {
        [RN_BINARY_ADD] = "add",      [RN_BINARY_SUB] = "subtract",
        [RN_BINARY_MUL] = "multiply", [RN_BINARY_POW] = "power",
        [RN_BINARY_MIN] = "minimum",  [RN_BINARY_MAX] = "maximum",
        [RN_BINARY_AND] = "and",      [RN_BINARY_OR] = "or",
        [RN_BINARY_XOR] = "xor",      [RN_BINARY_SHIFT_LEFT] = "shift_left"};
    bool logical = is_unsigned(a.dtype) || a.dtype == RN_DTYPE_I64;
    switch (function) {
    case RN_BINARY_DIV:
        return divide(h, "divide", a, b);
    case RN_BINARY_MOD:
        return modulo(h, a, b);
    case RN_BINARY_FMOD:
        return divide(h, "remainder", a, b);
    case RN_BINARY_PRELU:
        return rn_hlo_select(h, below(h, a, 0), binary(h, "multiply", a, b), a);
    case RN_BINARY_SHIFT_RIGHT:
        return binary(h, logical ? "shift_right_logical" : "shift_right_arithmetic", a, b);
    default:
        return binary(h, names[function], a, b);
    }
}

RN_HLO_EMITTER(binary_as) {
    const rn_binary_attrs *attrs = call->attrs;
    rn_shape shape = call->outputs[0].shape;
    rn_hlo_value a = rn_hlo_expand(h, rn_hlo_widen(h, in[0]), shape);
    rn_hlo_value b = rn_hlo_expand(h, rn_hlo_widen(h, in[1]), shape);
    out[0] = rn_hlo_result(h, call, apply(h, attrs->function, a, b));
}

RN_HLO_EMITTER(compare) {
    static const char *const names[RN_COMPARE_COUNT] = {
        [RN_COMPARE_EQUAL] = "EQ",   [RN_COMPARE_NOT_EQUAL] = "NE",
        [RN_COMPARE_LESS] = "LT",    [RN_COMPARE_LESS_EQUAL] = "LE",
        [RN_COMPARE_GREATER] = "GT", [RN_COMPARE_GREATER_EQUAL] = "GE"};
    const rn_compare_attrs *attrs = call->attrs;
    rn_shape shape = call->outputs[0].shape;
    rn_hlo_value a = rn_hlo_expand(h, in[0], shape), b = rn_hlo_expand(h, in[1], shape);
    out[0] = rn_hlo_compare(h, names[attrs->function], a, b);
}

RN_HLO_EMITTER(select) {
    rn_shape shape = call->outputs[0].shape;
    out[0] = rn_hlo_select(h, rn_hlo_expand(h, in[0], shape), rn_hlo_expand(h, in[1], shape),
                           rn_hlo_expand(h, in[2], shape));
}
