// nvml.c — libnvidia-ml.so.1 comes with the driver; a few of its functions, found once.
#include "backend/cuda/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef struct memory_use { // nvmlMemory_t
    unsigned long long total, free, used;
} memory_use;
typedef struct process_use { // nvmlProcessInfo_t of version 3
    unsigned process;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process_use;

enum { MOST_PROCESSES = 64 };

static struct {
    int (*init)(void);
    int (*find)(const char *pci_bus_id, void **out_device);
    int (*memory)(void *device, memory_use *out);
    int (*processes)(void *device, unsigned *count, process_use *out);
    int (*generation)(void *device, unsigned *out); // these two may be missing
    int (*lanes)(void *device, unsigned *out);
} nvml;
static bool is_there;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool look_up(void *library, const char *symbol, void *field) {
    void *function = dlsym(library, symbol);
    memcpy(field, &function, sizeof function);
    return function != NULL;
}

// Stays loaded: the driver has it open as well.
static void find_library(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    is_there = library && look_up(library, "nvmlInit_v2", &nvml.init) &&
               look_up(library, "nvmlDeviceGetHandleByPciBusId_v2", &nvml.find) &&
               look_up(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) &&
               look_up(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes) &&
               nvml.init() == 0;
    if (!is_there) return;
    (void)look_up(library, "nvmlDeviceGetMaxPcieLinkGeneration", &nvml.generation);
    (void)look_up(library, "nvmlDeviceGetMaxPcieLinkWidth", &nvml.lanes);
}

static bool find_device(const char *pci_bus_id, void **out) {
    pthread_once(&once, find_library);
    return is_there && nvml.find(pci_bus_id, out) == 0;
}

bool rn_nvml_used(const char *pci_bus_id, uint64_t *out_bytes) {
    void *device;
    memory_use use;
    if (!find_device(pci_bus_id, &device) || nvml.memory(device, &use) != 0) return false;
    *out_bytes = use.used;
    return true;
}

bool rn_nvml_used_here(const char *pci_bus_id, uint64_t *out_bytes) {
    void *device;
    process_use uses[MOST_PROCESSES];
    unsigned count = MOST_PROCESSES;
    if (!find_device(pci_bus_id, &device) || nvml.processes(device, &count, uses) != 0)
        return false;
    for (unsigned i = 0; i < count; i++)
        if (count == 1 || uses[i].process == (unsigned)getpid()) {
            *out_bytes = uses[i].used;
            return uses[i].used != UINT64_MAX; // "not available"
        }
    return false;
}

bool rn_nvml_link(const char *pci_bus_id, unsigned *out_generation, unsigned *out_lanes) {
    void *device;
    return find_device(pci_bus_id, &device) && nvml.generation && nvml.lanes &&
           nvml.generation(device, out_generation) == 0 && nvml.lanes(device, out_lanes) == 0;
}
