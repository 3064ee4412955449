// ops_test.c — the ops of any plain dtype against ONNX's reference evaluator: tests/golden/ops.txt,
// made by scripts/reference/ops_golden.py. Each case there has a row here that says what it is.
#include "support.h"

#include "evaluate.h"

#include <math.h>

// ---- the file -----------------------------------------------------------------------------------

enum { MOST = 9 };

typedef struct given {
    rn_dtype dtype;
    rn_shape shape;
    double *values; // every number of the file is one of f64
} given;

typedef struct golden_case {
    char name[64];
    given in[MOST], out[MOST];
    uint32_t in_count, out_count;
} golden_case;

static given read_tensor(char *text) {
    given g = {0};
    char *colon = strchr(text, ':'), *at = strchr(text, ' ');
    assert_non_null(colon);
    *colon++ = 0;
    if (at) *at++ = 0;
    g.dtype = rn_dtype_parse((rn_str){text, strlen(text)});
    assert_int_not_equal(g.dtype, RN_DTYPE_NONE);
    for (char *end; at && *at; at = end) {
        uint64_t dim = strtoull(at, &end, 10);
        if (end == at) break;
        assert_true(g.shape.rank < RN_MAX_RANK);
        g.shape.dims[g.shape.rank++] = dim;
    }
    uint64_t n = rn_shape_elements(g.shape, 1);
    g.values = calloc(n, sizeof *g.values);
    for (uint64_t i = 0; i < n; i++)
        g.values[i] = strtod(colon, &colon);
    return g;
}

// The next case; false at the end. `line` holds its first line when it returns, as it did before.
static bool read_case(FILE *file, char **line, size_t *room, golden_case *c) {
    *c = (golden_case){{0}};
    if (!*line || (*line)[0] != '#') return false;
    snprintf(c->name, sizeof c->name, "%s", *line + 2);
    c->name[strcspn(c->name, "\n")] = 0;
    while (getline(line, room, file) > 0 && (*line)[0] != '#') {
        given g = read_tensor(*line + 2);
        if ((*line)[0] == '<')
            c->in[c->in_count++] = g;
        else
            c->out[c->out_count++] = g;
        assert_true(c->in_count < MOST && c->out_count < MOST);
    }
    if (feof(file)) (*line)[0] = 0;
    return true;
}

static void free_case(golden_case *c) {
    for (uint32_t i = 0; i < MOST; i++) {
        free(c->in[i].values);
        free(c->out[i].values);
    }
}

// ---- what the cases are -------------------------------------------------------------------------

typedef struct golden_row {
    const char *name;
    rn_value (*build)(rn_graph *g, const rn_value *in, const struct golden_row *row);
    int function; // or dtype
    double a, b;
    uint32_t axis, axes;
    bool keep, other; // `other`: whatever else the op can be asked
    int kind;
    const void *attrs; // of the op
} golden_row;

static rn_value unary(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_unary_as(g, in[0], (rn_unary_attrs){(rn_unary_function)r->function, r->a, r->b});
}
static rn_value binary(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_binary(g, (rn_binary_function)r->function, in[0], in[1]);
}
static rn_value compare(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_compare(g, (rn_compare_function)r->function, in[0], in[1]);
}
static rn_value choose(rn_graph *g, const rn_value *in, const golden_row *r) {
    (void)r;
    return rn_op_select(g, in[0], in[1], in[2]);
}
static rn_value convert(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_convert(g, in[0], (rn_convert_attrs){(rn_dtype)r->function, true});
}
static rn_value there_and_back(rn_graph *g, const rn_value *in, const golden_row *r) {
    rn_value narrow = rn_op_convert(g, in[0], (rn_convert_attrs){(rn_dtype)r->function, false});
    return rn_op_convert(g, narrow, (rn_convert_attrs){RN_DTYPE_F32, false});
}
static rn_value reduce(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_reduce(g, (rn_reduce_function)r->function, in[0], r->axes, r->keep);
}
static rn_value arg_reduce(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_arg_reduce(g, in[0],
                            (rn_arg_reduce_attrs){r->axis, r->keep, r->function, r->other});
}
static rn_value soft(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_soft(g, (rn_soft_function)r->function, in[0], r->axis);
}
static rn_value gather(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_gather_as(g, in[0], in[1],
                           (rn_gather_attrs){(rn_gather_kind)r->kind, r->axis, r->axes});
}
static rn_value scatter(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_scatter(g, in[0], in[1], in[2],
                         (rn_scatter_attrs){(rn_scatter_function)r->function, r->other, r->axis});
}
static rn_value slice_back(rn_graph *g, const rn_value *in, const golden_row *r) {
    (void)r;
    return rn_op_strided_slice(g, in[0],
                               (rn_strided_slice_attrs){{2, 0, 0}, {-1, 2, 1}, {3, 2, 2}});
}

