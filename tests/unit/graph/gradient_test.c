// gradient_test.c — what the backward pass holds and what it leaves out. Whether each rule is right
// is conform/slopes' question.
#include "support.h"

#include "base/fault.h"
#include "evaluate.h"
#include "graph/validate.h"

#include <ration/memory.h>

static rn_graph *make(void) {
    rn_graph *g = NULL;
    assert_ok(rn_graph_create(&g));
    return g;
}

static rn_value x_of(rn_graph *g, uint64_t n) {
    return rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(n));
}

static rn_value sum(rn_graph *g, rn_value x) {
    return rn_op_sum(g, x, (1u << rn_graph_value(g, x)->shape.rank) - 1, false);
}

static void expect_story(rn_status expected, rn_status is, const char *text) {
    assert_int_equal(expected, is);
    if (!strstr(rn_last_error()->message, text))
        fail_msg("'%s' does not say '%s'", rn_last_error()->message, text);
}

static uint32_t count_nodes(const rn_graph *g, rn_op op, rn_phase phase) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++)
        count += rn_graph_node(g, n)->op == op && rn_graph_node(g, n)->phase == phase;
    return count;
}

// Whether a backward node reads the value.
static bool is_kept(const rn_graph *g, rn_value value) {
    for (uint32_t n = 0; n < rn_graph_node_count(g); n++) {
        const rn_node *node = rn_graph_node(g, n);
        for (uint32_t i = 0; node->phase == RN_PHASE_BACKWARD && i < node->input_count; i++)
            if (node->inputs[i] == value) return true;
    }
    return false;
}

// ---- numbers ------------------------------------------------------------------------------------

static void the_gradient_of_a_sum_of_squares_is_twice_x(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 3), dx = RN_NO_VALUE;
    assert_ok(rn_graph_gradient(g, sum(g, rn_op_mul(g, x, x)), &x, 1, &dx));
    assert_ok(rn_graph_finish(g));
    assert_ok(rn_graph_validate(g));
    test_run run;
    test_run_open(&run, g, 0);
    memcpy(test_run_data(&run, x), (float[]){1, -2, 3}, 12);
    test_run_all(&run);
    assert_memory_equal(test_run_data(&run, dx), ((float[]){2, -4, 6}), 12);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void a_diamond_adds_both_of_its_sides(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 2), dx = RN_NO_VALUE;
    rn_value h = rn_op_scale(g, x, 2, 0);
    rn_value y = rn_op_mul(g, rn_op_scale(g, h, 3, 0), rn_op_neg(g, h)); // -12 x^2
    assert_ok(rn_graph_gradient(g, sum(g, y), &x, 1, &dx));
    assert_int_equal(count_nodes(g, RN_OP_ADD, RN_PHASE_BACKWARD), 1);
    test_run run;
    test_run_open(&run, g, 0);
    memcpy(test_run_data(&run, x), (float[]){1, -2}, 8);
    test_run_all(&run);
    assert_memory_equal(test_run_data(&run, dx), ((float[]){-24, 48}), 8);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void a_value_used_thrice_is_summed_from_the_last_use_to_the_first(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 1), dx = RN_NO_VALUE, factors[3];
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++)
        factors[i] = rn_graph_input(g, names[i], RN_DTYPE_F32, RN_SHAPE(1));
    rn_value a = rn_op_mul(g, x, factors[0]), b = rn_op_mul(g, x, factors[1]);
    rn_value c = rn_op_mul(g, x, factors[2]);
    assert_ok(rn_graph_gradient(g, sum(g, rn_op_add(g, rn_op_add(g, b, c), a)), &x, 1, &dx));
    test_run run;
    test_run_open(&run, g, 0);
    // In f32, (1 + 1e8) + -1e8 = 0, while 1 + (1e8 + -1e8) = 1.
    float numbers[] = {-1e8f, 1e8f, 1};
    for (int i = 0; i < 3; i++)
        memcpy(test_run_data(&run, factors[i]), &numbers[i], 4);
    memcpy(test_run_data(&run, x), (float[]){1}, 4);
    test_run_all(&run);
    assert_true(*(float *)test_run_data(&run, dx) == 0);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void a_value_used_twice_by_one_node_is_counted_twice(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 1), dx = RN_NO_VALUE;
    assert_ok(rn_graph_gradient(g, sum(g, rn_op_add(g, x, x)), &x, 1, &dx));
    test_run run;
    test_run_open(&run, g, 0);
    memcpy(test_run_data(&run, x), (float[]){5}, 4);
    test_run_all(&run);
    assert_true(*(float *)test_run_data(&run, dx) == 2);
    test_run_close(&run);
    rn_graph_destroy(g);
}

