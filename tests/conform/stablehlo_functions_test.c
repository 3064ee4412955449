// labels: long
// stablehlo_functions_test.c — every function of the ops of any plain dtype, in every dtype that it
// takes, compiled by XLA: a program has all functions of one op and dtype as its outputs.
#include "support.h"

#include "conform_program.h"
#include "xla_program.h"

#include <math.h>

static const rn_dtype dtypes[] = {RN_DTYPE_F32, RN_DTYPE_F64, RN_DTYPE_F16, RN_DTYPE_I8,
                                  RN_DTYPE_I32, RN_DTYPE_I64, RN_DTYPE_U8,  RN_DTYPE_U32,
                                  RN_DTYPE_U64, RN_DTYPE_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };
static const double values[] = {-3, -0.75, -0.5, -0.25, 0, 0.3, 0.5, 0.8, 1, 2, 3, 7};
enum { VALUES = sizeof values / sizeof *values };

// Adds one function of the inputs to a graph; RN_NO_VALUE where there is no such one.
typedef rn_value (*build)(rn_graph *g, const rn_value *in, uint32_t function);

static bool is_possible(build add, uint32_t function, rn_dtype dtype, rn_shape shape) {
    rn_graph *g;
    rn_value in[2];
    assert_ok(rn_graph_create(&g));
    in[0] = rn_graph_input(g, "a", dtype, shape);
    in[1] = rn_graph_input(g, "b", dtype, shape);
    bool possible = add(g, in, function) != RN_NO_VALUE && rn_graph_finish(g) == RN_OK;
    rn_graph_destroy(g);
    return possible;
}

static void fill(const rn_tensor *tensor, uint32_t by) {
    uint64_t n = rn_tensor_elements(tensor), size = rn_dtype_get(tensor->dtype)->block_bytes;
    for (uint64_t i = 0; i < n; i++) {
        double value = values[(i * by + by / 2) % VALUES];
        float narrow = (float)value;
        void *to = (char *)tensor->data + i * size;
        if (rn_dtype_get(tensor->dtype)->is_float && tensor->dtype != RN_DTYPE_F64)
            assert_ok(rn_dtype_from_f32(tensor->dtype, &narrow, to, 1));
        else
            assert_ok(rn_dtype_convert(RN_DTYPE_F64, &value, tensor->dtype, to, 1));
    }
}

static uint32_t check(build add, uint32_t functions, rn_dtype dtype, rn_shape shape) {
    conform_fact near = {.tolerance = dtype == RN_DTYPE_F16 ? 2e-3f : 1e-5f, .absolute = 1e-6f};
    conform_why why = {{0}};
    test_run run;
    rn_graph *g;
    rn_value in[2];
    bool refused = false;
    uint32_t count = 0;
    assert_ok(rn_graph_create(&g));
    in[0] = rn_graph_input(g, "a", dtype, shape);
    in[1] = rn_graph_input(g, "b", dtype, shape);
    for (uint32_t f = 0; f < functions; f++) {
        char name[32];
        if (!is_possible(add, f, dtype, shape)) continue;
        snprintf(name, sizeof name, "function %u", f);
        rn_graph_output(g, add(g, in, f), name);
        count++;
    }
    assert_true(dtype != RN_DTYPE_F32 || count > functions / 2);
    assert_ok(rn_graph_finish(g));
    test_run_open(&run, g, 0);
    for (uint32_t i = 0; i < 2; i++)
        fill(&run.values[in[i]], i ? 5 : 1);
    bool good = count == 0 || (conform_graph(&run, near, &refused, &why) && !refused);
    if (!good) print_error("%s: %s\n", rn_dtype_get(dtype)->name, why.text);
    test_run_close(&run);
    rn_graph_destroy(g);
    return !good;
}

static void check_all(build add, uint32_t functions, rn_shape shape) {
    uint32_t wrong = 0;
    if (!xla_open()) skip_because("no XLA plugin: RATION_XLA_PLUGIN names none");
    for (int d = 0; d < DTYPES; d++)
        wrong += check(add, functions, dtypes[d], shape);
    assert_int_equal(wrong, 0);
}

