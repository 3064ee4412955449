// stablehlo_test.c — a graph's program as text: its signature, its spelling, what it refuses. What
// it computes is in tests/conform/stablehlo_test.c.
#include "support.h"

#include "base/buffer.h"
#include "base/str.h"
#include "exchange/stablehlo.h"
#include "graph/op.h"

#include <math.h>

static rn_graph *graph;
static rn_buffer text;
static rn_arena memory;

static int open_graph(void **state) {
    (void)state;
    rn_buffer_init(&text, &rn_system_allocator, SIZE_MAX);
    rn_arena_init(&memory, &rn_system_allocator, 0);
    return rn_graph_create(&graph) != RN_OK;
}

static int close_graph(void **state) {
    (void)state;
    rn_graph_destroy(graph);
    rn_buffer_free(&text);
    rn_arena_free_all(&memory);
    return 0;
}

static const char *emit(rn_stablehlo_options options) {
    text.bytes = 0;
    assert_ok(rn_graph_finish(graph));
    assert_ok(rn_stablehlo_emit(graph, &options, rn_buffer_sink(&text)));
    assert_ok(rn_buffer_append(&text, "", 1));
    return text.data;
}

static rn_stablehlo_signature sign(rn_stablehlo_options options) {
    rn_stablehlo_signature signature;
    assert_ok(rn_stablehlo_signature_make(graph, &options, &memory, &signature));
    return signature;
}

static void assert_has(const char *in, const char *part) {
    if (!strstr(in, part)) fail_msg("there is no \"%s\" in\n%s", part, in);
}

// ---- the text -----------------------------------------------------------------------------------

static void a_small_program_is_spelled_like_this(void **state) {
    (void)state;
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 4));
    rn_value w = rn_graph_weight(graph, "w", RN_DTYPE_BF16, RN_SHAPE(3, 4));
    rn_graph_output(graph, rn_op_relu(graph, rn_op_matmul(graph, x, w, RN_NO_VALUE)), "y");
    assert_string_equal(
        emit((rn_stablehlo_options){.rows = 2}),
        "module @ration attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {\n"
        "  func.func public @main(\n"
        "      %v1: tensor<2x4xf32>,\n"
        "      %v2: tensor<3x4xbf16>)\n"
        "      -> (tensor<2x3xf32>) {\n"
        "    // matmul.0 (matmul)\n"
        "    %v3 = \"stablehlo.convert\"(%v2) : (tensor<3x4xbf16>) -> tensor<3x4xf32>\n"
        "    %v4 = \"stablehlo.dot_general\"(%v1, %v3) {dot_dimension_numbers = "
        "#stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], "
        "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = "
        "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x4xf32>, "
        "tensor<3x4xf32>) -> tensor<2x3xf32>\n"
        "    // relu.1 (relu)\n"
        "    %v5 = \"stablehlo.constant\"() {value = dense<0x00000000> : tensor<2x3xf32>} : () -> "
        "tensor<2x3xf32>\n"
        "    %v6 = \"stablehlo.maximum\"(%v4, %v5) : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
        "tensor<2x3xf32>\n"
        "    // end\n"
        "    \"func.return\"(%v6) : (tensor<2x3xf32>) -> ()\n"
        "  }\n"
        "}\n");
}

