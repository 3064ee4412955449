// table_test.c — the table itself: every op has rows, and the questions notice a fault.
#include "support.h"

#include "conform.h"
#include "device/reference.h"
#include "graph/validate.h"

static void each_row(void (*visit)(const conform_row *row, void *arg), void *arg) {
    for (const conform_table *const *t = conform_tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++)
            visit(&(*t)->rows[i], arg);
}

// ---- the table ----------------------------------------------------------------------------------

static void count_nodes(const conform_row *row, void *arg) {
    uint32_t *counts = arg, own = 0;
    conform_case c;
    conform_open(&c, row, true);
    for (uint32_t n = 0; n < rn_graph_node_count(c.graph); n++) {
        rn_op op = rn_graph_node(c.graph, n)->op;
        counts[op]++;
        own += op == row->op;
    }
    conform_close(&c);
    if (!own) fail_msg("%s, %s: there is no such node in it", rn_op_name(row->op), row->what);
}

static void every_op_is_in_some_rows_graph(void **state) {
    (void)state;
    uint32_t counts[RN_OP_COUNT] = {0};
    each_row(count_nodes, counts);
    for (int op = 0; op < RN_OP_COUNT; op++)
        if (!counts[op]) fail_msg("%s is in no row's graph", rn_op_name((rn_op)op));
}

static void check_valid(const conform_row *row, void *arg) {
    (void)arg;
    conform_case c;
    conform_open(&c, row, true);
    rn_status s = rn_graph_validate(c.graph);
    if (s != RN_OK)
        fail_msg("%s, %s: %s", rn_op_name(row->op), row->what, rn_last_error()->message);
    conform_close(&c);
}

static void every_rows_graph_is_valid(void **state) {
    (void)state;
    each_row(check_valid, NULL);
}

// Where the reference is the kernel, nothing differs, and so fences, unread results, working in
// place and rows alone are asked of the reference loops.
static void check_reference(const conform_row *row, void *arg) {
    conform_target target = {.kernels = rn_reference_kernels, .workers = arg, .threads = 2};
    conform_why why;
    if (!conform_kernels(row, &target, &why) || !conform_alone(row, &target, &why))
        fail_msg("%s", why.text);
}

static void reference_loops_stay_within_their_tensors(void **state) {
    (void)state;
    rn_workers *workers = NULL;
    assert_ok(rn_workers_create(2, &rn_system_allocator, &workers));
    each_row(check_reference, workers);
    rn_workers_destroy(workers);
}

// ---- faults that must be found ------------------------------------------------------------------

typedef rn_status (*run_fn)(const rn_call *call);

static rn_status run_reference(const rn_call *call) {
    return rn_op_get(call->op)->reference(call);
}

static rn_status run_off_by_one_unit(const rn_call *call) {
    RN_TRY(run_reference(call));
    uint32_t *bits = call->outputs[0].data;
    bits[rn_tensor_elements(&call->outputs[0]) - 1]++;
    return RN_OK;
}

static rn_status run_a_little_wrong(const rn_call *call) {
    RN_TRY(run_reference(call));
    *(float *)call->outputs[0].data *= 1.001f;
    return RN_OK;
}

static rn_status run_not_at_all(const rn_call *call) {
    (void)call;
    return RN_OK;
}

static rn_status run_and_change_an_input(const rn_call *call) {
    RN_TRY(run_reference(call));
    ((uint8_t *)call->inputs[1].data)[0] ^= 1;
    return RN_OK;
}

static rn_status run_wrong_in_place(const rn_call *call) {
    RN_TRY(run_reference(call));
    if (call->outputs[0].data == call->inputs[0].data) *(float *)call->outputs[0].data += 1;
    return RN_OK;
}

static rn_status run_wrong_with_threads(const rn_call *call) {
    RN_TRY(run_reference(call));
    *(float *)call->outputs[0].data += (float)(call->threads - 1);
    return RN_OK;
}

static rn_status run_row_by_neighbour(const rn_call *call) {
    RN_TRY(run_reference(call));
    *(float *)call->outputs[0].data += (float)call->outputs[0].shape.dims[0];
    return RN_OK;
}

