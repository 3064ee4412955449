// preload.h — what a plugin wants to find in the process: NVIDIA's libraries beside a CUDA plugin,
// Neuron's environment.
//
// Both the library and the program that tries a plugin do this, so it includes nothing of ration.
#ifndef RN_BACKEND_PJRT_PRELOAD_H
#define RN_BACKEND_PJRT_PRELOAD_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Whether the plugin is one for CUDA, by its name or that of its folder: its pool is given a limit
// before anything can be asked.
static inline bool rn_pjrt_is_cuda(const char *plugin) {
    const char *at = strrchr(plugin, '/');
    while (at && at > plugin && at[-1] != '/')
        at--; // the folder's name
    return strstr(at ? at : plugin, "cuda") != NULL;
}

// The plugin of a Python package lies in <packages>/jax_plugins/<name>/, NVIDIA's libraries in
// <packages>/nvidia/. Those that are not there are found by the system, or not needed.
static inline void rn_pjrt_preload_nvidia(const char *plugin) {
    static const char *const libraries[] = {
        "cu13/lib/libcudart.so.13",         "cu13/lib/libnvrtc.so.13",
        "cu13/lib/libnvJitLink.so.13",      "cu13/lib/libcublasLt.so.13",
        "cu13/lib/libcublas.so.13",         "cu13/lib/libcupti.so.13",
        "cu13/lib/libcusparse.so.12",       "cu13/lib/libcusolver.so.12",
        "cu13/lib/libcufft.so.12",          "nccl/lib/libnccl.so.2",
        "nvshmem/lib/libnvshmem_host.so.3", "cudnn/lib/libcudnn.so.9"};
    const char *folder = strstr(plugin, "/jax_plugins/");
    if (!folder) folder = strstr(plugin, "/xla_plugins/");
    if (!folder || !rn_pjrt_is_cuda(plugin)) return;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%.*s/nvidia/%s", (int)(folder - plugin), plugin, libraries[i]);
        (void)dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
}

// Neuron's plugin speaks the version that it is told before it is asked for its table, and wants
// the sizes of exactly that one. What the user has set stays.
static inline void rn_pjrt_prepare_neuron(const char *plugin) {
    if (!strstr(plugin, "neuron")) return;
    setenv("NEURON_INTERNAL_PJRT_C_API_VERSION", "0.104", 0);
    setenv("NEURON_RT_LOG_LEVEL", "error", 0);
    setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", "0", 0); // the same output every time
}

static inline void rn_pjrt_preload(const char *plugin) {
    setenv("TF_CPP_MIN_LOG_LEVEL", "2", 0); // XLA tells of every client on standard error
    rn_pjrt_prepare_neuron(plugin);
    rn_pjrt_preload_nvidia(plugin);
}

#endif
