// module.h — the images, loaded on a device: a function a kernel.
#ifndef RN_BACKEND_CUDA_MODULE_H
#define RN_BACKEND_CUDA_MODULE_H

#include "backend/cuda/driver.h"
#include "backend/cuda/image.h"
#include "backend/cuda/launch.h"

typedef struct rn_cuda_module {
    rn_cu_module loaded[RN_CUDA_IMAGES_MOST]; // (count)
    size_t count;
    rn_cu_function functions[RN_CUDA_KERNEL_COUNT + 1]; // NULL: no image has it
    // Dynamic shared memory that a launch may ask for: what kernels.def says, or what there is.
    uint32_t shared_bytes[RN_CUDA_KERNEL_COUNT + 1];
} rn_cuda_module;

// Inside the device's context. Every function's code is on the device afterwards, though the driver
// would rather wait for its first launch: so what it takes can be measured. `shared_most`: the
// device's, of a block. RN_UNSUPPORTED, RN_NO_MEMORY, RN_DEVICE. To be unloaded, also where it
// failed.
RN_MUST_USE rn_status rn_cuda_module_load(const rn_cuda_driver *driver, uint32_t shared_most,
                                          rn_cuda_module *out);
void rn_cuda_module_unload(const rn_cuda_driver *driver, rn_cuda_module *module); // {0}-safe
// "rn_attend_few".
const char *rn_cuda_kernel_name(rn_cuda_kernel kernel);

#endif
