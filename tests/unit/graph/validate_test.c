// validate_test.c — a graph that cannot run as it stands is found, whatever is wrong with it.
#include "support.h"

#include "base/fault.h"
#include "graph/graph_internal.h"
#include "graph/validate.h"

// x, s -> view of s -> sum with x -> s changed in place -> its view -> y
typedef struct example {
    rn_graph *g;
    rn_value x, s, view, sum, changed, y;
} example;

static example make(void) {
    example e = {0};
    assert_ok(rn_graph_create(&e.g));
    e.x = rn_graph_input(e.g, "x", RN_DTYPE_F32, RN_SHAPE(3));
    e.s = rn_graph_state(e.g, "s", RN_DTYPE_F32, RN_SHAPE(3, 1), RN_PURPOSE_OTHER);
    e.view = rn_op_reshape(e.g, e.s, RN_SHAPE(3));
    e.sum = rn_op_add(e.g, e.x, e.view);
    e.changed = rn_op_accumulate(e.g, e.s, rn_op_reshape(e.g, e.sum, RN_SHAPE(3, 1)));
    e.y = rn_op_neg(e.g, rn_op_reshape(e.g, e.changed, RN_SHAPE(3)));
    assert_ok(rn_graph_finish(e.g));
    return e;
}

static void expect_invalid(example *e, const char *story) {
    assert_fails(RN_INVALID, rn_graph_validate(e->g));
    if (!strstr(rn_last_error()->message, story))
        fail_msg("'%s' does not say '%s'", rn_last_error()->message, story);
    assert_false(rn_graph_is_valid(e->g));
    rn_graph_destroy(e->g);
}

static rn_value *input_of(const example *e, rn_value made, uint32_t input) {
    uint32_t node = rn_graph_value(e->g, made)->producer;
    return (rn_value *)&rn_graph_node(e->g, node)->inputs[input];
}

static void a_graph_as_it_is_built_is_valid(void **state) {
    (void)state;
    example e = make();
    assert_ok(rn_graph_validate(e.g));
    assert_true(rn_graph_is_valid(e.g));
    rn_graph_destroy(e.g);
}

static void a_value_read_before_it_is_made_is_found(void **state) {
    (void)state;
    example e = make();
    *input_of(&e, e.sum, 0) = e.y;
    expect_invalid(&e, "add.1 reads 'neg.5' before it is made");
}

static void inputs_that_are_not_there_are_found(void **state) {
    (void)state;
    example e = make();
    *input_of(&e, e.sum, 0) = RN_NO_VALUE;
    expect_invalid(&e, "add.1: input 0 is missing");
    e = make();
    *input_of(&e, e.sum, 0) = 1000;
    expect_invalid(&e, "add.1: input 0 is no value");
}

static void a_reader_behind_an_update_is_found(void **state) {
    (void)state;
    example e = make();
    *input_of(&e, e.y, 0) = e.view; // a view of s, which has changed by then
    expect_invalid(&e, "neg.5 reads 'reshape.0' after accumulate.3 has changed it");
}

static void a_second_update_of_the_same_bytes_is_found(void **state) {
    (void)state;
    example e = make();
    rn_value again = rn_op_accumulate(e.g, e.changed, rn_op_reshape(e.g, e.x, RN_SHAPE(3, 1)));
    assert_ok(rn_graph_validate(e.g)); // one after the other is right
    *input_of(&e, again, 0) = e.s;
    expect_invalid(&e, "reads 's' after accumulate.3");
}

static void an_output_that_changes_later_is_found(void **state) {
    (void)state;
    example e = make();
    rn_graph_output(e.g, e.view, "before");
    expect_invalid(&e, "the end of the run reads 'before'");
}

static void wrong_shapes_are_found(void **state) {
    (void)state;
    example e = make();
    rn_graph_value_edit(e.g, e.y)->shape = RN_SHAPE(4);
    expect_invalid(&e, "output 0 of neg.5 is (4) f32, its rule says (3) f32");
    e = make();
    rn_graph_value_edit(e.g, e.y)->dtype = RN_DTYPE_F16;
    expect_invalid(&e, "its rule says (3) f32");
    e = make();
    rn_graph_value_edit(e.g, e.x)->shape = RN_SHAPE(5);
    expect_invalid(&e, "do not broadcast");
}

static void missing_names_are_found(void **state) {
    (void)state;
    example e = make();
    rn_graph_value_edit(e.g, e.y)->name = NULL;
    expect_invalid(&e, "has no name");
    e = make();
    rn_graph_node_edit(e.g, 1)->name = NULL;
    expect_invalid(&e, "node 1 has no name");
}

static void wrong_blocks_and_producers_are_found(void **state) {
    (void)state;
    example e = make();
    rn_graph_value_edit(e.g, e.x)->block = 7;
    expect_invalid(&e, "'x' is in no block");
    e = make();
    rn_graph_node_edit(e.g, 1)->block = 7;
    expect_invalid(&e, "add.1 is in no block");
    e = make();
    rn_graph_value_edit(e.g, e.y)->producer = 1;
    expect_invalid(&e, "output 0 of neg.5 says another node made it");
    e = make();
    rn_graph_value_edit(e.g, e.y)->output = 1;
    expect_invalid(&e, "is not a result of neg.5");
}

static void no_memory_is_no_verdict(void **state) {
    (void)state;
    example e = make();
    for (uint64_t n = 1;; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status s = rn_graph_validate(e.g);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(s, fired ? RN_NO_MEMORY : RN_OK);
        if (!fired) break;
    }
    rn_graph_destroy(e.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_as_it_is_built_is_valid),
        cmocka_unit_test(a_value_read_before_it_is_made_is_found),
        cmocka_unit_test(inputs_that_are_not_there_are_found),
        cmocka_unit_test(a_reader_behind_an_update_is_found),
        cmocka_unit_test(a_second_update_of_the_same_bytes_is_found),
        cmocka_unit_test(an_output_that_changes_later_is_found),
        cmocka_unit_test(wrong_shapes_are_found),
        cmocka_unit_test(missing_names_are_found),
        cmocka_unit_test(wrong_blocks_and_producers_are_found),
        cmocka_unit_test(no_memory_is_no_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