static rn_status run_failing(const rn_call *call) {
    (void)call;
    return rn_fail(RN_DEVICE, "it is broken");
}

static const conform_row *find_row(rn_op op, const char *what) {
    for (const conform_table *const *t = conform_tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++)
            if ((*t)->rows[i].op == op && strcmp((*t)->rows[i].what, what) == 0)
                return &(*t)->rows[i];
    fail_msg("there is no row %s, %s", rn_op_name(op), what);
    return NULL;
}

typedef bool (*question)(const conform_row *row, conform_target *target, conform_why *why);

static void expect_found(question ask, rn_op op, const char *what, run_fn run, const char *story) {
    rn_kernel kernels[RN_OP_COUNT];
    rn_workers *workers = NULL;
    conform_why why = {{0}};
    assert_ok(rn_workers_create(2, &rn_system_allocator, &workers));
    memcpy(kernels, rn_reference_kernels, sizeof kernels);
    conform_target target = {.kernels = kernels, .workers = workers, .threads = 2};
    assert_true(ask(find_row(op, what), &target, &why));
    kernels[op].run = run;
    assert_false(ask(find_row(op, what), &target, &why));
    if (!strstr(why.text, story)) fail_msg("'%s' does not say '%s'", why.text, story);
    rn_workers_destroy(workers);
}

static void wrong_results_are_found(void **state) {
    (void)state;
    expect_found(conform_kernels, RN_OP_ADD, "the same shape", run_off_by_one_unit, "output 0");
    expect_found(conform_kernels, RN_OP_MATMUL, "q8_0 weight, one row", run_off_by_one_unit,
                 "output 0");
    expect_found(conform_kernels, RN_OP_MATMUL, "odd", run_a_little_wrong, "element 0");
    expect_found(conform_kernels, RN_OP_EXP, "odd axes", run_a_little_wrong, "element 0");
    expect_found(conform_kernels, RN_OP_ADD, "the same shape", run_not_at_all, "output 0");
    expect_found(conform_kernels, RN_OP_ADD, "the same shape", run_failing, "it is broken");
}

static void wrong_ways_are_found(void **state) {
    (void)state;
    expect_found(conform_kernels, RN_OP_ADD, "the same shape", run_and_change_an_input,
                 "changes its input 1");
    expect_found(conform_kernels, RN_OP_ADD, "the same shape", run_wrong_in_place, "in place");
    expect_found(conform_kernels, RN_OP_MATMUL, "odd", run_wrong_with_threads, "with workers");
}

static void rows_that_look_at_their_neighbours_are_found(void **state) {
    (void)state;
    expect_found(conform_alone, RN_OP_MATMUL, "odd rows", run_row_by_neighbour, "a row alone");
}

// AddressSanitizer stops such a kernel by itself: there the fences are not needed.
#ifndef __SANITIZE_ADDRESS__
static rn_status run_beyond_its_tensor(const rn_call *call) {
    RN_TRY(run_reference(call));
    ((uint8_t *)call->outputs[0].data)[rn_tensor_bytes(&call->outputs[0])] = 0;
    return RN_OK;
}

static rn_status run_beyond_its_workspace(const rn_call *call) {
    RN_TRY(run_reference(call));
    ((uint8_t *)call->workspace)[call->workspace_bytes] = 0;
    return RN_OK;
}

static void writes_around_a_tensor_are_found(void **state) {
    (void)state;
    expect_found(conform_kernels, RN_OP_ADD, "the same shape", run_beyond_its_tensor, "tensor 2");
    expect_found(conform_kernels, RN_OP_ADD, "the same shape", run_beyond_its_workspace,
                 "workspace");
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_is_in_some_rows_graph),
        cmocka_unit_test(every_rows_graph_is_valid),
        cmocka_unit_test(reference_loops_stay_within_their_tensors),
        cmocka_unit_test(wrong_results_are_found),
        cmocka_unit_test(wrong_ways_are_found),
        cmocka_unit_test(rows_that_look_at_their_neighbours_are_found),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(writes_around_a_tensor_are_found),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
