// evaluate.h — runs a graph node by node with the ops' reference loops: what a graph means.
//
//     test_run run;
//     test_run_open(&run, graph, rows);
//     fill(test_run_data(&run, x));
//     test_run_all(&run);
//     check(test_run_data(&run, y));
//     test_run_close(&run);
//
// Every value lives in guarded memory of its own to the end; views and updates in place lie where
// their inputs lie. Failures fail the test.
#ifndef RN_TEST_EVALUATE_H
#define RN_TEST_EVALUATE_H

#include "graph/op.h"
#include "guarded.h"

typedef struct test_run {
    const rn_graph *graph;
    uint64_t rows;      // that RN_ROWS stands for
    rn_tensor *values;  // (values + 1): concrete shapes, and data
    test_guard *guards; // (values + 1): what the value owns; none where it lies in another's bytes
    rn_scalar scalars[RN_MAX_SCALARS];
} test_run;

// Constants have their bytes, states are zero, everything else is NaN.
void test_run_open(test_run *run, const rn_graph *graph, uint64_t rows);
void test_run_close(test_run *run);
// Its bytes: rn_tensor_bytes(&run->values[value]) of them.
void *test_run_data(const test_run *run, rn_value value);
// The node as a call; `tensors` has room for its inputs and outputs. No workspace yet.
void test_run_bind(const test_run *run, uint32_t node, rn_tensor *tensors, rn_call *out);
// Runs one node, a part of them, all of them.
void test_run_node(test_run *run, uint32_t node);
void test_run_phase(test_run *run, rn_phase phase);
void test_run_all(test_run *run);

#define TEST_MAX_TENSORS 32 // inputs and outputs of a node

#endif
