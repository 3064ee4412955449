// cheap_test.c — what costs next to nothing is made again in the backward pass: the same bits, less
// to keep, and only where that really frees bytes.
#include "support.h"

#include "base/fault.h"
#include "evaluate.h"
#include "graph/repeat.h"
#include "graph/validate.h"

#include <ration/memory.h>

enum { DIM = 6, HIDDEN = 10, ROWS = 5, LAYERS = 2, WEIGHTS = 4 * LAYERS };

// Two gated layers with their norms, h + down(silu(gate n) * up n) with n = norm(h); AdamW's place
// is taken by SGD.
typedef struct model {
    rn_graph *g;
    rn_value x, target, weights[WEIGHTS], gradients[WEIGHTS], normed[LAYERS], gated[LAYERS], loss;
} model;

static rn_value add_layer(model *m, rn_value h, int layer) {
    char name[5][16];
    for (int i = 0; i < 4; i++)
        snprintf(name[i], sizeof name[i], "w.%d.%d", layer, i);
    snprintf(name[4], sizeof name[4], "layer %d", layer);
    rn_value *w = &m->weights[4 * layer];
    rn_graph_block(m->g, name[4]);
    w[0] = rn_graph_weight(m->g, name[0], RN_DTYPE_F32, RN_SHAPE(DIM));
    w[1] = rn_graph_weight(m->g, name[1], RN_DTYPE_F32, RN_SHAPE(HIDDEN, DIM));
    w[2] = rn_graph_weight(m->g, name[2], RN_DTYPE_F32, RN_SHAPE(HIDDEN, DIM));
    w[3] = rn_graph_weight(m->g, name[3], RN_DTYPE_F32, RN_SHAPE(DIM, HIDDEN));
    rn_value n = m->normed[layer] = rn_op_rmsnorm(m->g, h, w[0], 1e-5f);
    rn_value gate = rn_op_matmul(m->g, n, w[1], RN_NO_VALUE);
    rn_value up = rn_op_matmul(m->g, n, w[2], RN_NO_VALUE);
    m->gated[layer] = rn_op_gated(m->g, gate, up, RN_ACTIVATION_SILU);
    return rn_op_add(m->g, h, rn_op_matmul(m->g, m->gated[layer], w[3], RN_NO_VALUE));
}

static model make_model(void) {
    model m = {0};
    assert_ok(rn_graph_create(&m.g));
    m.x = rn_graph_input(m.g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, DIM));
    m.target = rn_graph_input(m.g, "target", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, DIM));
    rn_value h = m.x;
    for (int i = 0; i < LAYERS; i++)
        h = add_layer(&m, h, i);
    m.loss = rn_graph_output(m.g, rn_op_mse(m.g, h, m.target), "loss");
    assert_ok(rn_graph_gradient(m.g, m.loss, m.weights, WEIGHTS, m.gradients));
    rn_sgd_attrs attrs = {.rate = rn_graph_scalar(m.g, "rate")};
    for (int i = 0; i < WEIGHTS; i++)
        rn_op_sgd(m.g, m.weights[i], m.gradients[i], RN_NO_VALUE, attrs);
    assert_ok(rn_graph_finish(m.g));
    return m;
}

// ---- running ------------------------------------------------------------------------------------

static void fill(test_run *run, rn_value value, uint32_t salt) {
    float *x = test_run_data(run, value);
    uint64_t n = rn_tensor_elements(&run->values[value]);
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)((i + 1) * 2654435761u % 1009 + salt * 97 % 1009) / 1009 - 1;
}

// Fills what a run is given, whatever it is.
static void run_graph(test_run *run, const rn_graph *graph) {
    test_run_open(run, graph, ROWS);
    run->scalars[0].f64 = 0.01;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        rn_role role = rn_graph_value(graph, v)->role;
        if (role == RN_ROLE_INPUT || role == RN_ROLE_WEIGHT || role == RN_ROLE_STATE)
            fill(run, v, v);
    }
    test_run_all(run);
}

