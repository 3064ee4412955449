// liveness_test.c — which values share bytes, and from when to when: small graphs, known answers.
#include "plan_fixture.h"

static rn_value v[12]; // what the writers below make

static worked trace(write_graph write, uint64_t rows) {
    worked w;
    work_out(&w, paper_graph(write), rows);
    return w;
}

static const rn_plan_storage *storage_of(const worked *w, rn_value value) {
    uint32_t which = w->binding.live.storage_of[value];
    assert_true(which != RN_NO_BUFFER);
    return &w->binding.live.storages[which];
}

static bool share(const worked *w, rn_value a, rn_value b) {
    return storage_of(w, a) == storage_of(w, b);
}

static uint64_t peak_of(worked *w) {
    uint64_t peak;
    assert_ok(rn_binding_peak(&w->memory, &w->binding, NULL, 0, false, w->order.count, &peak));
    return peak;
}

static void expect_life(const worked *w, rn_value value, uint32_t first, uint32_t last_position) {
    assert_int_equal(storage_of(w, value)->first, first);
    assert_int_equal(storage_of(w, value)->last, last_position);
}

// ---- overwriting --------------------------------------------------------------------------------

static void write_chain(rn_graph *g, uint32_t unused) {
    (void)unused;
    v[0] = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 16));
    v[1] = rn_op_exp(g, v[0]);           // 0
    v[2] = rn_op_relu(g, v[1]);          // 1
    v[3] = rn_op_tanh(g, v[2]);          // 2
    v[4] = rn_op_sum(g, v[3], 3, false); // 3
    rn_graph_output(g, v[4], "y");
}

static void a_dead_intermediate_is_overwritten_and_an_input_is_not(void **state) {
    (void)state;
    worked w = trace(write_chain, 8);
    assert_false(share(&w, v[0], v[1]));
    assert_true(share(&w, v[1], v[2]));
    assert_true(share(&w, v[2], v[3]));
    expect_life(&w, v[0], 0, 0);
    expect_life(&w, v[3], 0, 3);
    expect_life(&w, v[4], 3, 3);
    assert_true(storage_of(&w, v[0])->from_start);
    assert_true(storage_of(&w, v[4])->to_end);
    assert_int_equal(storage_of(&w, v[1])->bytes, 8 * 16 * 4);
    assert_int_equal(peak_of(&w), 2 * 8 * 16 * 4);
    worked_free(&w);
}

static void write_forks(rn_graph *g, uint32_t unused) {
    (void)unused;
    v[0] = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 16));
    v[1] = rn_op_exp(g, v[0]);       // 0
    v[2] = rn_op_relu(g, v[1]);      // 1: v[1] is read again below
    v[3] = rn_op_mul(g, v[2], v[2]); // 2: both inputs are the same bytes
    v[4] = rn_op_add(g, v[3], v[1]); // 3
    v[5] = rn_op_neg(g, v[4]);       // 4: v[4] is an output
    rn_graph_output(g, v[4], "a");
    rn_graph_output(g, v[5], "b");
}

static void what_is_still_needed_is_not_overwritten(void **state) {
    (void)state;
    worked w = trace(write_forks, 0);
    assert_false(share(&w, v[1], v[2]));
    assert_false(share(&w, v[2], v[3]));
    assert_true(share(&w, v[3], v[4]));
    assert_false(share(&w, v[4], v[5]));
    expect_life(&w, v[1], 0, 3);
    expect_life(&w, v[4], 2, 4);
    worked_free(&w);
}

static void write_broadcast(rn_graph *g, uint32_t unused) {
    (void)unused;
    v[0] = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 16));
    v[1] = rn_op_sum(g, v[0], 1, true); // 0: (1, 16)
    v[2] = rn_op_exp(g, v[0]);          // 1
    v[3] = rn_op_add(g, v[1], v[2]);    // 2: larger than its first input
    rn_graph_output(g, v[3], "y");
}

static void a_smaller_input_is_not_overwritten(void **state) {
    (void)state;
    worked w = trace(write_broadcast, 0);
    assert_false(share(&w, v[1], v[3]));
    worked_free(&w);
}

// ---- views --------------------------------------------------------------------------------------

static void write_views(rn_graph *g, uint32_t unused) {
    (void)unused;
    v[0] = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 16));
    v[1] = rn_op_exp(g, v[0]);                      // 0
    v[2] = rn_op_relu(g, v[1]);                     // 1: v[5] still looks at v[1]
    v[3] = rn_op_sum(g, v[2], 3, false);            // 2
    v[4] = rn_op_reshape(g, v[1], RN_SHAPE(16, 4)); // 3
    v[5] = rn_op_slice(g, v[4], 0, 4, 4);           // 4: at byte 64 of v[1]
    v[6] = rn_op_tanh(g, v[5]);                     // 5
    v[7] = rn_op_reshape(g, v[2], RN_SHAPE(64));    // 6: nobody reads it
    rn_graph_output(g, v[3], "s");
    rn_graph_output(g, v[6], "t");
}

static void a_view_is_its_input_and_keeps_it_alive_for_its_readers(void **state) {
    (void)state;
    worked w = trace(write_views, 0);
    assert_true(share(&w, v[1], v[4]) && share(&w, v[4], v[5]));
    assert_false(share(&w, v[1], v[2]));
    assert_int_equal(w.binding.live.offset_of[v[5]], 64);
    expect_life(&w, v[1], 0, 5);
    assert_false(share(&w, v[5], v[6])); // only a part of v[1]
    expect_life(&w, v[2], 1, 2);         // the view that nobody reads does not count
    assert_true(w.binding.is_view[3] && w.binding.is_view[4] && !w.binding.is_view[5]);
    worked_free(&w);
}

