// retype_test.c — weights of other dtypes: which are taken as they are, which are widened.
#include "support.h"

#include "graph/op.h"
#include "graph/retype.h"

static rn_graph *make_graph(void) {
    rn_graph *g;
    assert_ok(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(1, 4, 4, 32));
    rn_value k = rn_graph_weight(g, "k", RN_DTYPE_F32, RN_SHAPE(8, 32, 3, 3));
    rn_value odd = rn_graph_weight(g, "odd", RN_DTYPE_F32, RN_SHAPE(3, 8, 1, 1));
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(5, 12));
    rn_value b = rn_graph_weight(g, "b", RN_DTYPE_F32, RN_SHAPE(5));
    rn_conv2d_attrs conv = {.stride_h = 1, .stride_w = 1};
    rn_value y = rn_op_conv2d(g, x, k, RN_NO_VALUE, conv);
    y = rn_op_conv2d(g, y, odd, RN_NO_VALUE, conv);
    y = rn_op_matmul(g, rn_op_reshape(g, y, RN_SHAPE(1, 12)), w, b);
    rn_graph_output(g, y, "y");
    assert_ok(rn_graph_finish(g));
    return g;
}

static rn_dtype dtype_of(const rn_graph *g, const char *name) {
    rn_value v = rn_graph_find(g, RN_ROLE_WEIGHT, name);
    assert_true(v);
    return rn_graph_value(g, v)->dtype;
}

static uint32_t count_widened(const rn_graph *g) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++)
        count += rn_graph_node(g, n)->op == RN_OP_DEQUANTIZE;
    return count;
}

static void weights_are_held_as_their_readers_allow(void **state) {
    (void)state;
    static const struct {
        rn_dtype dtype, k, odd, w;
        uint32_t widened;
    } cases[] = {
        {RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16, RN_DTYPE_BF16, 0},
        {RN_DTYPE_INT8, RN_DTYPE_Q8_0, RN_DTYPE_F32, RN_DTYPE_INT8, 1},
        {RN_DTYPE_INT4, RN_DTYPE_Q4_1, RN_DTYPE_F32, RN_DTYPE_INT4, 1},
        {RN_DTYPE_NF4, RN_DTYPE_Q4_0, RN_DTYPE_F32, RN_DTYPE_NF4, 1},
        {RN_DTYPE_Q4_0, RN_DTYPE_Q4_0, RN_DTYPE_F32, RN_DTYPE_F32, 1},
        {RN_DTYPE_F8_E4M3, RN_DTYPE_F8_E4M3, RN_DTYPE_F8_E4M3, RN_DTYPE_F8_E4M3, 2},
    };
    rn_graph *g = make_graph(), *out;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(rn_graph_retype_weights(g, cases[i].dtype, false, &out));
        assert_int_equal(dtype_of(out, "k"), cases[i].k);
        assert_int_equal(dtype_of(out, "odd"), cases[i].odd);
        assert_int_equal(dtype_of(out, "w"), cases[i].w);
        assert_int_equal(dtype_of(out, "b"), RN_DTYPE_F32);
        assert_int_equal(count_widened(out), cases[i].widened);
        assert_true(rn_graph_find(out, RN_ROLE_OUTPUT, "y"));
        rn_graph_destroy(out);
    }
    assert_fails(RN_UNSUPPORTED, rn_graph_retype_weights(g, RN_DTYPE_Q2_K, false, &out));
    assert_null(out);
    rn_graph_destroy(g);
}

static void products_may_leave_their_activations_as_they_are(void **state) {
    (void)state;
    rn_graph *g = make_graph(), *out;
    assert_ok(rn_graph_retype_weights(g, RN_DTYPE_INT8, true, &out));
    for (uint32_t n = 0; n < rn_graph_node_count(out); n++) {
        const rn_node *node = rn_graph_node(out, n);
        if (node->op == RN_OP_MATMUL)
            assert_true(((const rn_matmul_attrs *)node->attrs)->unquantised_activations);
    }
    rn_graph_destroy(out);
    rn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_held_as_their_readers_allow),
        cmocka_unit_test(products_may_leave_their_activations_as_they_are),
    };
    return test_verdict(cmocka_run_group_tests(tests, NULL, NULL));
}
