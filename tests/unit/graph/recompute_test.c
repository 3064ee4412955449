// recompute_test.c — a graph with repeated blocks is another order of the same sums: the same bits,
// and less to keep.
#include "support.h"

#include "base/fault.h"
#include "evaluate.h"
#include "graph/validate.h"

#include <ration/memory.h>

enum { LAYERS = 3, DIM = 6, HIDDEN = 10, ROWS = 5, WEIGHTS = 3 * LAYERS, BLOCKS = LAYERS + 2 };

// Blocks: "" (0), the layers (1 .. 3), "head". Each layer is
// h + dropout(silu(norm(h) w1) w2), and its weights are updated by AdamW.
typedef struct model {
    rn_graph *g;
    rn_value x, target, weights[WEIGHTS], gradients[WEIGHTS], loss;
} model;

static rn_value add_layer(model *m, rn_value h, int layer, uint32_t seed) {
    static const char *const blocks[] = {"layer 0", "layer 1", "layer 2"};
    char name[3][16];
    for (int i = 0; i < 3; i++)
        snprintf(name[i], sizeof name[i], "w.%d.%d", layer, i);
    rn_value *w = &m->weights[3 * layer];
    rn_graph_block(m->g, blocks[layer]);
    w[0] = rn_graph_weight(m->g, name[0], RN_DTYPE_F32, RN_SHAPE(DIM));
    w[1] = rn_graph_weight(m->g, name[1], RN_DTYPE_F32, RN_SHAPE(HIDDEN, DIM));
    w[2] = rn_graph_weight(m->g, name[2], RN_DTYPE_F32, RN_SHAPE(DIM, HIDDEN));
    rn_value y = rn_op_matmul(m->g, rn_op_rmsnorm(m->g, h, w[0], 1e-5f), w[1], RN_NO_VALUE);
    y = rn_op_matmul(m->g, rn_op_silu(m->g, y), w[2], RN_NO_VALUE);
    rn_dropout_attrs drop = {.seed = seed, .stream = (uint32_t)layer, .probability = 0.3f};
    return rn_op_add(m->g, h, rn_op_dropout(m->g, y, drop));
}

static void add_updates(model *m) {
    rn_adamw_attrs attrs = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8f, .weight_decay = 0.1f};
    attrs.rate = rn_graph_scalar(m->g, "rate");
    attrs.step = rn_graph_scalar(m->g, "step");
    for (int i = 0; i < WEIGHTS; i++) {
        rn_shape shape = rn_graph_value(m->g, m->weights[i])->shape;
        char name[2][16];
        snprintf(name[0], sizeof name[0], "m.%d", i);
        snprintf(name[1], sizeof name[1], "v.%d", i);
        rn_value first = rn_graph_state(m->g, name[0], RN_DTYPE_F32, shape, RN_PURPOSE_OPTIMIZER);
        rn_value second = rn_graph_state(m->g, name[1], RN_DTYPE_F32, shape, RN_PURPOSE_OPTIMIZER);
        rn_op_adamw(m->g, m->weights[i], m->gradients[i], first, second, attrs);
    }
}

static rn_status try_model(model *m) {
    *m = (model){0};
    RN_TRY(rn_graph_create(&m->g));
    uint32_t seed = rn_graph_scalar(m->g, "seed");
    m->x = rn_graph_input(m->g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, DIM));
    m->target = rn_graph_input(m->g, "target", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, DIM));
    rn_value h = m->x;
    for (int i = 0; i < LAYERS; i++)
        h = add_layer(m, h, i, seed);
    rn_graph_block(m->g, "head");
    m->loss = rn_graph_output(m->g, rn_op_mse(m->g, h, m->target), "loss");
    RN_TRY(rn_graph_finish(m->g));
    RN_TRY(rn_graph_gradient(m->g, m->loss, m->weights, WEIGHTS, m->gradients));
    add_updates(m);
    return rn_graph_finish(m->g);
}

