// sim.h — a device that is not there: the CPU's kernels behind an interface that behaves like a
// GPU's.
//
// It has memory of its own with a limit, so what a kernel touches must have been copied there (a
// kernel that is handed any other address fails); a compute and a copy queue with threads; a
// link of a set bandwidth; and faults on demand. Offload, fences, poison and cancelling are tested
// on it.
#ifndef RN_BACKEND_SIM_SIM_H
#define RN_BACKEND_SIM_SIM_H

#include "device/executable.h"
#include "device/registry.h"

extern const rn_backend rn_sim_backend;

// 0 is "none" everywhere.
typedef struct rn_sim_options {
    uint32_t threads; // of a kernel; 0: 1
    uint64_t memory_bytes;
    double link_bytes_second; // a copy takes at least bytes / this
    double launch_seconds;    // a launch takes at least this
    // The n-th from 1 fails, once.
    uint32_t fail_alloc, fail_launch, fail_copy;
    uint32_t fail_allocs; // from the fail_alloc-th on so many fail; 0: one
    // It has no kernels but compiles graphs (executable.c): 1. What an executable holds is what was
    // estimated, and so many bytes more.
    uint32_t compiles;
    uint64_t compiled_more_bytes;
} rn_sim_options;

RN_MUST_USE rn_status rn_sim_device_create(const rn_sim_options *options, rn_device **out);
// Arms faults anew, counting from now; waits for nothing: only while the queues are idle.
void rn_sim_device_arm(rn_device *device, uint32_t fail_alloc, uint32_t fail_launch,
                       uint32_t fail_copy);
// Of a device that compiles: what its back end estimates, and the compiler.
RN_MUST_USE rn_status rn_sim_estimate(const rn_device_caps *caps, const rn_graph *graph,
                                      uint64_t rows, uint64_t purpose_bytes[RN_PURPOSE_COUNT]);
RN_MUST_USE rn_status rn_sim_compile(rn_device *device, const rn_compile_request *request,
                                     rn_executable **out);
// Counts a launch down; whether it is the one that is to fail. The device's memory, charged to
// nobody, as rn_device.alloc.
bool rn_sim_device_fails_launch(rn_device *device);
uint64_t rn_sim_device_compiled_more(rn_device *device);

// From now on somebody else holds so many bytes of its memory (which has a limit): what is free,
// and what can be allocated, is that much less. Its caps do not change.
void rn_sim_device_take_away(rn_device *device, uint64_t bytes);

#endif
