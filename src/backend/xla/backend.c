// backend.c — XLA's descriptor: xla:PLUGIN, the file of a PJRT plugin.
#include "backend/xla/xla.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static rn_status parse(rn_str text, rn_target *out) {
    if (text.bytes == 0 || text.bytes >= sizeof out->own)
        return rn_fail(RN_INVALID, "the plugin's file is missing, or its path too long");
    char *plugin = (char *)out->own; // characters alone: no copy is needed to read them
    memcpy(plugin, text.data, text.bytes);
    plugin[text.bytes] = 0;
    const char *folder_end = strrchr(plugin, '/');
    snprintf(out->name, sizeof out->name, "xla:%.59s", folder_end ? folder_end + 1 : plugin);
    rn_str_clean(out->name);
    return RN_OK;
}

static rn_status refuse_library(const char *path) {
    const char *why = dlerror();
    if (!why) why = "it cannot be loaded";
    bool missing = strstr(why, "cannot open shared object file");
    rn_status s = rn_fail(missing ? RN_NOT_FOUND : RN_UNSUPPORTED, "no PJRT plugin: %s", why);
    s = rn_error_locate(s, path, RN_NO_OFFSET);
    return rn_hint(s, "xla: takes the file of a PJRT plugin, with its folder where the system does "
                      "not find it");
}

static rn_status open_xla(const rn_target *target, uint32_t threads, rn_device **out) {
    const char *path = (const char *)target->own;
    (void)threads;
    *out = NULL;
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return refuse_library(path);
    bool is_plugin = dlsym(plugin, "GetPjrtApi");
    dlclose(plugin);
    if (!is_plugin)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "no PJRT plugin: the library has no GetPjrtApi"),
                       "xla: takes the file of a PJRT plugin");
    return rn_hint(
        rn_fail(RN_UNSUPPORTED, "this is a PJRT plugin, but this build runs no graphs with XLA"),
        "models run on the CPU: --device cpu");
}

const rn_backend rn_xla_backend = {
    .name = "xla",
    .syntax = "xla:PLUGIN",
    .parse = parse,
    .open = open_xla,
    .errors = &rn_xla_errors,
};
