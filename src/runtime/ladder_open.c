// ladder_open.c — a target becomes a device, or says truly why not.
#include "runtime/ladder.h"

#include <ration/cuda.h>

#include <dlfcn.h>
#include <string.h>

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

// A driver or a GPU that is not there is a matter of the device, not of a file or of this build.
static rn_status open_cuda(const rn_target *target, uint32_t threads, rn_device **out) {
    rn_status s = rn_cuda_device_create(target->ordinal, threads, out);
    rn_story story = *rn_last_story();
    if (s != RN_NOT_FOUND && s != RN_UNSUPPORTED) return s;
    const char *class = rn_error_classify(&story)->name;
    if (strcmp(class, "cuda_no_driver") != 0 && strcmp(class, "cuda_no_device") != 0) return s;
    story.status = RN_DEVICE;
    return rn_story_restore(&story);
}

rn_status rn_target_open(const rn_target *target, uint32_t threads, rn_device **out) {
    *out = NULL;
    switch (target->kind) {
    case RN_TARGET_CPU:
        return rn_cpu_device_create(threads, out);
    case RN_TARGET_SIM:
        return rn_sim_device_create(&target->sim, out);
    case RN_TARGET_CUDA:
        return open_cuda(target, threads, out);
    case RN_TARGET_XLA:
        return open_xla(target);
    }
    return rn_fail(RN_INTERNAL, "a target of kind %d", (int)target->kind);
}
