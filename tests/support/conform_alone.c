// conform_alone.c — a row of a batch, alone, has the bits that it has among the others.
#include "conform_trial.h"

#include "support.h"

static bool has_rows(const rn_graph *graph, rn_value value) {
    if (value == RN_NO_VALUE) return false;
    rn_shape shape = rn_graph_value(graph, value)->shape;
    return shape.rank && shape.dims[0] == RN_ROWS;
}

// The row's place in a tensor of all rows, or the whole of a tensor without them.
static uint8_t *find_row(const test_run *all, rn_value value, const rn_tensor *tensor,
                         uint64_t row) {
    uint64_t bytes = has_rows(all->graph, value) ? rn_tensor_bytes(tensor) / all->rows : 0;
    return (uint8_t *)tensor->data + row * bytes;
}

// The inputs that the node has if the row is the only one; `before` are those of all rows.
static void snapshot_row(const test_run *all, const test_run *one, uint32_t number,
                         const test_guard *before, uint64_t row, test_guard *out) {
    const rn_node *node = rn_graph_node(all->graph, number);
    conform_snapshot(one, number, out);
    for (uint32_t i = 0; i < node->input_count; i++) {
        rn_tensor tensor = all->values[node->inputs[i]];
        tensor.data = before[i].data;
        if (tensor.data)
            memcpy(out[i].data, find_row(all, node->inputs[i], &tensor, row), out[i].bytes);
    }
}

static bool check_row(const test_run *all, const test_run *one, const conform_trial *together,
                      uint64_t row, conform_why *why) {
    const rn_node *node = together->node;
    test_guard before[TEST_MAX_TENSORS];
    rn_tensor must[TEST_MAX_TENSORS];
    rn_call call;
    snapshot_row(all, one, together->number, together->before, row, before);
    test_run_bind(one, together->number, must, &call);
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint32_t at = node->input_count + i;
        must[at].data = has_rows(all->graph, node->outputs[i])
                            ? find_row(all, node->outputs[i], &together->tensors[at], row)
                            : NULL; // a state: more rows change more of it
    }
    conform_trial alone = conform_trial_make(one, together->number, before, together->target);
    bool same = conform_try(&alone, must, conform_same, why);
    conform_trial_close(&alone);
    conform_snapshot_free(before);
    return same;
}

static bool check_node(const test_run *all, const test_run *one, uint32_t number,
                       const test_guard *before, conform_target *target, conform_why *why) {
    rn_tensor nothing[TEST_MAX_TENSORS] = {{0}};
    conform_trial together = conform_trial_make(all, number, before, target);
    bool same = conform_try(&together, nothing, conform_same, why);
    for (uint64_t row = 0; same && row<all->rows; row += all->rows> 1 ? all->rows - 1 : 1)
        same = check_row(all, one, &together, row, why);
    conform_trial_close(&together);
    return same;
}

static bool is_asked(const conform_row *row, const rn_node *node, const conform_target *target) {
    return node->op == row->op && !row->mixed && conform_facts[node->op].row_wise &&
           target->kernels[node->op].run;
}

bool conform_alone(const conform_row *row, conform_target *target, conform_why *why) {
    conform_case c;
    test_run all, one;
    bool same = true;
    conform_open(&c, row, false);
    conform_run_open(&c, row->rows, &all);
    conform_run_open(&c, 1, &one);
    for (uint32_t n = 0; same && rn_graph_has_rows(c.graph) && n < rn_graph_node_count(c.graph);
         n++) {
        test_guard before[TEST_MAX_TENSORS];
        conform_why what = {{0}};
        conform_snapshot(&all, n, before);
        test_run_node(&all, n);
        if (is_asked(row, rn_graph_node(c.graph, n), target) && !conform_is_view(&all, n))
            same = check_node(&all, &one, n, before, target, &what);
        if (!same)
            snprintf(why->text, sizeof why->text, "%s, %s: a row alone: %.300s",
                     rn_op_name(row->op), row->what, what.text);
        conform_snapshot_free(before);
    }
    test_run_close(&one);
    test_run_close(&all);
    conform_close(&c);
    return same;
}
