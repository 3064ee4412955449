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

static void cumulate(conform_case *c) {
    conform_result(c, rn_op_cumulate(c->graph, operand(c, 0), (rn_cumulate_attrs){.axis = 1}));
}

static void top_k(conform_case *c) {
    rn_top_k_attrs attrs = {.axis = 1, .count = 2};
    rn_value first = rn_op_top_k(c->graph, operand(c, 0), attrs);
    conform_result(c, first);
    conform_result(c, rn_graph_output_of(c->graph, first, 1));
}

static void reverse_sequence(conform_case *c) {
    rn_value x = operand(c, 0), lengths = conform_whole(c, c->row->shapes[1], 0, 4);
    conform_result(c, rn_op_reverse_sequence(c->graph, x, lengths,
                                             (rn_reverse_sequence_attrs){.time_axis = 1}));
}

static void product(conform_case *c) {
    rn_value a = operand(c, 0), b = operand(c, 1);
    conform_result(c, rn_op_product(c->graph, a, b));
}

static void product_integer(conform_case *c) {
    const rn_shape *shapes = c->row->shapes;
    rn_dtype other = (rn_dtype)c->row->variant;
    rn_value a = conform_fixed(c, c->row->dtype, shapes[0], 0, 127);
    rn_value b = conform_fixed(c, other, shapes[1], -100, 255);
    rn_value a_zero = conform_fixed(c, c->row->dtype, shapes[2], 0, 127);
    rn_value b_zero = conform_fixed(c, other, shapes[3], -100, 127);
    conform_result(c, rn_op_product_integer(c->graph, a, b, a_zero, b_zero));
}

static void product_scaled(conform_case *c) {
    const rn_shape *shapes = c->row->shapes;
    rn_dtype other = (rn_dtype)c->row->variant;
    rn_value a = conform_fixed(c, c->row->dtype, shapes[0], 0, 127);
    rn_value b = conform_weight(c, other, shapes[1], -100, 127);
    rn_value a_zero = conform_fixed(c, c->row->dtype, RN_SCALAR, 0, 127);
    rn_value scale = conform_fixed(c, RN_DTYPE_F32, shapes[2], 0.001f, 0.002f);
    rn_value bias = RN_NO_VALUE;
    if (shapes[3].rank) bias = conform_fixed(c, RN_DTYPE_F32, shapes[3], -1, 1);
    conform_result(c, rn_op_product_scaled(c->graph, a, b, a_zero, RN_NO_VALUE, scale, bias));
}

static void conv(conform_case *c) {
    rn_value x = operand(c, 0), w = operand(c, 1), bias = operand(c, 2);
    rn_conv_attrs attrs = *(const rn_conv_attrs *)c->row->attrs;
    conform_result(c, rn_op_conv(c->graph, x, w, bias, attrs));
}

static void conv_clamp(conform_case *c) {
    rn_value x = operand(c, 0), w = operand(c, 1), bias = operand(c, 2);
    rn_conv_clamp_attrs attrs = {*(const rn_conv_attrs *)c->row->attrs, {-1, 6}};
    if (c->row->variant) w = conform_weight(c, RN_DTYPE_F32, c->row->shapes[1], -1, 1);
    conform_result(c, rn_op_conv_clamp(c->graph, x, w, bias, attrs));
}

static void conv_transpose(conform_case *c) {
    rn_value x = operand(c, 0), w = operand(c, 1);
    rn_conv_transpose_attrs attrs = {.conv = *(const rn_conv_attrs *)c->row->attrs};
    conform_result(c, rn_op_conv_transpose(c->graph, x, w, RN_NO_VALUE, attrs));
}

static void pool(conform_case *c) {
    rn_pool_attrs attrs = {.function = (rn_pool_function)c->row->variant,
                           .size = {2, 3},
                           .stride = {2, 1},
                           .pad_before = {1, 1},
                           .ceil = true,
                           .p = 2};
    rn_value first = rn_op_pool(c->graph, operand(c, 0), attrs);
    conform_result(c, first);
    if (attrs.function == RN_POOL_MAX) conform_result(c, rn_graph_output_of(c->graph, first, 1));
}

static void resize(conform_case *c) {
    rn_resize_attrs attrs = {
        .axis = 1, .length = 7, .function = (rn_resize_function)c->row->variant, .cubic = -0.75};
    conform_result(c, rn_op_resize(c->graph, operand(c, 0), attrs));
}