// Weights by their outputs, and what is summed over is put together before.
static void partitions_are_said_of_arguments_and_results(void **state) {
    (void)state;
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 4));
    rn_value a = rn_graph_weight(graph, "a", RN_DTYPE_F32, RN_SHAPE(6, 4));
    rn_value b = rn_graph_weight(graph, "b", RN_DTYPE_F32, RN_SHAPE(6, 4));
    rn_value odd = rn_graph_weight(graph, "odd", RN_DTYPE_F32, RN_SHAPE(5, 4));
    rn_value hidden = rn_op_relu(graph, rn_op_matmul(graph, x, a, RN_NO_VALUE));
    rn_value back =
        rn_op_matmul_as(graph, hidden, b, RN_NO_VALUE, (rn_matmul_attrs){.transpose_w = true});
    rn_graph_output(graph, rn_op_matmul(graph, back, odd, RN_NO_VALUE), "y");
    const char *got = emit((rn_stablehlo_options){.rows = 2, .partitions = 2});
    assert_has(got, "mhlo.num_partitions = 2");
    assert_has(got, "%v1: tensor<2x4xf32> {mhlo.sharding = \"{replicated}\"},");
    assert_has(got, "%v2: tensor<6x4xf32> {mhlo.sharding = \"{devices=[2,1]0,1}\"},");
    assert_has(got, "%v3: tensor<6x4xf32> {mhlo.sharding = \"{devices=[1,2]0,1}\"},");
    assert_has(got, "%v4: tensor<5x4xf32> {mhlo.sharding = \"{replicated}\"})");
    assert_has(got, "-> (tensor<2x5xf32> {mhlo.sharding = \"{replicated}\"}) {");
    assert_has(got, "{call_target_name = \"Sharding\", mhlo.sharding = \"{replicated}\"} : "
                    "(tensor<2x6xf32>) -> tensor<2x6xf32>");
    assert_has(got, "(tensor<2x4xf32>) -> tensor<2x4xf32>\n");
    rn_stablehlo_signature s = sign((rn_stablehlo_options){.rows = 2, .partitions = 2});
    assert_int_equal(0, s.arguments[1].split);
    assert_int_equal(1, s.arguments[2].split);
    assert_int_equal(RN_STABLEHLO_NONE, s.arguments[3].split);
    assert_int_equal(6 * 4 * 4, s.arguments[1].bytes);
}

// Weights that a value is multiplied by, of one dtype and read by nothing else.
static void weights_of_one_value_may_be_one_argument(void **state) {
    (void)state;
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 32));
    rn_value a = rn_graph_weight(graph, "a", RN_DTYPE_BF16, RN_SHAPE(3, 32));
    rn_value b = rn_graph_weight(graph, "b", RN_DTYPE_F32, RN_SHAPE(5, 32));
    rn_value c = rn_graph_weight(graph, "c", RN_DTYPE_Q8_0, RN_SHAPE(2, 32));
    rn_value twice = rn_graph_weight(graph, "twice", RN_DTYPE_BF16, RN_SHAPE(4, 32));
    const rn_value weights[] = {a, b, c, twice, twice};
    for (uint32_t i = 0; i < 5; i++) {
        rn_value y = rn_op_matmul(graph, x, weights[i], RN_NO_VALUE);
        rn_graph_output(graph, y, (const char *[]){"ya", "yb", "yc", "yd", "ye"}[i]);
    }
    rn_stablehlo_options options = {.rows = 2, .widened = RN_DTYPE_BF16, .merge = true};
    const char *got = emit(options);
    assert_has(got,
               "    // matmul.2 (matmul)\n    %v9 = \"stablehlo.slice\"(%v6) "
               "{start_indices = array<i64: 0, 3>, limit_indices = array<i64: 2, 5>, strides = "
               "array<i64: 1, 1>} : (tensor<2x5xf32>) -> tensor<2x2xf32>\n");
    rn_stablehlo_signature s = sign(options);
    assert_int_equal(4, s.argument_count);
    assert_int_equal(2, s.arguments[1].part_count);
    assert_int_equal(a, s.arguments[1].parts[0]);
    assert_int_equal(c, s.arguments[1].parts[1]);
    assert_true(rn_shape_equal(RN_SHAPE(5, 32), s.arguments[1].shape));
    assert_int_equal(5 * 32 * 2, s.arguments[1].bytes);
    assert_int_equal(0, s.arguments[2].part_count + s.arguments[3].part_count);
    options.partitions = 2; // parts of it would be parts of none
    assert_int_equal(5, sign(options).argument_count);
}

