// offload_run.h — a call of the host, run on a device with memory of its own.
//
// What the call's tensors and workspace hold is laid out in one block of the device, with gaps of
// NaN between; the kernel runs there through a queue; then everything comes back, and the gaps must
// be as they were.
#ifndef RN_TEST_OFFLOAD_RUN_H
#define RN_TEST_OFFLOAD_RUN_H

#include "device/device.h"

typedef struct test_offload {
    rn_device *device;
    rn_queue *queue;
    rn_device_memory memory;
    uint8_t *image; // (memory.bytes): the block, on the host
} test_offload;

// A block of `bytes` and a compute queue.
RN_MUST_USE rn_status test_offload_open(rn_device *device, uint64_t bytes, test_offload *out);
void test_offload_close(test_offload *offload); // {0}-safe
// RN_INTERNAL where something was written between the tensors.
RN_MUST_USE rn_status test_offload_run(test_offload *offload, const rn_kernel *kernel,
                                       const rn_call *call);

#endif