// Every value of the plain graph is in the other one under the same number.
static void expect_same_bits(const rn_graph *plain, const rn_graph *again) {
    test_run a, b;
    run_graph(&a, plain);
    run_graph(&b, again);
    for (rn_value v = 1; v <= rn_graph_value_count(plain); v++)
        assert_memory_equal(test_run_data(&a, v), test_run_data(&b, v),
                            rn_tensor_bytes(&a.values[v]));
    test_run_close(&a);
    test_run_close(&b);
}

static rn_graph *make_cheap(const rn_graph *graph) {
    rn_graph *again = NULL;
    assert_ok(rn_graph_recompute_cheap(graph, &again));
    assert_ok(rn_graph_validate(again));
    return again;
}

// ---- looking ------------------------------------------------------------------------------------

// The clone of the node that made the value, or RN_NO_NODE.
static uint32_t clone_of(const rn_graph *g, rn_value value) {
    uint32_t found = RN_NO_NODE, maker = rn_graph_value(g, value)->producer;
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++) {
        if (rn_graph_node(g, n)->recomputes != maker) continue;
        assert_int_equal(found, RN_NO_NODE); // one serves all
        found = n;
    }
    return found;
}

static uint32_t count_clones(const rn_graph *g) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++)
        count += rn_graph_node(g, n)->recomputes != RN_NO_NODE;
    return count;
}

static bool reads(const rn_node *node, rn_value value) {
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] == value) return true;
    return false;
}

static uint32_t count_readers(const rn_graph *g, rn_value value, rn_phase phase) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++)
        count += rn_graph_node(g, n)->phase == phase && reads(rn_graph_node(g, n), value);
    return count;
}

// ---- tests --------------------------------------------------------------------------------------

static void gated_values_and_norms_are_made_again_and_not_kept(void **state) {
    (void)state;
    model m = make_model();
    rn_graph *again = make_cheap(m.g);
    assert_int_equal(count_clones(again), 2 * LAYERS);
    for (int i = 0; i < LAYERS; i++) {
        rn_value cheap[] = {m.normed[i], m.gated[i]};
        for (int j = 0; j < 2; j++) {
            uint32_t clone = clone_of(again, cheap[j]);
            assert_int_not_equal(clone, RN_NO_NODE);
            rn_value made = rn_graph_node(again, clone)->outputs[0];
            assert_int_equal(count_readers(again, cheap[j], RN_PHASE_BACKWARD), 0);
            assert_int_equal(count_readers(again, made, RN_PHASE_BACKWARD),
                             count_readers(m.g, cheap[j], RN_PHASE_BACKWARD));
            assert_true(reads(rn_graph_node(again, clone + 1), made)); // right before its reader
        }
    }
    expect_same_bits(m.g, again);
    rn_graph_destroy(again);
    rn_graph_destroy(m.g);
}

static void statistics_of_a_norm_come_from_its_clone(void **state) {
    (void)state;
    model m = make_model();
    rn_graph *again = make_cheap(m.g);
    rn_value rstd = rn_graph_output_of(m.g, m.normed[0], 1);
    rn_value made = rn_graph_node(again, clone_of(again, m.normed[0]))->outputs[1];
    assert_int_equal(count_readers(again, rstd, RN_PHASE_BACKWARD), 0);
    assert_int_equal(count_readers(again, made, RN_PHASE_BACKWARD), 1);
    rn_graph_destroy(again);
    rn_graph_destroy(m.g);
}

static void blocks_may_be_repeated_before_or_after(void **state) {
    (void)state;
    model m = make_model();
    rn_graph *cheap = make_cheap(m.g), *blocks = NULL;
    assert_int_equal(rn_graph_block_count(cheap), 3);
    for (uint32_t choice = 0; choice < 8; choice++) {
        bool recompute[3] = {choice & 1, choice & 2, choice & 4};
        assert_ok(rn_graph_recompute(m.g, recompute, &blocks));
        rn_graph *before = make_cheap(blocks), *after = NULL;
        assert_ok(rn_graph_recompute(cheap, recompute, &after));
        assert_ok(rn_graph_validate(after));
        expect_same_bits(m.g, before);
        expect_same_bits(m.g, after);
        rn_graph_destroy(blocks);
        rn_graph_destroy(before);
        rn_graph_destroy(after);
    }
    rn_graph_destroy(cheap);
    rn_graph_destroy(m.g);
}

