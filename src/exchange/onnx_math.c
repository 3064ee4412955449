// onnx_math.c — ONNX's elementwise ops, products and casts.
#include "exchange/onnx_importer.h"

#include <math.h>

// ---- one input ----------------------------------------------------------------------------------

static void write_unary(rn_import_call *c, double a, double b) {
    bool channels_last;
    rn_value x = rn_import_any(c, 0, &channels_last);
    rn_unary_attrs attrs = {.function = (rn_unary_function)c->op->argument, .a = a, .b = b};
    if (x != RN_NO_VALUE) rn_import_out_as(c, 0, rn_op_unary_as(c->graph, x, attrs), channels_last);
}

static void unary(rn_import_call *c) {
    write_unary(c, 0, 0);
}

// Functions with one or two parameters: the attributes' names and defaults.
static void unary_with(rn_import_call *c) {
    static const struct {
        uint32_t function;
        const char *a, *b;
        float a_otherwise, b_otherwise;
    } rows[] = {
        {RN_UNARY_ELU, "alpha", NULL, 1, 0},
        {RN_UNARY_SELU, "alpha", "gamma", 1.67326319217681884765625f, 1.05070102214813232421875f},
        {RN_UNARY_CELU, "alpha", NULL, 1, 0},
        {RN_UNARY_LEAKY_RELU, "alpha", NULL, 0.01f, 0},
        {RN_UNARY_THRESHOLDED_RELU, "alpha", NULL, 1, 0},
        {RN_UNARY_HARD_SIGMOID, "alpha", "beta", 0.2f, 0.5f},
        {RN_UNARY_SHRINK, "lambd", "bias", 0.5f, 0},
        {RN_UNARY_SWISH, "alpha", NULL, 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].function == c->op->argument)
            write_unary(c, rn_import_float(c, rows[i].a, rows[i].a_otherwise),
                        rows[i].b ? rn_import_float(c, rows[i].b, rows[i].b_otherwise) : 0);
}

static void is_inf(rn_import_call *c) {
    write_unary(c, (double)rn_import_int(c, "detect_positive", 1),
                (double)rn_import_int(c, "detect_negative", 1));
}

static void gelu(rn_import_call *c) {
    bool channels_last, tanh = rn_import_text_is(c, "approximate", "none", "tanh");
    rn_value x = rn_import_any(c, 0, &channels_last);
    rn_unary_function function = tanh ? RN_UNARY_GELU_TANH : RN_UNARY_GELU;
    if (x != RN_NO_VALUE) rn_import_out_as(c, 0, rn_op_unary(c->graph, function, x), channels_last);
}

static void identity(rn_import_call *c) {
    bool channels_last;
    if (rn_import_is_empty(c, 0)) {
        rn_import_out_empty(c, 0, rn_import_dtype(c, 0), rn_import_shape(c, 0));
        return;
    }
    rn_value x = rn_import_any(c, 0, &channels_last);
    rn_import_out_as(c, 0, x, channels_last);
}

// ---- several inputs -----------------------------------------------------------------------------

static void binary_of(rn_import_call *c, rn_binary_function function) {
    rn_value in[2];
    bool channels_last;
    rn_import_joined(c, 0, 2, in, &channels_last);
    if (in[0] && in[1])
        rn_import_out_as(c, 0, rn_op_binary(c->graph, function, in[0], in[1]), channels_last);
}

static bool is_sigmoid_of(const rn_import_call *c, rn_value y, rn_value x) {
    const rn_node *node = rn_import_maker(c, y, RN_OP_SIGMOID);
    return node && node->inputs[0] == x;
}

// Whether it is one number for all, and known: that one.
static bool is_number(rn_import_call *c, rn_value value, double number) {
    float held;
    return rn_import_known_number(c, value, &held) && fabs(held - number) <= 1e-6 * number;
}

// y = 1 + erf(x / sqrt(2)): that x; else RN_NO_VALUE.
static rn_value find_erf(rn_import_call *c, rn_value y) {
    const rn_node *add = rn_import_maker(c, y, RN_OP_ADD), *erf, *inner;
    for (uint32_t i = 0; add && i < 2; i++) {
        erf = rn_import_maker(c, add->inputs[i], RN_OP_UNARY);
        if (!erf || ((const rn_unary_attrs *)erf->attrs)->function != RN_UNARY_ERF ||
            !is_number(c, add->inputs[1 - i], 1))
            continue;
        inner = rn_import_maker(c, erf->inputs[0], RN_OP_DIV);
        if (inner && is_number(c, inner->inputs[1], sqrt(2))) return inner->inputs[0];
        inner = rn_import_maker(c, erf->inputs[0], RN_OP_MUL);
        for (uint32_t k = 0; inner && k < 2; k++)
            if (is_number(c, inner->inputs[1 - k], sqrt(0.5))) return inner->inputs[k];
    }
    return RN_NO_VALUE;
}