static void the_loss_itself_has_gradient_one(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 3), loss = sum(g, x), wanted[] = {loss, x}, d[2];
    assert_ok(rn_graph_gradient(g, loss, wanted, 2, d));
    const rn_value_info *info = rn_graph_value(g, d[0]);
    assert_int_equal(info->role, RN_ROLE_CONSTANT);
    assert_true(*(const float *)info->constant == 1);
    assert_int_not_equal(d[1], RN_NO_VALUE);
    rn_graph_destroy(g);
}

// ---- what is left out ---------------------------------------------------------------------------

// x -> w1 -> relu -> w2 -> relu -> w3 -> loss
typedef struct mlp {
    rn_graph *g;
    rn_value x, w[3], product[3], hidden[3], loss;
} mlp;

static mlp make_mlp(void) {
    static const char *const names[] = {"w1", "w2", "w3"}, *const blocks[] = {"one", "two",
                                                                              "three"};
    mlp m = {.g = make()};
    m.x = rn_graph_input(m.g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 4));
    for (int i = 0; i < 3; i++) {
        rn_graph_block(m.g, blocks[i]);
        m.w[i] = rn_graph_weight(m.g, names[i], RN_DTYPE_F32, RN_SHAPE(5 + i, 4 + i));
        m.product[i] = rn_op_matmul(m.g, i ? m.hidden[i - 1] : m.x, m.w[i], RN_NO_VALUE);
        m.hidden[i] = i < 2 ? rn_op_silu(m.g, m.product[i]) : m.product[i];
    }
    m.loss = sum(m.g, m.hidden[2]);
    return m;
}

static void frozen_weights_get_no_gradient_and_nothing_is_kept_for_them(void **state) {
    (void)state;
    mlp m = make_mlp();
    rn_value dw = RN_NO_VALUE;
    assert_ok(rn_graph_gradient(m.g, m.loss, &m.w[1], 1, &dw));
    assert_true(rn_shape_equal(rn_graph_value(m.g, dw)->shape, RN_SHAPE(6, 5)));
    assert_int_equal(rn_graph_value(m.g, dw)->purpose, RN_PURPOSE_GRADIENTS);
    assert_true(is_kept(m.g, m.hidden[0]));   // for the gradient of w2
    assert_true(is_kept(m.g, m.product[1]));  // for that of silu
    assert_true(is_kept(m.g, m.w[2]));        // on the way down
    assert_false(is_kept(m.g, m.hidden[1]));  // only w3 would need it
    assert_false(is_kept(m.g, m.product[0])); // below
    assert_false(is_kept(m.g, m.x));
    assert_false(is_kept(m.g, m.w[0]));
    assert_false(is_kept(m.g, m.w[1])); // only x would need it
    for (uint32_t n = 0; n < rn_graph_node_count(m.g); n++)
        if (rn_graph_node(m.g, n)->phase == RN_PHASE_BACKWARD)
            assert_string_not_equal(rn_graph_block_name(m.g, rn_graph_node(m.g, n)->block), "one");
    rn_graph_destroy(m.g);
}

static void low_rank_adapters_pass_through_a_frozen_base(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(3, 64));
    rn_value base = rn_graph_weight(g, "base", RN_DTYPE_Q8_0, RN_SHAPE(32, 64));
    rn_value a = rn_graph_weight(g, "a", RN_DTYPE_F32, RN_SHAPE(2, 64));
    rn_value b = rn_graph_weight(g, "b", RN_DTYPE_F32, RN_SHAPE(32, 2));
    rn_value low = rn_op_matmul(g, x, a, RN_NO_VALUE);
    rn_value y =
        rn_op_add(g, rn_op_matmul(g, x, base, RN_NO_VALUE), rn_op_matmul(g, low, b, RN_NO_VALUE));
    rn_value wanted[] = {a, b}, d[2];
    assert_ok(rn_graph_gradient(g, sum(g, y), wanted, 2, d));
    assert_true(is_kept(g, x) && is_kept(g, low) && is_kept(g, b));
    assert_false(is_kept(g, base)); // nothing that is wanted lies below it
    rn_graph_destroy(g);
}