static rn_value cumulate(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_cumulate(g, in[0], *(const rn_cumulate_attrs *)r->attrs);
}
static rn_value top_k(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_top_k(g, in[0], *(const rn_top_k_attrs *)r->attrs);
}
static rn_value reverse_sequence(rn_graph *g, const rn_value *in, const golden_row *r) {
    (void)r;
    return rn_op_reverse_sequence(g, in[0], in[1], (rn_reverse_sequence_attrs){0, 1});
}
static rn_value product(rn_graph *g, const rn_value *in, const golden_row *r) {
    (void)r;
    return rn_op_product(g, in[0], in[1]);
}
static rn_value product_integer(rn_graph *g, const rn_value *in, const golden_row *r) {
    (void)r;
    return rn_op_product_integer(g, in[0], in[1], in[2], in[3]);
}
static rn_value rnn(rn_graph *g, const rn_value *in, const golden_row *r) {
    rn_rnn_inputs inputs = {in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7]};
    return rn_op_rnn(g, inputs, *(const rn_rnn_attrs *)r->attrs);
}
static rn_value conv(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_conv(g, in[0], in[1], in[2], *(const rn_conv_attrs *)r->attrs);
}
static rn_value conv_transpose(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_conv_transpose(g, in[0], in[1], in[2], *(const rn_conv_transpose_attrs *)r->attrs);
}
static rn_value pool(rn_graph *g, const rn_value *in, const golden_row *r) {
    const rn_pool_attrs *attrs = r->attrs;
    return r->other ? rn_op_pool(g, in[0], *attrs) : rn_op_pool_values(g, in[0], *attrs);
}
static rn_value col2im(rn_graph *g, const rn_value *in, const golden_row *r) {
    (void)r;
    return rn_op_col2im(g, in[0], (rn_col2im_attrs){.rank = 2, .image = {4, 5}, .block = {2, 2}});
}
static rn_value roi_align(rn_graph *g, const rn_value *in, const golden_row *r) {
    rn_roi_align_attrs attrs = {
        .height = 2, .width = 3, .sampling = 2, .scale = 1, .max = r->other, .half_pixel = true};
    return rn_op_roi_align(g, in[0], in[1], in[2], attrs);
}
static rn_value resize(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_resize(g, in[0], *(const rn_resize_attrs *)r->attrs);
}
static rn_value grid_sample(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_grid_sample(g, in[0], in[1], *(const rn_grid_sample_attrs *)r->attrs);
}
static rn_value quantize(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_quantize_linear(g, in[0], in[1], in[2], *(const rn_linear_attrs *)r->attrs);
}
static rn_value dequantize(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_dequantize_linear(g, in[0], in[1], in[2], *(const rn_linear_attrs *)r->attrs);
}
static rn_value dft(rn_graph *g, const rn_value *in, const golden_row *r) {
    return rn_op_dft(g, in[0], *(const rn_dft_attrs *)r->attrs);
}

#define A(NAME, BUILD, TYPE, ...)                                                                  \
    { .name = NAME, .build = BUILD, .attrs = &(const TYPE)__VA_ARGS__ }
