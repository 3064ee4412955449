// groups_test.c — how weights are cut into weight groups: small graphs, known answers.
#include "plan_fixture.h"

static rn_value w[16];
static rn_layout layout_constraint; // what the device wants for the weight of a product

static rn_layout constraint_layout(const rn_call *call, uint32_t input) {
    return call->op == RN_OP_MATMUL && input == 1 ? layout_constraint : RN_LAYOUT_PLAIN;
}

static worked cut(write_graph write) {
    worked out;
    out.graph = paper_graph(write);
    out.caps = paper_caps();
    out.caps.weight_layout = constraint_layout;
    rn_arena_init(&out.memory, RN_HOST_OTHER, 0);
    assert_ok(rn_plan_order_make(&out.memory, out.graph, &out.order));
    assert_ok(rn_group_table_make(&out.memory, out.graph, &out.caps, &out.order, NULL, NULL, false,
                                  &out.groups));
    return out;
}

static uint32_t group_of(const worked *t, rn_value value) {
    return t->groups.group_of[value];
}

// A square matrix of n KiB.
static rn_value matrix(rn_graph *g, const char *name, uint64_t kib) {
    return rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(kib, 256));
}

// y = x + all of w, summed to one row: reads w[first .. last] in order.
static rn_value read_all(rn_graph *g, rn_value x, int first, int last) {
    for (int i = first; i <= last; i++)
        x = rn_op_add(g, x, rn_op_sum(g, w[i], 1, true));
    return x;
}

static void write_sizes(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(1, 256));
    rn_graph_block(g, "a");
    w[0] = matrix(g, "rider", 16);
    w[1] = matrix(g, "big", 8192);
    w[2] = matrix(g, "half", 2048);
    w[3] = matrix(g, "other half", 2047);
    w[4] = matrix(g, "too much", 128);
    w[5] = matrix(g, "tail", 1);
    x = read_all(g, x, 0, 5);
    rn_graph_block(g, "b");
    w[6] = matrix(g, "next block", 1);
    x = read_all(g, x, 6, 6);
    w[7] = matrix(g, "unused", 1);
    rn_graph_output(g, x, "y");
}

static void small_neighbours_share_a_group_and_tiny_ones_ride_along(void **state) {
    (void)state;
    worked t = cut(write_sizes);
    assert_int_equal(t.groups.group_count, 4);
    assert_int_equal(group_of(&t, w[0]), 0); // rides along with
    assert_int_equal(group_of(&t, w[1]), 0);
    assert_int_equal(group_of(&t, w[2]), 1);
    assert_int_equal(group_of(&t, w[3]), 1);
    assert_int_equal(group_of(&t, w[4]), 2); // would make it more than 4 MiB
    assert_int_equal(group_of(&t, w[5]), 2);
    assert_int_equal(group_of(&t, w[6]), 3); // another block
    assert_int_equal(group_of(&t, w[7]), RN_NO_LOAD);
    assert_int_equal(t.groups.offset_of[w[1]], 16 << 10);
    assert_int_equal(t.groups.groups[0].bytes, (16 << 10) + (8192 << 10));
    assert_int_equal(t.groups.groups[1].file_bytes, 4095 << 10);
    assert_int_equal(t.groups.access_count, 7);
    for (uint32_t i = 0; i < t.groups.access_count; i++)
        assert_false(t.groups.groups[t.groups.accesses[i].group].resident);
    worked_free(&t);
}

static void write_odd(rn_graph *g, uint32_t unused) {
    (void)unused;
    w[0] = rn_graph_weight(g, "a", RN_DTYPE_F32, RN_SHAPE(3));
    w[1] = rn_graph_weight(g, "b", RN_DTYPE_F32, RN_SHAPE(3));
    rn_graph_output(g, rn_op_add(g, w[0], w[1]), "y");
}

static void weights_begin_at_multiples_of_64_bytes(void **state) {
    (void)state;
    worked t = cut(write_odd);
    assert_int_equal(t.groups.group_count, 1);
    assert_int_equal(t.groups.offset_of[w[0]], 0);
    assert_int_equal(t.groups.offset_of[w[1]], 64);
    assert_int_equal(t.groups.groups[0].bytes, 64 + 12);
    assert_int_equal(t.groups.groups[0].file_bytes, 24);
    worked_free(&t);
}

static void write_tied(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value ids = rn_graph_input(g, "ids", RN_DTYPE_I32, RN_SHAPE(4));
    rn_graph_block(g, "first");
    w[0] = matrix(g, "table", 64);
    rn_value x = rn_op_embedding(g, w[0], ids);
    rn_graph_block(g, "middle");
    w[1] = matrix(g, "own", 256);
    x = rn_op_matmul(g, x, w[1], RN_NO_VALUE);
    rn_graph_block(g, "last");
    rn_graph_output(g, rn_op_matmul(g, x, w[0], RN_NO_VALUE), "y");
}

static void write_raw(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 256));
    w[0] = rn_graph_weight(g, "small", RN_DTYPE_F32, RN_SHAPE(64, 256));
    w[1] = rn_graph_weight(g, "large", RN_DTYPE_F32, RN_SHAPE(1024, 256));
    w[2] = rn_graph_weight(g, "bias", RN_DTYPE_F32, RN_SHAPE(256));
    rn_graph_output(g, rn_op_matmul(g, x, w[0], RN_NO_VALUE), "small");
    rn_value y = rn_op_matmul(g, x, w[1], RN_NO_VALUE);
    rn_graph_output(g, rn_op_relu(g, y), "large");
    rn_graph_output(g, rn_op_add(g, x, w[2]), "sum");
}