// Exporters write GELU as a product of x, 0.5 and 1 + erf(x / sqrt(2)), in some order: that x.
static rn_value find_gelu(rn_import_call *c, const rn_value in[2]) {
    for (uint32_t i = 0; i < 2; i++) {
        const rn_node *two = rn_import_maker(c, in[i], RN_OP_MUL);
        if (!two) continue;
        rn_value factors[3] = {in[1 - i], two->inputs[0], two->inputs[1]};
        for (uint32_t k = 0; k < 3; k++) {
            rn_value x = find_erf(c, factors[k]), a = factors[(k + 1) % 3],
                     b = factors[(k + 2) % 3];
            if (x && ((a == x && is_number(c, b, 0.5)) || (b == x && is_number(c, a, 0.5))))
                return x;
        }
    }
    return RN_NO_VALUE;
}

// x sigmoid(x), as exporters write SiLU, is one op, and so is GELU.
static void multiply(rn_import_call *c) {
    rn_value in[2];
    bool channels_last;
    rn_import_joined(c, 0, 2, in, &channels_last);
    if (!in[0] || !in[1]) return;
    rn_value x = is_sigmoid_of(c, in[1], in[0])   ? in[0]
                 : is_sigmoid_of(c, in[0], in[1]) ? in[1]
                                                  : RN_NO_VALUE;
    rn_value gelu_of = find_gelu(c, in);
    rn_value y = x         ? rn_op_silu(c->graph, x)
                 : gelu_of ? rn_op_gelu(c->graph, gelu_of)
                           : rn_op_mul(c->graph, in[0], in[1]);
    rn_import_out_as(c, 0, y, channels_last);
}

static void binary(rn_import_call *c) {
    binary_of(c, (rn_binary_function)c->op->argument);
}

static void mod(rn_import_call *c) {
    binary_of(c, rn_import_int(c, "fmod", 0) ? RN_BINARY_FMOD : RN_BINARY_MOD);
}

static void bit_shift(rn_import_call *c) {
    binary_of(c, rn_import_text_is(c, "direction", "", "LEFT") ? RN_BINARY_SHIFT_LEFT
                                                               : RN_BINARY_SHIFT_RIGHT);
}

static bool is_whole(rn_dtype dtype) {
    return !rn_dtype_get(dtype)->is_float;
}

// The result has the base's type, whatever the exponent's.
static void power(rn_import_call *c) {
    rn_value in[2];
    bool channels_last;
    rn_import_joined(c, 0, 2, in, &channels_last);
    rn_dtype x = rn_import_dtype(c, 0), y = rn_import_dtype(c, 1);
    if (!in[0] || !in[1]) return;
    rn_dtype in_dtype = is_whole(x) && !is_whole(y) ? RN_DTYPE_F64 : x;
    rn_value base = rn_import_cast(c->import, in[0], in_dtype);
    rn_value exponent = rn_import_cast(c->import, in[1], in_dtype);
    rn_value out = rn_op_binary(c->graph, RN_BINARY_POW, base, exponent);
    if (in_dtype != x && out) out = rn_op_convert(c->graph, out, (rn_convert_attrs){.dtype = x});
    rn_import_out_as(c, 0, out, channels_last);
}

static void compare(rn_import_call *c) {
    rn_value in[2];
    bool channels_last;
    rn_import_joined(c, 0, 2, in, &channels_last);
    if (in[0] && in[1])
        rn_import_out_as(
            c, 0, rn_op_compare(c->graph, (rn_compare_function)c->op->argument, in[0], in[1]),
            channels_last);
}

static void where(rn_import_call *c) {
    rn_value in[3];
    bool channels_last;
    rn_import_joined(c, 0, 3, in, &channels_last);
    if (in[0] && in[1] && in[2])
        rn_import_out_as(c, 0, rn_op_select(c->graph, in[0], in[1], in[2]), channels_last);
}

enum { MOST_OPERANDS = 64 };

static rn_value fold_operands(rn_import_call *c, rn_binary_function function,
                              bool *out_channels_last) {
    rn_value in[MOST_OPERANDS];
    uint32_t count = (uint32_t)c->node->input_count;
    *out_channels_last = false;
    if (count == 0 || count > MOST_OPERANDS) {
        rn_import_refuse(c, "%u inputs", count);
        return RN_NO_VALUE;
    }
    rn_import_joined(c, 0, count, in, out_channels_last);
    rn_value all = in[0];
    for (uint32_t i = 1; all && i < count; i++)
        all = in[i] ? rn_op_binary(c->graph, function, all, in[i]) : RN_NO_VALUE;
    return all;
}

static void variadic(rn_import_call *c) {
    bool channels_last;
    rn_value all = fold_operands(c, (rn_binary_function)c->op->argument, &channels_last);
    rn_import_out_as(c, 0, all, channels_last);
}

