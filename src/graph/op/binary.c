// binary.c — one function of two elements, of any plain dtype, stretched by NumPy's rule.
//
// f32 has ops of its own for +, -, * and /: rn_op_binary makes those, and their builders make this
// op of any other dtype. Whole numbers wrap; dividing them by 0 gives 0, for a kernel does not
// fail on what data says, and no other answer is better.
#include "graph/op/elementwise.h"
#include "graph/op/number.h"

#include <stdio.h>

// ---- functions ----------------------------------------------------------------------------------

enum { FLOATS = 1, WHOLE = 2, BOOLS = 4 };

static const struct {
    const char *name;
    uint8_t takes;
} functions[RN_BINARY_COUNT] = {
    [RN_BINARY_ADD] = {"add", FLOATS | WHOLE},
    [RN_BINARY_SUB] = {"sub", FLOATS | WHOLE},
    [RN_BINARY_MUL] = {"mul", FLOATS | WHOLE},
    [RN_BINARY_DIV] = {"div", FLOATS | WHOLE},
    [RN_BINARY_POW] = {"pow", FLOATS | WHOLE},
    [RN_BINARY_MOD] = {"mod", FLOATS | WHOLE},
    [RN_BINARY_FMOD] = {"fmod", FLOATS | WHOLE},
    [RN_BINARY_MIN] = {"min", FLOATS | WHOLE},
    [RN_BINARY_MAX] = {"max", FLOATS | WHOLE},
    [RN_BINARY_PRELU] = {"prelu", FLOATS | WHOLE},
    [RN_BINARY_AND] = {"and", BOOLS | WHOLE},
    [RN_BINARY_OR] = {"or", BOOLS | WHOLE},
    [RN_BINARY_XOR] = {"xor", BOOLS | WHOLE},
    [RN_BINARY_SHIFT_LEFT] = {"shift_left", WHOLE},
    [RN_BINARY_SHIFT_RIGHT] = {"shift_right", WHOLE},
};

static rn_status shape(rn_shaping *s) {
    const rn_binary_attrs *attrs = s->attrs;
    rn_dtype dtype = s->in[0].dtype;
    RN_TRY(rn_shape_want_number(s, 0));
    RN_TRY(rn_shape_want(s, 1, dtype));
    if ((unsigned)attrs->function >= RN_BINARY_COUNT)
        return rn_shape_fail(s, "there is no function %d", (int)attrs->function);
    int is = dtype == RN_DTYPE_BOOL                    ? BOOLS
             : rn_number_is_float(rn_number_of(dtype)) ? FLOATS
                                                       : WHOLE;
    if (!(functions[attrs->function].takes & is))
        return rn_shape_fail(s, "%s is not for %s", functions[attrs->function].name,
                             rn_dtype_get(dtype)->name);
    if (!rn_shape_join(s->in[0].shape, s->in[1].shape, &s->out[0].shape))
        return rn_shape_fail(s, "the shapes do not broadcast");
    s->out[0].dtype = dtype;
    return RN_OK;
}