// Kernels as (K..., I, O), of f16 widened before; one that something else reads stays.
static void kernels_may_be_given_turned(void **state) {
    (void)state;
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(1, 4, 4, 3));
    rn_value w = rn_graph_weight(graph, "w", RN_DTYPE_F16, RN_SHAPE(5, 3, 2, 1));
    rn_value shared = rn_graph_weight(graph, "shared", RN_DTYPE_F32, RN_SHAPE(5, 3, 2, 1));
    rn_conv2d_attrs attrs = {.stride_h = 1, .stride_w = 1};
    rn_graph_output(graph, rn_op_conv2d(graph, x, w, RN_NO_VALUE, attrs), "y");
    rn_graph_output(graph, rn_op_conv2d(graph, x, shared, RN_NO_VALUE, attrs), "z");
    rn_graph_output(graph, rn_op_relu(graph, shared), "r");
    rn_stablehlo_options options = {.turn_kernels = true, .widen_all = true};
    const char *got = emit(options);
    assert_has(got, "%v2: tensor<2x1x3x5xf32>,");
    assert_has(got, "%v3: tensor<5x3x2x1xf32>)");
    assert_has(got, "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>");
    assert_has(got, "#stablehlo.conv<[b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]>");
    rn_stablehlo_signature s = sign(options);
    float numbers[30], turned[30];
    uint16_t half[30];
    for (int i = 0; i < 30; i++)
        numbers[i] = (float)i;
    assert_ok(rn_dtype_from_f32(RN_DTYPE_F16, numbers, half, 30));
    assert_true(s.arguments[1].turned && !s.arguments[2].turned);
    assert_ok(rn_stablehlo_convert(graph, &s.arguments[1], half, turned));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++)
            for (int o = 0; o < 5; o++)
                assert_true(turned[(k * 3 + i) * 5 + o] == numbers[(o * 3 + i) * 2 + k]);
}

static void products_may_take_rounded_operands(void **state) {
    (void)state;
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 4));
    rn_value w = rn_graph_weight(graph, "w", RN_DTYPE_BF16, RN_SHAPE(3, 4));
    rn_graph_output(graph, rn_op_matmul(graph, x, w, RN_NO_VALUE), "y");
    const char *got = emit((rn_stablehlo_options){.rows = 2, .products = RN_DTYPE_BF16});
    assert_has(got, "precision DEFAULT");
    assert_has(got, "(tensor<2x4xbf16>, tensor<3x4xbf16>) -> tensor<2x3xf32>");
}

static void numbers_are_written_by_their_bits(void **state) {
    (void)state;
    float numbers[] = {NAN, INFINITY, -0.0f};
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value c = rn_graph_constant(graph, "c", RN_DTYPE_F32, RN_SHAPE(3), numbers);
    rn_graph_output(graph, rn_op_scale(graph, rn_op_add(graph, x, c), 0.1f, 0), "y");
    const char *got = emit((rn_stablehlo_options){0});
    assert_has(got, "dense<\"0x0000C07F0000807F00000080\"> : tensor<3xf32>");
    assert_has(got, "dense<0x3DCCCCCD> : tensor<3xf32>");
}

static void a_name_cannot_end_its_comment(void **state) {
    (void)state;
    rn_graph_block(graph, "a\nb");
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(3));
    rn_graph_output(graph, rn_op_neg(graph, x), "y");
    assert_has(emit((rn_stablehlo_options){0}), "    // a?b/neg.0 (neg)\n");
}

