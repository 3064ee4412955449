// unary.c — one function of each element, of any plain dtype.
//
// f32 has ops of its own for what models spend time in (neg, exp, relu, ...): rn_op_unary makes
// those, and their builders make this op of any other dtype.
#include "graph/op/number.h"

#include <stdio.h>
#include <tgmath.h>

#define NAME apply_f32
#define REAL float
#include "graph/op/unary_body.h"
#define NAME apply_f64
#define REAL double
#include "graph/op/unary_body.h"

// ---- which function takes what ------------------------------------------------------------------

enum { FLOATS = 1, WHOLE = 2, BOOLS = 4 };

static const struct {
    const char *name;
    uint8_t takes;
} functions[RN_UNARY_COUNT] = {
    [RN_UNARY_ABS] = {"abs", FLOATS | WHOLE},
    [RN_UNARY_NEG] = {"neg", FLOATS | WHOLE},
    [RN_UNARY_SIGN] = {"sign", FLOATS | WHOLE},
    [RN_UNARY_RELU] = {"relu", FLOATS | WHOLE},
    [RN_UNARY_RECIPROCAL] = {"reciprocal", FLOATS},
    [RN_UNARY_CEIL] = {"ceil", FLOATS},
    [RN_UNARY_FLOOR] = {"floor", FLOATS},
    [RN_UNARY_ROUND] = {"round", FLOATS},
    [RN_UNARY_SQRT] = {"sqrt", FLOATS},
    [RN_UNARY_EXP] = {"exp", FLOATS},
    [RN_UNARY_LOG] = {"log", FLOATS},
    [RN_UNARY_SIN] = {"sin", FLOATS},
    [RN_UNARY_COS] = {"cos", FLOATS},
    [RN_UNARY_TAN] = {"tan", FLOATS},
    [RN_UNARY_ASIN] = {"asin", FLOATS},
    [RN_UNARY_ACOS] = {"acos", FLOATS},
    [RN_UNARY_ATAN] = {"atan", FLOATS},
    [RN_UNARY_SINH] = {"sinh", FLOATS},
    [RN_UNARY_COSH] = {"cosh", FLOATS},
    [RN_UNARY_ASINH] = {"asinh", FLOATS},
    [RN_UNARY_ACOSH] = {"acosh", FLOATS},
    [RN_UNARY_ATANH] = {"atanh", FLOATS},
    [RN_UNARY_ERF] = {"erf", FLOATS},
    [RN_UNARY_TANH] = {"tanh", FLOATS},
    [RN_UNARY_SIGMOID] = {"sigmoid", FLOATS},
    [RN_UNARY_GELU] = {"gelu", FLOATS},
    [RN_UNARY_GELU_TANH] = {"gelu_tanh", FLOATS},
    [RN_UNARY_SOFTPLUS] = {"softplus", FLOATS},
    [RN_UNARY_SOFTSIGN] = {"softsign", FLOATS},
    [RN_UNARY_MISH] = {"mish", FLOATS},
    [RN_UNARY_SWISH] = {"swish", FLOATS},
    [RN_UNARY_HARD_SIGMOID] = {"hard_sigmoid", FLOATS},
    [RN_UNARY_HARD_SWISH] = {"hard_swish", FLOATS},
    [RN_UNARY_ELU] = {"elu", FLOATS},
    [RN_UNARY_SELU] = {"selu", FLOATS},
    [RN_UNARY_CELU] = {"celu", FLOATS},
    [RN_UNARY_LEAKY_RELU] = {"leaky_relu", FLOATS},
    [RN_UNARY_THRESHOLDED_RELU] = {"thresholded_relu", FLOATS},
    [RN_UNARY_SHRINK] = {"shrink", FLOATS | WHOLE},
    [RN_UNARY_NOT] = {"not", BOOLS},
    [RN_UNARY_BITWISE_NOT] = {"bitwise_not", WHOLE},
    [RN_UNARY_IS_NAN] = {"is_nan", FLOATS},
    [RN_UNARY_IS_INF] = {"is_inf", FLOATS},
};

static bool tells(rn_unary_function function) {
    return function == RN_UNARY_IS_NAN || function == RN_UNARY_IS_INF;
}

static rn_status shape(rn_shaping *s) {
    const rn_unary_attrs *attrs = s->attrs;
    rn_dtype dtype = s->in[0].dtype;
    RN_TRY(rn_shape_want_number(s, 0));
    if ((unsigned)attrs->function >= RN_UNARY_COUNT)
        return rn_shape_fail(s, "there is no function %d", (int)attrs->function);
    int is = dtype == RN_DTYPE_BOOL                    ? BOOLS
             : rn_number_is_float(rn_number_of(dtype)) ? FLOATS
                                                       : WHOLE;
    if (!(functions[attrs->function].takes & is))
        return rn_shape_fail(s, "%s is not for %s", functions[attrs->function].name,
                             rn_dtype_get(dtype)->name);
    s->out[0].dtype = tells(attrs->function) ? RN_DTYPE_BOOL : dtype;
    s->out[0].shape = s->in[0].shape;
    return RN_OK;
}