#define U(NAME, FN, ...)                                                                           \
    { .name = NAME, .build = unary, .function = RN_UNARY_##FN, __VA_ARGS__ }
#define B(NAME, FN)                                                                                \
    { .name = NAME, .build = binary, .function = RN_BINARY_##FN }
#define C(NAME, FN)                                                                                \
    {.name = NAME, .build = compare, .function = RN_COMPARE_##FN}, {                               \
        .name = NAME "_u64", .build = compare, .function = RN_COMPARE_##FN                         \
    }
#define T(NAME, DTYPE)                                                                             \
    { .name = NAME, .build = convert, .function = RN_DTYPE_##DTYPE }
#define R(NAME, FN, AXES, KEEP)                                                                    \
    { .name = NAME, .build = reduce, .function = RN_REDUCE_##FN, .axes = AXES, .keep = KEEP }
#define G(NAME, KIND, AXIS, BATCH)                                                                 \
    { .name = NAME, .build = gather, .kind = RN_GATHER_##KIND, .axis = AXIS, .axes = BATCH }
#define S(NAME, FN, ...)                                                                           \
    { .name = NAME, .build = scatter, .function = RN_SCATTER_##FN, __VA_ARGS__ }

static const golden_row rows[] = {
    U("abs", ABS),
    U("sign", SIGN),
    U("reciprocal", RECIPROCAL),
    U("ceil", CEIL),
    U("floor", FLOOR),
    U("round", ROUND),
    U("sin", SIN),
    U("cos", COS),
    U("tan", TAN),
    U("sinh", SINH),
    U("cosh", COSH),
    U("asinh", ASINH),
    U("atan", ATAN),
    U("erf", ERF),
    U("softplus", SOFTPLUS),
    U("softsign", SOFTSIGN),
    U("mish", MISH),
    U("hardswish", HARD_SWISH),
    U("sigmoid", SIGMOID),
    U("tanh", TANH),
    U("relu", RELU),
    U("exp", EXP),
    U("neg", NEG),
    U("asin", ASIN),
    U("acos", ACOS),
    U("atanh", ATANH),
    U("acosh", ACOSH),
    U("sqrt_f16", SQRT),
    U("log_f64", LOG),
    U("neg_i8", NEG),
    U("abs_i32", ABS),
    U("sign_u8", SIGN),
    U("relu_i32", RELU),
    U("not", NOT),
    U("bitwise_not_u16", BITWISE_NOT),
    U("is_nan", IS_NAN),
    U("is_inf_f16", IS_INF, .a = 1, .b = 1),
    U("is_inf_negative", IS_INF, .b = 1),
    U("elu", ELU, .a = 1.5),
    U("selu", SELU, .a = 2, .b = 3),
    U("celu", CELU, .a = 2),
    U("leaky_relu", LEAKY_RELU, .a = 0.1),
    U("thresholded_relu", THRESHOLDED_RELU, .a = 1),
    U("hard_sigmoid", HARD_SIGMOID, .a = 0.5, .b = 0.6),
    U("shrink", SHRINK, .a = 1.5, .b = 0.75),
    B("add_i64", ADD),
    B("sub_u8", SUB),
    B("mul_f16", MUL),
    B("div_f64", DIV),
    B("div_u32", DIV),
    B("pow", POW),
    B("pow_i64", POW),
    B("mod_i32", MOD),
    B("fmod", FMOD),
    B("fmod_i16", FMOD),
    B("min", MIN),
    B("max_i8", MAX),
    B("prelu", PRELU),
    B("and", AND),
    B("or", OR),
    B("xor", XOR),
    B("bitwise_and_i32", AND),
    B("bitwise_xor_u64", XOR),
    B("shift_left_u8", SHIFT_LEFT),
    B("shift_right_u32", SHIFT_RIGHT),
    C("equal", EQUAL),
    C("less", LESS),
    C("lessorequal", LESS_EQUAL),
    C("greater", GREATER),
    C("greaterorequal", GREATER_EQUAL),
    {.name = "where", .build = choose},
    {.name = "where_i64", .build = choose},
    T("to_i32", I32),
    T("to_u8", U8),
    T("to_bool", BOOL),
    T("i64_to_i8", I8),
    T("i64_to_f32", F32),
    T("f64_to_f16", F16),
    T("bool_to_f64", F64),
    {.name = "float8_e4m3fnuz", .build = there_and_back, .function = RN_DTYPE_F8_E4M3FNUZ},
    {.name = "float8_e5m2fnuz", .build = there_and_back, .function = RN_DTYPE_F8_E5M2FNUZ},
    R("reduce_min", MIN, 2, true),
    R("reduce_prod", PROD, 2, true),
    R("reduce_l1", L1, 2, true),
    R("reduce_l2", L2, 2, true),
    R("reduce_logsumexp", LOG_SUM_EXP, 2, true),
    R("reduce_sumsquare", SUM_SQUARE, 2, true),
    R("reduce_logsum", LOG_SUM, 5, false),
    R("reduce_sum_i32", SUM, 3, false),
    R("reduce_mean_f64", MEAN, 4, false),
    R("reduce_max_u8", MAX, 2, true),
    R("reduce_min_i8", MIN, 2, true),
    {.name = "arg_max", .build = arg_reduce, .axis = 1, .keep = true},
    {.name = "arg_max_last", .build = arg_reduce, .axis = 1, .other = true},
    {.name = "arg_min_i32", .build = arg_reduce, .function = 1},
    {.name = "soft_max", .build = soft, .function = RN_SOFT_MAX, .axis = 1},
    {.name = "soft_log_max", .build = soft, .function = RN_SOFT_LOG_MAX, .axis = 2},
    {.name = "soft_max_f16", .build = soft, .function = RN_SOFT_MAX, .axis = 2},
    {.name = "soft_hard_max", .build = soft, .function = RN_SOFT_HARD_MAX, .axis = 1},
    G("gather", AXIS, 1, 0),
    G("gather_bool", AXIS, 0, 0),
    G("gather_elements", ELEMENTS, 0, 0),
    G("gather_nd", ND, 0, 0),
    G("gather_nd_batch", ND, 0, 1),
    S("scatter", SET, .axis = 1),
    S("scatter_add_i64", ADD, .axis = 0),
    S("scatter_max", MAX, .axis = 1),
    S("scatter_nd", SET, .other = true),
    S("scatter_nd_mul", MUL, .other = true),
    {.name = "slice_back", .build = slice_back},
    A("cumulate", cumulate, rn_cumulate_attrs, {.axis = 1}),
    A("cumulate_back", cumulate, rn_cumulate_attrs,
      {.axis = 1, .exclusive = true, .reverse = true}),
    A("top_k", top_k, rn_top_k_attrs, {.axis = 1, .count = 3}),
    A("top_k_small", top_k, rn_top_k_attrs, {.axis = 0, .count = 2, .smallest = true}),
    {.name = "reverse_sequence", .build = reverse_sequence},
    {.name = "product_f16", .build = product},
    {.name = "product_i32", .build = product},
    {.name = "product_batches", .build = product},
    {.name = "product_integer", .build = product_integer},
    A("lstm_forward", rnn, rn_rnn_attrs, {.kind = RN_RNN_LSTM, .hidden = 4}),
    A("lstm_bidirectional", rnn, rn_rnn_attrs, {.kind = RN_RNN_LSTM, .hidden = 4, .both = true}),
    A("gru_forward", rnn, rn_rnn_attrs, {.kind = RN_RNN_GRU, .hidden = 4, .reset_after = true}),
    A("gru_reverse", rnn, rn_rnn_attrs, {.kind = RN_RNN_GRU, .hidden = 4, .reverse = true}),
    A("gru_bidirectional", rnn, rn_rnn_attrs, {.kind = RN_RNN_GRU, .hidden = 4, .both = true}),
    A("rnn", rnn, rn_rnn_attrs, {.hidden = 4}),
    A("conv_1d", conv, rn_conv_attrs, {.stride = {2}, .pad_before = {1}, .pad_after = {1}}),
    A("conv_1d_groups", conv, rn_conv_attrs, {.groups = 2, .dilation = {2}}),
    A("conv_2d", conv, rn_conv_attrs, {.pad_before = {1, 0}, .pad_after = {0, 1}}),
    A("conv_depthwise", conv, rn_conv_attrs,
      {.groups = 4, .stride = {2, 1}, .pad_before = {1, 1}, .pad_after = {1, 1}}),
    A("conv_3d", conv, rn_conv_attrs, {.dilation = {1, 2, 1}}),
    A("conv_f16", conv, rn_conv_attrs, {0}),
    A("transpose_1d", conv_transpose, rn_conv_transpose_attrs,
      {.conv = {.stride = {2}, .pad_before = {1}}}),
    A("transpose_2d", conv_transpose, rn_conv_transpose_attrs, {.conv = {.dilation = {2, 1}}}),
    A("transpose_groups", conv_transpose, rn_conv_transpose_attrs,
      {.conv = {.groups = 2, .stride = {3, 2}, .pad_before = {1, 1}, .pad_after = {1, 1}},
       .size = {17, 10}}),
    {.name = "pool_max",
     .build = pool,
     .other = true,
     .attrs =
         &(const rn_pool_attrs){
             .size = {3, 2}, .stride = {2, 2}, .pad_before = {1, 0}, .pad_after = {1, 1}}},
    A("pool_max_i8", pool, rn_pool_attrs, {.size = {2, 2}}),
    A("pool_max_ceil", pool, rn_pool_attrs, {.size = {3, 3}, .stride = {2, 2}, .ceil = true}),
    A("pool_average", pool, rn_pool_attrs,
      {.function = RN_POOL_AVERAGE, .size = {3, 3}, .pad_before = {1, 1}, .pad_after = {1, 1}}),
    A("pool_average_pad", pool, rn_pool_attrs,
      {.function = RN_POOL_AVERAGE,
       .size = {3, 2, 2},
       .pad_before = {1, 1, 1},
       .pad_after = {1, 1, 1},
       .count_pad = true}),
    A("pool_average_1d", pool, rn_pool_attrs,
      {.function = RN_POOL_AVERAGE, .size = {3}, .stride = {2}, .ceil = true}),
    A("pool_lp", pool, rn_pool_attrs, {.function = RN_POOL_LP, .size = {2, 2}, .p = 3}),
    {.name = "col2im", .build = col2im},
    {.name = "roi_align_avg", .build = roi_align},
    {.name = "roi_align_max", .build = roi_align, .other = true},
    A("resize_nearest", resize, rn_resize_attrs, {.axis = 1, .length = 8}),
    A("resize_nearest_ceil", resize, rn_resize_attrs,
      {.axis = 1,
       .length = 3,
       .scale = 0.7f,
       .nearest = RN_RESIZE_CEIL,
       .coordinates = RN_RESIZE_ASYMMETRIC}),
    A("resize_linear", resize, rn_resize_attrs,
      {.axis = 1, .length = 8, .scale = 1.7f, .function = RN_RESIZE_LINEAR}),
    A("resize_linear_corners", resize, rn_resize_attrs,
      {.axis = 1,
       .length = 9,
       .function = RN_RESIZE_LINEAR,
       .coordinates = RN_RESIZE_ALIGN_CORNERS}),
    A("resize_linear_symmetric", resize, rn_resize_attrs,
      {.axis = 1,
       .length = 2,
       .scale = 0.55f,
       .function = RN_RESIZE_LINEAR,
       .coordinates = RN_RESIZE_HALF_PIXEL_SYMMETRIC}),
    A("resize_linear_antialias", resize, rn_resize_attrs,
      {.axis = 1, .length = 2, .function = RN_RESIZE_LINEAR, .antialias = true}),
    A("resize_linear_crop", resize, rn_resize_attrs,
      {.axis = 1,
       .length = 6,
       .function = RN_RESIZE_LINEAR,
       .coordinates = RN_RESIZE_CROP,
       .from = 0.25,
       .to = 1.3f,
       .fill = 7}),
    A("resize_cubic", resize, rn_resize_attrs,
      {.axis = 1, .length = 4, .scale = 0.8f, .function = RN_RESIZE_CUBIC, .cubic = -0.75}),
    A("resize_cubic_exclude", resize, rn_resize_attrs,
      {.axis = 1,
       .length = 8,
       .function = RN_RESIZE_CUBIC,
       .cubic = -0.5,
       .exclude_outside = true}),
    A("resize_cubic_antialias", resize, rn_resize_attrs,
      {.axis = 1,
       .length = 3,
       .scale = 0.6f,
       .function = RN_RESIZE_CUBIC,
       .cubic = -0.75,
       .antialias = true}),
    A("grid_linear", grid_sample, rn_grid_sample_attrs, {.function = RN_RESIZE_LINEAR}),
    A("grid_nearest", grid_sample, rn_grid_sample_attrs, {.padding = RN_GRID_BORDER}),
    A("grid_cubic", grid_sample, rn_grid_sample_attrs,
      {.function = RN_RESIZE_CUBIC, .padding = RN_GRID_REFLECTION, .align_corners = true}),
    A("grid_deep", grid_sample, rn_grid_sample_attrs, {.function = RN_RESIZE_LINEAR}),
    A("quantize", quantize, rn_linear_attrs, {.dtype = RN_DTYPE_U8}),
    A("quantize_axis", quantize, rn_linear_attrs, {.dtype = RN_DTYPE_I8}),
    A("quantize_blocks", quantize, rn_linear_attrs, {.axis = 1, .block = 2, .dtype = RN_DTYPE_I16}),
    A("dequantize", dequantize, rn_linear_attrs, {.dtype = RN_DTYPE_F32}),
    A("dequantize_axis", dequantize, rn_linear_attrs, {.axis = 1, .dtype = RN_DTYPE_F32}),
    A("dequantize_blocks", dequantize, rn_linear_attrs,
      {.axis = 1, .block = 2, .dtype = RN_DTYPE_F32}),
    A("dft", dft, rn_dft_attrs, {.axis = 1, .half = true}),
    A("dft_longer", dft, rn_dft_attrs, {.axis = 1, .length = 8}),
    A("dft_inverse", dft, rn_dft_attrs, {.axis = 1, .inverse = true}),
};

// ---- running them -------------------------------------------------------------------------------

static void put(const given *from, const rn_tensor *to) {
    uint64_t n = rn_shape_elements(from->shape, 1);
    bool narrow = to->dtype == RN_DTYPE_F16;
    float *f32 = calloc(n + 1, sizeof *f32);
    for (uint64_t i = 0; i < n; i++)
        f32[i] = (float)from->values[i];
    if (narrow)
        assert_ok(rn_dtype_from_f32(to->dtype, f32, to->data, n));
    else
        assert_ok(rn_dtype_convert(RN_DTYPE_F64, from->values, to->dtype, to->data, n));
    free(f32);
}

static double as_double(const rn_tensor *from, uint64_t i) {
    const char *at = (const char *)from->data + i * rn_dtype_get(from->dtype)->block_bytes;
    double value = 0;
    float f32;
    if (rn_dtype_convert(from->dtype, at, RN_DTYPE_F64, &value, 1) != RN_OK ||
        from->dtype == RN_DTYPE_F16) {
        assert_ok(rn_dtype_to_f32(from->dtype, at, &f32, 1));
        value = f32;
    }
    return value;
}

// resize: ONNX's evaluator has the taps of an antialiased cubic in f32, ours are doubles.
static double tolerance(const golden_case *c, rn_dtype dtype) {
    bool resized = strncmp(c->name, "resize_cubic_antialias", 22) == 0;
    return dtype == RN_DTYPE_F16 ? 2e-3 : dtype == RN_DTYPE_F64 ? 1e-12 : resized ? 5e-6 : 2e-6;
}

// Whole numbers exactly, floats within a few roundings, NaN and infinities where they are.
static bool check(const golden_case *c, const given *want, const rn_tensor *is) {
    if (is->dtype != want->dtype || !rn_shape_equal(is->shape, want->shape)) {
        print_error("%s: %s %s, not %s\n", c->name, rn_dtype_get(is->dtype)->name,
                    rn_shape_format(is->shape).text, rn_shape_format(want->shape).text);
        return false;
    }
    bool real = rn_dtype_get(want->dtype)->is_float;
    for (uint64_t i = 0; i < rn_tensor_elements(is); i++) {
        double w = want->values[i], y = as_double(is, i);
        if (y == w || (isnan(y) && isnan(w))) continue;
        if (real && fabs(y - w) <= tolerance(c, is->dtype) * (1 + fabs(w))) continue;
        print_error("%s: element %llu is %.9g, not %.9g\n", c->name, (unsigned long long)i, y, w);
        return false;
    }
    return true;
}

static const golden_row *find(const char *name, bool *used) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) {
            used[i] = true;
            return &rows[i];
        }
    fail_msg("no row for '%s'", name);
    return NULL;
}

static bool run_case(const golden_case *c, const golden_row *row) {
    rn_graph *g = NULL;
    test_run run;
    rn_value in[MOST] = {RN_NO_VALUE}, first;
    char name[16];
    assert_ok(rn_graph_create(&g));
    for (uint32_t i = 0; i < c->in_count; i++) {
        snprintf(name, sizeof name, "x%u", i);
        in[i] = rn_graph_input(g, name, c->in[i].dtype, c->in[i].shape);
    }
    first = row->build(g, in, row);
    if (rn_graph_finish(g) != RN_OK) fail_msg("%s: %s", c->name, rn_last_error()->message);
    test_run_open(&run, g, 0);
    for (uint32_t i = 0; i < c->in_count; i++)
        put(&c->in[i], &run.values[in[i]]);
    test_run_all(&run);
    bool right = true;
    for (uint32_t i = 0; i < c->out_count; i++)
        right &= check(c, &c->out[i], &run.values[rn_graph_output_of(g, first, i)]);
    test_run_close(&run);
    rn_graph_destroy(g);
    return right;
}

static void every_case_is_what_onnx_says(void **state) {
    (void)state;
    FILE *file = fopen("tests/golden/ops.txt", "r");
    bool used[sizeof rows / sizeof *rows] = {false};
    char *line = NULL;
    size_t room = 0, wrong = 0;
    golden_case c;
    assert_non_null(file);
    assert_true(getline(&line, &room, file) > 0);
    while (read_case(file, &line, &room, &c)) {
        wrong += !run_case(&c, find(c.name, used));
        free_case(&c);
    }
    free(line);
    fclose(file);
    assert_int_equal(wrong, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!used[i]) fail_msg("no case '%s' in the file", rows[i].name);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case_is_what_onnx_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
