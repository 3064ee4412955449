// device.c — a GPU as a device: first whether it can serve at all, then context, kernels, memory.
//
// Whatever is taken on the way is released in the other order by one function, which is what
// destroying is, too.
#include "backend/cuda/cuda.h"
#include "backend/cuda/unaccounted.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/rows.h"
#include "base/checked.h"
#include "graph/fuse.h"
#include "memory/account.h"
#include "memory/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_BYTES     ((uint64_t)64 << 20) // the link's full rate begins below this
#define ROW_TABLE_BYTES ((uint64_t)1 << 20)  // a table of embeddings stays in its file from here on
enum { LEAST_CAPABILITY = 80, EARLY_RECORD_VERSION = 12030 };

// ---- memory -------------------------------------------------------------------------------------

static uint64_t rounding(const rn_gpu *gpu, uint64_t bytes) {
    return rn_cuda_memory_round(&gpu->memory, bytes) - bytes;
}

static rn_status take(rn_gpu *gpu, uint64_t bytes, rn_cu_address *out) {
    RN_TRY(rn_cuda_enter(&gpu->cuda));
    rn_status status = rn_cuda_memory_take(&gpu->memory, bytes, out);
    if (status == RN_NO_MEMORY && rn_pool_trim(gpu->pool, 0) > 0)
        status = rn_cuda_memory_take(&gpu->memory, bytes, out);
    rn_cuda_leave(&gpu->cuda);
    return status;
}

static rn_status alloc_rounded(rn_gpu *gpu, uint64_t bytes, rn_cu_address *out) {
    uint64_t more = rounding(gpu, bytes);
    RN_TRY(rn_cuda_unaccounted_reserve(gpu->ordinal, more));
    rn_status status = take(gpu, bytes, out);
    if (status == RN_OK)
        rn_cuda_unaccounted_count(gpu->ordinal, *out + bytes, more);
    else
        rn_cuda_unaccounted_unreserve(gpu->ordinal, more);
    return status;
}

static rn_status alloc(rn_device *device, rn_account account, uint64_t bytes, void **out) {
    rn_cu_address address = 0;
    (void)account; // the budget has been asked for the block, not for what it is rounded up by
    rn_status status = alloc_rounded(rn_gpu_of(device), bytes, &address);
    if (status == RN_NO_MEMORY || status == RN_OVER_BUDGET) device->refused_bytes = bytes;
    *out = status == RN_OK ? (void *)(uintptr_t)address : NULL;
    return status;
}

static void release(rn_device *device, void *block, uint64_t bytes) {
    rn_gpu *gpu = rn_gpu_of(device);
    rn_cuda_unaccounted_release(gpu->ordinal, (uintptr_t)block + bytes, rounding(gpu, bytes));
    if (rn_cuda_enter(&gpu->cuda) != RN_OK) return; // the device is gone, and its memory
    rn_cuda_memory_release(&gpu->memory, (uintptr_t)block, bytes);
    rn_cuda_leave(&gpu->cuda);
}

static rn_status alloc_host(rn_device *device, rn_account account, uint64_t bytes, void **out) {
    rn_gpu *gpu = rn_gpu_of(device);
    *out = NULL;
    RN_TRY(rn_cuda_enter(&gpu->cuda));
    rn_status status = rn_cuda_pinned_take(gpu->cuda.driver, account, bytes, out);
    rn_cuda_leave(&gpu->cuda);
    return status;
}

// Even without its context: pinned memory is the host's.
static void free_host(rn_device *device, rn_account account, void *block, uint64_t bytes) {
    rn_gpu *gpu = rn_gpu_of(device);
    bool entered = rn_cuda_enter(&gpu->cuda) == RN_OK;
    rn_cuda_pinned_release(gpu->cuda.driver, account, block, bytes);
    if (entered) rn_cuda_leave(&gpu->cuda);
}

static rn_status ask_free(rn_gpu *gpu, size_t *out_free, size_t *out_total) {
    const rn_cuda_driver *driver = gpu->cuda.driver;
    RN_TRY(rn_cuda_enter(&gpu->cuda));
    rn_status status = rn_cuda_check(driver, driver->mem_get_info(out_free, out_total),
                                     "asking for free device memory");
    rn_cuda_leave(&gpu->cuda);
    return status;
}

// What fails leaves the books as they were.
static void measure(rn_device *device) {
    uint64_t bytes;
    (void)!rn_cuda_device_measure(device, &bytes);
}

static uint64_t free_bytes(rn_device *device) {
    size_t bytes = 0, total;
    return ask_free(rn_gpu_of(device), &bytes, &total) == RN_OK ? bytes : 0;
}

// ---- what can be known without a context --------------------------------------------------------

typedef struct found_gpu {
    const rn_cuda_driver *driver;
    rn_cu_device device;
    char name[32], model[96]; // "cuda:0", "NVIDIA H200"
    rn_cuda_traits traits;
} found_gpu;