// ---- the ops ------------------------------------------------------------------------------------

static rn_value add_unary(rn_graph *g, const rn_value *in, uint32_t function) {
    return rn_op_unary_as(g, in[0], (rn_unary_attrs){(rn_unary_function)function, 0.5, 0.25});
}

static rn_value add_binary(rn_graph *g, const rn_value *in, uint32_t function) {
    return rn_op_binary(g, (rn_binary_function)function, in[0], in[1]);
}

static rn_value add_compare(rn_graph *g, const rn_value *in, uint32_t function) {
    return rn_op_compare(g, (rn_compare_function)function, in[0], in[1]);
}

static rn_value add_convert(rn_graph *g, const rn_value *in, uint32_t function) {
    return rn_op_convert(g, in[0], (rn_convert_attrs){.dtype = dtypes[function]});
}

static rn_value add_cast(rn_graph *g, const rn_value *in, uint32_t function) {
    return rn_op_cast(g, in[0], dtypes[function]);
}

static rn_value add_reduce(rn_graph *g, const rn_value *in, uint32_t function) {
    return rn_op_reduce(g, (rn_reduce_function)(function / 2), in[0], 2, function % 2);
}

static rn_value add_arg(rn_graph *g, const rn_value *in, uint32_t function) {
    return rn_op_arg_reduce(g, in[0],
                            (rn_arg_reduce_attrs){.axis = function & 1,
                                                  .keep = function >> 1 & 1,
                                                  .smallest = function >> 2 & 1,
                                                  .last = function >> 3 & 1});
}

static rn_value add_soft(rn_graph *g, const rn_value *in, uint32_t function) {
    return rn_op_soft(g, (rn_soft_function)(function / 2), in[0], function % 2);
}

static rn_value add_scatter(rn_graph *g, const rn_value *in, uint32_t function) {
    static const int64_t elements[] = {0, -1, 2, 1}, places[] = {2, -1};
    bool nd = function % 2;
    char name[32];
    snprintf(name, sizeof name, "indices %u", function);
    rn_value at = rn_graph_constant(g, name, RN_DTYPE_I64, nd ? RN_SHAPE(2, 1) : RN_SHAPE(1, 4),
                                    nd ? places : elements);
    rn_value updates = rn_op_slice(g, in[1], 0, 0, nd ? 2 : 1);
    return rn_op_scatter(g, in[0], at, updates,
                         (rn_scatter_attrs){(rn_scatter_function)(function / 2), nd, 0});
}

static rn_value add_grid(rn_graph *g, const rn_value *in, uint32_t function) {
    rn_value x = rn_op_reshape(g, in[0], RN_SHAPE(1, 3, 4, 1));
    rn_value grid = rn_op_binary(g, RN_BINARY_MUL, in[1], in[1]); // -3 to 7 as 0 to 49
    grid = rn_op_unary(g, RN_UNARY_SIN, rn_op_reshape(g, grid, RN_SHAPE(1, 3, 2, 2)));
    grid = rn_op_binary(g, RN_BINARY_ADD, grid, grid); // -2 to 2
    return rn_op_grid_sample(g, x, grid,
                             (rn_grid_sample_attrs){(rn_resize_function)(function / 6),
                                                    (rn_grid_padding)(function / 2 % 3),
                                                    function % 2});
}

static rn_value add_resize(rn_graph *g, const rn_value *in, uint32_t function) {
    rn_resize_attrs attrs = {.axis = 1,
                             .length = function % 2 ? 7 : 3,
                             .function = (rn_resize_function)(function / 2 % 3),
                             .coordinates = (rn_resize_coordinates)(function / 6 % 6),
                             .nearest = (rn_resize_nearest)(function % 4),
                             .from = -0.2,
                             .to = 0.9,
                             .fill = 5,
                             .cubic = -0.5,
                             .exclude_outside = function % 5 == 0,
                             .antialias = function % 7 == 0};
    return rn_op_resize(g, in[0], attrs);
}