static model make_model(void) {
    model m;
    assert_ok(try_model(&m));
    return m;
}

// ---- running ------------------------------------------------------------------------------------

static void fill(test_run *run, rn_value value, uint32_t salt) {
    float *x = test_run_data(run, value);
    uint64_t n = rn_tensor_elements(&run->values[value]);
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)((i + 1) * 2654435761u % 1009 + salt * 97 % 1009) / 1009 - 1;
}

static void open_model(const model *m, const rn_graph *graph, test_run *run) {
    test_run_open(run, graph, ROWS);
    run->scalars[rn_graph_scalar((rn_graph *)m->g, "seed")].f64 = 42;
    run->scalars[rn_graph_scalar((rn_graph *)m->g, "rate")].f64 = 0.01;
    run->scalars[rn_graph_scalar((rn_graph *)m->g, "step")].f64 = 1;
    fill(run, m->x, 1);
    fill(run, m->target, 2);
    for (uint32_t i = 0; i < WEIGHTS; i++)
        fill(run, m->weights[i], 3 + i);
    test_run_all(run);
}

static void expect_equal(const test_run *a, const test_run *b, rn_value value) {
    assert_memory_equal(test_run_data(a, value), test_run_data(b, value),
                        rn_tensor_bytes(&a->values[value]));
}

static void expect_same_step(const model *m, const rn_graph *again) {
    test_run plain, repeated;
    open_model(m, m->g, &plain);
    open_model(m, again, &repeated);
    expect_equal(&plain, &repeated, m->loss);
    for (int i = 0; i < WEIGHTS; i++) {
        expect_equal(&plain, &repeated, m->gradients[i]);
        expect_equal(&plain, &repeated, m->weights[i]); // as AdamW left them
    }
    test_run_close(&plain);
    test_run_close(&repeated);
}

// ---- looking ------------------------------------------------------------------------------------

static uint32_t count_repeated(const rn_graph *g) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++)
        count += rn_graph_node(g, n)->recomputes != RN_NO_NODE;
    return count;
}

static bool is_forward_result(const rn_graph *g, rn_value value) {
    if (value == RN_NO_VALUE) return false;
    const rn_value_info *info = rn_graph_value(g, value);
    return info->role == RN_ROLE_INTERMEDIATE &&
           rn_graph_node(g, info->producer)->phase == RN_PHASE_FORWARD;
}

// Bytes of the forward results that the backward pass reads.
static uint64_t kept_bytes(const rn_graph *g) {
    uint64_t bytes = 0;
    for (rn_value v = 1; v <= rn_graph_value_count(g); v++) {
        bool read = false;
        for (uint32_t n = 0; n < rn_graph_node_count(g); n++) {
            const rn_node *node = rn_graph_node(g, n);
            for (uint32_t i = 0; node->phase == RN_PHASE_BACKWARD && i < node->input_count; i++)
                read = read || node->inputs[i] == v;
        }
        if (read && is_forward_result(g, v))
            bytes += 4 * rn_shape_elements(rn_graph_value(g, v)->shape, ROWS);
    }
    return bytes;
}

// ---- tests --------------------------------------------------------------------------------------

static void every_choice_of_blocks_gives_the_same_bits(void **state) {
    (void)state;
    model m = make_model();
    assert_int_equal(rn_graph_block_count(m.g), BLOCKS);
    for (uint32_t choice = 0; choice < 1u << BLOCKS; choice++) {
        bool recompute[BLOCKS];
        rn_graph *again = NULL;
        for (uint32_t b = 0; b < BLOCKS; b++)
            recompute[b] = choice >> b & 1;
        assert_ok(rn_graph_recompute(m.g, recompute, &again));
        assert_ok(rn_graph_validate(again));
        expect_same_step(&m, again);
        rn_graph_destroy(again);
    }
    rn_graph_destroy(m.g);
}

