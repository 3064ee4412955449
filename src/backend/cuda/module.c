// module.c — every image a module; every row of kernels.def is looked for in all of them.
#include "backend/cuda/module.h"
#include "base/checked.h"

#include <stdio.h>

typedef struct row {
    const char *name;
    uint32_t shared_bytes;
} row;

static const row rows[RN_CUDA_KERNEL_COUNT + 1] = {
#define RN_CUDA_KERNEL(NAME, name, shared_bytes) [RN_CUDA_##NAME] = {"rn_" #name, shared_bytes},
#include "backend/cuda/kernels.def"
#undef RN_CUDA_KERNEL
};

const char *rn_cuda_kernel_name(rn_cuda_kernel kernel) {
    return rows[kernel].name ? rows[kernel].name : "no kernel";
}

static rn_cu_result find(const rn_cuda_driver *driver, const rn_cuda_module *module,
                         const char *name, rn_cu_function *out) {
    rn_cu_result code = RN_CU_NOT_FOUND;
    *out = NULL;
    for (size_t i = 0; i < module->count && code == RN_CU_NOT_FOUND; i++)
        code = driver->module_get_function(out, module->loaded[i], name);
    if (code != RN_CU_SUCCESS) *out = NULL;
    return code == RN_CU_NOT_FOUND ? RN_CU_SUCCESS : code;
}

// A row's number is for the largest launch on the largest device: elsewhere the function serves
// launches that ask for less.
static rn_cu_result set_shared(const rn_cuda_driver *driver, rn_cu_function function,
                               uint32_t shared_most, uint32_t *shared_bytes) {
    int fixed = 0;
    if (*shared_bytes == 0) return RN_CU_SUCCESS;
    rn_cu_result code = driver->func_get_attribute(&fixed, RN_CU_FUNCTION_SHARED_FIXED, function);
    if (code != RN_CU_SUCCESS) return code;
    uint32_t room = shared_most - (uint32_t)rn_min_u64(shared_most, (uint64_t)fixed);
    *shared_bytes = (uint32_t)rn_min_u64(*shared_bytes, room);
    return driver->func_set_attribute(function, RN_CU_FUNCTION_SHARED_MOST, (int)*shared_bytes);
}

// Asking for a function's registers makes drivers without cuFuncLoad load it, too.
static rn_cu_result bring(const rn_cuda_driver *driver, rn_cu_function function) {
    int registers = 0;
    if (driver->func_load) return driver->func_load(function);
    return driver->func_get_attribute(&registers, RN_CU_FUNCTION_REGISTERS, function);
}

static rn_status find_functions(const rn_cuda_driver *driver, uint32_t shared_most,
                                rn_cuda_module *module) {
    for (size_t i = 0; i < RN_CUDA_KERNEL_COUNT; i++) {
        rn_cu_result code = find(driver, module, rows[i].name, &module->functions[i]);
        rn_cu_function function = module->functions[i];
        module->shared_bytes[i] = rows[i].shared_bytes;
        if (function) code = set_shared(driver, function, shared_most, &module->shared_bytes[i]);
        if (function && code == RN_CU_SUCCESS) code = bring(driver, function);
        RN_TRY(rn_cuda_check(driver, code, rows[i].name));
    }
    return RN_OK;
}

rn_status rn_cuda_module_load(const rn_cuda_driver *driver, uint32_t shared_most,
                              rn_cuda_module *out) {
    rn_cuda_images images = rn_cuda_images_get();
    *out = (rn_cuda_module){0};
    for (size_t i = 0; i < images.count && i < RN_CUDA_IMAGES_MOST; i++) {
        char what[96];
        snprintf(what, sizeof what, "loading the kernels of %s", images.items[i].name);
        rn_cu_result code = driver->module_load_data(&out->loaded[i], images.items[i].data);
        RN_TRY(rn_cuda_check(driver, code, what));
        out->count++;
    }
    return find_functions(driver, shared_most, out);
}

void rn_cuda_module_unload(const rn_cuda_driver *driver, rn_cuda_module *module) {
    while (module->count > 0)
        (void)driver->module_unload(module->loaded[--module->count]);
}
