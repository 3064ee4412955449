// conform_any.c — rows of the ops of any plain dtype. What they mean is in tests/golden/ops.txt;
// here kernels are held against the reference loops, and both within their tensors.
#include "conform.h"

static rn_value operand(conform_case *c, uint32_t i) {
    return conform_fixed(c, c->row->dtype, c->row->shapes[i], c->row->low, c->row->high);
}

static void unary(conform_case *c) {
    rn_unary_attrs attrs = {(rn_unary_function)c->row->variant, 0.5, 0.25};
    conform_result(c, rn_op_unary_as(c->graph, operand(c, 0), attrs));
}

static void binary(conform_case *c) {
    rn_value a = operand(c, 0), b = operand(c, 1);
    conform_result(c, rn_op_binary(c->graph, (rn_binary_function)c->row->variant, a, b));
}

static void compare(conform_case *c) {
    rn_value a = operand(c, 0), b = operand(c, 1);
    conform_result(c, rn_op_compare(c->graph, (rn_compare_function)c->row->variant, a, b));
}

static void choose(conform_case *c) {
    rn_value condition = conform_fixed(c, RN_DTYPE_BOOL, c->row->shapes[2], -1, 1);
    rn_value a = operand(c, 0), b = operand(c, 1);
    conform_result(c, rn_op_select(c->graph, condition, a, b));
}

static void convert(conform_case *c) {
    rn_convert_attrs attrs = {(rn_dtype)c->row->variant, true};
    conform_result(c, rn_op_convert(c->graph, operand(c, 0), attrs));
}

static void reduce(conform_case *c) {
    rn_reduce_function function = (rn_reduce_function)c->row->variant;
    conform_result(c, rn_op_reduce(c->graph, function, operand(c, 0), 2, true));
}

static void arg_reduce(conform_case *c) {
    conform_result(c, rn_op_arg_reduce(c->graph, operand(c, 0), (rn_arg_reduce_attrs){.axis = 1}));
}

static void soft(conform_case *c) {
    rn_soft_function function = (rn_soft_function)c->row->variant;
    conform_result(c, rn_op_soft(c->graph, function, operand(c, 0), 1));
}

static void gather(conform_case *c) {
    rn_value x = operand(c, 0), at = conform_whole(c, c->row->shapes[1], -3, 3);
    rn_gather_attrs attrs = {.kind = (rn_gather_kind)c->row->variant, .axis = 1};
    conform_result(c, rn_op_gather_as(c->graph, x, at, attrs));
}

static void scatter(conform_case *c) {
    rn_value x = operand(c, 0), at = conform_whole(c, c->row->shapes[1], -3, 3);
    rn_value updates = operand(c, 2);
    rn_scatter_attrs attrs = {.function = (rn_scatter_function)c->row->variant, .axis = 1};
    conform_result(c, rn_op_scatter(c->graph, x, at, updates, attrs));
}

static void strided_slice(conform_case *c) {
    conform_result(c, rn_op_strided_slice(c->graph, operand(c, 0),
                                          *(const rn_strided_slice_attrs *)c->row->attrs));
}

static const rn_strided_slice_attrs back = {{2, 4}, {-1, -2}, {3, 2}};

#define ANY(OP, WHAT, BUILD, DTYPE, VARIANT, ...)                                                  \
    {                                                                                              \
        .op = RN_OP_##OP, .what = WHAT, .build = BUILD, .dtype = RN_DTYPE_##DTYPE, .low = -3,      \
        .high = 3, .variant = VARIANT, __VA_ARGS__                                                 \
    }
#define ONE(...)  .shapes = {__VA_ARGS__}
#define ROWS(...) .rows = 5, .shapes = {RN_SHAPE(RN_ROWS, 3), __VA_ARGS__}

static const conform_row rows[] = {
    ANY(UNARY, "f32", unary, F32, RN_UNARY_HARD_SWISH, ONE(RN_SHAPE(3, 20000))),
    ANY(UNARY, "rows", unary, F32, RN_UNARY_ERF, ROWS()),
    ANY(UNARY, "bf16", unary, BF16, RN_UNARY_LEAKY_RELU, ONE(RN_SHAPE(300))),
    ANY(UNARY, "i8", unary, I8, RN_UNARY_ABS, ONE(RN_SHAPE(5, 7))),
    ANY(UNARY, "f64 to bool", unary, F64, RN_UNARY_IS_INF, ONE(RN_SHAPE(5, 7))),
    ANY(BINARY, "f64", binary, F64, RN_BINARY_SUB, ONE(RN_SHAPE(3, 300), RN_SHAPE(300))),
    ANY(BINARY, "rows", binary, F32, RN_BINARY_MAX, ROWS(RN_SHAPE(3))),
    ANY(BINARY, "u8", binary, U8, RN_BINARY_MUL, ONE(RN_SHAPE(3, 1, 2), RN_SHAPE(4, 1))),
    ANY(BINARY, "many", binary, F32, RN_BINARY_MIN, ONE(RN_SHAPE(40000), RN_SHAPE(40000))),
    ANY(COMPARE, "rows", compare, F32, RN_COMPARE_LESS, ROWS(RN_SHAPE(3))),
    ANY(COMPARE, "i64", compare, I64, RN_COMPARE_EQUAL, ONE(RN_SHAPE(3, 4), RN_SCALAR)),
    ANY(SELECT, "rows", choose, F32, 0, ROWS(RN_SCALAR, RN_SHAPE(RN_ROWS, 1))),
    ANY(SELECT, "i16", choose, I16, 0, ONE(RN_SHAPE(2, 1, 4), RN_SHAPE(3, 1), RN_SHAPE(4))),
    ANY(CONVERT, "rows", convert, F32, RN_DTYPE_I64, ROWS()),
    ANY(CONVERT, "fp8", convert, I32, RN_DTYPE_F8_E4M3, ONE(RN_SHAPE(300))),
    ANY(REDUCE, "rows", reduce, F32, RN_REDUCE_LOG_SUM_EXP, ROWS()),
    ANY(REDUCE, "i32", reduce, I32, RN_REDUCE_MEAN, ONE(RN_SHAPE(3, 300, 2))),
    ANY(ARG_REDUCE, "rows", arg_reduce, F16, 0, ROWS()),
    ANY(SOFT, "rows", soft, F64, RN_SOFT_LOG_MAX, ROWS()),
    ANY(SOFT, "a middle axis", soft, F32, RN_SOFT_MAX, ONE(RN_SHAPE(2, 5, 3))),
    ANY(GATHER, "rows", gather, F32, RN_GATHER_AXIS, ROWS(RN_SHAPE(4))),
    ANY(GATHER, "elements", gather, I16, RN_GATHER_ELEMENTS, ONE(RN_SHAPE(3, 4), RN_SHAPE(2, 3))),
    ANY(GATHER, "places", gather, U64, RN_GATHER_ND, ONE(RN_SHAPE(3, 4, 2), RN_SHAPE(2, 2))),
    ANY(SCATTER, "add", scatter, F32, RN_SCATTER_ADD,
        ONE(RN_SHAPE(3, 4), RN_SHAPE(2, 3), RN_SHAPE(2, 3))),
    ANY(STRIDED_SLICE, "backwards", strided_slice, I8, 0, ONE(RN_SHAPE(4, 5)), .attrs = &back),
};

const conform_table conform_any = {rows, sizeof rows / sizeof *rows};