static void repeated_nodes_stand_before_their_blocks_first_backward_node(void **state) {
    (void)state;
    model m = make_model();
    bool recompute[BLOCKS] = {false, false, true, false, false}; // "layer 1"
    rn_graph *again = NULL;
    assert_ok(rn_graph_recompute(m.g, recompute, &again));
    // rmsnorm, matmul, silu; the second product, dropout and add are read by nobody.
    assert_int_equal(count_repeated(again), 3);
    uint32_t first = 0;
    while (rn_graph_node(again, first)->recomputes == RN_NO_NODE)
        first++;
    for (uint32_t n = first; n < first + 3; n++) {
        const rn_node *node = rn_graph_node(again, n);
        const rn_node *original = rn_graph_node(again, node->recomputes);
        assert_int_equal(original->op, node->op);
        assert_int_equal(original->phase, RN_PHASE_FORWARD);
        assert_int_equal(node->phase, RN_PHASE_BACKWARD);
        assert_int_equal(node->block, 2);
    }
    for (uint32_t n = 0; n < first; n++)
        assert_false(rn_graph_node(again, n)->block == 2 &&
                     rn_graph_node(again, n)->phase == RN_PHASE_BACKWARD);
    assert_int_equal(rn_graph_node(again, first + 3)->block, 2);
    rn_graph_destroy(again);
    rn_graph_destroy(m.g);
}

static void only_what_enters_a_block_is_kept(void **state) {
    (void)state;
    model m = make_model();
    bool all[BLOCKS] = {true, true, true, true, true};
    rn_graph *again = NULL;
    assert_ok(rn_graph_recompute(m.g, all, &again));
    for (uint32_t n = 0; n < rn_graph_node_count(again); n++) {
        const rn_node *node = rn_graph_node(again, n);
        for (uint32_t i = 0; node->phase == RN_PHASE_BACKWARD && i < node->input_count; i++)
            if (is_forward_result(again, node->inputs[i]))
                assert_int_not_equal(rn_graph_value(again, node->inputs[i])->block, node->block);
    }
    // The three results h between the blocks; plainly, also norm and its statistics, product, silu.
    assert_int_equal(kept_bytes(again), 3 * 4 * ROWS * DIM);
    assert_true(kept_bytes(m.g) > 3 * kept_bytes(again));
    rn_graph_destroy(again);
    rn_graph_destroy(m.g);
}

static void values_keep_their_numbers_and_names(void **state) {
    (void)state;
    model m = make_model();
    bool all[BLOCKS] = {true, true, true, true, true}, none[BLOCKS] = {false};
    rn_graph *again = NULL, *copy = NULL;
    assert_ok(rn_graph_recompute(m.g, all, &again));
    assert_ok(rn_graph_recompute(m.g, none, &copy));
    for (rn_value v = 1; v <= rn_graph_value_count(m.g); v++) {
        const rn_value_info *a = rn_graph_value(m.g, v), *b = rn_graph_value(again, v);
        assert_string_equal(a->name, b->name);
        assert_true(a->role == b->role && a->dtype == b->dtype && a->purpose == b->purpose);
        assert_true(rn_shape_equal(a->shape, b->shape));
    }
    assert_int_equal(rn_graph_find(again, RN_ROLE_WEIGHT, "w.1.1"), m.weights[4]);
    assert_int_equal(rn_graph_find(again, RN_ROLE_OUTPUT, "loss"), m.loss);
    assert_int_equal(rn_graph_scalar_count(again), rn_graph_scalar_count(m.g));
    assert_true(rn_graph_has_rows(again));
    assert_int_equal(rn_graph_node_count(copy), rn_graph_node_count(m.g));
    assert_int_equal(rn_graph_value_count(copy), rn_graph_value_count(m.g));
    assert_int_equal(count_repeated(copy), 0);
    rn_graph_destroy(m.g); // the copies do not lean on it
    assert_ok(rn_graph_validate(again));
    rn_graph_destroy(again);
    rn_graph_destroy(copy);
}