static void write_output_view(rn_graph *g, uint32_t unused) {
    (void)unused;
    v[0] = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 16));
    v[1] = rn_op_exp(g, v[0]);                      // 0
    v[2] = rn_op_relu(g, v[1]);                     // 1
    v[3] = rn_op_reshape(g, v[1], RN_SHAPE(16, 4)); // 2
    v[4] = rn_op_neg(g, v[2]);                      // 3
    rn_graph_output(g, v[3], "view");
    rn_graph_output(g, v[4], "y");
}

static void an_output_that_is_a_view_keeps_its_bytes_to_the_end(void **state) {
    (void)state;
    worked w = trace(write_output_view, 0);
    assert_false(share(&w, v[1], v[2]));
    assert_true(share(&w, v[1], v[3]));
    assert_true(storage_of(&w, v[1])->to_end);
    expect_life(&w, v[1], 0, 3);
    worked_free(&w);
}

// ---- states, weights, outputs that nobody reads -------------------------------------------------

static void write_state(rn_graph *g, uint32_t unused) {
    (void)unused;
    v[0] = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 4));
    v[1] = rn_graph_state(g, "sum", RN_DTYPE_F32, RN_SHAPE(4, 4), RN_PURPOSE_OTHER);
    v[2] = rn_op_exp(g, v[0]);              // 0
    v[3] = rn_op_accumulate(g, v[1], v[2]); // 1
    v[4] = rn_op_tanh(g, v[3]);             // 2: a state is not overwritten
    rn_graph_output(g, v[4], "y");
}

static void a_state_lives_always_and_its_update_lies_in_it(void **state) {
    (void)state;
    worked w = trace(write_state, 0);
    assert_true(share(&w, v[1], v[3]));
    assert_false(share(&w, v[3], v[4]));
    assert_true(storage_of(&w, v[1])->always);
    assert_int_equal(w.binding.live.always_bytes, 64);
    worked_free(&w);
}

static void write_unread(rn_graph *g, uint32_t unused) {
    (void)unused;
    v[0] = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(4, 16));
    v[1] = rn_op_rmsnorm(g, v[0], RN_NO_VALUE, 1e-5f); // 0: its second output is optional
    v[2] = rn_graph_output_of(g, v[1], 1);
    v[3] = rn_op_exp(g, v[0]); // 1: nobody reads it, but it is written
    v[4] = rn_op_neg(g, v[1]); // 2
    rn_graph_output(g, v[4], "y");
}

static void an_output_that_nobody_reads_is_dropped_or_lives_for_its_step(void **state) {
    (void)state;
    worked w = trace(write_unread, 0);
    assert_int_equal(w.binding.live.storage_of[v[2]], RN_NO_BUFFER);
    expect_life(&w, v[3], 1, 1);
    worked_free(&w);
}

static void write_weight(rn_graph *g, uint32_t unused) {
    (void)unused;
    v[0] = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 16));
    v[1] = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(4, 64));
    v[2] = rn_op_reshape(g, v[1], RN_SHAPE(16, 16));
    v[3] = rn_op_matmul(g, v[0], v[2], RN_NO_VALUE);
    rn_graph_output(g, v[3], "y");
}

static void weights_and_their_views_are_in_groups_not_in_storages(void **state) {
    (void)state;
    worked w = trace(write_weight, 3);
    assert_int_equal(w.binding.live.storage_of[v[1]], RN_NO_BUFFER);
    assert_int_equal(w.binding.live.storage_of[v[2]], RN_NO_BUFFER);
    assert_int_equal(w.groups.group_of[v[2]], 0);
    assert_int_equal(w.binding.live.bytes_of[v[3]], 3 * 16 * 4);
    worked_free(&w);
}

static void write_too_large(rn_graph *g, uint32_t unused) {
    (void)unused;
    v[0] = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE((uint64_t)1 << 40, 1024));
    rn_graph_output(g, rn_op_relu(g, v[0]), "y");
}

static void a_value_of_absurd_size_is_refused_by_name(void **state) {
    (void)state;
    worked w;
    rn_graph *graph = paper_graph(write_too_large);
    w.caps = paper_caps();
    rn_arena_init(&w.memory, RN_HOST_OTHER, 0);
    assert_ok(rn_plan_order_make(&w.memory, graph, &w.order));
    assert_ok(
        rn_group_table_make(&w.memory, graph, &w.caps, &w.order, NULL, NULL, false, &w.groups));
    assert_ok(rn_binding_make(&w.memory, graph, &w.caps, &w.order, &w.groups, 0, (rn_workload){0},
                              &w.binding));
    assert_fails(RN_INVALID,
                 rn_binding_trace(&w.memory, graph, &w.caps, &w.order, &w.groups, &w.binding));
    assert_non_null(strstr(rn_last_error()->message, "'x'"));
    rn_arena_free_all(&w.memory);
    rn_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_intermediate_is_overwritten_and_an_input_is_not),
        cmocka_unit_test(what_is_still_needed_is_not_overwritten),
        cmocka_unit_test(a_smaller_input_is_not_overwritten),
        cmocka_unit_test(a_view_is_its_input_and_keeps_it_alive_for_its_readers),
        cmocka_unit_test(an_output_that_is_a_view_keeps_its_bytes_to_the_end),
        cmocka_unit_test(a_state_lives_always_and_its_update_lies_in_it),
        cmocka_unit_test(an_output_that_nobody_reads_is_dropped_or_lives_for_its_step),
        cmocka_unit_test(weights_and_their_views_are_in_groups_not_in_storages),
        cmocka_unit_test(a_value_of_absurd_size_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
