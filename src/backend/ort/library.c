// library.c — finds and loads ONNX Runtime, once in a process.
//
// $RATION_ORT is its file. Otherwise it is looked for in Python's packages (onnxruntime carries the
// C library), then by the system's loader. It is never unloaded.
#include "backend/ort/ort.h"

#include "base/clock.h"
#include "device/python_packages.h"

#include <ration/log.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rn_ort_api api;
static const char *version; // NULL: it is not loaded
static void *env, *cpu_memory;

void *rn_ort_env(void) {
    return env;
}

const char *rn_ort_version(void) {
    return version;
}

const void *rn_ort_cpu_memory(void) {
    return cpu_memory;
}

bool rn_ort_shares_initializers(void) {
    int minor = 0;
    return version && sscanf(version, "1.%d", &minor) == 1 && minor >= 22;
}

rn_status rn_ort_check(rn_ort_status *status, const char *doing) {
    return rn_ort_check_with(&api, status, doing);
}

// ---- loading ------------------------------------------------------------------------------------

static void *open_library(const char *path, char *looked, size_t looked_bytes) {
    static const char *const packages[] = {"onnxruntime/capi/libonnxruntime.so.1*", NULL};
    static const char *const names[] = {"libonnxruntime.so.1", "libonnxruntime.so"};
    char found[1024];
    const char *told = getenv("RATION_ORT");
    looked[0] = 0;
    if (!path[0] && told && told[0]) path = told;
    if (path[0]) return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (rn_python_find(packages, found, sizeof found, looked, looked_bytes))
        return dlopen(found, RTLD_LAZY | RTLD_LOCAL);
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
    return library;
}

static rn_status refuse_library(const char *looked) {
    const char *why = dlerror();
    return rn_hint(rn_fail(RN_NOT_FOUND, "there is no ONNX Runtime: %s%s%s",
                           why ? why : "it cannot be loaded", looked[0] ? "; looked in " : "",
                           looked),
                   "set RATION_ORT to libonnxruntime.so, name it with ort:FILE, or install the "
                   "Python package onnxruntime");
}

static void take_functions(const void *table) {
    void *const *functions = table;
#define RN_ORT(number, name, arguments) memcpy(&api.name, &functions[number], sizeof api.name);
    RN_ORT_FUNCTIONS
#undef RN_ORT
    memcpy(&api.error_code, &functions[1], sizeof api.error_code);
    memcpy(&api.error_message, &functions[2], sizeof api.error_message);
    memcpy(&api.release_status, &functions[93], sizeof api.release_status);
    memcpy(&api.release_session, &functions[95], sizeof api.release_session);
    memcpy(&api.release_value, &functions[96], sizeof api.release_value);
    memcpy(&api.release_run_options, &functions[97], sizeof api.release_run_options);
    memcpy(&api.release_options, &functions[100], sizeof api.release_options);
    memcpy(&api.release_binding, &functions[135], sizeof api.release_binding);
}

static rn_status start(void) {
    enum { WARNINGS_OFF = 4, DEVICE_ALLOCATOR = 0, DEFAULT_MEMORY = 0 };
    RN_ORT_TRY(api.create_env(WARNINGS_OFF, "ration", &env), "starting");
    RN_ORT_TRY(api.create_cpu_memory(DEVICE_ALLOCATOR, DEFAULT_MEMORY, &cpu_memory), "starting");
    return rn_ort_check(api.register_allocator(env, rn_ort_allocator_get()), "starting");
}

static rn_status load(const char *path) {
    char looked[700];
    uint64_t begin = rn_clock_ns();
    void *library = open_library(path, looked, sizeof looked);
    if (!library) return refuse_library(looked);
    void *symbol = dlsym(library, "OrtGetApiBase");
    rn_ort_get_base get;
    memcpy(&get, &symbol, sizeof get);
    const rn_ort_base *base = get ? get() : NULL;
    if (!base)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "no ONNX Runtime: it has no OrtGetApiBase"),
                       "ort: takes the file libonnxruntime.so");
    // A library that is too old says so on stderr; its version is looked at first.
    int major = 0, minor = 0;
    if (sscanf(base->get_version(), "%d.%d", &major, &minor) != 2 || major != 1 ||
        minor < RN_ORT_VERSION)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "ONNX Runtime %s is not known; 1.%d and later are",
                               base->get_version(), RN_ORT_VERSION),
                       "a newer release of onnxruntime");
    const void *table = base->get_api(RN_ORT_VERSION);
    if (!table) return rn_fail(RN_UNSUPPORTED, "ONNX Runtime has no interface of version 17");
    take_functions(table);
    RN_TRY(start());
    version = base->get_version();
    rn_log(RN_LOG_INFO, "ort", "ONNX Runtime %s, loaded in %.0f ms", version,
           (double)(rn_clock_ns() - begin) * 1e-6);
    return RN_OK;
}

rn_status rn_ort_load(const char *path, const rn_ort_api **out) {
    pthread_mutex_lock(&lock);
    rn_status s = version ? RN_OK : load(path);
    pthread_mutex_unlock(&lock);
    *out = &api;
    return s;
}
