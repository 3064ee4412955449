// find.c — the file of a plugin by its name, among the packages of the Pythons that are at hand.
//
// $RATION_XLA_PLUGIN (and $NEURON_LIBRARY_PATH for Neuron) is a file. Otherwise packages are looked
// through (device/python_packages.h).
#include "backend/pjrt/pjrt.h"

#include "base/file.h"
#include "device/python_packages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct kind {
    const char *name;
    const char *variable; // a file
    const char *files[5]; // below a folder of packages; patterns, ended by NULL
} kind;

static const kind kinds[] = {
    {"cpu", "RATION_XLA_PLUGIN", {"xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"}},
    {"cuda",
     "RATION_XLA_CUDA_PLUGIN",
     {"jax_plugins/xla_cuda13/xla_cuda_plugin.so", "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
      "xla_plugins/xla_cuda13_pjrt/*.so", "xla_plugins/xla_cuda12_pjrt/*.so"}},
    {"rocm", "RATION_XLA_ROCM_PLUGIN", {"jax_plugins/xla_rocm*/xla_rocm_plugin.so"}},
    {"tpu", "TPU_LIBRARY_PATH", {"libtpu/libtpu.so"}},
    {"neuron", "NEURON_LIBRARY_PATH", {"libneuronxla/libneuronpjrt.so"}},
};

static rn_status refuse(const kind *of, const char *looked) {
    return rn_hint(rn_fail(RN_NOT_FOUND, "there is no PJRT plugin for %s in %s", of->name, looked),
                   "set %s to its file, name it with xla:FILE, or install its package (xla:cpu is "
                   "in xla-cpu-pjrt, xla:cuda in jax-cuda13-plugin, neuron in libneuronxla)",
                   of->variable);
}

rn_status rn_pjrt_find(const char *name, char *out, size_t bytes) {
    const kind *of = NULL;
    char looked[700];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) of = &kinds[i];
    if (!of)
        return rn_hint(rn_fail(RN_NOT_FOUND, "no PJRT plugin is known as \"%s\"", name),
                       "xla:cpu, xla:cuda, xla:rocm, xla:tpu, or the plugin's file");
    const char *told = getenv(of->variable);
    if (told && told[0]) {
        if (strlen(told) >= bytes) return rn_fail(RN_INVALID, "the path %s is too long", told);
        strcpy(out, told);
        return RN_OK;
    }
    return rn_python_find(of->files, out, bytes, looked, sizeof looked) ? RN_OK
                                                                        : refuse(of, looked);
}

rn_status rn_pjrt_cache_path(const char *name, char *out, size_t bytes) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[400];
    if (cache && cache[0] == '/')
        snprintf(folder, sizeof folder, "%s", cache);
    else if (home && home[0] == '/')
        snprintf(folder, sizeof folder, "%s/.cache", home);
    else
        return rn_fail(RN_NOT_FOUND, "there is no cache folder");
    (void)!mkdir(folder, 0700);
    size_t used = strlen(folder);
    snprintf(folder + used, sizeof folder - used, "/ration");
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return rn_file_fail("make", folder);
    return rn_path_join(folder, name, out, bytes);
}