static void what_does_not_reach_the_loss_is_left_alone(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 3), other = rn_graph_input(g, "other", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value side = rn_op_exp(g, x), loss = sum(g, rn_op_scale(g, x, 2, 0));
    rn_op_exp(g, other);
    rn_value wanted[] = {other, x}, d[2];
    assert_ok(rn_graph_gradient(g, loss, wanted, 2, d));
    assert_int_equal(d[0], RN_NO_VALUE);
    assert_int_not_equal(d[1], RN_NO_VALUE);
    assert_false(is_kept(g, side));
    rn_graph_destroy(g);
}

static void where_nothing_wanted_matters_nothing_is_added(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 3), other = rn_graph_input(g, "other", RN_DTYPE_F32, RN_SHAPE(3)), d = 1;
    rn_value loss = sum(g, x);
    uint32_t nodes = rn_graph_node_count(g), values = rn_graph_value_count(g);
    assert_ok(rn_graph_gradient(g, loss, &other, 1, &d));
    assert_int_equal(d, RN_NO_VALUE);
    assert_int_equal(rn_graph_node_count(g), nodes);
    assert_int_equal(rn_graph_value_count(g), values);
    rn_graph_destroy(g);
}

static void below_a_wanted_result_nothing_is_asked(void **state) {
    (void)state;
    mlp m = make_mlp();
    rn_value d = RN_NO_VALUE;
    assert_ok(rn_graph_gradient(m.g, m.loss, &m.hidden[1], 1, &d));
    assert_true(rn_shape_equal(rn_graph_value(m.g, d)->shape, RN_SHAPE(RN_ROWS, 6)));
    for (uint32_t n = 0; n < rn_graph_node_count(m.g); n++)
        if (rn_graph_node(m.g, n)->phase == RN_PHASE_BACKWARD)
            assert_string_equal(rn_graph_block_name(m.g, rn_graph_node(m.g, n)->block), "three");
    rn_graph_destroy(m.g);
}

static void nothing_flows_through_whole_numbers(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(3, 7));
    rn_value table = rn_graph_weight(g, "table", RN_DTYPE_F32, RN_SHAPE(7, 2));
    rn_value y = rn_op_embedding(g, table, rn_op_argmax(g, x)), wanted[] = {x, table}, d[2];
    assert_ok(rn_graph_gradient(g, sum(g, y), wanted, 2, d));
    assert_int_equal(d[0], RN_NO_VALUE);
    assert_int_not_equal(d[1], RN_NO_VALUE);
    rn_graph_destroy(g);
}

// ---- places -------------------------------------------------------------------------------------

static void backward_nodes_are_in_the_blocks_of_their_forward_nodes(void **state) {
    (void)state;
    mlp m = make_mlp();
    rn_value d[3];
    rn_graph_block(m.g, "after");
    uint32_t forward = rn_graph_node_count(m.g);
    assert_ok(rn_graph_gradient(m.g, m.loss, m.w, 3, d));
    for (uint32_t n = 0; n < rn_graph_node_count(m.g); n++)
        assert_int_equal(rn_graph_node(m.g, n)->phase,
                         n < forward ? RN_PHASE_FORWARD : RN_PHASE_BACKWARD);
    for (int i = 0; i < 3; i++) {
        const rn_value_info *dw = rn_graph_value(m.g, d[i]);
        assert_int_equal(dw->block, rn_graph_value(m.g, m.product[i])->block);
        assert_int_equal(rn_graph_node(m.g, dw->producer)->block, dw->block);
    }
    // What comes after is the update, where the caller was.
    rn_value more = rn_op_neg(m.g, d[0]);
    const rn_node *node = rn_graph_node(m.g, rn_graph_value(m.g, more)->producer);
    assert_int_equal(node->phase, RN_PHASE_UPDATE);
    assert_string_equal(rn_graph_block_name(m.g, node->block), "after");
    assert_ok(rn_graph_finish(m.g));
    assert_ok(rn_graph_validate(m.g));
    rn_graph_destroy(m.g);
}