static void what_is_repeated_may_be_repeated_on(void **state) {
    (void)state;
    model m = make_model();
    bool first[BLOCKS] = {false, true}, second[BLOCKS] = {false, false, true};
    rn_graph *once = NULL, *twice = NULL;
    assert_ok(rn_graph_recompute(m.g, first, &once));
    assert_ok(rn_graph_recompute(once, second, &twice));
    assert_int_equal(count_repeated(twice), 2 * count_repeated(once));
    for (uint32_t n = 0; n < rn_graph_node_count(twice); n++) {
        const rn_node *node = rn_graph_node(twice, n);
        if (node->recomputes != RN_NO_NODE)
            assert_int_equal(rn_graph_node(twice, node->recomputes)->op, node->op);
    }
    assert_ok(rn_graph_validate(twice));
    expect_same_step(&m, twice);
    rn_graph_destroy(once);
    rn_graph_destroy(twice);
    rn_graph_destroy(m.g);
}

// ---- states and outputs -------------------------------------------------------------------------

typedef struct convnet {
    rn_graph *g;
    rn_value x, weight, bias, mean, var, dx, normed;
} convnet;

// silu -> batchnorm in training -> silu -> sum, in one block.
static convnet make_convnet(void) {
    convnet c = {0};
    assert_ok(rn_graph_create(&c.g));
    rn_graph_block(c.g, "layer");
    c.x = rn_graph_input(c.g, "x", RN_DTYPE_F32, RN_SHAPE(4, 3));
    c.weight = rn_graph_weight(c.g, "weight", RN_DTYPE_F32, RN_SHAPE(3));
    c.bias = rn_graph_weight(c.g, "bias", RN_DTYPE_F32, RN_SHAPE(3));
    c.mean = rn_graph_state(c.g, "mean", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_OTHER);
    c.var = rn_graph_state(c.g, "var", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_OTHER);
    rn_batchnorm_attrs attrs = {.eps = 1e-5f, .momentum = 0.1f, .training = true};
    c.normed = rn_op_batchnorm(c.g, rn_op_silu(c.g, c.x), c.weight, c.bias, c.mean, c.var, attrs);
    rn_value loss = rn_op_sum(c.g, rn_op_silu(c.g, c.normed), 3, false);
    assert_ok(rn_graph_gradient(c.g, loss, &c.x, 1, &c.dx));
    assert_ok(rn_graph_finish(c.g));
    return c;
}

static void open_convnet(const convnet *c, const rn_graph *graph, test_run *run) {
    test_run_open(run, graph, 0);
    fill(run, c->x, 1);
    fill(run, c->weight, 2);
    fill(run, c->bias, 3);
    test_run_all(run);
}

static void running_statistics_move_once(void **state) {
    (void)state;
    convnet c = make_convnet();
    bool all[2] = {true, true};
    rn_graph *again = NULL;
    assert_ok(rn_graph_recompute(c.g, all, &again));
    assert_ok(rn_graph_validate(again));
    uint32_t norms = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(again); n++)
        norms += rn_graph_node(again, n)->op == RN_OP_BATCHNORM;
    assert_int_equal(norms, 1);
    assert_int_equal(count_repeated(again), 1); // the silu before it; that after it reads its y
    test_run plain, repeated;
    open_convnet(&c, c.g, &plain);
    open_convnet(&c, again, &repeated);
    expect_equal(&plain, &repeated, c.dx);
    expect_equal(&plain, &repeated, c.mean);
    expect_equal(&plain, &repeated, c.var);
    test_run_close(&plain);
    test_run_close(&repeated);
    rn_graph_destroy(again);
    rn_graph_destroy(c.g);
}