static void grid_sample(conform_case *c) {
    rn_value x = operand(c, 0),
             grid = conform_fixed(c, RN_DTYPE_F32, c->row->shapes[1], -1.5f, 1.5f);
    rn_grid_sample_attrs attrs = {.function = (rn_resize_function)c->row->variant};
    conform_result(c, rn_op_grid_sample(c->graph, x, grid, attrs));
}

static void rnn(conform_case *c) {
    rn_rnn_kind kind = (rn_rnn_kind)c->row->variant;
    uint64_t gates = kind == RN_RNN_LSTM ? 4 : kind == RN_RNN_GRU ? 3 : 1;
    rn_rnn_inputs in = {.x = operand(c, 0)};
    in.w = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(2, gates * 5, 3), -1, 1);
    in.r = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(2, gates * 5, 5), -1, 1);
    in.bias = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(2, gates * 10), -1, 1);
    in.lengths = conform_whole(c, RN_SHAPE(2), 1, 4);
    rn_rnn_attrs attrs = {.kind = kind, .hidden = 5, .both = true};
    rn_value first = rn_op_rnn(c->graph, in, attrs);
    conform_result(c, first);
    conform_result(c, rn_graph_output_of(c->graph, first, 1));
}

static void quantize(conform_case *c) {
    rn_value x = operand(c, 0), scale = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(3), 0.01f, 0.1f);
    rn_value zero = conform_fixed(c, RN_DTYPE_I8, RN_SHAPE(3), -9, 9);
    rn_linear_attrs attrs = {.axis = 1, .dtype = RN_DTYPE_I8};
    rn_value q = rn_op_quantize_linear(c->graph, x, scale, zero, attrs);
    attrs.dtype = RN_DTYPE_F32;
    conform_result(c, rn_op_dequantize_linear(c->graph, q, scale, zero, attrs));
}

static void quantize_all(conform_case *c) {
    rn_dtype dtype = (rn_dtype)c->row->variant;
    rn_value x = operand(c, 0), scale = conform_fixed(c, RN_DTYPE_F32, RN_SCALAR, 0.01f, 0.03f);
    rn_value zero = conform_fixed(c, dtype, RN_SCALAR, 3, 9);
    rn_value q = rn_op_quantize_linear(c->graph, x, scale, zero, (rn_linear_attrs){.dtype = dtype});
    conform_result(c, rn_op_dequantize_linear(c->graph, q, scale, zero,
                                              (rn_linear_attrs){.dtype = RN_DTYPE_F32}));
}

static void quantize_axis(conform_case *c) {
    rn_value x = operand(c, 0), scale = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(3), 0.01f, 0.1f);
    rn_linear_attrs attrs = {.axis = 1, .dtype = RN_DTYPE_U8};
    rn_value q = rn_op_quantize_linear(c->graph, x, scale, RN_NO_VALUE, attrs);
    attrs.dtype = RN_DTYPE_F32;
    conform_result(c, rn_op_dequantize_linear(c->graph, q, scale, RN_NO_VALUE, attrs));
}

static void dft(conform_case *c) {
    rn_dft_attrs attrs = {.axis = 1, .half = true};
    conform_result(c, rn_op_dft(c->graph, operand(c, 0), attrs));
}

static void col2im(conform_case *c) {
    rn_col2im_attrs attrs = {.rank = 2, .image = {4, 5}, .block = {2, 2}};
    conform_result(c, rn_op_col2im(c->graph, operand(c, 0), attrs));
}

static void roi_align(conform_case *c) {
    rn_value x = operand(c, 0), regions = conform_fixed(c, RN_DTYPE_F32, RN_SHAPE(3, 4), 0, 5);
    rn_value batch = conform_whole(c, RN_SHAPE(3), 0, 2);
    rn_roi_align_attrs attrs = {.height = 2, .width = 3, .scale = 0.7};
    conform_result(c, rn_op_roi_align(c->graph, x, regions, batch, attrs));
}

