// driver.c — the table is filled by a loop over its rows; a code becomes a status by one table.
#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- loading ----------------------------------------------------------------------------------

typedef struct row {
    const char *symbol;
    size_t offset; // of its field
    rn_cuda_need need;
} row;

static const row rows[] = {
#define RN_CUDA(need, field, symbol, arguments)                                                    \
    {#symbol, offsetof(rn_cuda_driver, field), RN_CUDA_NEED_##need},
#include "backend/cuda/driver.def"
#undef RN_CUDA
};

static rn_status find_functions(const char *path, rn_cuda_driver *driver) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = dlsym(driver->library, rows[i].symbol);
        const char **lacks = &driver->lacks[rows[i].need];
        if (!function && !*lacks) *lacks = rows[i].symbol;
        memcpy((char *)driver + rows[i].offset, &function, sizeof function);
    }
    driver->has_vmm = !driver->lacks[RN_CUDA_NEED_VMM];
    const char *missing = driver->lacks[RN_CUDA_NEED_MEMORY];
    if (!missing) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED, "the CUDA driver %s has no %s", path, missing),
                   "it is too old, or no CUDA driver; 11.0 and later will do");
}

rn_status rn_cuda_driver_need_models(const rn_cuda_driver *driver) {
    const char *missing = driver->lacks[RN_CUDA_NEED_MODELS];
    if (!missing) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED, "the CUDA driver (%d.%d) is too old: it has no %s",
                           driver->version / 1000, driver->version % 1000 / 10, missing),
                   "install a newer NVIDIA driver");
}

rn_status rn_cuda_driver_load(const char *path, rn_cuda_driver *out) {
    *out = (rn_cuda_driver){.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!out->library)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "no CUDA driver: %s", dlerror()),
                       "CUDA needs NVIDIA's driver; $RATION_CUDA_DRIVER names its library where "
                       "the system does not find libcuda.so.1");
    rn_status status = find_functions(path, out);
    if (status == RN_OK)
        status = rn_cuda_check(out, out->driver_get_version(&out->version), "asking its version");
    if (status != RN_OK) rn_cuda_driver_unload(out);
    return status;
}

void rn_cuda_driver_unload(rn_cuda_driver *driver) {
    if (driver->library) dlclose(driver->library);
    *driver = (rn_cuda_driver){0};
}

static rn_status start(rn_cuda_driver *driver) {
    const char *constraint = getenv("RATION_CUDA_DRIVER");
    RN_TRY(rn_cuda_driver_load(constraint && *constraint ? constraint : "libcuda.so.1", driver));
    rn_status status = rn_cuda_check(driver, driver->init(0), "starting the CUDA driver");
    if (status != RN_OK) rn_cuda_driver_unload(driver);
    return status;
}

rn_status rn_cuda_driver_get(const rn_cuda_driver **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static rn_cuda_driver driver; // under lock until it is ready, then constant
    static _Atomic bool ready;
    *out = &driver;
    if (atomic_load_explicit(&ready, memory_order_acquire)) return RN_OK;
    pthread_mutex_lock(&lock);
    rn_status status = atomic_load(&ready) ? RN_OK : start(&driver);
    if (status == RN_OK) atomic_store_explicit(&ready, true, memory_order_release);
    pthread_mutex_unlock(&lock);
    return status;
}

// ---- codes ------------------------------------------------------------------------------------

typedef struct meaning {
    rn_cu_result code;
    rn_status status;
    const char *hint;
} meaning;

static const meaning meanings[] = {
    {RN_CU_OUT_OF_MEMORY, RN_NO_MEMORY,
     "other processes may hold the device's memory, too: see nvidia-smi"},
    {34, RN_UNSUPPORTED, "this is the toolkit's stub of libcuda, made for linking only"},
    {36, RN_UNSUPPORTED, "install a newer NVIDIA driver"},
    {46, RN_DEVICE, "another process has the device for itself"},
    {100, RN_UNSUPPORTED, "nvidia-smi lists the devices; CUDA_VISIBLE_DEVICES may hide them"},
    {101, RN_INVALID, "devices are numbered from 0; CUDA_VISIBLE_DEVICES may hide some"},
    {200, RN_UNSUPPORTED, "the kernels were not built for this device, or are damaged: make cuda"},
    {201, RN_DEVICE, "the context was destroyed: has the device been reset meanwhile?"},
    {209, RN_UNSUPPORTED,
     "the kernels were not built for this device or driver: install a newer "
     "NVIDIA driver, or build with this machine's toolkit (make cuda)"},
    {214, RN_DEVICE, "the device's memory is damaged (ECC)"},
    {218, RN_UNSUPPORTED, "the driver could not compile the kernels for this device"},
    {222, RN_UNSUPPORTED, "the kernels are newer than the driver: install a newer NVIDIA driver"},
    {700, RN_DEVICE, "a kernel touched memory that is not its own; the process must be restarted"},
    {719, RN_DEVICE, "a kernel failed; the process must be restarted"},
    {801, RN_UNSUPPORTED, "this device or driver cannot do it"},
    {802, RN_UNSUPPORTED, "the system is not ready: is the fabric manager running?"},
    {803, RN_UNSUPPORTED, "the driver's library and kernel module differ: restart the machine"},
    {804, RN_UNSUPPORTED, "the forward compatibility library does not serve this device"},
    {900, RN_DEVICE, "this is not allowed while a CUDA graph is captured"},
};

