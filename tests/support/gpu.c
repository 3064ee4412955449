// gpu.c — see gpu.h.
#include "gpu.h"

#include "support.h"

#include <ration/cuda.h>

int test_gpu_open(test_gpu *gpu, uint64_t bytes) {
    *gpu = (test_gpu){0};
    rn_status s = rn_cuda_device_create(0, 1, &gpu->device);
    if (s == RN_OK && bytes) return test_offload_open(gpu->device, bytes, &gpu->offload) != RN_OK;
    if (s == RN_OK) return 0;
    gpu->device = NULL;
    gpu->reason = *rn_last_error();
    return s != RN_UNSUPPORTED && s != RN_NOT_FOUND;
}

int test_gpu_close(test_gpu *gpu) {
    if (!gpu->device) return 0;
    test_offload_close(&gpu->offload);
    rn_device_destroy(gpu->device);
    *gpu = (test_gpu){0};
    return 0;
}

void test_gpu_want(const test_gpu *gpu) {
    if (!gpu->device) skip_because("no GPU: %s", gpu->reason.message);
}