static rn_status find_device(int ordinal, found_gpu *found) {
    int count = 0;
    snprintf(found->name, sizeof found->name, "cuda:%d", ordinal);
    RN_TRY(rn_cuda_driver_get(&found->driver));
    const rn_cuda_driver *driver = found->driver;
    RN_TRY(rn_cuda_check(driver, driver->device_get_count(&count), found->name));
    if (ordinal < 0 || ordinal >= count)
        return rn_hint(
            rn_fail(RN_NOT_FOUND, "there is no %s: the driver counts %d", found->name, count),
            "devices are numbered from 0; CUDA_VISIBLE_DEVICES may hide some");
    RN_TRY(rn_cuda_driver_need_models(driver));
    RN_TRY(rn_cuda_check(driver, driver->device_get(&found->device, ordinal), found->name));
    return rn_cuda_check(driver,
                         driver->device_get_name(found->model, sizeof found->model, found->device),
                         found->name);
}

// The driver's own switch: it compiles the image's PTX, which has none of the code for sm_90a.
static bool is_ptx_forced(void) {
    const char *told = getenv("CUDA_FORCE_PTX_JIT");
    return told && told[0] != '\0' && strcmp(told, "0") != 0;
}

// sm_90a runs on nothing but 9.0, where the build has it.
static bool runs_90a(uint32_t capability) {
    return capability == 90 && !rn_cuda_images_get().lacks_90a && !is_ptx_forced();
}

static rn_status ask_traits(found_gpu *found) {
    static const int attributes[] = {RN_CU_ATTRIBUTE_MULTIPROCESSORS,
                                     RN_CU_ATTRIBUTE_CAPABILITY_MAJOR,
                                     RN_CU_ATTRIBUTE_CAPABILITY_MINOR, RN_CU_ATTRIBUTE_SHARED_MOST};
    int values[4] = {0};
    for (int i = 0; i < 4; i++)
        RN_TRY(rn_cuda_check(
            found->driver,
            found->driver->device_get_attribute(&values[i], attributes[i], found->device),
            found->name));
    uint32_t capability = (uint32_t)(values[1] * 10 + values[2]);
    found->traits = (rn_cuda_traits){.multiprocessors = (uint32_t)values[0],
                                     .capability = capability,
                                     .has_wgmma = runs_90a(capability),
                                     .shared_most = (uint32_t)values[3]};
    return RN_OK;
}

static rn_status check_gpu(int ordinal, found_gpu *found) {
    RN_TRY(find_device(ordinal, found));
    RN_TRY(ask_traits(found));
    if (found->traits.capability < LEAST_CAPABILITY)
        return rn_hint(rn_fail(RN_UNSUPPORTED,
                               "%s is there (%s), but its compute capability is %u.%u: kernels "
                               "need 8.0",
                               found->name, found->model, found->traits.capability / 10,
                               found->traits.capability % 10),
                       "models run on the CPU: --device cpu");
    if (rn_cuda_images_get().count == 0)
        return rn_hint(rn_fail(RN_UNSUPPORTED,
                               "%s is there (%s), but this library was built without CUDA "
                               "kernels: make cuda",
                               found->name, found->model),
                       "models run on the CPU: --device cpu");
    return RN_OK;
}

// ---- life ---------------------------------------------------------------------------------------

static void fill_caps(rn_gpu *gpu, const found_gpu *found) {
    rn_device_caps *caps = &gpu->base.caps;
    *caps = (rn_device_caps){
        .device = gpu->cuda.id,
        .memory_bytes = gpu->cuda.total_bytes,
        .kernels = rn_cuda_kernels,
        .backend = &rn_cuda_backend,
        .weight_layout = found->traits.has_wgmma ? rn_cuda_weight_layout : rn_cuda_tile_layout,
        .own_memory = true,
        .group_bytes = GROUP_BYTES,
        .row_table_bytes = ROW_TABLE_BYTES,
        .fusions = RN_FUSE_ALL | RN_FUSE_HALVES,
    };
    snprintf(caps->name, sizeof caps->name, "%s", found->name);
    snprintf(caps->hardware, sizeof caps->hardware, "%.63s", found->model);
    rn_gpu_guess_rates(gpu, caps);
}

static bool can(const rn_gpu *gpu, int attribute) {
    int value = 0;
    return gpu->cuda.driver->device_get_attribute(&value, attribute, gpu->cuda.device) ==
               RN_CU_SUCCESS &&
           value != 0;
}

static void learn(rn_gpu *gpu, const found_gpu *found) {
    gpu->traits = found->traits;
    gpu->has_words = found->driver->stream_wait_value64 && found->driver->stream_write_value64 &&
                     can(gpu, RN_CU_ATTRIBUTE_WORDS);
    gpu->starts_early = found->traits.has_wgmma; // elsewhere kernels do not wait by themselves
    gpu->records_early = gpu->starts_early && found->driver->version >= EARLY_RECORD_VERSION;
    fill_caps(gpu, found);
}

// Inside the context.
static rn_status equip(rn_gpu *gpu) {
    uint64_t outside;
    rn_cuda_unaccounted_entered(&gpu->cuda, gpu->ordinal);
    RN_TRY(rn_cuda_module_load(gpu->cuda.driver, gpu->traits.shared_most, &gpu->module));
    RN_TRY(rn_cuda_memory_open(&gpu->cuda, RN_HOST_OTHER, &gpu->memory));
    RN_TRY(rn_gpu_pool_open(gpu));
    RN_TRY(rn_cuda_streams_open(gpu));
    return rn_cuda_unaccounted_measure(&gpu->cuda, gpu->ordinal, &outside);
}

