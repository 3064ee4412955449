// order_test.c — updates move to their gradients; nothing else moves, nothing is read too late.
#include "plan_fixture.h"

static rn_graph *build(const char *name, uint32_t micro_batches) {
    rn_recipe recipe;
    rn_graph *graph;
    assert_ok(rn_builtin_recipe(name, &recipe));
    assert_ok(recipe.build(recipe.self, &(rn_recipe_options){micro_batches}, &graph));
    rn_recipe_destroy(&recipe);
    return graph;
}

// ---- a small training step ----------------------------------------------------------------------

typedef struct step {
    rn_value weights[3], gradients[3], updated[3];
} step;
static step last;

static rn_value forward(rn_graph *g, rn_value x) {
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "w%d", i);
        rn_graph_block(g, name);
        last.weights[i] = rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(8, 8));
        x = rn_op_tanh(g, rn_op_matmul(g, x, last.weights[i], RN_NO_VALUE));
    }
    return x;
}

static void write_step(rn_graph *g, bool global) {
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 8));
    rn_value t = rn_graph_input(g, "t", RN_DTYPE_F32, RN_SHAPE(4, 8));
    rn_value loss = rn_op_mse(g, forward(g, x), t), norm = RN_NO_VALUE;
    assert_ok(rn_graph_gradient(g, loss, last.weights, 3, last.gradients));
    rn_graph_set_place(g, 0, RN_PHASE_UPDATE);
    if (global) norm = rn_graph_global_norm(g, last.gradients, 3);
    for (int i = 0; i < 3; i++) {
        rn_value gradient = last.gradients[i];
        if (global) gradient = rn_graph_clip(g, gradient, norm, 1);
        last.updated[i] = rn_op_sgd(g, last.weights[i], gradient, RN_NO_VALUE,
                                    (rn_sgd_attrs){.rate = rn_graph_scalar(g, "rate")});
    }
}

static void write_plain_step(rn_graph *g, uint32_t micro_batches) {
    (void)micro_batches;
    write_step(g, false);
}

static void write_global_step(rn_graph *g, uint32_t micro_batches) {
    (void)micro_batches;
    write_step(g, true);
}

// ---- what must hold for every order -------------------------------------------------------------

// Inputs are made before; what a node changes is read by nobody after it who was built before it.
static void check_order(const rn_graph *graph, const rn_plan_order *order) {
    uint32_t nodes = rn_graph_node_count(graph);
    assert_int_equal(order->count, nodes);
    for (uint32_t n = 0; n < nodes; n++) {
        const rn_node *node = rn_graph_node(graph, n);
        assert_int_equal(order->nodes[order->positions[n]], n);
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] == RN_NO_VALUE) continue;
            uint32_t producer = rn_graph_value(graph, node->inputs[i])->producer;
            if (producer != RN_NO_NODE)
                assert_true(order->positions[producer] < order->positions[n]);
        }
    }
    for (uint32_t n = 0; n < nodes; n++) {
        if (!order->changes[n]) continue;
        const rn_node *node = rn_graph_node(graph, n);
        for (uint32_t o = 0; o < node->output_count; o++)
            for (uint32_t r = 0; r < n; r++) {
                const rn_node *reader = rn_graph_node(graph, r);
                for (uint32_t i = 0; i < reader->input_count; i++)
                    if (order->roots[reader->inputs[i]] == order->roots[node->outputs[o]])
                        assert_true(order->positions[r] < order->positions[n]);
            }
    }
}

static rn_plan_order order_of(rn_arena *memory, const rn_graph *graph) {
    rn_plan_order order;
    rn_arena_init(memory, RN_HOST_OTHER, 0);
    assert_ok(rn_plan_order_make(memory, graph, &order));
    check_order(graph, &order);
    return order;
}

static uint32_t position_of(const rn_graph *graph, const rn_plan_order *order, rn_value value) {
    return order->positions[rn_graph_value(graph, value)->producer];
}

// ---- tests --------------------------------------------------------------------------------------