static void a_line_knows_its_node(void **state) {
    (void)state;
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(3));
    rn_graph_output(graph, rn_op_exp(graph, rn_op_softmax(graph, x)), "y");
    rn_str all = {emit((rn_stablehlo_options){0}), text.bytes - 1};
    uint64_t line = 1;
    const char *comment = strstr(all.data, "    // exp.1");
    assert_non_null(comment);
    for (const char *c = all.data; c < comment; c++)
        line += *c == '\n';
    assert_true(rn_str_equal(rn_stablehlo_node_at(all, line + 1), RN_STR("exp.1 (exp)")));
    assert_true(rn_str_equal(rn_stablehlo_node_at(all, line - 1), RN_STR("softmax.0 (softmax)")));
    assert_int_equal(rn_stablehlo_node_at(all, 1).bytes, 0);
    assert_int_equal(rn_stablehlo_node_at(all, line + 2).bytes, 0);
    assert_int_equal(rn_stablehlo_node_at(all, UINT64_MAX).bytes, 0);
}

// A loop over sequences is for runs in which several rows share one.
static void pages_are_gathered_by_row_or_by_sequence(void **state) {
    (void)state;
    rn_value q = rn_graph_input(graph, "q", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 2, 8));
    rn_value at = rn_graph_input(graph, "at", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value table = rn_graph_input(graph, "table", RN_DTYPE_I32, RN_SHAPE(4, 2));
    rn_value kv =
        rn_graph_state(graph, "kv", RN_DTYPE_F16, RN_SHAPE(4, 2, 2, 16, 8), RN_PURPOSE_KV);
    rn_attention_attrs attrs = {.window = 4};
    rn_graph_output(graph, rn_op_paged_attention(graph, q, kv, at, at, table, attrs), "y");
    assert_null(strstr(emit((rn_stablehlo_options){.rows = 4}), "stablehlo.while"));
    assert_has(text.data, "-> tensor<4x2x2x2x16x8xf16>"); // rows, pages: each row its own
    assert_has(emit((rn_stablehlo_options){.rows = 5}), "stablehlo.while");
    assert_has(text.data, "-> tensor<2x2x2x16x8xf16>"); // pages of one sequence
    assert_int_equal(sign((rn_stablehlo_options){.rows = 5}).result_count, 1); // kv is only read
}

// ---- the signature ------------------------------------------------------------------------------

// A layer's KV cache and everything that a program can have as an argument.
static void build_all_kinds(rn_value *out_kv) {
    static const float large[2048];
    rn_value q = rn_graph_input(graph, "q", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 2, 8));
    rn_value sequence = rn_graph_input(graph, "sequence", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value position = rn_graph_input(graph, "position", RN_DTYPE_I32, RN_SHAPE(RN_ROWS));
    rn_value table = rn_graph_input(graph, "table", RN_DTYPE_I32, RN_SHAPE(1, 4));
    rn_graph_input(graph, "unread", RN_DTYPE_F32, RN_SHAPE(2));
    rn_value kv =
        rn_graph_state(graph, "kv", RN_DTYPE_F16, RN_SHAPE(4, 2, 2, 16, 8), RN_PURPOSE_KV);
    rn_value w = rn_graph_weight(graph, "w", RN_DTYPE_Q8_0, RN_SHAPE(8, 32));
    rn_value c = rn_graph_constant(graph, "c", RN_DTYPE_F32, RN_SHAPE(64, 32), large);
    uint32_t seed = rn_graph_scalar(graph, "seed");
    rn_value next = rn_op_kv_append(graph, kv, q, q, sequence, position, table);
    rn_value y =
        rn_op_paged_attention(graph, q, next, sequence, position, table, (rn_attention_attrs){0});
    rn_graph_output(graph, rn_op_dropout(graph, y, (rn_dropout_attrs){seed, 0, 0.5f}), "y");
    rn_graph_output(graph, rn_op_matmul(graph, c, w, RN_NO_VALUE), "z");
    assert_ok(rn_graph_finish(graph));
    *out_kv = kv;
}