static rn_value add_pool(rn_graph *g, const rn_value *in, uint32_t function) {
    rn_pool_attrs attrs = {.function = (rn_pool_function)(function / 8),
                           .size = {2, 3},
                           .stride = {2, 2},
                           .dilation = {1, function & 1 ? 2 : 1},
                           .pad_before = {1, 1},
                           .pad_after = {0, 1},
                           .ceil = function >> 1 & 1,
                           .count_pad = function >> 2 & 1,
                           .column_major = function >> 2 & 1,
                           .p = 1 + function % 3};
    rn_value y = rn_op_pool(g, rn_op_reshape(g, in[0], RN_SHAPE(1, 3, 4, 1)), attrs);
    return attrs.function == RN_POOL_MAX && function & 1 ? rn_graph_output_of(g, y, 1) : y;
}

static rn_value add_conv_transpose(rn_graph *g, const rn_value *in, uint32_t function) {
    rn_value x = rn_op_reshape(g, in[0], RN_SHAPE(1, 2, 3, 2));
    rn_value w = rn_op_reshape(g, in[1], RN_SHAPE(2, 1, 2, 3));
    rn_conv_transpose_attrs attrs = {.conv = {.groups = function & 1 ? 2 : 1,
                                              .stride = {1, function & 2 ? 3 : 1},
                                              .dilation = {function & 4 ? 2 : 1, 1},
                                              .pad_before = {function >> 3 & 1, 1},
                                              .pad_after = {0, function >> 3 & 1}}};
    return rn_op_conv_transpose(g, x, w, RN_NO_VALUE, attrs);
}

static rn_value add_cumulate(rn_graph *g, const rn_value *in, uint32_t function) {
    return rn_op_cumulate(g, in[0],
                          (rn_cumulate_attrs){.axis = function & 1,
                                              .product = function >> 1 & 1,
                                              .exclusive = function >> 2 & 1,
                                              .reverse = function >> 3 & 1});
}

static rn_value add_top_k(rn_graph *g, const rn_value *in, uint32_t function) {
    rn_top_k_attrs attrs = {.axis = function & 1, .count = 2, .smallest = function >> 1 & 1};
    return rn_graph_output_of(g, rn_op_top_k(g, in[0], attrs), function >> 2 & 1);
}

static rn_value add_dft(rn_graph *g, const rn_value *in, uint32_t function) {
    bool complex = function & 1, inverse = function >> 1 & 1, from_half = function >> 2 & 1;
    rn_value x = rn_op_reshape(g, in[0], complex ? RN_SHAPE(2, 3, 2) : RN_SHAPE(2, 6, 1));
    return rn_op_dft(g, x,
                     (rn_dft_attrs){.axis = 1,
                                    .length = from_half           ? 4
                                              : function >> 3 & 1 ? 5
                                                                  : 0,
                                    .inverse = inverse,
                                    .half = function >> 4 & 1,
                                    .from_half = from_half});
}

// ---- attention to pages -------------------------------------------------------------------------

