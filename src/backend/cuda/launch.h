// launch.h — kernels by name, launched where a call says.
//
//     rn_pack_args args = {...};
//     return rn_cuda_launch(call, RN_CUDA_PACK, (rn_cuda_grid){rows, 1, 1, .threads = 256}, &args);
//
// rn_call.stream is an rn_cuda_stream (queue.h). Nothing here waits for the device: what fails
// while a kernel runs is told by the queue's finish.
#ifndef RN_BACKEND_CUDA_LAUNCH_H
#define RN_BACKEND_CUDA_LAUNCH_H

#include "graph/op.h"

// One number a kernel, from kernels.def: RN_CUDA_<NAME> is the function rn_<name> of the image.
typedef enum rn_cuda_kernel {
#define RN_CUDA_KERNEL(NAME, name, shared_bytes) RN_CUDA_##NAME,
#include "backend/cuda/kernels.def"
#undef RN_CUDA_KERNEL
    RN_CUDA_KERNEL_COUNT
} rn_cuda_kernel;

typedef struct rn_cuda_grid {
    uint32_t x, y, z;      // blocks
    uint32_t threads;      // of a block
    uint32_t shared_bytes; // dynamic; at most what kernels.def says
    bool early;            // it may begin before the kernel before it in the stream has ended: it
                           // waits by itself (griddepcontrol.wait) before it reads what that made.
                           // Without effect where the stream or the device cannot.
    uint32_t ring;         // blocks along z that are one cluster; 0 or 1: none beyond the kernel's
                           // own
} rn_cuda_grid;

// `args`: the kernel's one struct, copied. RN_DEVICE; RN_UNSUPPORTED: the image lacks the kernel,
// or the device the shared memory.
RN_MUST_USE rn_status rn_cuda_launch(const rn_call *call, rn_cuda_kernel kernel, rn_cuda_grid grid,
                                     const void *args);

// What the call's device is like.
typedef struct rn_cuda_traits {
    uint32_t multiprocessors;
    uint32_t capability;  // 80, 90
    bool has_wgmma;       // the image's sm_90a code runs here
    uint32_t shared_most; // dynamic shared memory of a block, at most
} rn_cuda_traits;
const rn_cuda_traits *rn_cuda_traits_of(const rn_call *call);

#endif
