// conform_trial.h — one call of a kernel on copies, every tensor and the workspace between fences.
//
// conform_try runs it and looks: fences stand, inputs are as they were (but for those that the op
// updates), outputs are what they must be.
#ifndef RN_TEST_CONFORM_TRIAL_H
#define RN_TEST_CONFORM_TRIAL_H

#include "conform.h"

enum { CONFORM_NO_OUTPUT = 99 };

typedef struct conform_trial {
    // ---- what to run
    const test_run *run; // bound to its rows
    const conform_target *target;
    uint32_t number;
    const test_guard *before; // (inputs): their plain bytes before the node
    rn_workers *workers;
    uint32_t threads, slice_rows;
    uint32_t in_place; // an output that overwrites its input, or CONFORM_NO_OUTPUT
    uint32_t unread;   // an output that nobody reads, or CONFORM_NO_OUTPUT
    // ---- what came of it
    const rn_node *node;
    rn_call call;
    rn_tensor tensors[TEST_MAX_TENSORS]; // inputs, then outputs
    rn_alias aliases[RN_MAX_OUTPUTS];
    uint64_t offsets[RN_MAX_OUTPUTS]; // of views
    test_guard guards[TEST_MAX_TENSORS], workspace;
    uint64_t sums[TEST_MAX_TENSORS]; // hashes of the inputs before
} conform_trial;

// The plain way: alone, nothing in place, all outputs.
conform_trial conform_trial_make(const test_run *run, uint32_t number, const test_guard *before,
                                 const conform_target *target);
// `must` is laid out as tensors are; an output without data there is not compared.
bool conform_try(conform_trial *t, const rn_tensor *must, conform_fact near, conform_why *why);
// Whether the kernel says RN_UNSUPPORTED.
bool conform_refuses(conform_trial *t);
void conform_trial_close(conform_trial *t);

// Copies of a node's inputs as they are now, and their end.
void conform_snapshot(const test_run *run, uint32_t number, test_guard *out);
void conform_snapshot_free(test_guard *snapshot);
// Whether the node only looks at its input in another way.
bool conform_is_view(const test_run *run, uint32_t number);

#endif