// The remainder with the divisor's sign.
static double modulo(double a, double b) {
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static double real(rn_binary_function function, double a, double b) {
    switch (function) {
    case RN_BINARY_POW:
        return pow(a, b);
    case RN_BINARY_MOD:
        return modulo(a, b);
    case RN_BINARY_FMOD:
        return fmod(a, b);
    case RN_BINARY_MIN: // NaN wins, as in NumPy
        return isnan(a) || a < b ? a : b;
    case RN_BINARY_MAX:
        return isnan(a) || a > b ? a : b;
    default:
        return a < 0 ? a * b : a; // PRELU
    }
}

// The four that must round in their own type; the others are of one rounding, or exact, in double.
#define ARITHMETIC(field)                                                                          \
    switch (function) {                                                                            \
    case RN_BINARY_ADD:                                                                            \
        for (uint64_t i = 0; i < n; i++)                                                           \
            a->field[i] += b->field[i];                                                            \
        return;                                                                                    \
    case RN_BINARY_SUB:                                                                            \
        for (uint64_t i = 0; i < n; i++)                                                           \
            a->field[i] -= b->field[i];                                                            \
        return;                                                                                    \
    case RN_BINARY_MUL:                                                                            \
        for (uint64_t i = 0; i < n; i++)                                                           \
            a->field[i] *= b->field[i];                                                            \
        return;                                                                                    \
    case RN_BINARY_DIV:                                                                            \
        for (uint64_t i = 0; i < n; i++)                                                           \
            a->field[i] /= b->field[i];                                                            \
        return;                                                                                    \
    default:                                                                                       \
        break;                                                                                     \
    }

static void apply_f32(rn_binary_function function, rn_numbers *a, const rn_numbers *b, uint64_t n) {
    ARITHMETIC(f32)
    for (uint64_t i = 0; i < n; i++)
        a->f32[i] = (float)real(function, (double)a->f32[i], (double)b->f32[i]);
}

static void apply_f64(rn_binary_function function, rn_numbers *a, const rn_numbers *b, uint64_t n) {
    ARITHMETIC(f64)
    for (uint64_t i = 0; i < n; i++)
        a->f64[i] = real(function, a->f64[i], b->f64[i]);
}

// By squaring; a negative exponent gives 0 but for bases of 1 and -1.
static uint64_t power(uint64_t base, uint64_t exponent, bool is_signed) {
    uint64_t result = 1;
    if (is_signed && (int64_t)exponent < 0)
        return base == 1 ? 1 : base == UINT64_MAX ? (exponent & 1 ? base : 1) : 0;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

static uint64_t divide(int64_t a, int64_t b) {
    if (b == 0) return 0;
    return b == -1 ? 0 - (uint64_t)a : (uint64_t)(a / b); // the one quotient that overflows
}

static uint64_t remain(rn_binary_function function, int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    if (function == RN_BINARY_MOD && r != 0 && (r < 0) != (b < 0)) r += b;
    return (uint64_t)r;
}

// A shift by all bits of the element leaves nothing.
static uint64_t shift(uint64_t a, uint64_t by, bool left) {
    if (by > 63) return 0;
    return left ? a << by : a >> by;
}

static uint64_t whole_unsigned(rn_binary_function function, uint64_t a, uint64_t b) {
    switch (function) {
    case RN_BINARY_DIV:
        return b ? a / b : 0;
    case RN_BINARY_MOD:
    case RN_BINARY_FMOD:
        return b ? a % b : 0;
    case RN_BINARY_MIN:
        return a < b ? a : b;
    case RN_BINARY_MAX:
        return a > b ? a : b;
    default:
        return a; // PRELU
    }
}

static uint64_t whole_signed(rn_binary_function function, int64_t a, int64_t b) {
    switch (function) {
    case RN_BINARY_DIV:
        return divide(a, b);
    case RN_BINARY_MOD:
    case RN_BINARY_FMOD:
        return remain(function, a, b);
    case RN_BINARY_MIN:
        return (uint64_t)(a < b ? a : b);
    case RN_BINARY_MAX:
        return (uint64_t)(a > b ? a : b);
    default:
        return a < 0 ? (uint64_t)a * (uint64_t)b : (uint64_t)a; // PRELU
    }
}

static uint64_t whole(rn_binary_function function, uint64_t a, uint64_t b, bool is_signed) {
    switch (function) {
    case RN_BINARY_ADD:
        return a + b;
    case RN_BINARY_SUB:
        return a - b;
    case RN_BINARY_MUL:
        return a * b;
    case RN_BINARY_POW:
        return power(a, b, is_signed);
    case RN_BINARY_AND:
        return a & b;
    case RN_BINARY_OR:
        return a | b;
    case RN_BINARY_XOR:
        return a ^ b;
    case RN_BINARY_SHIFT_LEFT:
    case RN_BINARY_SHIFT_RIGHT:
        return shift(a, b, function == RN_BINARY_SHIFT_LEFT);
    default:
        return is_signed ? whole_signed(function, (int64_t)a, (int64_t)b)
                         : whole_unsigned(function, a, b);
    }
}

// ---- the loop -----------------------------------------------------------------------------------

static void apply(const rn_call *call, rn_numbers *a, const rn_numbers *b, uint64_t n) {
    rn_binary_function function = ((const rn_binary_attrs *)call->attrs)->function;
    rn_number number = rn_number_of(call->inputs[0].dtype);
    if (number == RN_NUMBER_F32)
        apply_f32(function, a, b, n);
    else if (number == RN_NUMBER_F64)
        apply_f64(function, a, b, n);
    else
        for (uint64_t i = 0; i < n; i++)
            a->u64[i] = whole(function, a->u64[i], b->u64[i], number == RN_NUMBER_I64);
}

static rn_status reference(const rn_call *call) {
    const rn_tensor *a = &call->inputs[0], *b = &call->inputs[1], *y = &call->outputs[0];
    rn_walk w = rn_walk_begin(y->shape, rn_strides_stretched(a->shape, y->shape),
                              rn_strides_stretched(b->shape, y->shape));
    uint64_t at = 0;
    do {
        for (uint64_t i = 0; i < w.count; i += RN_NUMBERS) {
            rn_numbers p, q;
            uint64_t n = w.count - i < RN_NUMBERS ? w.count - i : RN_NUMBERS;
            rn_numbers_load(a, w.at[0] + i * w.step[0], w.step[0], n, &p);
            rn_numbers_load(b, w.at[1] + i * w.step[1], w.step[1], n, &q);
            apply(call, &p, &q, n);
            rn_numbers_store(y, at, n, &p);
            at += n;
        }
    } while (rn_walk_next(&w));
    return RN_OK;
}

static void print(const void *attrs, char *out, size_t bytes) {
    snprintf(out, bytes, "%s", functions[((const rn_binary_attrs *)attrs)->function].name);
}

extern const rn_op_info rn_binary_op;
const rn_op_info rn_binary_op = {
    .name = "binary",
    .min_inputs = 2,
    .max_inputs = 2,
    .output_count = 1,
    .attrs_bytes = sizeof(rn_binary_attrs),
    .traits = RN_TRAIT_ELEMENTWISE,
    .alias_of = rn_broadcast_alias,
    .shape = shape,
    .cost = rn_cost_elementwise,
    .reference = reference,
    .print = print,
};

rn_value rn_op_binary(rn_graph *g, rn_binary_function function, rn_value a, rn_value b) {
    static const rn_op f32[] = {[RN_BINARY_ADD] = RN_OP_ADD,
                                [RN_BINARY_SUB] = RN_OP_SUB,
                                [RN_BINARY_MUL] = RN_OP_MUL,
                                [RN_BINARY_DIV] = RN_OP_DIV};
    if ((unsigned)function < sizeof f32 / sizeof *f32 && rn_graph_dtype(g, a) == RN_DTYPE_F32)
        return rn_graph_add(g, f32[function], (rn_value[]){a, b}, 2, NULL);
    return rn_graph_add(g, RN_OP_BINARY, (rn_value[]){a, b}, 2, &(rn_binary_attrs){function});
}