static void mean(rn_import_call *c) {
    bool channels_last;
    rn_value all = fold_operands(c, RN_BINARY_ADD, &channels_last);
    if (!all) return;
    rn_value count = rn_import_scalar(c->import, rn_import_dtype_of(c->import, all),
                                      (double)c->node->input_count);
    rn_import_out_as(c, 0, rn_op_div(c->graph, all, count), channels_last);
}

// ---- limits -------------------------------------------------------------------------------------

static void clip(rn_import_call *c) {
    bool channels_last;
    rn_value x = rn_import_any(c, 0, &channels_last);
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    bool old = c->version < 11;
    if (!x) return;
    bool has_low = old ? rn_import_attribute(c, "min") != NULL : rn_import_has(c, 1);
    bool has_high = old ? rn_import_attribute(c, "max") != NULL : rn_import_has(c, 2);
    bool known = old || ((!has_low || rn_import_is_constant(c, 1)) &&
                         (!has_high || rn_import_is_constant(c, 2)));
    if (dtype == RN_DTYPE_F32 && known) {
        double low = old ? rn_import_float(c, "min", -INFINITY) : rn_import_number(c, 1, -INFINITY);
        double high = old ? rn_import_float(c, "max", INFINITY) : rn_import_number(c, 2, INFINITY);
        if (low <= high) {
            rn_import_out_as(c, 0, rn_op_clamp(c->graph, x, (float)low, (float)high),
                             channels_last);
            return;
        }
    }
    if (has_low)
        x = rn_op_binary(c->graph, RN_BINARY_MAX, x,
                         old ? rn_import_scalar(c->import, dtype, rn_import_float(c, "min", 0))
                             : rn_import_in(c, 1));
    if (has_high && x)
        x = rn_op_binary(c->graph, RN_BINARY_MIN, x,
                         old ? rn_import_scalar(c->import, dtype, rn_import_float(c, "max", 0))
                             : rn_import_in(c, 2));
    rn_import_out_as(c, 0, x, channels_last);
}

// ---- casts --------------------------------------------------------------------------------------

// Integers of 4 and 2 bits lie in a byte each: the low bits, as a number of that width.
static rn_value keep_bits(rn_import_call *c, rn_value x, uint32_t data_type) {
    rn_graph *g = c->graph;
    rn_import *m = c->import;
    bool four = data_type == RN_ONNX_UINT4 || data_type == RN_ONNX_INT4;
    bool is_signed = data_type == RN_ONNX_INT4 || data_type == RN_ONNX_INT2;
    int mask = four ? 15 : 3, top = four ? 7 : 1;
    rn_dtype dtype = is_signed ? RN_DTYPE_I8 : RN_DTYPE_U8;
    rn_value whole = rn_op_convert(g, x, (rn_convert_attrs){.dtype = dtype});
    rn_value low = rn_op_binary(g, RN_BINARY_AND, whole, rn_import_scalar(m, dtype, mask));
    if (!is_signed) return low;
    rn_value below = rn_op_sub(g, low, rn_import_scalar(m, dtype, mask + 1));
    return rn_op_select(
        g, rn_op_compare(g, RN_COMPARE_GREATER, low, rn_import_scalar(m, dtype, top)), below, low);
}

static void write_cast(rn_import_call *c, uint32_t data_type) {
    bool channels_last;
    rn_dtype dtype = rn_onnx_dtype(data_type);
    if (rn_import_is_empty(c, 0)) {
        rn_import_out_empty(c, 0, dtype, rn_import_shape(c, 0));
        return;
    }
    rn_value x = rn_import_any(c, 0, &channels_last);
    bool narrow = data_type == RN_ONNX_UINT4 || data_type == RN_ONNX_INT4 ||
                  data_type == RN_ONNX_UINT2 || data_type == RN_ONNX_INT2;
    if (!x) return;
    if (narrow) {
        rn_import_out_as(c, 0, keep_bits(c, x, data_type), channels_last);
        return;
    }
    if (dtype == RN_DTYPE_NONE || dtype == RN_DTYPE_F8_E8M0) {
        rn_import_refuse(c, "casts to %s", rn_onnx_type_name(data_type));
        return;
    }
    rn_convert_attrs attrs = {.dtype = dtype, .saturate = rn_import_int(c, "saturate", 1) != 0};
    if (rn_import_dtype_of(c->import, x) != dtype) x = rn_op_convert(c->graph, x, attrs);
    rn_import_out_as(c, 0, x, channels_last);
}

static void cast(rn_import_call *c) {
    write_cast(c, (uint32_t)rn_import_int(c, "to", 0));
}