// ---- the loop -----------------------------------------------------------------------------------

// Whole numbers wrap; unsigned ones are never below 0.
static int64_t whole(const rn_unary_attrs *attrs, int64_t x, bool is_signed) {
    bool below = is_signed && x < 0;
    switch (attrs->function) {
    case RN_UNARY_ABS:
        return below ? (int64_t)(0 - (uint64_t)x) : x;
    case RN_UNARY_NEG:
        return (int64_t)(0 - (uint64_t)x);
    case RN_UNARY_SIGN:
        return below ? -1 : x != 0;
    case RN_UNARY_RELU:
        return below ? 0 : x;
    case RN_UNARY_SHRINK: {
        double r = is_signed ? (double)x : (double)(uint64_t)x;
        r = r < -attrs->a ? r + attrs->b : r > attrs->a ? r - attrs->b : 0;
        return (int64_t)r;
    }
    case RN_UNARY_NOT:
        return !x;
    default:
        return ~x;
    }
}

// In place: 1 where a float is NaN, or infinite of a sign that is asked for.
static void tell(const rn_unary_attrs *attrs, rn_number number, rn_numbers *v, uint64_t n) {
    rn_numbers x = *v;
    for (uint64_t i = 0; i < n; i++) {
        double value = number == RN_NUMBER_F64 ? x.f64[i] : (double)x.f32[i];
        bool infinite = isinf(value) && (value > 0 ? attrs->a != 0 : attrs->b != 0);
        v->i64[i] = attrs->function == RN_UNARY_IS_NAN ? isnan(value) : infinite;
    }
}

static rn_status reference(const rn_call *call) {
    const rn_unary_attrs *attrs = call->attrs;
    const rn_tensor *x = &call->inputs[0], *y = &call->outputs[0];
    rn_number number = rn_number_of(x->dtype);
    uint64_t n = rn_tensor_elements(y);
    for (uint64_t at = 0; at < n; at += RN_NUMBERS) {
        rn_numbers v;
        uint64_t count = n - at < RN_NUMBERS ? n - at : RN_NUMBERS;
        rn_numbers_load(x, at, 1, count, &v);
        if (tells(attrs->function))
            tell(attrs, number, &v, count);
        else if (number == RN_NUMBER_F32)
            apply_f32(attrs, v.f32, count);
        else if (number == RN_NUMBER_F64)
            apply_f64(attrs, v.f64, count);
        else
            for (uint64_t i = 0; i < count; i++)
                v.i64[i] = whole(attrs, v.i64[i], number == RN_NUMBER_I64);
        rn_numbers_store(y, at, count, &v);
    }
    return RN_OK;
}

static rn_alias alias_of(const rn_call *call, uint32_t output, uint64_t *out_offset_bytes) {
    (void)output, (void)out_offset_bytes;
    bool same = call->inputs[0].dtype == call->outputs[0].dtype;
    return same ? (rn_alias)RN_ALIAS_MAY(0) : (rn_alias){RN_ALIAS_KIND_NONE, 0};
}

static void print(const void *attrs, char *out, size_t bytes) {
    const rn_unary_attrs *a = attrs;
    snprintf(out, bytes, "%s", functions[a->function].name);
    if (a->a != 0 || a->b != 0)
        snprintf(out, bytes, "%s %g %g", functions[a->function].name, a->a, a->b);
}

extern const rn_op_info rn_unary_op;
const rn_op_info rn_unary_op = {
    .name = "unary",
    .min_inputs = 1,
    .max_inputs = 1,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_unary_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias_of = alias_of,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

// The op of f32 alone that has this function; RN_OP_COUNT: none.
static rn_op f32_op(rn_unary_function function) {
    switch (function) {
    case RN_UNARY_NEG:
        return RN_OP_NEG;
    case RN_UNARY_EXP:
        return RN_OP_EXP;
    case RN_UNARY_LOG:
        return RN_OP_LOG;
    case RN_UNARY_SQRT:
        return RN_OP_SQRT;
    case RN_UNARY_RELU:
        return RN_OP_RELU;
    case RN_UNARY_SIGMOID:
        return RN_OP_SIGMOID;
    case RN_UNARY_TANH:
        return RN_OP_TANH;
    case RN_UNARY_GELU:
        return RN_OP_GELU;
    case RN_UNARY_GELU_TANH:
        return RN_OP_GELU_TANH;
    default:
        return RN_OP_COUNT;
    }
}

rn_value rn_op_unary_as(rn_graph *g, rn_value x, rn_unary_attrs attrs) {
    rn_op f32 = f32_op(attrs.function);
    if (f32 != RN_OP_COUNT && rn_graph_dtype(g, x) == RN_DTYPE_F32)
        return rn_graph_add(g, f32, &x, 1, NULL);
    return rn_graph_add(g, RN_OP_UNARY, &x, 1, &attrs);
}

rn_value rn_op_unary(rn_graph *g, rn_unary_function function, rn_value x) {
    return rn_op_unary_as(g, x, (rn_unary_attrs){.function = function});
}
