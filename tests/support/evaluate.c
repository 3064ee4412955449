// evaluate.c — see evaluate.h.
#include "evaluate.h"

#include "graph/halves.h"
#include "support.h"

static rn_tensor concrete(const rn_graph *graph, rn_value value, uint64_t rows) {
    const rn_value_info *info = rn_graph_value(graph, value);
    rn_tensor tensor = {.dtype = info->dtype, .layout = RN_LAYOUT_PLAIN, .shape = info->shape};
    if (tensor.shape.rank && tensor.shape.dims[0] == RN_ROWS) tensor.shape.dims[0] = rows;
    return tensor;
}

static void own(test_run *run, rn_value value) {
    run->guards[value] = test_guard_make(rn_tensor_bytes(&run->values[value]));
    run->values[value].data = run->guards[value].data;
}

static void open_given(test_run *run, rn_value value) {
    const rn_value_info *info = rn_graph_value(run->graph, value);
    own(run, value);
    if (info->role == RN_ROLE_STATE) memset(run->guards[value].data, 0, run->guards[value].bytes);
    if (info->role == RN_ROLE_CONSTANT)
        memcpy(run->guards[value].data, info->constant, run->guards[value].bytes);
}

static void open_outputs(test_run *run, uint32_t number) {
    const rn_node *node = rn_graph_node(run->graph, number);
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    test_run_bind(run, number, tensors, &call);
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint64_t offset = 0;
        rn_alias alias = rn_call_alias(&call, i, &offset);
        if (alias.kind == RN_ALIAS_KIND_VIEW || alias.kind == RN_ALIAS_KIND_MUST)
            run->values[node->outputs[i]].data = (uint8_t *)tensors[alias.input].data + offset;
        else
            own(run, node->outputs[i]);
    }
}

void test_run_open(test_run *run, const rn_graph *graph, uint64_t rows) {
    uint32_t values = rn_graph_value_count(graph) + 1;
    *run = (test_run){.graph = graph, .rows = rows};
    run->values = calloc(values, sizeof *run->values);
    run->guards = calloc(values, sizeof *run->guards);
    for (rn_value v = 1; v < values; v++)
        run->values[v] = concrete(graph, v, rows);
    for (rn_value v = 1; v < values; v++)
        if (rn_graph_value(graph, v)->producer == RN_NO_NODE) open_given(run, v);
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        open_outputs(run, n);
}

void test_run_close(test_run *run) {
    for (rn_value v = 1; v <= rn_graph_value_count(run->graph); v++)
        test_guard_free(&run->guards[v]);
    free(run->values);
    free(run->guards);
}

void *test_run_data(const test_run *run, rn_value value) {
    return run->values[value].data;
}

void test_run_bind(const test_run *run, uint32_t node, rn_tensor *tensors, rn_call *out) {
    const rn_node *n = rn_graph_node(run->graph, node);
    assert_true(n->input_count + n->output_count <= TEST_MAX_TENSORS);
    rn_graph_bind(run->graph, node, run->rows, tensors, out);
    for (uint32_t i = 0; i < n->input_count; i++)
        tensors[i].data = run->values[n->inputs[i]].data;
    for (uint32_t i = 0; i < n->output_count; i++)
        tensors[n->input_count + i].data = run->values[n->outputs[i]].data;
    out->scalars = run->scalars;
}

static void check_fences(const test_run *run, uint32_t number, const test_guard *workspace) {
    const rn_node *node = rn_graph_node(run->graph, number);
    bool intact = test_guard_intact(workspace);
    for (uint32_t i = 0; i < node->input_count; i++)
        if (run->guards[node->inputs[i]].data)
            intact = intact && test_guard_intact(&run->guards[node->inputs[i]]);
    for (uint32_t i = 0; i < node->output_count; i++)
        if (run->guards[node->outputs[i]].data)
            intact = intact && test_guard_intact(&run->guards[node->outputs[i]]);
    if (!intact) fail_msg("the reference of %s writes outside its tensors", node->name);
}

void test_run_node(test_run *run, uint32_t number) {
    rn_tensor tensors[TEST_MAX_TENSORS];
    rn_call call;
    test_run_bind(run, number, tensors, &call);
    call.workspace_bytes = rn_reference_workspace(&call);
    test_guard workspace = test_guard_make(call.workspace_bytes);
    call.workspace = workspace.data;
    assert_ok(rn_reference_run(&call));
    check_fences(run, number, &workspace);
    test_guard_free(&workspace);
}

void test_run_phase(test_run *run, rn_phase phase) {
    for (uint32_t n = 0; n < rn_graph_node_count(run->graph); n++)
        if (rn_graph_node(run->graph, n)->phase == phase) test_run_node(run, n);
}

void test_run_all(test_run *run) {
    for (uint32_t n = 0; n < rn_graph_node_count(run->graph); n++)
        test_run_node(run, n);
}
