// gpu.h — the first GPU, for the tests of a file.
#ifndef RN_TEST_GPU_H
#define RN_TEST_GPU_H

#include "offload_run.h"

typedef struct test_gpu {
    rn_device *device; // NULL: there is none
    test_offload offload;
    rn_error_info reason; // why there is none
} test_gpu;

// `bytes` of a block to run calls in; 0: none. 0, also where there is no GPU; anything else that
// fails is a fault: 1, as cmocka's set-ups want it.
int test_gpu_open(test_gpu *gpu, uint64_t bytes);
int test_gpu_close(test_gpu *gpu); // {0}-safe
// Skips the test where there is none.
void test_gpu_want(const test_gpu *gpu);

#endif
