// ladder_open.c — a target becomes a device, or says truly why not.
#include "runtime/ladder.h"

#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

// The driver is asked whether the device is there, so that "not there" and "nothing to run on it"
// are told apart.
static rn_status open_cuda(const rn_target *target) {
    const rn_cuda_driver *driver;
    rn_cu_device device = 0;
    int count = 0;
    char name[96] = "";
    RN_TRY(rn_cuda_driver_get(&driver));
    RN_TRY(rn_cuda_check(driver, driver->device_get_count(&count), target->name));
    if (target->ordinal >= count)
        return rn_fail(RN_NOT_FOUND, "there is no %s: the driver counts %d", target->name, count);
    RN_TRY(rn_cuda_check(driver, driver->device_get(&device, target->ordinal), target->name));
    RN_TRY(rn_cuda_check(driver, driver->device_get_name(name, sizeof name, device), target->name));
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s is there (%s), but this build has no kernels for it",
                           target->name, name),
                   "models run on the CPU: --device cpu");
}

static rn_status refuse_library(const rn_target *target) {
    const char *why = dlerror();
    if (!why) why = "it cannot be loaded";
    bool missing = strstr(why, "cannot open shared object file");
    rn_status s = rn_fail(missing ? RN_NOT_FOUND : RN_UNSUPPORTED, "no PJRT plugin: %s", why);
    s = rn_blame(s, target->plugin, RN_NO_OFFSET);
    return rn_hint(s, "xla: takes the file of a PJRT plugin, with its folder where the system does "
                      "not find it");
}

static rn_status open_xla(const rn_target *target) {
    void *plugin = dlopen(target->plugin, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return refuse_library(target);
    bool is_plugin = dlsym(plugin, "GetPjrtApi");
    dlclose(plugin);
    if (!is_plugin)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "no PJRT plugin: the library has no GetPjrtApi"),
                       "xla: takes the file of a PJRT plugin");
    return rn_hint(
        rn_fail(RN_UNSUPPORTED, "this is a PJRT plugin, but this build runs no graphs with XLA"),
        "models run on the CPU: --device cpu");
}

rn_status rn_target_open(const rn_target *target, uint32_t threads, rn_device **out) {
    *out = NULL;
    switch (target->kind) {
    case RN_TARGET_CPU:
        return rn_cpu_device_create(threads, out);
    case RN_TARGET_SIM:
        return rn_sim_device_create(&target->sim, out);
    case RN_TARGET_CUDA:
        return open_cuda(target);
    case RN_TARGET_XLA:
        return open_xla(target);
    }
    return rn_fail(RN_INTERNAL, "a target of kind %d", (int)target->kind);
}