// The same bits as another type of the same size: of whole numbers, which wrap.
static void bit_cast(rn_import_call *c) {
    bool channels_last;
    rn_value x = rn_import_any(c, 0, &channels_last);
    uint32_t type = (uint32_t)rn_import_int(c, "to", 0);
    rn_convert_attrs attrs = {.dtype = rn_onnx_dtype(type)};
    rn_dtype from = rn_import_dtype_of(c->import, x);
    if (!x) return;
    if (attrs.dtype == RN_DTYPE_NONE || type >= RN_ONNX_UINT4 || attrs.dtype == RN_DTYPE_BOOL ||
        rn_dtype_get(from)->is_float || rn_dtype_get(attrs.dtype)->is_float ||
        rn_dtype_get(from)->block_bytes != rn_dtype_get(attrs.dtype)->block_bytes) {
        rn_import_refuse(c, "the bits of %s as %s", rn_dtype_get(from)->name,
                         rn_onnx_type_name(type));
        return;
    }
    if (from != attrs.dtype) x = rn_op_convert(c->graph, x, attrs);
    rn_import_out_as(c, 0, x, channels_last);
}

static void cast_like(rn_import_call *c) {
    rn_dtype dtype = rn_import_dtype(c, 1);
    rn_import_slot *like = rn_import_slot_of(c, 1);
    uint32_t data_type = like ? like->data_type : 0;
    for (uint32_t i = 1; data_type == 0 && i < RN_ONNX_UINT4; i++)
        if (rn_onnx_dtype(i) == dtype) data_type = i;
    if (dtype == RN_DTYPE_F8_E8M0) data_type = 24;
    if (like) write_cast(c, data_type);
}

// ---- soft functions -----------------------------------------------------------------------------

// Up to opset 12 the axes from `axis` on are one.
static void soft(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_shape shape = rn_import_shape_of(c->import, x), flat = RN_SHAPE(1, 1);
    rn_soft_function function = (rn_soft_function)c->op->argument;
    if (!x) return;
    if (c->version >= 13) {
        uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", -1), shape.rank);
        rn_import_out(c, 0, rn_op_soft(c->graph, function, x, axis));
        return;
    }
    uint32_t axis = rn_import_axis(c, rn_import_int(c, "axis", 1), shape.rank);
    if (shape.rank && shape.dims[0] == RN_ROWS && axis != 1) {
        rn_import_refuse(c, "along axis %u of a shape with rows", axis);
        return;
    }
    for (uint32_t i = 0; i < shape.rank; i++)
        if (shape.dims[i] == RN_ROWS)
            flat.dims[0] = RN_ROWS;
        else
            flat.dims[i >= axis] *= shape.dims[i];
    rn_value y = rn_op_soft(c->graph, function, rn_import_reshape(c->import, x, flat), 1);
    rn_import_out(c, 0, rn_import_reshape(c->import, y, shape));
}

// ---- products -----------------------------------------------------------------------------------

// Products are of f32: other floats are widened and the result is narrowed again.
static rn_value widen(rn_import_call *c, rn_value x) {
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    bool narrow = dtype == RN_DTYPE_F16 || dtype == RN_DTYPE_BF16;
    return x && narrow ? rn_op_cast(c->graph, x, RN_DTYPE_F32) : x;
}

rn_value rn_import_matmul(rn_import_call *c, rn_value a, rn_value b) {
    rn_import *m = c->import;
    if (!a || !b) return RN_NO_VALUE;
    if (rn_import_dtype_of(m, a) != RN_DTYPE_F32) return rn_op_product(c->graph, a, b);
    rn_shape x = rn_import_shape_of(m, a), w = rn_import_shape_of(m, b);
    rn_matmul_attrs attrs = {.transpose_w = true};
    if (w.rank > 2 && x.rank >= 2) {
        rn_shape x_front = x, w_front = w, front;
        x_front.rank -= 2, w_front.rank -= 2;
        if (!rn_shape_join(x_front, w_front, &front)) {
            rn_import_refuse(c, "the shapes %s and %s do not fit", rn_shape_format(x).text,
                             rn_shape_format(w).text);
            return RN_NO_VALUE;
        }
        rn_shape to = front, w_to = {.rank = front.rank + 2};
        to.dims[to.rank++] = x.dims[x.rank - 2];
        to.dims[to.rank++] = x.dims[x.rank - 1];
        for (uint32_t i = 0; i < w_to.rank; i++)
            w_to.dims[i] = i + w.rank < w_to.rank ? 1 : w.dims[i + w.rank - w_to.rank];
        if (!rn_shape_equal(x, to)) a = rn_op_broadcast(c->graph, a, to);
        b = rn_import_reshape(m, b, w_to);
    }
    return rn_op_matmul_as(c->graph, a, b, RN_NO_VALUE, attrs);
}