static void a_tied_weight_is_resident_and_plain_where_its_readers_disagree(void **state) {
    (void)state;
    layout_constraint = RN_LAYOUT_PANELS;
    worked t = cut(write_tied);
    assert_int_equal(t.groups.group_count, 2);
    assert_true(t.groups.groups[group_of(&t, w[0])].resident);
    assert_false(t.groups.groups[group_of(&t, w[1])].resident);
    assert_int_equal(t.groups.layout_of[w[0]], RN_LAYOUT_PLAIN);
    assert_int_equal(t.groups.layout_of[w[1]], RN_LAYOUT_PANELS);
    uint64_t panels;
    assert_true(rn_layout_bytes(RN_LAYOUT_PANELS, RN_DTYPE_F32, 256, 256, &panels));
    assert_int_equal(t.groups.groups[group_of(&t, w[1])].bytes, panels);
    layout_constraint = RN_LAYOUT_PLAIN;
    worked_free(&t);
}

static void a_large_weight_is_raw_in_a_slot(void **state) {
    (void)state;
    worked t = {.graph = paper_graph(write_raw), .caps = paper_caps()};
    layout_constraint = RN_LAYOUT_PANELS;
    t.caps.weight_layout = constraint_layout;
    t.caps.file_layout_bytes = 1 << 20;
    rn_arena_init(&t.memory, RN_HOST_OTHER, 0);
    assert_ok(rn_plan_order_make(&t.memory, t.graph, &t.order));
    assert_ok(
        rn_group_table_make(&t.memory, t.graph, &t.caps, &t.order, NULL, NULL, false, &t.groups));
    assert_int_equal(t.groups.group_count, 1);
    // Resident: one behind the other, in panels.
    assert_int_equal(t.groups.layout_of[w[1]], RN_LAYOUT_PANELS);
    assert_int_equal(t.groups.offset_of[w[1]], 64 << 10);
    assert_int_equal(t.groups.offset_of[w[2]], (64 + 1024) << 10);
    // In a slot: with the pages around it; the small ones as they are wanted.
    assert_int_equal(t.groups.slot_layout_of[w[0]], RN_LAYOUT_PANELS);
    assert_int_equal(t.groups.slot_layout_of[w[1]], RN_LAYOUT_PLAIN);
    assert_int_equal(t.groups.slot_offset_of[w[1]], 64 << 10);
    assert_int_equal(t.groups.slot_offset_of[w[2]], ((64 + 1024) << 10) + 4096);
    assert_int_equal(t.groups.slot_bytes[0], ((64 + 1024) << 10) + 4096 + 1024);
    worked_free(&t);
    layout_constraint = RN_LAYOUT_PLAIN;
}

static void write_trained(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 256)), gradient;
    rn_value t = rn_graph_input(g, "t", RN_DTYPE_F32, RN_SHAPE(4, 256));
    w[0] = matrix(g, "frozen", 256);
    w[1] = matrix(g, "trained", 256);
    rn_value h = rn_op_matmul(g, x, w[0], RN_NO_VALUE);
    rn_value loss = rn_op_mse(g, rn_op_matmul(g, h, w[1], RN_NO_VALUE), t);
    assert_ok(rn_graph_gradient(g, loss, &w[1], 1, &gradient));
    w[2] = rn_op_sgd(g, w[1], gradient, RN_NO_VALUE,
                     (rn_sgd_attrs){.rate = rn_graph_scalar(g, "rate")});
}

static void a_trained_weight_is_resident_and_plain(void **state) {
    (void)state;
    layout_constraint = RN_LAYOUT_PANELS;
    worked t = cut(write_trained);
    assert_false(t.groups.groups[group_of(&t, w[0])].resident);
    assert_true(t.groups.groups[group_of(&t, w[1])].resident);
    assert_int_equal(t.groups.layout_of[w[1]], RN_LAYOUT_PLAIN);
    // What the optimiser returns lies where the weight does.
    assert_int_equal(group_of(&t, w[2]), group_of(&t, w[1]));
    assert_int_equal(t.groups.offset_of[w[2]], t.groups.offset_of[w[1]]);
    layout_constraint = RN_LAYOUT_PLAIN;
    worked_free(&t);
}

static void write_views(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 256));
    w[0] = matrix(g, "small", 1);
    w[1] = matrix(g, "qkv", 768);
    w[2] = rn_op_slice(g, w[1], 0, 256, 256);
    x = rn_op_add(g, x, w[0]);
    rn_graph_output(g, rn_op_matmul(g, x, w[2], RN_NO_VALUE), "y");
}

static void a_part_of_a_weight_lies_within_it(void **state) {
    (void)state;
    layout_constraint = RN_LAYOUT_PANELS; // not for a view: its weight is plain
    worked t = cut(write_views);
    assert_int_equal(group_of(&t, w[2]), group_of(&t, w[1]));
    assert_int_equal(t.groups.offset_of[w[2]], t.groups.offset_of[w[1]] + 256 * 1024);
    assert_int_equal(t.groups.layout_of[w[1]], RN_LAYOUT_PLAIN);
    assert_int_equal(t.groups.access_count, 2); // by the sum and the product, not by the slice
    layout_constraint = RN_LAYOUT_PLAIN;
    worked_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_neighbours_share_a_group_and_tiny_ones_ride_along),
        cmocka_unit_test(weights_begin_at_multiples_of_64_bytes),
        cmocka_unit_test(a_large_weight_is_raw_in_a_slot),
        cmocka_unit_test(a_tied_weight_is_resident_and_plain_where_its_readers_disagree),
        cmocka_unit_test(a_trained_weight_is_resident_and_plain),
        cmocka_unit_test(a_part_of_a_weight_lies_within_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