static void arguments_and_results_stand_in_order(void **state) {
    static const rn_stablehlo_kind kinds[] = {
        RN_STABLEHLO_INPUT,  RN_STABLEHLO_INPUT,  RN_STABLEHLO_INPUT,    RN_STABLEHLO_INPUT,
        RN_STABLEHLO_SCALAR, RN_STABLEHLO_WEIGHT, RN_STABLEHLO_CONSTANT, RN_STABLEHLO_STATE};
    rn_value kv;
    (void)state;
    build_all_kinds(&kv);
    rn_stablehlo_signature s = sign((rn_stablehlo_options){.rows = 3, .widened = RN_DTYPE_BF16});
    assert_int_equal(s.argument_count, 8);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(s.arguments[i].kind, kinds[i]);
    assert_true(rn_shape_equal(s.arguments[0].shape, RN_SHAPE(3, 2, 8)));
    assert_int_equal(s.arguments[4].dtype, RN_DTYPE_F64);
    assert_int_equal(s.arguments[5].dtype, RN_DTYPE_BF16); // q8_0, widened
    assert_int_equal(s.arguments[5].bytes, 8 * 32 * 2);
    assert_int_equal(s.arguments[7].dtype, RN_DTYPE_F16);
    assert_int_equal(s.result_count, 3);
    assert_int_equal(s.results[0].kind, RN_STABLEHLO_OUTPUT);
    assert_int_equal(s.results[1].kind, RN_STABLEHLO_OUTPUT);
    assert_int_equal(s.results[2].kind, RN_STABLEHLO_STATE);
    assert_int_equal(s.results[2].value, kv);
    assert_int_equal(s.results[2].alias, 7);
    assert_int_equal(s.arguments[7].alias, 2);
    assert_int_equal(s.arguments[0].alias, RN_STABLEHLO_NONE);
    assert_has(emit((rn_stablehlo_options){.rows = 3}),
               "%v8: tensor<4x2x2x16x8xf16> {tf.aliasing_output = 2 : i32})");
}

static void buckets_share_what_has_no_rows(void **state) {
    rn_value kv;
    (void)state;
    build_all_kinds(&kv);
    rn_stablehlo_signature one = sign((rn_stablehlo_options){.rows = 1});
    rn_stablehlo_signature many = sign((rn_stablehlo_options){.rows = 64});
    assert_int_equal(one.argument_count, many.argument_count);
    for (uint32_t i = 0; i < one.argument_count; i++) {
        assert_int_equal(one.arguments[i].value, many.arguments[i].value);
        assert_int_equal(one.arguments[i].dtype, many.arguments[i].dtype);
        if (one.arguments[i].kind > RN_STABLEHLO_SCALAR)
            assert_true(rn_shape_equal(one.arguments[i].shape, many.arguments[i].shape));
    }
}

static void a_quantised_weight_is_widened(void **state) {
    float numbers[32], got[32];
    uint8_t blocks[34];
    (void)state;
    for (int i = 0; i < 32; i++)
        numbers[i] = (float)(i - 16);
    numbers[0] = -127; // then the scale is 1 and every number is exact
    assert_ok(rn_dtype_from_f32(RN_DTYPE_Q8_0, numbers, blocks, 32));
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(1, 32));
    rn_value w = rn_graph_weight(graph, "w", RN_DTYPE_Q8_0, RN_SHAPE(1, 32));
    rn_graph_output(graph, rn_op_matmul(graph, x, w, RN_NO_VALUE), "y");
    assert_ok(rn_graph_finish(graph));
    rn_stablehlo_signature s = sign((rn_stablehlo_options){0});
    assert_int_equal(s.arguments[1].dtype, RN_DTYPE_F32);
    assert_ok(rn_stablehlo_convert(graph, &s.arguments[1], blocks, got));
    assert_memory_equal(got, numbers, sizeof got);
}

// ---- refusals -----------------------------------------------------------------------------------

static void expect_refusal(const char *part) {
    assert_ok(rn_graph_finish(graph));
    assert_fails(RN_UNSUPPORTED, rn_stablehlo_check(graph, &(rn_stablehlo_options){.rows = 1}));
    assert_has(rn_last_error()->message, part);
}