static void matmul(rn_import_call *c) {
    rn_import *m = c->import;
    rn_value a = rn_import_in(c, 0), b = rn_import_in(c, 1);
    rn_dtype dtype = rn_import_dtype_of(m, a);
    rn_shape x = rn_import_shape_of(m, a), w = rn_import_shape_of(m, b);
    if (!a || !b) return;
    bool row = x.rank == 1, column = w.rank == 1;
    if (row) a = rn_import_reshape(m, a, RN_SHAPE(1, x.dims[0]));
    if (column) b = rn_import_reshape(m, b, RN_SHAPE(w.dims[0], 1));
    rn_value y = rn_import_find_attention(c, a, b);
    if (!y) y = rn_import_matmul(c, widen(c, a), widen(c, b));
    rn_shape shape = rn_import_shape_of(m, y);
    if (!y) return;
    if (column) shape.rank--;
    if (row && column) shape.rank = 0;
    if (row && !column) {
        shape.dims[shape.rank - 2] = shape.dims[shape.rank - 1];
        shape.rank--;
    }
    rn_import_out(c, 0, rn_import_cast(m, rn_import_reshape(m, y, shape), dtype));
}

static const uint8_t turned[] = {1, 0};

// Of other dtypes than floats up to f32.
static void gemm_any(rn_import_call *c, rn_value a, rn_value b, rn_value bias,
                     rn_matmul_attrs attrs) {
    rn_import *m = c->import;
    rn_dtype dtype = rn_import_dtype_of(m, a);
    if (attrs.transpose_x) a = rn_import_permute(m, a, turned);
    if (!attrs.transpose_w) b = rn_import_permute(m, b, turned);
    rn_value y = rn_op_product(c->graph, a, b);
    y = rn_op_mul(c->graph, y, rn_import_scalar(m, dtype, rn_import_float(c, "alpha", 1)));
    if (bias)
        bias = rn_op_mul(c->graph, bias, rn_import_scalar(m, dtype, rn_import_float(c, "beta", 1)));
    rn_import_out(c, 0, bias ? rn_op_add(c->graph, y, bias) : y);
}

static void gemm(rn_import_call *c) {
    rn_import *m = c->import;
    rn_value a = rn_import_in(c, 0), b = rn_import_in(c, 1), bias = rn_import_optional(c, 2);
    rn_dtype dtype = rn_import_dtype_of(m, a);
    float alpha = rn_import_float(c, "alpha", 1), beta = rn_import_float(c, "beta", 1);
    rn_matmul_attrs attrs = {.transpose_x = rn_import_int(c, "transA", 0) != 0,
                             .transpose_w = rn_import_int(c, "transB", 0) == 0};
    if (!a || !b) return;
    if (is_whole(dtype) || dtype == RN_DTYPE_F64) {
        gemm_any(c, a, b, bias, attrs);
        return;
    }
    rn_shape w = rn_import_shape_of(m, b), of_bias = rn_import_shape_of(m, bias);
    uint64_t columns = w.rank == 2 ? w.dims[attrs.transpose_w] : 0;
    bool fused = bias && alpha == 1 && beta == 1 && rn_shape_equal(of_bias, RN_SHAPE(columns)) &&
                 dtype == RN_DTYPE_F32;
    rn_value y =
        rn_op_matmul_as(c->graph, widen(c, a), widen(c, b), fused ? bias : RN_NO_VALUE, attrs);
    if (y && alpha != 1) y = rn_op_scale(c->graph, y, alpha, 0);
    if (y && bias && !fused) {
        bias = widen(c, bias);
        if (beta != 1)
            bias =
                rn_op_mul(c->graph, bias, rn_import_scalar(m, rn_import_dtype_of(m, bias), beta));
        if (bias) y = rn_op_add(c->graph, y, bias);
    }
    if (y) rn_import_out(c, 0, rn_import_cast(m, y, dtype));
}

// ---- einsum -------------------------------------------------------------------------------------

enum { LETTERS = 52, ELLIPSIS_LETTERS = 8, SYMBOLS = LETTERS + ELLIPSIS_LETTERS };

// One operand's axes as symbols: letters, then axes of an ellipsis counted from its end.
typedef struct term {
    uint8_t symbols[RN_MAX_RANK];
    uint32_t count;
} term;

static int letter_of(char ch) {
    if (ch >= 'a' && ch <= 'z') return ch - 'a';
    if (ch >= 'A' && ch <= 'Z') return ch - 'A' + 26;
    return -1;
}

// `rank` UINT32_MAX: of the result, whose ellipsis has `hidden` axes.
static bool parse_term(rn_str text, uint32_t rank, uint32_t hidden, term *out) {
    uint32_t letters = 0;
    *out = (term){.count = 0};
    for (size_t i = 0; i < text.bytes; i++)
        letters += letter_of(text.data[i]) >= 0;
    if (rank != UINT32_MAX) hidden = rank >= letters ? rank - letters : 0;
    for (size_t i = 0; i < text.bytes; i++) {
        char ch = text.data[i];
        if (ch == ' ') continue;
        if (ch == '.') {
            if (i + 2 >= text.bytes || text.data[i + 1] != '.' || text.data[i + 2] != '.')
                return false;
            i += 2;
            for (uint32_t k = 0; k < hidden; k++) {
                if (out->count == RN_MAX_RANK) return false;
                out->symbols[out->count++] = (uint8_t)(LETTERS + hidden - 1 - k);
            }
            continue;
        }
        if (letter_of(ch) < 0 || out->count == RN_MAX_RANK) return false;
        out->symbols[out->count++] = (uint8_t)letter_of(ch);
    }
    return rank == UINT32_MAX || out->count == rank;
}