static const rn_conv_attrs depthwise = {.groups = 20, .stride = {2, 1}, .pad_before = {1, 1}},
                           twice = {.groups = 5, .dilation = {1, 2}, .pad_after = {0, 2}},
                           line = {.groups = 2, .dilation = {2}},
                           dilated = {.dilation = {2, 2},
                                      .pad_before = {2, 2},
                                      .pad_after = {2, 2}},
                           none = {0};
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
    ANY(UNARY, "abs", unary, F32, RN_UNARY_ABS, ONE(RN_SHAPE(37))),
    ANY(UNARY, "hard_sigmoid", unary, F32, RN_UNARY_HARD_SIGMOID, ONE(RN_SHAPE(37))),
    ANY(UNARY, "leaky_relu", unary, F32, RN_UNARY_LEAKY_RELU, ONE(RN_SHAPE(37))),
    ANY(BINARY, "many rows", binary, I16, RN_BINARY_ADD,
        ONE(RN_SHAPE(1, 300, 70), RN_SHAPE(300, 1))),
    ANY(SELECT, "many", choose, U8, 0, ONE(RN_SHAPE(300, 70), RN_SHAPE(70), RN_SHAPE(300, 1))),
    ANY(BINARY, "many", binary, F32, RN_BINARY_MIN, ONE(RN_SHAPE(40000), RN_SHAPE(40000))),
    ANY(COMPARE, "rows", compare, F32, RN_COMPARE_LESS, ROWS(RN_SHAPE(3))),
    ANY(COMPARE, "i64", compare, I64, RN_COMPARE_EQUAL, ONE(RN_SHAPE(3, 4), RN_SCALAR)),
    ANY(SELECT, "rows", choose, F32, 0, ROWS(RN_SCALAR, RN_SHAPE(RN_ROWS, 1))),
    ANY(SELECT, "i16", choose, I16, 0, ONE(RN_SHAPE(2, 1, 4), RN_SHAPE(3, 1), RN_SHAPE(4))),
    ANY(CONVERT, "rows", convert, F32, RN_DTYPE_I64, ROWS()),
    ANY(CONVERT, "fp8", convert, I32, RN_DTYPE_F8_E4M3, ONE(RN_SHAPE(300))),
    ANY(REDUCE, "rows", reduce, F32, RN_REDUCE_LOG_SUM_EXP, ROWS()),
    ANY(REDUCE, "least", reduce, F32, RN_REDUCE_MIN, .mixed = true, ROWS()),
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
    ANY(CUMULATE, "rows", cumulate, F32, 0, ROWS()),
    ANY(CUMULATE, "u16", cumulate, U16, 0, ONE(RN_SHAPE(2, 9, 2))),
    ANY(TOP_K, "rows", top_k, F32, 0, ROWS()),
    ANY(TOP_K, "i8", top_k, I8, 0, ONE(RN_SHAPE(3, 9, 2))),
    ANY(REVERSE_SEQUENCE, "i16", reverse_sequence, I16, 0, ONE(RN_SHAPE(2, 3, 2), RN_SHAPE(2))),
    ANY(PRODUCT, "rows", product, F64, 0, ROWS(RN_SHAPE(3, 4))),
    ANY(PRODUCT, "i64", product, I64, 0, ONE(RN_SHAPE(2, 1, 2, 300), RN_SHAPE(3, 300, 2))),
    ANY(PRODUCT, "bytes", product_integer, U8, RN_DTYPE_I8,
        ONE(RN_SHAPE(5, 700), RN_SHAPE(700, 19), RN_SCALAR, RN_SHAPE(19))),
    ANY(PRODUCT, "batches of bytes", product_integer, I8, RN_DTYPE_U8,
        ONE(RN_SHAPE(2, 1, 3, 40), RN_SHAPE(3, 40, 17), RN_SHAPE(3), RN_SCALAR)),
    ANY(PRODUCT, "rows of bytes", product_integer, I8, RN_DTYPE_I8, .rows = 140,
        ONE(RN_SHAPE(RN_ROWS, 33), RN_SHAPE(33, 4), RN_SCALAR, RN_SCALAR)),
    ANY(PRODUCT_SCALED, "a column", product_scaled, U8, RN_DTYPE_I8,
        ONE(RN_SHAPE(2, 5, 70), RN_SHAPE(70, 19), RN_SHAPE(19), RN_SHAPE(19))),
    ANY(PRODUCT_SCALED, "rows", product_scaled, I8, RN_DTYPE_I8, .rows = 9,
        ONE(RN_SHAPE(RN_ROWS, 33), RN_SHAPE(33, 40), RN_SHAPE(1), RN_SCALAR)),
    ANY(CONV, "depthwise", conv, F32, 0,
        ONE(RN_SHAPE(2, 7, 6, 20), RN_SHAPE(20, 1, 3, 3), RN_SHAPE(20)), .attrs = &depthwise),
    ANY(CONV, "two outputs a channel", conv, F32, 0,
        ONE(RN_SHAPE(1, 5, 6, 5), RN_SHAPE(10, 1, 3, 3), RN_SHAPE(10)), .attrs = &twice),
    ANY(CONV, "groups", conv, F32, 0,
        ONE(RN_SHAPE(1, 5, 6, 40), RN_SHAPE(15, 8, 3, 3), RN_SHAPE(15)), .attrs = &twice),
    ANY(CONV, "dilated rows", conv, F32, 0, .rows = 3,
        ONE(RN_SHAPE(RN_ROWS, 6, 5, 3), RN_SHAPE(4, 3, 3, 3), RN_SHAPE(4)), .attrs = &dilated),
    ANY(CONV, "a line in groups", conv, F32, 0,
        ONE(RN_SHAPE(2, 9, 4), RN_SHAPE(6, 2, 3), RN_SHAPE(6)), .attrs = &line),
    ANY(CONV, "i32", conv, I32, 0,
        ONE(RN_SHAPE(1, 3, 4, 2, 3), RN_SHAPE(2, 3, 2, 2, 1), RN_SHAPE(2)), .attrs = &none),
    ANY(CONV_CLAMP, "depthwise", conv_clamp, F32, 0,
        ONE(RN_SHAPE(2, 7, 6, 20), RN_SHAPE(20, 1, 3, 3), RN_SHAPE(20)), .attrs = &depthwise),
    ANY(CONV_CLAMP, "groups", conv_clamp, F32, 0,
        ONE(RN_SHAPE(1, 5, 6, 40), RN_SHAPE(15, 8, 3, 3), RN_SHAPE(15)), .attrs = &twice),
    ANY(CONV_CLAMP, "conv2d", conv_clamp, F32, 1, .rows = 2,
        ONE(RN_SHAPE(RN_ROWS, 9, 8, 5), RN_SHAPE(70, 5, 3, 3), RN_SHAPE(70)), .attrs = &none),
    ANY(CONV_TRANSPOSE, "groups", conv_transpose, F32, 0, ONE(RN_SHAPE(2, 5, 4), RN_SHAPE(4, 3, 3)),
        .attrs = &line),
    ANY(POOL, "max", pool, F32, RN_POOL_MAX, .mixed = true, .rows = 2,
        ONE(RN_SHAPE(RN_ROWS, 5, 6, 3))),
    ANY(POOL, "u8", pool, U8, RN_POOL_MAX, ONE(RN_SHAPE(1, 5, 6, 3))),
    ANY(POOL, "average", pool, F32, RN_POOL_AVERAGE, ONE(RN_SHAPE(1, 5, 6, 3))),
    ANY(POOL, "lp", pool, F16, RN_POOL_LP, ONE(RN_SHAPE(1, 5, 6, 3))),
    ANY(RESIZE, "nearest", resize, I64, RN_RESIZE_NEAREST, ONE(RN_SHAPE(2, 3, 4))),
    ANY(RESIZE, "rows", resize, F32, RN_RESIZE_CUBIC, ROWS()),
    ANY(GRID_SAMPLE, "linear", grid_sample, F32, RN_RESIZE_LINEAR,
        ONE(RN_SHAPE(2, 4, 3, 2), RN_SHAPE(2, 2, 3, 2))),
    ANY(RNN, "plain", rnn, F32, RN_RNN_PLAIN, ONE(RN_SHAPE(4, 2, 3))),
    ANY(RNN, "lstm", rnn, F32, RN_RNN_LSTM, ONE(RN_SHAPE(4, 2, 3))),
    ANY(RNN, "gru", rnn, F32, RN_RNN_GRU, ONE(RN_SHAPE(4, 2, 3))),
    ANY(QUANTIZE_LINEAR, "rows", quantize, F32, 0, ROWS()),
    ANY(QUANTIZE_LINEAR, "one scale, i8", quantize_all, F32, RN_DTYPE_I8, ONE(RN_SHAPE(3, 37))),
    ANY(DEQUANTIZE_LINEAR, "one scale, u8", quantize_all, F32, RN_DTYPE_U8, ONE(RN_SHAPE(3, 6000))),
    ANY(DEQUANTIZE_LINEAR, "an axis", quantize_axis, F32, 0, ONE(RN_SHAPE(2, 3, 37))),
    ANY(DFT, "rows", dft, F32, 0, .rows = 2, ONE(RN_SHAPE(RN_ROWS, 6, 1))),
    ANY(COL2IM, "overlapping", col2im, F32, 0, ONE(RN_SHAPE(2, 12, 12))),
    ANY(ROI_ALIGN, "mean", roi_align, F32, 0, ONE(RN_SHAPE(2, 3, 4, 5))),
};

const conform_table conform_any = {rows, sizeof rows / sizeof *rows};
