// module.c — every image a module; every row of kernels.def is looked for in all of them.
#include "backend/cuda/module.h"

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

// Asking for a function's registers makes drivers without cuFuncLoad load it, too.
static rn_cu_result bring(const rn_cuda_driver *driver, rn_cu_function function,
                          uint32_t shared_bytes) {
    int registers = 0;
    rn_cu_result code = RN_CU_SUCCESS;
    if (shared_bytes)
        code = driver->func_set_attribute(function, RN_CU_FUNCTION_SHARED_MOST, (int)shared_bytes);
    if (code != RN_CU_SUCCESS) return code;
    if (driver->func_load) return driver->func_load(function);
    return driver->func_get_attribute(&registers, RN_CU_FUNCTION_REGISTERS, function);
}

static rn_status find_functions(const rn_cuda_driver *driver, uint32_t shared_most,
                                rn_cuda_module *module) {
    for (size_t i = 0; i < RN_CUDA_KERNEL_COUNT; i++) {
        if (rows[i].shared_bytes > shared_most) continue;
        rn_cu_result code = find(driver, module, rows[i].name, &module->functions[i]);
        if (code == RN_CU_SUCCESS && module->functions[i])
            code = bring(driver, module->functions[i], rows[i].shared_bytes);
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
