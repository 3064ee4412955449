// allocate.c — device memory for programs of their own: the pool of memory/pool.c over mapped parts
// of the device (source.c).
#include "backend/cuda/cuda.h"
#include "memory/account.h"
#include "memory/pool.h"

rn_status rn_gpu_pool_open(rn_gpu *gpu) {
    RN_TRY(rn_cuda_source_open(&gpu->cuda, NULL, RN_HOST_OTHER, &gpu->source));
    rn_status status =
        rn_pool_create_in(RN_HOST_OTHER, rn_cuda_source_functions(&gpu->source), NULL, &gpu->pool);
    if (status != RN_OK) {
        rn_cuda_source_close(&gpu->source);
        return status;
    }
    gpu->live = (rn_cuda_blocks){.from = RN_HOST_OTHER};
    pthread_mutex_init(&gpu->live_lock, NULL);
    return RN_OK;
}

void rn_gpu_pool_close(rn_gpu *gpu) {
    if (!gpu->pool) return;
    rn_pool_destroy(gpu->pool);
    rn_cuda_source_close(&gpu->source);
    rn_cuda_blocks_free(&gpu->live);
    pthread_mutex_destroy(&gpu->live_lock);
}

static rn_status remember(rn_gpu *gpu, rn_pool_block block) {
    pthread_mutex_lock(&gpu->live_lock);
    rn_status status = rn_cuda_blocks_add(&gpu->live, (rn_cuda_block){.block = block});
    pthread_mutex_unlock(&gpu->live_lock);
    if (status != RN_OK) rn_pool_free(gpu->pool, block);
    return status;
}

rn_status rn_cuda_allocate(rn_device *device, size_t bytes, void **out) {
    rn_gpu *gpu = rn_gpu_of(device);
    rn_pool_block block;
    *out = NULL;
    if (bytes == 0) return RN_OK;
    rn_status status = rn_pool_alloc(gpu->pool, bytes, 0, &block);
    if ((status == RN_OVER_BUDGET || status == RN_NO_MEMORY) && rn_cuda_clear_caches(device) > 0)
        status = rn_pool_alloc(gpu->pool, bytes, 0, &block);
    if (status == RN_OK) status = remember(gpu, block);
    if (status == RN_OK) *out = (void *)(uintptr_t)block.address;
    return status;
}

void rn_cuda_deallocate(rn_device *device, void *block) {
    rn_gpu *gpu = rn_gpu_of(device);
    rn_pool_block gone = {0};
    pthread_mutex_lock(&gpu->live_lock);
    rn_cuda_block *found = block ? rn_cuda_blocks_find(&gpu->live, (uintptr_t)block) : NULL;
    if (found) {
        gone = found->block;
        rn_cuda_blocks_remove(&gpu->live, found);
    }
    pthread_mutex_unlock(&gpu->live_lock);
    if (gone.address) rn_pool_free(gpu->pool, gone);
}

static rn_pool_stats stats_of(rn_device *device) {
    rn_pool_stats stats;
    rn_pool_get_stats(rn_gpu_of(device)->pool, &stats);
    return stats;
}

uint64_t rn_cuda_current_bytes(rn_device *device) {
    return stats_of(device).allocated_bytes;
}

uint64_t rn_cuda_peak_bytes(rn_device *device) {
    return stats_of(device).peak_bytes;
}

uint64_t rn_cuda_clear_caches(rn_device *device) {
    return rn_pool_trim(rn_gpu_of(device)->pool, 0);
}