static void what_read_a_state_before_it_changed_is_kept(void **state) {
    (void)state;
    rn_graph *g = NULL, *again = NULL;
    assert_ok(rn_graph_create(&g));
    rn_graph_block(g, "layer");
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(3)), dx;
    rn_value s = rn_graph_state(g, "s", RN_DTYPE_F32, RN_SHAPE(1, 3), RN_PURPOSE_OTHER);
    rn_value seen = rn_op_exp(g, rn_op_reshape(g, s, RN_SHAPE(3))); // through a view
    rn_value y = rn_op_mul(g, x, rn_op_silu(g, seen));
    rn_op_accumulate(g, s, rn_op_reshape(g, x, RN_SHAPE(1, 3)));
    rn_value loss = rn_op_sum(g, rn_op_exp(g, y), 1, false);
    assert_ok(rn_graph_gradient(g, loss, &x, 1, &dx));
    bool all[2] = {true, true};
    assert_ok(rn_graph_recompute(g, all, &again));
    assert_ok(rn_graph_validate(again));
    assert_true(count_repeated(again) > 1);
    for (uint32_t n = 0; n < rn_graph_node_count(again);
         n++) // silu is made again, from what is kept
        if (rn_graph_node(again, n)->op == RN_OP_SILU)
            assert_int_equal(rn_graph_node(again, n)->inputs[0], seen);
    test_run plain, repeated;
    test_run_open(&plain, g, 0);
    test_run_open(&repeated, again, 0);
    fill(&plain, x, 1);
    fill(&repeated, x, 1);
    test_run_all(&plain);
    test_run_all(&repeated);
    expect_equal(&plain, &repeated, dx);
    expect_equal(&plain, &repeated, s);
    test_run_close(&plain);
    test_run_close(&repeated);
    rn_graph_destroy(again);
    rn_graph_destroy(g);
}

static void outputs_are_not_made_twice(void **state) {
    (void)state;
    rn_graph *g = NULL, *again = NULL;
    assert_ok(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(3)), dx;
    rn_value y = rn_graph_output(g, rn_op_exp(g, x), "y"); // exp's gradient reads y
    assert_ok(rn_graph_gradient(g, rn_op_sum(g, y, 1, false), &x, 1, &dx));
    assert_ok(rn_graph_recompute(g, (bool[]){true}, &again));
    assert_int_equal(count_repeated(again), 0);
    rn_graph_destroy(again);
    rn_graph_destroy(g);
}

// ---- failures -----------------------------------------------------------------------------------

static void a_graph_that_failed_is_not_copied(void **state) {
    (void)state;
    rn_graph *g = NULL, *again = NULL;
    assert_ok(rn_graph_create(&g));
    rn_op_add(g, rn_graph_input(g, "a", RN_DTYPE_F32, RN_SHAPE(2)),
              rn_graph_input(g, "b", RN_DTYPE_F32, RN_SHAPE(3)));
    assert_fails(RN_INVALID, rn_graph_recompute(g, (bool[]){true}, &again));
    assert_null(again);
    rn_graph_destroy(g);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    model m = make_model();
    bool all[BLOCKS] = {true, true, true, true, true};
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_graph *again = NULL;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_graph_recompute(m.g, all, &again);
        if (s == RN_OK) s = rn_graph_validate(again);
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
        cmocka_unit_test(every_choice_of_blocks_gives_the_same_bits),
        cmocka_unit_test(repeated_nodes_stand_before_their_blocks_first_backward_node),
        cmocka_unit_test(only_what_enters_a_block_is_kept),
        cmocka_unit_test(values_keep_their_numbers_and_names),
        cmocka_unit_test(what_is_repeated_may_be_repeated_on),
        cmocka_unit_test(running_statistics_move_once),
        cmocka_unit_test(what_read_a_state_before_it_changed_is_kept),
        cmocka_unit_test(outputs_are_not_made_twice),
        cmocka_unit_test(a_graph_that_failed_is_not_copied),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