static int find_symbol(const term *t, uint8_t symbol) {
    for (uint32_t i = 0; i < t->count; i++)
        if (t->symbols[i] == symbol) return (int)i;
    return -1;
}

// Axes `a` and `b` of one length become one, the diagonal: (n, n) as n * n, of which every n + 1st.
static rn_value take_diagonal(rn_import_call *c, rn_value x, uint32_t a, uint32_t b) {
    uint8_t axes[RN_MAX_RANK] = {0};
    rn_shape from = rn_import_shape_of(c->import, x), to = {.rank = from.rank - 1};
    rn_strided_slice_attrs cut = {0};
    if (!x || from.dims[a] != from.dims[b] || from.dims[a] == RN_ROWS) {
        rn_import_refuse(c, "a diagonal of %s", rn_shape_format(from).text);
        return RN_NO_VALUE;
    }
    for (uint32_t i = 0, at = 0; i < from.rank; i++) { // b right behind a
        if (i == b) continue;
        to.dims[at - (at > a)] = from.dims[i];
        axes[at++] = (uint8_t)i;
        if (i == a) axes[at++] = (uint8_t)b;
    }
    to.dims[a] = from.dims[a] * from.dims[a];
    for (uint32_t i = 0; i < to.rank; i++) {
        cut.step[i] = i == a ? (int64_t)from.dims[a] + 1 : 1;
        cut.count[i] = i == a ? from.dims[a] : to.dims[i];
    }
    x = rn_import_reshape(c->import, rn_import_permute(c->import, x, axes), to);
    return x ? rn_op_strided_slice(c->graph, x, cut) : x;
}

// A letter that one operand has twice is a diagonal.
static rn_value take_diagonals(rn_import_call *c, rn_value x, term *t) {
    for (uint32_t b = 1; b < t->count && x; b++) {
        int a = find_symbol(t, t->symbols[b]);
        if (a == (int)b) continue;
        x = take_diagonal(c, x, (uint32_t)a, b);
        memmove(&t->symbols[b], &t->symbols[b + 1], t->count - b - 1);
        t->count--;
        b--;
    }
    return x;
}

// The operand with its axes in the order of `all`, 1 where it has none.
static rn_value align_term(rn_import_call *c, rn_value x, const term *given, const term *all) {
    uint8_t axes[RN_MAX_RANK] = {0};
    term own = *given, *t = &own;
    x = take_diagonals(c, x, t);
    uint32_t at = 0;
    rn_shape from = rn_import_shape_of(c->import, x), to = {.rank = all->count};
    for (uint32_t i = 0; i < all->count; i++) {
        int found = find_symbol(t, all->symbols[i]);
        to.dims[i] = found < 0 ? 1 : from.dims[found];
        if (found >= 0) axes[at++] = (uint8_t)found;
    }
    if (!x || at != t->count) return RN_NO_VALUE;
    return rn_import_reshape(c->import, rn_import_permute(c->import, x, axes), to);
}

typedef struct equation {
    term terms[8], result, all; // all: the result's symbols, then those that are summed
    uint32_t count;
} equation;

static void implicit_result(const equation *e, term *out) {
    uint8_t seen[SYMBOLS] = {0};
    *out = (term){.count = 0};
    for (uint32_t i = 0; i < e->count; i++)
        for (uint32_t k = 0; k < e->terms[i].count; k++)
            seen[e->terms[i].symbols[k]]++;
    for (int s = SYMBOLS - 1; s >= LETTERS; s--) // the ellipsis comes first
        if (seen[s] && out->count < RN_MAX_RANK) out->symbols[out->count++] = (uint8_t)s;
    for (int k = 0; k < LETTERS; k++) {
        int s = k < 26 ? k + 26 : k - 26; // capitals first, as in ASCII
        if (seen[s] == 1 && out->count < RN_MAX_RANK) out->symbols[out->count++] = (uint8_t)s;
    }
}

static bool parse_equation(rn_import_call *c, rn_str text, equation *e) {
    size_t arrow = text.bytes, at = 0;
    uint32_t hidden = 0;
    for (size_t i = 0; i + 1 < text.bytes; i++)
        if (text.data[i] == '-' && text.data[i + 1] == '>') arrow = i;
    while (at <= arrow) {
        size_t end = at;
        while (end < arrow && text.data[end] != ',')
            end++;
        if (e->count == 8 || e->count >= c->node->input_count) return false;
        term *t = &e->terms[e->count];
        uint32_t rank = rn_import_rank(c, e->count++);
        if (!parse_term((rn_str){text.data + at, end - at}, rank, 0, t)) return false;
        for (uint32_t i = 0; i < t->count; i++)
            if (t->symbols[i] >= LETTERS && t->symbols[i] - LETTERS + 1u > hidden)
                hidden = t->symbols[i] - LETTERS + 1u;
        at = end + 1;
    }
    if (arrow == text.bytes)
        implicit_result(e, &e->result);
    else if (!parse_term((rn_str){text.data + arrow + 2, text.bytes - arrow - 2}, UINT32_MAX,
                         hidden, &e->result))
        return false;
    e->all = e->result;
    for (uint32_t i = 0; i < e->count; i++)
        for (uint32_t k = 0; k < e->terms[i].count; k++)
            if (find_symbol(&e->all, e->terms[i].symbols[k]) < 0) {
                if (e->all.count == RN_MAX_RANK) return false;
                e->all.symbols[e->all.count++] = e->terms[i].symbols[k];
            }
    return e->count == c->node->input_count;
}

