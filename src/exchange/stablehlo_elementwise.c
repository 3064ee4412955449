// stablehlo_elementwise.c — ops in which element i of the result depends on elements i of the
// inputs. f16 and bf16 are computed in f32 and rounded once, every other dtype in itself.
#include "exchange/stablehlo_ops.h"

static const char *const names[RN_OP_COUNT] = {
    [RN_OP_ADD] = "add",    [RN_OP_SUB] = "subtract", [RN_OP_MUL] = "multiply",
    [RN_OP_DIV] = "divide", [RN_OP_NEG] = "negate",   [RN_OP_EXP] = "exponential",
    [RN_OP_LOG] = "log",    [RN_OP_SQRT] = "sqrt",    [RN_OP_RSQRT] = "rsqrt",
    [RN_OP_TANH] = "tanh",
};

RN_HLO_EMITTER(unary) {
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    out[0] = rn_hlo_result(h, call, rn_hlo_unary(h, names[call->op], x));
}

RN_HLO_EMITTER(binary) {
    rn_shape shape = call->outputs[0].shape;
    rn_hlo_value a = rn_hlo_expand(h, rn_hlo_widen(h, in[0]), shape);
    rn_hlo_value b = rn_hlo_expand(h, rn_hlo_widen(h, in[1]), shape);
    out[0] = rn_hlo_result(h, call, rn_hlo_binary(h, names[call->op], a, b));
}

RN_HLO_EMITTER(pow) {
    const rn_pow_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    rn_hlo_value exponent = rn_hlo_float(h, x.dtype, (double)attrs->exponent, x.shape);
    out[0] = rn_hlo_result(h, call, rn_hlo_binary(h, "power", x, exponent));
}

// NaN stays NaN in both.
RN_HLO_EMITTER(clamp) {
    const rn_clamp_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    x = rn_hlo_binary(h, "maximum", x, rn_hlo_like(h, x, (double)attrs->low));
    x = rn_hlo_binary(h, "minimum", x, rn_hlo_like(h, x, (double)attrs->high));
    out[0] = rn_hlo_result(h, call, x);
}

RN_HLO_EMITTER(scale) {
    const rn_scale_attrs *attrs = call->attrs;
    rn_hlo_value x = rn_hlo_widen(h, in[0]);
    x = rn_hlo_binary(h, "multiply", x, rn_hlo_like(h, x, (double)attrs->factor));
    if (attrs->offset != 0)
        x = rn_hlo_binary(h, "add", x, rn_hlo_like(h, x, (double)attrs->offset));
    out[0] = rn_hlo_result(h, call, x);
}

// ---- activations --------------------------------------------------------------------------------

// 0.5 x (1 + inner)
static rn_hlo_value gelu_of(rn_hlo *h, rn_hlo_value x, rn_hlo_value inner) {
    rn_hlo_value half = rn_hlo_binary(h, "multiply", rn_hlo_like(h, x, 0.5), x);
    return rn_hlo_binary(h, "multiply", half, rn_hlo_binary(h, "add", rn_hlo_like(h, x, 1), inner));
}

static rn_hlo_value activate(rn_hlo *h, rn_hlo_value x, rn_activation activation) {
    rn_hlo_value inner, cube;
    switch (activation) {
    case RN_ACTIVATION_RELU:
        return rn_hlo_binary(h, "maximum", x, rn_hlo_like(h, x, 0));
    case RN_ACTIVATION_SIGMOID:
        return rn_hlo_unary(h, "logistic", x);
    case RN_ACTIVATION_SILU:
        return rn_hlo_binary(h, "multiply", x, rn_hlo_unary(h, "logistic", x));
    case RN_ACTIVATION_GELU:
        inner = rn_hlo_binary(h, "multiply", x, rn_hlo_like(h, x, 0.70710678118654752));
        return gelu_of(h, x, rn_hlo_unary(h, "chlo.erf", inner));
    case RN_ACTIVATION_GELU_TANH:
        cube = rn_hlo_binary(h, "multiply", rn_hlo_binary(h, "multiply", x, x), x);
        cube = rn_hlo_binary(h, "multiply", cube, rn_hlo_like(h, x, 0.044715));
        inner = rn_hlo_binary(h, "multiply", rn_hlo_like(h, x, 0.79788456080286536),
                              rn_hlo_binary(h, "add", x, cube));
        return gelu_of(h, x, rn_hlo_unary(h, "tanh", inner));
    default:
        rn_hlo_refuse(h, "activation %d has no StableHLO", (int)activation);
        return x;
    }
}

RN_HLO_EMITTER(activation) {
    static const rn_activation which[RN_OP_COUNT] = {
        [RN_OP_RELU] = RN_ACTIVATION_RELU,           [RN_OP_SIGMOID] = RN_ACTIVATION_SIGMOID,
        [RN_OP_SILU] = RN_ACTIVATION_SILU,           [RN_OP_GELU] = RN_ACTIVATION_GELU,
        [RN_OP_GELU_TANH] = RN_ACTIVATION_GELU_TANH,
    };
    out[0] = rn_hlo_result(h, call, activate(h, rn_hlo_widen(h, in[0]), which[call->op]));
}

RN_HLO_EMITTER(gated) {
    const rn_gated_attrs *attrs = call->attrs;
    rn_hlo_value gate = activate(h, rn_hlo_widen(h, in[0]), attrs->activation);
    out[0] = rn_hlo_result(h, call, rn_hlo_binary(h, "multiply", gate, rn_hlo_widen(h, in[1])));
}
