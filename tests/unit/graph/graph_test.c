// What a graph says about itself, and what it says when it is built wrongly.
#include "support.h"

#include "base/buffer.h"
#include "base/fault.h"
#include "graph/op.h"
#include "memory/account.h"

#include <ration/graph.h>

static rn_graph *new_graph(void) {
    rn_graph *g = NULL;
    assert_ok(rn_graph_create(&g));
    return g;
}

// x (rows, 64) -> relu(x wT), w (128, 64), in block "layer 0".
static rn_value add_layer(rn_graph *g) {
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 64));
    rn_graph_block(g, "layer 0");
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(128, 64));
    return rn_op_relu(g, rn_op_matmul(g, x, w, RN_NO_VALUE));
}

// Fails to finish, and the story has all the words.
static void assert_spoilt(rn_graph *g, const char *words[]) {
    assert_fails(RN_INVALID, rn_graph_finish(g));
    for (size_t i = 0; words[i]; i++)
        if (!strstr(rn_last_error()->message, words[i]))
            fail_msg("'%s' is not in: %s", words[i], rn_last_error()->message);
    rn_graph_destroy(g);
}

static void outputs_of_a_node_are_found_by_number(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 8));
    rn_value y = rn_op_layernorm(g, x, RN_NO_VALUE, RN_NO_VALUE, 1e-5f);
    assert_int_equal(rn_graph_output_of(g, y, 0), y);
    rn_value mean = rn_graph_output_of(g, y, 1);
    assert_int_equal(rn_graph_value(g, mean)->output, 1);
    assert_int_equal(rn_graph_output_of(g, y, 99), RN_NO_VALUE);
    assert_int_equal(rn_graph_output_of(g, x, 0), RN_NO_VALUE); // no node makes it
    assert_int_equal(rn_graph_output_of(g, RN_NO_VALUE, 0), RN_NO_VALUE);
    rn_graph_destroy(g);
}

static void a_layer_has_values_nodes_and_blocks(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    rn_value y = rn_graph_output(g, add_layer(g), "y");
    assert_ok(rn_graph_finish(g));
    assert_int_equal(4, rn_graph_value_count(g));
    assert_int_equal(2, rn_graph_node_count(g));
    assert_int_equal(2, rn_graph_block_count(g));
    assert_string_equal("layer 0", rn_graph_block_name(g, 1));
    assert_int_equal(y, rn_graph_find(g, RN_ROLE_OUTPUT, "y"));
    assert_int_equal(RN_NO_VALUE, rn_graph_find(g, RN_ROLE_INPUT, "y"));
    assert_string_equal("(rows, 128)", rn_shape_format(rn_graph_value(g, y)->shape).text);
    assert_string_equal("layer 0/relu.1", rn_graph_node(g, 1)->name);
    assert_true(rn_graph_has_rows(g));
    rn_graph_destroy(g);
}

static void wrong_shapes_name_the_node_and_the_shapes(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 64));
    rn_graph_block(g, "layer 7");
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(32, 65));
    assert_int_equal(RN_NO_VALUE, rn_op_matmul(g, x, w, RN_NO_VALUE));
    assert_spoilt(g, (const char *[]){"layer 7/matmul.0", "(rows, 64)", "(32, 65)", NULL});
}

static void the_first_failure_is_the_one_told(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    rn_value a = rn_graph_input(g, "a", RN_DTYPE_F32, RN_SHAPE(2, 3));
    rn_value b = rn_graph_input(g, "b", RN_DTYPE_F32, RN_SHAPE(4, 3));
    rn_value bad = rn_op_add(g, a, b);
    rn_value worse = rn_op_mul(g, bad, a);
    assert_int_equal(RN_NO_VALUE, worse);
    rn_graph_output(g, worse, "y");
    assert_spoilt(g, (const char *[]){"add.0", "broadcast", NULL});
}

static void a_missing_input_is_named(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    rn_value a = rn_graph_input(g, "a", RN_DTYPE_F32, RN_SHAPE(2, 3));
    rn_op_add(g, a, RN_NO_VALUE);
    assert_spoilt(g, (const char *[]){"add.0", "input 1 is missing", NULL});
    g = new_graph();
    a = rn_graph_input(g, "a", RN_DTYPE_F32, RN_SHAPE(2, 3));
    rn_op_add(g, a, 99);
    assert_spoilt(g, (const char *[]){"add.0", "no value of this graph", NULL});
}

static void names_are_used_once(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(2));
    rn_graph_input(g, "w", RN_DTYPE_F32, RN_SHAPE(2)); // another role: fine
    assert_ok(rn_graph_finish(g));
    rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(2));
    assert_spoilt(g, (const char *[]){"two weights are called 'w'", NULL});
}

