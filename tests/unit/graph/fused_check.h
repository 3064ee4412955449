// fused_check.h — a fused op beside the ops that it means, in one graph, by any table of kernels.
#ifndef RN_TEST_FUSED_CHECK_H
#define RN_TEST_FUSED_CHECK_H

#include "op_check.h"

#include "backend/cpu/cpu.h"
#include "base/cpu.h"
#include "device/reference.h"

// Every node by the table's kernel, with exactly the workspace that it asks for.
static inline rn_status run_by(const test_run *run, const rn_kernel *kernels) {
    for (uint32_t n = 0; n < rn_graph_node_count(run->graph); n++) {
        rn_tensor tensors[TEST_MAX_TENSORS];
        rn_call call;
        test_run_bind(run, n, tensors, &call);
        const rn_kernel *kernel = &kernels[call.op];
        call.workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
        test_guard workspace = test_guard_make(call.workspace_bytes);
        call.workspace = workspace.data;
        rn_status s = kernel->run(&call);
        assert_true(test_guard_intact(&workspace));
        test_guard_free(&workspace);
        RN_TRY(s);
    }
    return RN_OK;
}

// Calls check(run, kernels) with the reference loops, and with the CPU's kernels at every level
// that this machine has.
static inline void by_all_kernels(test_run *run,
                                  void (*check)(test_run *run, const rn_kernel *kernels)) {
    check(run, rn_reference_kernels);
    for (rn_cpu_level level = 0; level < RN_CPU_LEVEL_COUNT; level++) {
        rn_cpu_level_force(level);
        if (rn_cpu_level_get() == level) check(run, rn_cpu_kernels);
    }
    rn_cpu_level_force(RN_CPU_LEVEL_COUNT - 1);
}

static inline void want_same_bits(const test_run *run, rn_value a, rn_value b) {
    const rn_tensor *x = &run->values[a], *y = &run->values[b];
    assert_int_equal(rn_tensor_bytes(x), rn_tensor_bytes(y));
    assert_memory_equal(x->data, y->data, rn_tensor_bytes(x));
}

// NaN everywhere, so that nothing is left of a run before.
static inline void spoil(const test_run *run, rn_value value) {
    memset(run->values[value].data, 0xff, rn_tensor_bytes(&run->values[value]));
}

#endif