static rn_status start(rn_gpu *gpu, const found_gpu *found, uint32_t threads) {
    learn(gpu, found);
    RN_TRY(rn_cuda_enter(&gpu->cuda));
    rn_status status = equip(gpu);
    rn_cuda_leave(&gpu->cuda);
    RN_TRY(status);
    RN_TRY(rn_workers_create(threads, RN_HOST_OTHER, &gpu->base.workers));
    gpu->base.caps.threads = (uint32_t)rn_workers_count(gpu->base.workers);
    return RN_OK;
}

static void destroy(rn_device *device) {
    rn_gpu *gpu = rn_gpu_of(device);
    rn_workers_destroy(device->workers);
    bool entered = rn_cuda_enter(&gpu->cuda) == RN_OK;
    rn_cuda_streams_close(gpu);
    rn_lt_close(&gpu->lt);
    rn_gpu_pool_close(gpu);
    rn_cuda_words_close(&gpu->words);
    rn_cuda_memory_close(&gpu->memory);
    rn_cuda_module_unload(gpu->cuda.driver, &gpu->module);
    if (entered) rn_cuda_leave(&gpu->cuda);
    rn_cuda_device_close(&gpu->cuda);
    rn_cuda_unaccounted_end(gpu->ordinal);
    pthread_mutex_destroy(&gpu->links);
    rn_free(RN_HOST_OTHER, gpu, sizeof *gpu);
}

// What fails on the way back is not the error.
static rn_status give_up(rn_gpu *gpu) {
    rn_error_info error = *rn_last_error();
    destroy(&gpu->base);
    return rn_error_restore(&error);
}

static rn_status open_gpu(rn_gpu *gpu, const found_gpu *found, int ordinal) {
    RN_TRY(rn_cuda_unaccounted_begin(found->driver, ordinal, found->device));
    rn_status status = rn_cuda_device_open(ordinal, &gpu->cuda);
    if (status != RN_OK) rn_cuda_unaccounted_end(ordinal);
    return status;
}

rn_status rn_cuda_device_create(int ordinal, uint32_t threads, rn_device **out) {
    found_gpu found = {0};
    void *block = NULL;
    *out = NULL;
    RN_TRY(check_gpu(ordinal, &found));
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_gpu), &block));
    rn_gpu *gpu = block;
    gpu->ordinal = ordinal;
    rn_status status = open_gpu(gpu, &found, ordinal);
    if (status != RN_OK) {
        rn_free(RN_HOST_OTHER, gpu, sizeof *gpu);
        return status;
    }
    pthread_mutex_init(&gpu->links, NULL);
    rn_lt_init(&gpu->lt);
    rn_cuda_words_open(found.driver, &gpu->words);
    gpu->base.alloc = alloc;
    gpu->base.free = release;
    gpu->base.open_queue = rn_cuda_queue_open;
    gpu->base.ready_fence = rn_cuda_fence_ready;
    gpu->base.alloc_host = alloc_host;
    gpu->base.free_host = free_host;
    gpu->base.free_bytes = free_bytes;
    gpu->base.measure = measure;
    gpu->base.release_caches = rn_cuda_clear_caches;
    gpu->base.destroy = destroy;
    status = start(gpu, &found, threads);
    if (status != RN_OK) return give_up(gpu);
    *out = &gpu->base;
    return RN_OK;
}

// ---- what it holds ------------------------------------------------------------------------------

uint64_t rn_cuda_device_unaccounted(rn_device *device) {
    return rn_cuda_unaccounted_bytes(rn_gpu_of(device)->ordinal);
}

rn_status rn_cuda_device_measure(rn_device *device, uint64_t *out_bytes) {
    rn_gpu *gpu = rn_gpu_of(device);
    *out_bytes = 0;
    RN_TRY(rn_cuda_enter(&gpu->cuda));
    rn_status status = rn_cuda_unaccounted_measure(&gpu->cuda, gpu->ordinal, out_bytes);
    rn_cuda_leave(&gpu->cuda);
    return status;
}

rn_status rn_cuda_memory_info(rn_device *device, rn_gpu_memory_info *out) {
    rn_gpu *gpu = rn_gpu_of(device);
    size_t unused = 0, total = 0;
    *out = (rn_gpu_memory_info){0};
    RN_TRY(ask_free(gpu, &unused, &total));
    rn_ledger_line line = rn_ledger_total(gpu->cuda.id);
    uint64_t taken = total - rn_min_u64(total, unused);
    *out = (rn_gpu_memory_info){.total_bytes = total,
                                .free_bytes = unused,
                                .used_bytes = line.now_bytes,
                                .peak_bytes = line.peak_bytes,
                                .unaccounted_bytes = rn_cuda_device_unaccounted(device),
                                .others_bytes = taken - rn_min_u64(taken, line.now_bytes)};
    return RN_OK;
}