static void impossible_shapes_are_refused(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2, 0));
    assert_spoilt(g, (const char *[]){"x", "axis 1", "empty", NULL});
    g = new_graph();
    rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2, RN_ROWS));
    assert_spoilt(g, (const char *[]){"x", "only axis 0", NULL});
    g = new_graph();
    rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(1ull << 40, 1ull << 40));
    assert_spoilt(g, (const char *[]){"x", "more than memory", NULL});
    g = new_graph();
    rn_graph_weight(g, "w", RN_DTYPE_Q4_0, RN_SHAPE(4, 33));
    assert_spoilt(g, (const char *[]){"w", "blocks of 32", NULL});
    g = new_graph();
    rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 3));
    assert_spoilt(g, (const char *[]){"weight 'w'", "rows", NULL});
    g = new_graph();
    rn_graph_output(g, rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2)), "y");
    assert_spoilt(g, (const char *[]){"output 'y'", "input 'x'", NULL});
}

static void scalars_keep_their_index(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    assert_int_equal(0, rn_graph_scalar(g, "rate"));
    assert_int_equal(1, rn_graph_scalar(g, "seed"));
    assert_int_equal(0, rn_graph_scalar(g, "rate"));
    char name[8];
    for (int i = 0; i < RN_MAX_SCALARS; i++) {
        snprintf(name, sizeof name, "s%d", i);
        rn_graph_scalar(g, name);
    }
    assert_spoilt(g, (const char *[]){"one too many", NULL});
}

static void binding_puts_rows_into_shapes(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    add_layer(g);
    rn_tensor tensors[8];
    rn_call call;
    rn_graph_bind(g, 0, 5, tensors, &call);
    assert_int_equal(5, call.inputs[0].shape.dims[0]);
    assert_int_equal(5 * 64 * 4, rn_tensor_bytes(&call.inputs[0]));
    assert_int_equal(5 * 128 * 4, rn_tensor_bytes(&call.outputs[0]));
    assert_false(rn_tensor_given(&call.inputs[2]));
    assert_int_equal(0, rn_tensor_bytes(&call.inputs[2]));
    rn_graph_destroy(g);
}

static char *shown(rn_status (*show)(const rn_graph *, rn_sink), const rn_graph *g) {
    rn_buffer buffer;
    rn_buffer_init(&buffer, &rn_system_allocator, 1 << 20);
    assert_ok(show(g, rn_buffer_sink(&buffer)));
    char *text = calloc(1, buffer.bytes + 1);
    memcpy(text, buffer.data, buffer.bytes);
    rn_buffer_free(&buffer);
    return text;
}

static void it_prints_itself(void **state) {
    (void)state;
    rn_graph *g = new_graph();
    rn_graph_output(g, add_layer(g), "y");
    char *text = shown(rn_graph_print, g);
    assert_string_equal(text, "%1 = input 'x' f32 (rows, 64)\n"
                              "%2 = weight 'w' f32 (128, 64)\n"
                              "block 1 'layer 0'\n"
                              "  %3 = matmul %1, %2, none  # f32 (rows, 128)\n"
                              "  %4 = relu %3  # f32 (rows, 128) = output 'y'\n");
    free(text);
    text = shown(rn_graph_dot, g);
    assert_non_null(strstr(text, "digraph"));
    assert_non_null(strstr(text, "v1 -> n0"));
    assert_non_null(strstr(text, "n0 -> n1 [label=\"(rows, 128)\"]"));
    free(text);
    rn_graph_destroy(g);
}

static rn_status build_once(void) {
    rn_graph *g = NULL;
    RN_TRY(rn_graph_create(&g));
    rn_graph_scalar(g, "rate");
    float one = 1;
    rn_value c = rn_graph_constant(g, "one", RN_DTYPE_F32, RN_SCALAR, &one);
    rn_value y = rn_op_mul(g, add_layer(g), c);
    for (int i = 0; i < 100; i++)
        y = rn_op_add(g, y, c);
    rn_graph_output(g, y, "y");
    rn_status s = rn_graph_finish(g);
    rn_graph_destroy(g);
    return s;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = build_once();
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(before, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
        assert_int_equal(fired ? RN_NO_MEMORY : RN_OK, s);
        if (!fired) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_has_values_nodes_and_blocks),
        cmocka_unit_test(outputs_of_a_node_are_found_by_number),
        cmocka_unit_test(wrong_shapes_name_the_node_and_the_shapes),
        cmocka_unit_test(the_first_failure_is_the_one_told),
        cmocka_unit_test(a_missing_input_is_named),
        cmocka_unit_test(names_are_used_once),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(scalars_keep_their_index),
        cmocka_unit_test(binding_puts_rows_into_shapes),
        cmocka_unit_test(it_prints_itself),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