static void a_second_loss_may_follow(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 3), one = sum(g, x), two = sum(g, rn_op_exp(g, x)), d[3];
    assert_ok(rn_graph_gradient(g, one, &x, 1, &d[0]));
    assert_ok(rn_graph_gradient(g, two, &x, 1, &d[1]));
    assert_ok(rn_graph_gradient(g, two, &x, 1, &d[2]));
    assert_int_not_equal(d[0], d[1]);
    assert_ok(rn_graph_finish(g));
    assert_ok(rn_graph_validate(g));
    rn_graph_destroy(g);
}

// ---- refusals -----------------------------------------------------------------------------------

static void a_loss_must_be_one_number(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 3), d = 1;
    expect_story(RN_INVALID, rn_graph_gradient(g, rn_op_exp(g, x), &x, 1, &d),
                 "not one f32 number");
    assert_int_equal(d, RN_NO_VALUE);
    expect_story(RN_INVALID, rn_graph_finish(g), "not one f32 number"); // and is remembered
    rn_graph_destroy(g);
    g = make();
    x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS));
    expect_story(RN_INVALID, rn_graph_gradient(g, rn_op_exp(g, x), &x, 1, &d), "(rows) f32");
    rn_graph_destroy(g);
    g = make();
    x = x_of(g, 3);
    expect_story(RN_INVALID, rn_graph_gradient(g, RN_NO_VALUE, &x, 1, &d), "the loss is no value");
    rn_graph_destroy(g);
}

static void what_has_no_gradient_cannot_be_wanted(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_Q4_0, RN_SHAPE(2, 32)), d;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(1, 32));
    rn_value loss = sum(g, rn_op_matmul(g, x, w, RN_NO_VALUE));
    expect_story(RN_INVALID, rn_graph_gradient(g, loss, &w, 1, &d), "weight 'w' is q4_0");
    rn_graph_destroy(g);
    g = make();
    x = x_of(g, 3);
    rn_value far = 1000;
    expect_story(RN_INVALID, rn_graph_gradient(g, sum(g, x), &far, 1, &d), "wanted value 0");
    rn_graph_destroy(g);
}

static void an_op_without_a_gradient_is_named(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_graph_block(g, "deep");
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2, 32)), d;
    rn_value q = rn_op_dequantize(g, rn_op_quantize(g, x, RN_DTYPE_Q8_0));
    expect_story(RN_UNSUPPORTED, rn_graph_gradient(g, sum(g, q), &x, 1, &d), "deep/dequantize.1");
    rn_graph_destroy(g);
}

static void a_gradient_that_a_rule_cannot_give_is_named(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_shape shape = RN_SHAPE(1, 2, 1, 4);
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, shape), d;
    rn_value mask = rn_graph_input(g, "mask", RN_DTYPE_F32, RN_SHAPE(2, 2));
    rn_value y = rn_op_attention(g, x, x, x, mask, (rn_attention_attrs){0});
    expect_story(RN_UNSUPPORTED, rn_graph_gradient(g, sum(g, y), &mask, 1, &d), "attention.0");
    rn_graph_destroy(g);
}

static void a_gradient_that_a_rule_leaves_out_is_no_zero(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 3)), c[4], d;
    static const char *const names[] = {"weight", "bias", "mean", "variance"};
    for (int i = 0; i < 4; i++)
        c[i] = rn_graph_weight(g, names[i], RN_DTYPE_F32, RN_SHAPE(3));
    rn_value y = rn_op_batchnorm(g, x, c[0], c[1], c[2], c[3], (rn_batchnorm_attrs){.eps = 1e-5f});
    expect_story(RN_UNSUPPORTED, rn_graph_gradient(g, sum(g, y), &c[2], 1, &d),
                 "batchnorm.0 gives no gradient for its input 3, 'mean'");
    rn_graph_destroy(g);
}

static void a_state_changed_on_the_way_is_an_error_that_names_the_node(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value total = rn_graph_state(g, "total", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_OTHER), d;
    rn_value x = x_of(g, 3), changed = rn_op_accumulate(g, total, rn_op_exp(g, x));
    expect_story(RN_UNSUPPORTED, rn_graph_gradient(g, sum(g, changed), &x, 1, &d),
                 "accumulate.1 changes");
    rn_graph_destroy(g);
}