static void without_updates_the_order_is_as_built(void **state) {
    (void)state;
    rn_graph *graph = build("llama:2x64", 1);
    rn_arena memory;
    rn_plan_order order = order_of(&memory, graph);
    for (uint32_t i = 0; i < order.count; i++)
        assert_int_equal(order.nodes[i], i);
    assert_int_equal(order.update_count, 0);
    rn_arena_free_all(&memory);
    rn_graph_destroy(graph);
}

static void an_update_follows_its_gradient_and_the_weights_last_reader(void **state) {
    (void)state;
    rn_graph *graph = paper_graph(write_plain_step);
    rn_arena memory;
    rn_plan_order order = order_of(&memory, graph);
    assert_int_equal(order.update_count, 3);
    assert_int_equal(order.early_count, 2);
    // The last layer's weight is updated before the middle one's gradient is made.
    assert_true(position_of(graph, &order, last.updated[2]) <
                position_of(graph, &order, last.gradients[1]));
    assert_true(position_of(graph, &order, last.updated[1]) <
                position_of(graph, &order, last.gradients[0]));
    // All other nodes are still in the order in which they were built.
    uint32_t before = 0;
    for (uint32_t i = 0; i < order.count; i++) {
        if (rn_graph_node(graph, order.nodes[i])->phase == RN_PHASE_UPDATE) continue;
        assert_true(order.nodes[i] >= before);
        before = order.nodes[i];
    }
    rn_arena_free_all(&memory);
    rn_graph_destroy(graph);
}

static void a_global_norm_holds_all_updates_back(void **state) {
    (void)state;
    rn_graph *graph = paper_graph(write_global_step);
    rn_arena memory;
    rn_plan_order order = order_of(&memory, graph);
    assert_int_equal(order.update_count, 3);
    assert_int_equal(order.early_count, 0);
    // But each gradient's own part of the norm is computed when the gradient is there.
    rn_value gradient = last.gradients[2];
    for (uint32_t n = 0; n < order.count; n++) {
        const rn_node *node = rn_graph_node(graph, n);
        if (node->op == RN_OP_SUM_SQUARES && node->inputs[0] == gradient)
            assert_true(order.positions[n] < position_of(graph, &order, last.gradients[1]));
    }
    rn_arena_free_all(&memory);
    rn_graph_destroy(graph);
}

static void sums_of_gradients_follow_their_gradients(void **state) {
    (void)state;
    rn_graph *graph = build("mlp:train", 4);
    rn_arena memory;
    rn_plan_order order = order_of(&memory, graph);
    uint32_t sums = 0, late = 0;
    for (uint32_t p = 0; p < order.count; p++) {
        const rn_node *node = rn_graph_node(graph, order.nodes[p]);
        if (node->op != RN_OP_ACCUMULATE) continue;
        uint32_t made = position_of(graph, &order, node->inputs[1]);
        sums++;
        for (uint32_t i = made + 1; i < p; i++)
            late += rn_graph_node(graph, order.nodes[i])->op != RN_OP_ACCUMULATE;
    }
    assert_true(sums > 5);
    assert_int_equal(late, 0);
    rn_arena_free_all(&memory);
    rn_graph_destroy(graph);
}

static void training_graphs_keep_their_dependences(void **state) {
    (void)state;
    const char *names[] = {"mlp:train", "simple:train", "llama:2x64:train"};
    for (int i = 0; i < 3; i++) {
        rn_graph *graph = build(names[i], 1), *again;
        rn_arena memory;
        bool recompute[64];
        memset(recompute, true, sizeof recompute);
        (void)order_of(&memory, graph);
        rn_arena_free_all(&memory);
        assert_true(rn_graph_block_count(graph) < 64);
        assert_ok(rn_graph_recompute(graph, recompute, &again));
        rn_plan_order order = order_of(&memory, again);
        assert_true(order.early_count > 0);
        rn_arena_free_all(&memory);
        rn_graph_destroy(graph);
        rn_graph_destroy(again);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_updates_the_order_is_as_built),
        cmocka_unit_test(an_update_follows_its_gradient_and_the_weights_last_reader),
        cmocka_unit_test(a_global_norm_holds_all_updates_back),
        cmocka_unit_test(sums_of_gradients_follow_their_gradients),
        cmocka_unit_test(training_graphs_keep_their_dependences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
