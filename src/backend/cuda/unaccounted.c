// unaccounted.c — used by the process, less what the ledger knows of.
#include "backend/cuda/unaccounted.h"
#include "backend/cuda/nvml.h"
#include "base/checked.h"
#include "memory/budget.h"
#include "memory/ledger.h"

#include <pthread.h>

#define GRANULE_BYTES ((uint64_t)2 << 20)

typedef struct gpu_use {
    uint32_t devices; // that are open
    rn_device_id id;
    char pci_bus_id[32];
    bool by_nvml;                // before_bytes is NVML's, and so without the context
    uint64_t before_bytes;       // in use by anybody when the first was opened
    uint64_t known_before_bytes; // of them, the ledger's
    uint64_t measured_bytes;
    _Atomic uint64_t rounding_bytes;
} gpu_use;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gpu_use gpus[RN_DEVICE_MAX]; // by ordinal, under lock but for the id and rounding

static gpu_use *find(int ordinal) {
    return &gpus[ordinal];
}

static rn_account account_of(const gpu_use *gpu) {
    return (rn_account){gpu->id, RN_PURPOSE_UNACCOUNTED, NULL};
}

// What the ledger knows of on the device, all but what is measured here.
static uint64_t known_bytes(gpu_use *gpu) {
    uint64_t bytes = atomic_load(&gpu->rounding_bytes);
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (p != RN_PURPOSE_UNACCOUNTED) bytes += rn_ledger_read(gpu->id, (rn_purpose)p).now_bytes;
    return bytes;
}

static void set_measured(gpu_use *gpu, uint64_t bytes) {
    if (gpu->measured_bytes == bytes) return;
    if (gpu->measured_bytes) rn_ledger_release(account_of(gpu), gpu, gpu->measured_bytes);
    if (bytes) rn_ledger_charge(account_of(gpu), gpu, bytes);
    gpu->measured_bytes = bytes;
}

// ---- measuring --------------------------------------------------------------------------------

static rn_status used_by_all(const gpu_use *gpu, const rn_cuda_device *device, uint64_t *out) {
    size_t free_bytes = 0, total = 0;
    if (gpu->by_nvml && rn_nvml_used(gpu->pci_bus_id, out)) return RN_OK;
    RN_TRY(rn_cuda_check(device->driver, device->driver->mem_get_info(&free_bytes, &total),
                         "asking for free device memory"));
    *out = total - free_bytes;
    return RN_OK;
}

static rn_status measure(gpu_use *gpu, const rn_cuda_device *device) {
    uint64_t used = 0, known = known_bytes(gpu);
    if (!rn_nvml_used_here(gpu->pci_bus_id, &used)) {
        RN_TRY(used_by_all(gpu, device, &used));
        known += gpu->before_bytes - rn_min_u64(gpu->before_bytes, gpu->known_before_bytes);
    }
    set_measured(gpu, rn_round_up(used - rn_min_u64(used, known), GRANULE_BYTES));
    return RN_OK;
}

rn_status rn_cuda_unaccounted_measure(const rn_cuda_device *device, int ordinal,
                                      uint64_t *out_bytes) {
    pthread_mutex_lock(&lock);
    rn_status status = measure(find(ordinal), device);
    pthread_mutex_unlock(&lock);
    *out_bytes = rn_cuda_unaccounted_bytes(ordinal);
    return status;
}

uint64_t rn_cuda_unaccounted_bytes(int ordinal) {
    pthread_mutex_lock(&lock);
    uint64_t bytes = find(ordinal)->measured_bytes + atomic_load(&find(ordinal)->rounding_bytes);
    pthread_mutex_unlock(&lock);
    return bytes;
}

// ---- rounding ---------------------------------------------------------------------------------

static const void *behind(uint64_t address) {
    return (const void *)(uintptr_t)address;
}

rn_status rn_cuda_unaccounted_reserve(int ordinal, uint64_t bytes) {
    return bytes ? rn_budget_reserve(account_of(find(ordinal)), bytes) : RN_OK;
}

void rn_cuda_unaccounted_count(int ordinal, uint64_t address, uint64_t bytes) {
    if (bytes == 0) return;
    rn_ledger_count(account_of(find(ordinal)), behind(address), bytes);
    atomic_fetch_add(&find(ordinal)->rounding_bytes, bytes);
}

void rn_cuda_unaccounted_unreserve(int ordinal, uint64_t bytes) {
    if (bytes) rn_ledger_unreserve(find(ordinal)->id, bytes);
}

void rn_cuda_unaccounted_release(int ordinal, uint64_t address, uint64_t bytes) {
    if (bytes == 0) return;
    rn_ledger_release(account_of(find(ordinal)), behind(address), bytes);
    atomic_fetch_sub(&find(ordinal)->rounding_bytes, bytes);
}

// ---- life -------------------------------------------------------------------------------------

static rn_status begin(const rn_cuda_driver *driver, int ordinal, rn_cu_device device) {
    gpu_use *gpu = find(ordinal);
    if (gpu->devices == 0) {
        *gpu = (gpu_use){0};
        RN_TRY(rn_cuda_device_id(ordinal, &gpu->id));
        if (driver->device_get_pci_bus_id(gpu->pci_bus_id, sizeof gpu->pci_bus_id, device) ==
            RN_CU_SUCCESS)
            gpu->by_nvml = rn_nvml_used(gpu->pci_bus_id, &gpu->before_bytes);
        gpu->known_before_bytes = known_bytes(gpu);
    }
    gpu->devices++;
    return RN_OK;
}

rn_status rn_cuda_unaccounted_begin(const rn_cuda_driver *driver, int ordinal,
                                    rn_cu_device device) {
    if (ordinal >= RN_DEVICE_MAX)
        return rn_fail(RN_UNSUPPORTED, "cuda:%d: %d GPUs at most", ordinal, RN_DEVICE_MAX);
    pthread_mutex_lock(&lock);
    rn_status status = begin(driver, ordinal, device);
    pthread_mutex_unlock(&lock);
    return status;
}

void rn_cuda_unaccounted_entered(const rn_cuda_device *device, int ordinal) {
    pthread_mutex_lock(&lock);
    gpu_use *gpu = find(ordinal);
    if (gpu->devices == 1 && !gpu->by_nvml) (void)!used_by_all(gpu, device, &gpu->before_bytes);
    pthread_mutex_unlock(&lock);
}

void rn_cuda_unaccounted_end(int ordinal) {
    pthread_mutex_lock(&lock);
    gpu_use *gpu = find(ordinal);
    if (--gpu->devices == 0) set_measured(gpu, 0);
    pthread_mutex_unlock(&lock);
}