// In a block that is repeated, norm and products come first, the gradients of the products last.
static void what_a_repeated_block_made_may_be_made_again(void **state) {
    (void)state;
    model m = make_model();
    rn_graph *blocks = NULL;
    assert_ok(rn_graph_recompute(m.g, (bool[]){false, true, false}, &blocks));
    rn_graph *again = make_cheap(blocks);
    rn_value repeated = rn_graph_node(blocks, clone_of(blocks, m.normed[0]))->outputs[0];
    uint32_t clone = clone_of(again, repeated);
    assert_int_not_equal(clone, RN_NO_NODE);
    assert_int_equal(
        count_readers(again, rn_graph_node(again, clone)->outputs[0], RN_PHASE_BACKWARD),
        2); // the gradients of two weights
    rn_graph_destroy(again);
    rn_graph_destroy(blocks);
    rn_graph_destroy(m.g);
}

// What follows is a row of small graphs: x -> ... -> the sum of exp, so that there is a backward
// pass, and one weight for which a gradient is wanted.
typedef struct small {
    rn_graph *g;
    rn_value x, w, dw;
} small;

static small begin_small(void) {
    small s = {0};
    assert_ok(rn_graph_create(&s.g));
    rn_graph_block(s.g, "layer");
    s.x = rn_graph_input(s.g, "x", RN_DTYPE_F32, RN_SHAPE(4, DIM));
    s.w = rn_graph_weight(s.g, "w", RN_DTYPE_F32, RN_SHAPE(DIM, DIM));
    return s;
}

static rn_value product(small *s, rn_value x) {
    return rn_op_matmul(s->g, x, s->w, RN_NO_VALUE);
}

static void end_small(small *s, rn_value y) {
    rn_value loss = rn_op_sum(s->g, rn_op_exp(s->g, y), 3, false);
    assert_ok(rn_graph_gradient(s->g, loss, &s->w, 1, &s->dw));
    assert_ok(rn_graph_finish(s->g));
}

// Returns the number of clones.
static uint32_t check_small(small *s) {
    rn_graph *again = make_cheap(s->g);
    uint32_t clones = count_clones(again);
    expect_same_bits(s->g, again);
    rn_graph_destroy(again);
    rn_graph_destroy(s->g);
    return clones;
}

static void a_value_is_kept_whose_inputs_would_be_kept_for_it_alone(void **state) {
    (void)state;
    small s = begin_small();
    // relu's gradient reads relu's result: the product before it is gone by then.
    end_small(&s, product(&s, rn_op_relu(s.g, product(&s, s.x))));
    assert_int_equal(check_small(&s), 0);
    s = begin_small();
    end_small(&s, product(&s, rn_op_silu(s.g, product(&s, s.x)))); // silu's reads the product
    assert_int_equal(check_small(&s), 1);
}

static void outputs_are_kept(void **state) {
    (void)state;
    small s = begin_small();
    rn_value y = rn_graph_output(s.g, rn_op_silu(s.g, product(&s, s.x)), "y");
    end_small(&s, product(&s, y));
    assert_int_equal(check_small(&s), 0);
}

static void a_view_that_is_read_later_keeps_what_it_shows(void **state) {
    (void)state;
    small s = begin_small();
    rn_value y = rn_op_silu(s.g, product(&s, s.x));
    y = rn_op_reshape(s.g, y, RN_SHAPE(4, DIM)); // the gradient of w reads the view
    end_small(&s, product(&s, y));
    assert_int_equal(check_small(&s), 0);
}

static void what_was_cheap_may_be_made_from_what_was_cheap(void **state) {
    (void)state;
    small s = begin_small();
    rn_value a = rn_op_silu(s.g, product(&s, s.x)), b = rn_op_gelu(s.g, a);
    rn_value c = product(&s, rn_op_silu(s.g, b));
    end_small(&s, product(&s, c));
    rn_graph *again = make_cheap(s.g);
    uint32_t first = clone_of(again, a), second = clone_of(again, b);
    assert_true(first < second && second != RN_NO_NODE);
    assert_true(reads(rn_graph_node(again, second), rn_graph_node(again, first)->outputs[0]));
    assert_int_equal(count_readers(again, a, RN_PHASE_BACKWARD), 0);
    rn_graph_destroy(again);
    assert_int_equal(check_small(&s), 3);
}