// All operands stretched to all letters, multiplied and summed.
static void einsum(rn_import_call *c) {
    equation e = {.count = 0};
    uint32_t axes = 0;
    if (!parse_equation(c, rn_import_text(c, "equation", ""), &e)) {
        rn_import_refuse(c, "the equation is not understood");
        return;
    }
    rn_value all = RN_NO_VALUE;
    for (uint32_t i = 0; i < e.count; i++) {
        rn_value x = align_term(c, rn_import_in(c, i), &e.terms[i], &e.all);
        all = i == 0 ? x : rn_op_mul(c->graph, all, x);
    }
    for (uint32_t i = e.result.count; i < e.all.count; i++)
        axes |= 1u << i;
    if (axes && all) all = rn_op_reduce(c->graph, RN_REDUCE_SUM, all, axes, false);
    rn_import_out(c, 0, all);
}

// ---- dropout ------------------------------------------------------------------------------------

enum { MOST_DETERMINANT = 4 };

// Of rows from `row` on and these columns: each element of the first row times what is left without
// its row and column, in turns added and taken away.
static rn_value determinant_of(rn_import_call *c, rn_value x, uint32_t row, const uint32_t *columns,
                               uint32_t count) {
    uint32_t last = rn_import_shape_of(c->import, x).rank - 1;
    rn_value line = rn_op_slice(c->graph, x, last - 1, row, 1), sum = RN_NO_VALUE;
    for (uint32_t k = 0; k < count; k++) {
        rn_value part = rn_op_slice(c->graph, line, last, columns[k], 1);
        uint32_t left[MOST_DETERMINANT], kept = 0;
        for (uint32_t i = 0; i < count; i++)
            if (i != k) left[kept++] = columns[i];
        if (kept)
            part = rn_op_binary(c->graph, RN_BINARY_MUL, part,
                                determinant_of(c, x, row + 1, left, kept));
        sum = k == 0 ? part
                     : rn_op_binary(c->graph, k % 2 ? RN_BINARY_SUB : RN_BINARY_ADD, sum, part);
    }
    return sum;
}

static void determinant(rn_import_call *c) {
    static const uint32_t columns[MOST_DETERMINANT] = {0, 1, 2, 3};
    rn_value x = rn_import_in(c, 0);
    rn_shape s = rn_import_shape_of(c->import, x);
    if (!x) return;
    uint64_t size = s.rank >= 2 ? s.dims[s.rank - 1] : 0;
    if (size == 0 || size > MOST_DETERMINANT || s.dims[s.rank - 2] != size) {
        rn_import_refuse(c, "of %s: squares of up to %d are read", rn_shape_format(s).text,
                         MOST_DETERMINANT);
        return;
    }
    s.rank -= 2;
    rn_value y = determinant_of(c, x, 0, columns, (uint32_t)size);
    rn_import_out(c, 0, rn_import_reshape(c->import, y, s));
}

static void dropout(rn_import_call *c) {
    bool channels_last;
    rn_value x = rn_import_any(c, 0, &channels_last);
    double ratio =
        c->version < 12 ? rn_import_float(c, "ratio", 0.5f) : rn_import_number(c, 1, 0.5);
    bool training = c->version >= 12 && rn_import_number(c, 2, 0) != 0;
    if (!x) return;
    if (training && ratio != 0) {
        rn_import_refuse(c, "random numbers in training");
        return;
    }
    rn_import_out_as(c, 0, x, channels_last);
    if (!rn_import_wants(c, 1)) return;
    rn_value one = rn_import_scalar(c->import, RN_DTYPE_BOOL, 1);
    rn_import_out(c, 1, rn_op_broadcast(c->graph, one, rn_import_shape(c, 0)));
}

static void binarize(rn_import_call *c) {
    rn_value x = rn_import_in(c, 0);
    rn_dtype dtype = rn_import_dtype_of(c->import, x);
    if (!x) return;
    rn_value least = rn_import_scalar(c->import, dtype, rn_import_float(c, "threshold", 0));
    rn_import_out(
        c, 0,
        rn_import_cast(c->import, rn_op_compare(c->graph, RN_COMPARE_GREATER, x, least), dtype));
}