static void running_statistics_are_no_obstacle(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 3)), d;
    rn_value weight = rn_graph_weight(g, "weight", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value bias = rn_graph_weight(g, "bias", RN_DTYPE_F32, RN_SHAPE(3));
    rn_value mean = rn_graph_state(g, "mean", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_OTHER);
    rn_value var = rn_graph_state(g, "var", RN_DTYPE_F32, RN_SHAPE(3), RN_PURPOSE_OTHER);
    rn_batchnorm_attrs attrs = {.eps = 1e-5f, .momentum = 0.1f, .training = true};
    rn_value y = rn_op_batchnorm(g, x, weight, bias, mean, var, attrs);
    assert_ok(rn_graph_gradient(g, sum(g, y), &x, 1, &d));
    assert_int_not_equal(d, RN_NO_VALUE);
    assert_ok(rn_graph_validate(g));
    rn_graph_destroy(g);
}

static void a_weight_changed_before_its_gradient_is_taken_is_an_error(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(3)), d;
    rn_value x = x_of(g, 3), loss = sum(g, rn_op_mul(g, x, w));
    rn_op_accumulate(g, w, x);
    expect_story(RN_INVALID, rn_graph_gradient(g, loss, &x, 1, &d), "after accumulate.2");
    rn_graph_destroy(g);
}

static void a_graph_that_failed_stays_failed(void **state) {
    (void)state;
    rn_graph *g = make();
    rn_value x = x_of(g, 3), d;
    rn_op_add(g, x, rn_graph_input(g, "y", RN_DTYPE_F32, RN_SHAPE(4)));
    expect_story(RN_INVALID, rn_graph_gradient(g, 1, &x, 1, &d), "add.0");
    rn_graph_destroy(g);
}

// ---- memory -------------------------------------------------------------------------------------

static rn_status build_and_differentiate(void) {
    rn_graph *g = NULL;
    RN_TRY(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(2, 4)), d[2] = {0, 0};
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(4, 4));
    rn_value h = x;
    for (int i = 0; i < 8; i++)
        h = rn_op_add(g, h, rn_op_silu(g, rn_op_matmul(g, h, w, RN_NO_VALUE)));
    rn_status s = rn_graph_finish(g);
    rn_value wanted[] = {x, w};
    if (s == RN_OK) s = rn_graph_gradient(g, rn_op_sum(g, h, 3, false), wanted, 2, d);
    if (s == RN_OK) s = rn_graph_finish(g);
    assert_true((s == RN_OK) == (d[0] != RN_NO_VALUE && d[1] != RN_NO_VALUE));
    rn_graph_destroy(g);
    return s;
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    for (uint64_t n = 1;; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = build_and_differentiate();
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        assert_true(rn_ledger_total(RN_DEVICE_HOST).now_bytes == before);
        if (!fired) break;
        assert_true(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_of_a_sum_of_squares_is_twice_x),
        cmocka_unit_test(a_diamond_adds_both_of_its_sides),
        cmocka_unit_test(a_value_used_thrice_is_summed_from_the_last_use_to_the_first),
        cmocka_unit_test(a_value_used_twice_by_one_node_is_counted_twice),
        cmocka_unit_test(the_loss_itself_has_gradient_one),
        cmocka_unit_test(frozen_weights_get_no_gradient_and_nothing_is_kept_for_them),
        cmocka_unit_test(low_rank_adapters_pass_through_a_frozen_base),
        cmocka_unit_test(what_does_not_reach_the_loss_is_left_alone),
        cmocka_unit_test(where_nothing_wanted_matters_nothing_is_added),
        cmocka_unit_test(below_a_wanted_result_nothing_is_asked),
        cmocka_unit_test(nothing_flows_through_whole_numbers),
        cmocka_unit_test(backward_nodes_are_in_the_blocks_of_their_forward_nodes),
        cmocka_unit_test(a_second_loss_may_follow),
        cmocka_unit_test(a_loss_must_be_one_number),
        cmocka_unit_test(what_has_no_gradient_cannot_be_wanted),
        cmocka_unit_test(an_op_without_a_gradient_is_named),
        cmocka_unit_test(a_gradient_that_a_rule_cannot_give_is_named),
        cmocka_unit_test(a_gradient_that_a_rule_leaves_out_is_no_zero),
        cmocka_unit_test(a_state_changed_on_the_way_is_an_error_that_names_the_node),
        cmocka_unit_test(running_statistics_are_no_obstacle),
        cmocka_unit_test(a_weight_changed_before_its_gradient_is_taken_is_an_error),
        cmocka_unit_test(a_graph_that_failed_stays_failed),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