static void gradients_are_refused_by_name(void **state) {
    (void)state;
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(4));
    rn_value loss = rn_op_sum(graph, rn_op_relu(graph, x), 1, false), gradient;
    assert_ok(rn_graph_gradient(graph, loss, &x, 1, &gradient));
    rn_graph_output(graph, gradient, "dx");
    expect_refusal("relu_grad");
}

static void optimisers_are_refused_by_name(void **state) {
    (void)state;
    rn_value w = rn_graph_weight(graph, "w", RN_DTYPE_F32, RN_SHAPE(4));
    rn_value g = rn_graph_input(graph, "g", RN_DTYPE_F32, RN_SHAPE(4));
    rn_sgd_attrs attrs = {.rate = rn_graph_scalar(graph, "rate")};
    rn_op_sgd(graph, w, g, RN_NO_VALUE, attrs);
    expect_refusal("sgd");
}

static void quantised_pages_are_refused_by_name(void **state) {
    (void)state;
    rn_value q = rn_graph_input(graph, "q", RN_DTYPE_F32, RN_SHAPE(1, 2, 32));
    rn_value at = rn_graph_input(graph, "at", RN_DTYPE_I32, RN_SHAPE(1));
    rn_value table = rn_graph_input(graph, "table", RN_DTYPE_I32, RN_SHAPE(1, 1));
    rn_value kv = rn_graph_state(graph, "layer 0 kv", RN_DTYPE_Q8_0, RN_SHAPE(1, 2, 2, 16, 32),
                                 RN_PURPOSE_KV);
    rn_op_kv_append(graph, kv, q, q, at, at, table);
    expect_refusal("layer 0 kv");
}

static void outputs_without_a_type_are_refused_by_name(void **state) {
    (void)state;
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(32));
    rn_graph_output(graph, rn_op_cast(graph, x, RN_DTYPE_F8_E4M3), "small");
    expect_refusal("'small' is f8_e4m3");
}

static void what_nobody_reads_is_not_in_the_program(void **state) {
    (void)state;
    rn_value x = rn_graph_input(graph, "x", RN_DTYPE_F32, RN_SHAPE(32));
    rn_op_quantize(graph, x, RN_DTYPE_Q8_0); // which would be refused
    rn_graph_output(graph, rn_op_neg(graph, x), "y");
    assert_null(strstr(emit((rn_stablehlo_options){0}), "quantize"));
}

static rn_status live(void) {
    rn_graph *small;
    RN_TRY(rn_graph_create(&small));
    rn_value x = rn_graph_input(small, "x", RN_DTYPE_F32, RN_SHAPE(2));
    rn_graph_output(small, rn_op_neg(small, x), "y");
    rn_status s = rn_graph_finish(small);
    if (s == RN_OK) s = rn_stablehlo_check(small, &(rn_stablehlo_options){0});
    rn_graph_destroy(small);
    return s;
}

static void refused_memory_is_a_status(void **state) {
    (void)state;
    assert_true(survive_refusals(live) > 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_small_program_is_spelled_like_this, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(partitions_are_said_of_arguments_and_results, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(weights_of_one_value_may_be_one_argument, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(kernels_may_be_given_turned, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(products_may_take_rounded_operands, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(numbers_are_written_by_their_bits, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(a_name_cannot_end_its_comment, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(a_line_knows_its_node, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(pages_are_gathered_by_row_or_by_sequence, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(arguments_and_results_stand_in_order, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(buckets_share_what_has_no_rows, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(a_quantised_weight_is_widened, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(gradients_are_refused_by_name, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(optimisers_are_refused_by_name, open_graph, close_graph),
        cmocka_unit_test_setup_teardown(quantised_pages_are_refused_by_name, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(outputs_without_a_type_are_refused_by_name, open_graph,
                                        close_graph),
        cmocka_unit_test_setup_teardown(what_nobody_reads_is_not_in_the_program, open_graph,
                                        close_graph),
        cmocka_unit_test(refused_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
