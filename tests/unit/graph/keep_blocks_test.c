// A graph of some blocks of another: the same numbers where nothing is stepped over, and stepping
// over only where one value goes in and one like it comes out.
#include "support.h"

#include "base/fault.h"
#include "evaluate.h"
#include "graph/cut.h"
#include "graph/validate.h"

#include <ration/memory.h>

enum { ROWS = 3, DIM = 8, LAYERS = 4 };

typedef struct chain {
    rn_graph *g;
    rn_value x, layers[LAYERS + 1]; // what enters a layer
} chain;

// A layer: x + tanh(x w), with a state that nobody changes.
static chain make_chain(void) {
    chain c = {0};
    assert_ok(rn_graph_create(&c.g));
    c.x = c.layers[0] = rn_graph_input(c.g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, DIM));
    rn_graph_input(c.g, "nobody", RN_DTYPE_F32, RN_SHAPE(1));
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer %d", i);
        rn_graph_block(c.g, name);
        snprintf(name, sizeof name, "w%d", i);
        rn_value w = rn_graph_weight(c.g, name, RN_DTYPE_F32, RN_SHAPE(DIM, DIM));
        rn_value y = rn_op_tanh(c.g, rn_op_matmul(c.g, c.layers[i], w, RN_NO_VALUE));
        c.layers[i + 1] = rn_op_add(c.g, c.layers[i], y);
    }
    rn_graph_output(c.g, c.layers[LAYERS], "y");
    assert_ok(rn_graph_finish(c.g));
    return c;
}

static void run(const rn_graph *graph, const char *output, float *out) {
    test_run run;
    test_run_open(&run, graph, ROWS);
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        float *data = test_run_data(&run, v);
        uint64_t count = rn_tensor_bytes(&run.values[v]) / sizeof(float);
        if (info->role != RN_ROLE_INPUT && info->role != RN_ROLE_WEIGHT) continue;
        for (uint64_t i = 0; i < count; i++) // by name, so that both graphs have the same
            data[i] = (float)((i * 37 + (uint64_t)info->name[1] * 11) % 19) / 19 - 0.5f;
    }
    test_run_all(&run);
    rn_value y = rn_graph_find(graph, RN_ROLE_OUTPUT, output);
    assert_int_not_equal(y, RN_NO_VALUE);
    memcpy(out, test_run_data(&run, y), sizeof(float) * ROWS * DIM);
    test_run_close(&run);
}

static void first_blocks_make_what_the_next_one_reads(void **state) {
    (void)state;
    for (int kept = 1; kept <= LAYERS; kept++) {
        chain c = make_chain(), shorter = make_chain();
        bool keep[LAYERS + 1] = {0};
        rn_graph *graph;
        float got[ROWS * DIM], want[ROWS * DIM];
        for (int i = 0; i <= kept; i++) // block 0 is the graph's own
            keep[i] = true;
        assert_ok(rn_graph_keep_blocks(c.g, keep, &graph));
        assert_true(rn_graph_is_valid(graph));
        assert_int_equal(rn_graph_node_count(graph), 3 * kept);
        assert_int_equal(rn_graph_find(graph, RN_ROLE_INPUT, "nobody"), RN_NO_VALUE);
        if (kept < LAYERS) rn_graph_output(shorter.g, shorter.layers[kept], "x");
        run(graph, kept < LAYERS ? RN_CROSSING : "y", got);
        run(shorter.g, kept < LAYERS ? "x" : "y", want);
        assert_memory_equal(got, want, sizeof got);
        rn_graph_destroy(graph);
        rn_graph_destroy(c.g);
        rn_graph_destroy(shorter.g);
    }
}

// Without layer 1, layer 2 reads what layer 1 read.
static void a_block_between_is_stepped_over(void **state) {
    (void)state;
    chain c = make_chain();
    static const bool keep[LAYERS + 1] = {true, true, false, true, false};
    rn_graph *graph;
    assert_ok(rn_graph_keep_blocks(c.g, keep, &graph));
    assert_true(rn_graph_is_valid(graph));
    assert_int_equal(rn_graph_node_count(graph), 6);
    assert_int_equal(rn_graph_node(graph, 5)->block, 3);
    // the last node of layer 0 makes what both nodes of layer 2 read
    assert_int_equal(rn_graph_node(graph, 3)->inputs[0], rn_graph_node(graph, 2)->outputs[0]);
    assert_int_equal(rn_graph_node(graph, 5)->inputs[0], rn_graph_node(graph, 2)->outputs[0]);
    assert_int_equal(rn_graph_find(graph, RN_ROLE_OUTPUT, RN_CROSSING),
                     rn_graph_node(graph, 5)->outputs[0]);
    assert_int_equal(rn_graph_find(graph, RN_ROLE_WEIGHT, "w1"), RN_NO_VALUE);
    rn_graph_destroy(graph);
    rn_graph_destroy(c.g);
}

// Two values in, none in, another shape out, two values for those behind.
static void what_cannot_be_stepped_over_is_refused(void **state) {
    static const char *const words[] = {"does not read one value", "does not read one value",
                                        "is not like what it reads", "reads more than one value"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool keep[4] = {true, true, i == 3, i != 3};
        rn_graph *g, *graph;
        assert_ok(rn_graph_create(&g));
        rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, DIM));
        rn_graph_block(g, "first");
        rn_value a = rn_op_tanh(g, x), b = rn_op_relu(g, x);
        rn_graph_block(g, "second");
        rn_value c = i == 0   ? rn_op_add(g, a, b)
                     : i == 1 ? rn_op_silu(g, x)
                     : i == 2 ? rn_op_concat(g, (rn_value[]){a, a}, 2, 1)
                              : rn_op_silu(g, a);
        rn_graph_block(g, "third");
        rn_value y = i == 3 ? rn_op_add(g, c, b) : rn_op_tanh(g, c);
        rn_graph_output(g, y, "y");
        assert_ok(rn_graph_finish(g));
        assert_fails(RN_UNSUPPORTED, rn_graph_keep_blocks(g, keep, &graph));
        assert_null(graph);
        assert_non_null(strstr(rn_last_error()->message, words[i]));
        rn_graph_destroy(g);
    }
}

static void every_failing_allocation_is_a_clean_failure(void **state) {
    (void)state;
    static const bool keep[LAYERS + 1] = {true, true, false, true, false};
    chain c = make_chain();
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_graph *graph = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_graph_keep_blocks(c.g, keep, &graph);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        rn_graph_destroy(graph);
        assert_int_equal(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes, before);
        assert_int_equal(s == RN_OK, !fired);
        if (!fired) break;
    }
    rn_graph_destroy(c.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_blocks_make_what_the_next_one_reads),
        cmocka_unit_test(a_block_between_is_stepped_over),
        cmocka_unit_test(what_cannot_be_stepped_over_is_refused),
        cmocka_unit_test(every_failing_allocation_is_a_clean_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