static const meaning *find_meaning(rn_cu_result code) {
    static const meaning other = {0, RN_DEVICE, "see the system's log (dmesg) for NVRM messages"};
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].code == code) return &meanings[i];
    return &other;
}

rn_status rn_cuda_check(const rn_cuda_driver *driver, rn_cu_result code, const char *what) {
    if (code == RN_CU_SUCCESS) return RN_OK;
    const char *name = NULL, *text = NULL; // both stay NULL for a code that the driver forgot
    (void)driver->get_error_name(code, &name);
    (void)driver->get_error_string(code, &text);
    const meaning *found = find_meaning(code);
    return rn_hint(rn_fail(found->status, "%s: %s (%d): %s", what, name ? name : "unknown code",
                           code, text ? text : "the driver has no text for it"),
                   "%s", found->hint);
}

// ---- devices ----------------------------------------------------------------------------------

rn_status rn_cuda_device_id(int ordinal, rn_device_id *out) {
    char name[24];
    snprintf(name, sizeof name, "cuda:%d", ordinal);
    return rn_device_add(name, out);
}

static rn_cu_memory_kind kind_of(rn_cu_device device) {
    return (rn_cu_memory_kind){.type = RN_CU_MEMORY_PINNED,
                               .location = {RN_CU_LOCATION_DEVICE, device}};
}

// Mapping costs by the piece: on an H200 8 GiB took 184 ms in pieces of 2 MiB, 20 ms in pieces of
// 16. The whole device's memory is fewer pieces than this.
enum { MOST_PARTS = 16384 };

// 0 where the driver or the device has no virtual memory: then whole chunks serve.
static size_t ask_part_bytes(const rn_cuda_driver *driver, rn_cu_device device,
                             size_t total_bytes) {
    int supported = 0;
    size_t bytes = 0;
    rn_cu_memory_kind kind = kind_of(device);
    if (!driver->has_vmm ||
        driver->device_get_attribute(&supported, RN_CU_ATTRIBUTE_VMM, device) != RN_CU_SUCCESS ||
        !supported ||
        driver->mem_get_allocation_granularity(&bytes, &kind, RN_CU_GRANULARITY_MINIMUM) !=
            RN_CU_SUCCESS)
        return 0;
    if (bytes & (bytes - 1)) return 0; // a pool's parts are powers of two
    while (bytes && bytes <= total_bytes / MOST_PARTS)
        bytes *= 2;
    return bytes;
}

rn_status rn_cuda_device_open(int ordinal, rn_cuda_device *out) {
    const rn_cuda_driver *driver;
    size_t total = 0;
    rn_cu_device device = 0;
    rn_cu_context context = NULL;
    rn_device_id id;
    RN_TRY(rn_cuda_driver_get(&driver));
    RN_TRY(rn_cuda_device_id(ordinal, &id));
    RN_TRY(rn_cuda_check(driver, driver->device_get(&device, ordinal), "finding the device"));
    RN_TRY(rn_cuda_check(driver, driver->device_total_mem(&total, device), "asking its memory"));
    RN_TRY(rn_cuda_check(driver, driver->primary_ctx_retain(&context, device),
                         "taking the device's context"));
    *out = (rn_cuda_device){.driver = driver,
                            .device = device,
                            .context = context,
                            .id = id,
                            .total_bytes = total,
                            .part_bytes = ask_part_bytes(driver, device, total)};
    return RN_OK;
}

void rn_cuda_device_close(rn_cuda_device *device) {
    (void)device->driver->primary_ctx_release(device->device);
}

rn_status rn_cuda_enter(const rn_cuda_device *device) {
    return rn_cuda_check(device->driver, device->driver->ctx_push_current(device->context),
                         "entering the device's context");
}

void rn_cuda_leave(const rn_cuda_device *device) {
    rn_cu_context left;
    (void)device->driver->ctx_pop_current(&left);
}