// How pages are gathered depends on rows and sequences: each form, with a row of nobody where there
// is room for one, keys that are appended in the same run, and a window.
static void check_pages(uint64_t rows, uint64_t sequences, uint32_t window) {
    static const int32_t table[] = {3, 0, 1, 5, 4, 2}, position[] = {5, 2, 6, 0, 3, 1, 4};
    static const int32_t sequence[] = {0, 2, 1, -1, 0, 1};
    enum { HEADS = 4, SHARED = 2, DIMS = 8, TOKENS = 4 };
    int32_t own[6];
    conform_fact near = {.tolerance = 1e-5f, .absolute = 1e-6f};
    conform_why why = {{0}};
    bool refused = false;
    test_run run;
    rn_graph *g;
    assert_ok(rn_graph_create(&g));
    rn_value q = rn_graph_input(g, "q", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, HEADS, DIMS));
    rn_value k = rn_graph_input(g, "k", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, SHARED, DIMS));
    rn_value of = rn_graph_input(g, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value at = rn_graph_input(g, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value pages = rn_graph_input(g, "pages", RN_DTYPE_I32, RN_SHAPE(sequences, 2));
    rn_value kv =
        rn_graph_state(g, "kv", RN_DTYPE_F16, RN_SHAPE(6, 2, SHARED, TOKENS, DIMS), RN_PURPOSE_KV);
    rn_value next = rn_op_kv_append(g, kv, k, k, of, at, pages);
    rn_attention_attrs attrs = {.window = window};
    rn_graph_output(g, rn_op_paged_attention(g, q, next, of, at, pages, attrs), "y");
    assert_ok(rn_graph_finish(g));
    test_run_open(&run, g, rows);
    for (uint64_t i = 0; i < rows; i++)
        own[i] = sequence[i] < (int32_t)sequences ? sequence[i] : 0;
    fill(&run.values[q], 5);
    fill(&run.values[k], 7);
    fill(&run.values[kv], 1);
    memcpy(test_run_data(&run, of), own, rows * sizeof *own);
    memcpy(test_run_data(&run, at), position, rows * sizeof *position);
    memcpy(test_run_data(&run, pages), table, sequences * 2 * sizeof *table);
    if (!conform_graph(&run, near, &refused, &why) || refused)
        fail_msg("%llu rows, %llu sequences: %s", (unsigned long long)rows,
                 (unsigned long long)sequences, why.text);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void pages_are_gathered_in_three_ways(void **state) {
    (void)state;
    if (!xla_open()) skip_because("no XLA plugin: RATION_XLA_PLUGIN names none");
    for (uint32_t window = 0; window <= 3; window += 3)
        for (uint64_t sequences = 1; sequences <= 3; sequences++)
            for (uint64_t rows = 1; rows <= 6; rows += 1 + rows / 2)
                check_pages(rows, sequences, window);
}

#define TEST(name, functions, ...)                                                                 \
    static void every_##name##_means_the_same(void **state) {                                      \
        (void)state;                                                                               \
        check_all(add_##name, functions, RN_SHAPE(__VA_ARGS__));                                   \
    }
TEST(unary, RN_UNARY_COUNT, VALUES)
TEST(binary, RN_BINARY_COUNT, VALUES)
TEST(compare, RN_COMPARE_COUNT, VALUES)
TEST(convert, DTYPES, VALUES)
TEST(cast, DTYPES, VALUES)
TEST(reduce, 2 * RN_REDUCE_COUNT, 3, 4)
TEST(arg, 16, 3, 4)
TEST(soft, 6, 3, 4)
TEST(scatter, 2 * RN_SCATTER_COUNT, 3, 4)
TEST(grid, 18, 3, 4)
TEST(resize, 36, 3, 4)
TEST(pool, 24, 3, 4)
TEST(conv_transpose, 16, 3, 4)
TEST(cumulate, 16, 3, 4)
TEST(top_k, 8, 3, 4)
TEST(dft, 32, 3, 4)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_unary_means_the_same),
        cmocka_unit_test(every_binary_means_the_same),
        cmocka_unit_test(every_compare_means_the_same),
        cmocka_unit_test(every_convert_means_the_same),
        cmocka_unit_test(every_cast_means_the_same),
        cmocka_unit_test(every_reduce_means_the_same),
        cmocka_unit_test(every_arg_means_the_same),
        cmocka_unit_test(every_soft_means_the_same),
        cmocka_unit_test(every_scatter_means_the_same),
        cmocka_unit_test(every_grid_means_the_same),
        cmocka_unit_test(every_resize_means_the_same),
        cmocka_unit_test(every_pool_means_the_same),
        cmocka_unit_test(every_conv_transpose_means_the_same),
        cmocka_unit_test(every_cumulate_means_the_same),
        cmocka_unit_test(every_top_k_means_the_same),
        cmocka_unit_test(every_dft_means_the_same),
        cmocka_unit_test(pages_are_gathered_in_three_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