static void readers_in_another_block_are_served_too(void **state) {
    (void)state;
    small s = begin_small();
    rn_value y = rn_op_gelu(s.g, product(&s, s.x));
    rn_graph_block(s.g, "head");
    end_small(&s, product(&s, y));
    rn_graph *again = make_cheap(s.g);
    uint32_t clone = clone_of(again, y);
    assert_int_not_equal(clone, RN_NO_NODE);
    assert_int_equal(rn_graph_node(again, clone)->block, 2); // where it is read
    assert_int_equal(count_readers(again, y, RN_PHASE_BACKWARD), 0);
    rn_graph_destroy(again);
    assert_int_equal(check_small(&s), 1);
}

static void what_read_a_state_before_it_changed_is_kept(void **state) {
    (void)state;
    for (int changes = 0; changes < 2; changes++) {
        small s = begin_small();
        rn_value seen = rn_graph_state(s.g, "s", RN_DTYPE_F32, RN_SHAPE(4, DIM), RN_PURPOSE_OTHER);
        rn_value y = rn_op_tanh(s.g, seen);
        rn_value z = product(&s, product(&s, y));
        if (changes) rn_op_accumulate(s.g, seen, s.x);
        end_small(&s, z);
        assert_int_equal(check_small(&s), changes ? 0 : 1);
    }
}

static void a_value_that_is_read_on_at_once_is_not_made_again(void **state) {
    (void)state;
    small s = begin_small();
    rn_value y = rn_op_silu(s.g, product(&s, s.x));
    rn_value loss = rn_op_mse(s.g, y, s.x); // its gradient is the very next node
    assert_ok(rn_graph_gradient(s.g, loss, &s.w, 1, &s.dw));
    assert_int_equal(check_small(&s), 0);
}

static void inference_is_left_alone(void **state) {
    (void)state;
    small s = begin_small();
    rn_graph_output(s.g, rn_op_silu(s.g, product(&s, s.x)), "y");
    assert_ok(rn_graph_finish(s.g));
    assert_int_equal(check_small(&s), 0);
}

// ---- failures -----------------------------------------------------------------------------------

static void a_graph_that_failed_is_not_copied(void **state) {
    (void)state;
    rn_graph *g = NULL, *again = NULL;
    assert_ok(rn_graph_create(&g));
    rn_op_add(g, rn_graph_input(g, "a", RN_DTYPE_F32, RN_SHAPE(2)),
              rn_graph_input(g, "b", RN_DTYPE_F32, RN_SHAPE(3)));
    assert_fails(RN_INVALID, rn_graph_recompute_cheap(g, &again));
    assert_null(again);
    rn_graph_destroy(g);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    model m = make_model();
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_graph *again = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_graph_recompute_cheap(m.g, &again);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        rn_graph_destroy(again);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        assert_true(rn_ledger_total(RN_DEVICE_HOST).now_bytes == before);
        if (!fired) break;
        assert_true(n < 1000);
    }
    rn_graph_destroy(m.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gated_values_and_norms_are_made_again_and_not_kept),
        cmocka_unit_test(statistics_of_a_norm_come_from_its_clone),
        cmocka_unit_test(blocks_may_be_repeated_before_or_after),
        cmocka_unit_test(what_a_repeated_block_made_may_be_made_again),
        cmocka_unit_test(a_value_is_kept_whose_inputs_would_be_kept_for_it_alone),
        cmocka_unit_test(outputs_are_kept),
        cmocka_unit_test(a_view_that_is_read_later_keeps_what_it_shows),
        cmocka_unit_test(what_was_cheap_may_be_made_from_what_was_cheap),
        cmocka_unit_test(readers_in_another_block_are_served_too),
        cmocka_unit_test(what_read_a_state_before_it_changed_is_kept),
        cmocka_unit_test(a_value_that_is_read_on_at_once_is_not_made_again),
        cmocka_unit_test(inference_is_left_alone),
        cmocka_unit_test(a_graph_that_failed_is_not_copied),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