const rn_import_op rn_onnx_math_ops[] = {
    {"Abs", unary, RN_UNARY_ABS},
    {"Neg", unary, RN_UNARY_NEG},
    {"Sign", unary, RN_UNARY_SIGN},
    {"Reciprocal", unary, RN_UNARY_RECIPROCAL},
    {"Ceil", unary, RN_UNARY_CEIL},
    {"Floor", unary, RN_UNARY_FLOOR},
    {"Round", unary, RN_UNARY_ROUND},
    {"Sqrt", unary, RN_UNARY_SQRT},
    {"Exp", unary, RN_UNARY_EXP},
    {"Log", unary, RN_UNARY_LOG},
    {"Sin", unary, RN_UNARY_SIN},
    {"Cos", unary, RN_UNARY_COS},
    {"Tan", unary, RN_UNARY_TAN},
    {"Asin", unary, RN_UNARY_ASIN},
    {"Acos", unary, RN_UNARY_ACOS},
    {"Atan", unary, RN_UNARY_ATAN},
    {"Sinh", unary, RN_UNARY_SINH},
    {"Cosh", unary, RN_UNARY_COSH},
    {"Asinh", unary, RN_UNARY_ASINH},
    {"Acosh", unary, RN_UNARY_ACOSH},
    {"Atanh", unary, RN_UNARY_ATANH},
    {"Erf", unary, RN_UNARY_ERF},
    {"Tanh", unary, RN_UNARY_TANH},
    {"Sigmoid", unary, RN_UNARY_SIGMOID},
    {"Relu", unary, RN_UNARY_RELU},
    {"Gelu", gelu, 0},
    {"com.microsoft.Gelu", gelu, 0},
    {"Softplus", unary, RN_UNARY_SOFTPLUS},
    {"Softsign", unary, RN_UNARY_SOFTSIGN},
    {"Mish", unary, RN_UNARY_MISH},
    {"HardSwish", unary, RN_UNARY_HARD_SWISH},
    {"Swish", unary_with, RN_UNARY_SWISH},
    {"HardSigmoid", unary_with, RN_UNARY_HARD_SIGMOID},
    {"Elu", unary_with, RN_UNARY_ELU},
    {"Selu", unary_with, RN_UNARY_SELU},
    {"Celu", unary_with, RN_UNARY_CELU},
    {"LeakyRelu", unary_with, RN_UNARY_LEAKY_RELU},
    {"ThresholdedRelu", unary_with, RN_UNARY_THRESHOLDED_RELU},
    {"Shrink", unary_with, RN_UNARY_SHRINK},
    {"Not", unary, RN_UNARY_NOT},
    {"BitwiseNot", unary, RN_UNARY_BITWISE_NOT},
    {"IsNaN", unary, RN_UNARY_IS_NAN},
    {"IsInf", is_inf, RN_UNARY_IS_INF},
    {"Identity", identity, 0},
    {"Add", binary, RN_BINARY_ADD},
    {"Sub", binary, RN_BINARY_SUB},
    {"Mul", multiply, 0},
    {"Div", binary, RN_BINARY_DIV},
    {"Pow", power, 0},
    {"Mod", mod, 0},
    {"PRelu", binary, RN_BINARY_PRELU},
    {"And", binary, RN_BINARY_AND},
    {"Or", binary, RN_BINARY_OR},
    {"Xor", binary, RN_BINARY_XOR},
    {"BitwiseAnd", binary, RN_BINARY_AND},
    {"BitwiseOr", binary, RN_BINARY_OR},
    {"BitwiseXor", binary, RN_BINARY_XOR},
    {"BitShift", bit_shift, 0},
    {"Equal", compare, RN_COMPARE_EQUAL},
    {"Less", compare, RN_COMPARE_LESS},
    {"LessOrEqual", compare, RN_COMPARE_LESS_EQUAL},
    {"Greater", compare, RN_COMPARE_GREATER},
    {"GreaterOrEqual", compare, RN_COMPARE_GREATER_EQUAL},
    {"Where", where, 0},
    {"ai.onnx.ml.Binarizer", binarize, 0},
    {"Min", variadic, RN_BINARY_MIN},
    {"Max", variadic, RN_BINARY_MAX},
    {"Sum", variadic, RN_BINARY_ADD},
    {"Mean", mean, 0},
    {"Clip", clip, 0},
    {"Cast", cast, 0},
    {"BitCast", bit_cast, 0},
    {"CastLike", cast_like, 0},
    {"Softmax", soft, RN_SOFT_MAX},
    {"LogSoftmax", soft, RN_SOFT_LOG_MAX},
    {"Hardmax", soft, RN_SOFT_HARD_MAX},
    {"MatMul", matmul, 0},
    {"Gemm", gemm, 0},
    {"Einsum", einsum, 0},
    {"Det", determinant, 0},
    {"Dropout", dropout, 0},
    {NULL, NULL, 0},
};
