// memory.c — one allocation (cuMemCreate) a block: fewer and larger pieces are mapped sooner, and a
// block comes and goes as a whole. Its handle is let go as soon as it is mapped: the memory then
// lives exactly as long as the mapping.
#include "backend/cuda/memory.h"
#include "base/checked.h"
#include "memory/ledger.h"

#define GRANULE_BYTES ((size_t)2 << 20) // where the device cannot map and so does not say
#define SPAN_FACTOR   4

// ---- addresses --------------------------------------------------------------------------------

static rn_status take_addresses(rn_cuda_memory *memory, uint64_t bytes, uint64_t *out) {
    rn_offset_block block;
    pthread_mutex_lock(&memory->lock);
    rn_offsets_result result = rn_offsets_alloc(memory->addresses, bytes, 1, &block);
    if (result == RN_OFFSETS_DONE) {
        rn_offsets_free(memory->addresses, block);
        result = rn_offsets_remove(memory->addresses, block.offset, bytes);
        *out = block.offset;
    }
    pthread_mutex_unlock(&memory->lock);
    if (result == RN_OFFSETS_NO_NODE) return rn_last_error()->status;
    if (result == RN_OFFSETS_NO_ROOM)
        return rn_fail(RN_NO_MEMORY, "%s has no %s of addresses left",
                       rn_device_name(memory->device->id), rn_size_format(bytes).text);
    return RN_OK;
}

// Without memory for the books the addresses are lost, which costs no memory.
static void return_addresses(rn_cuda_memory *memory, uint64_t address, uint64_t bytes) {
    pthread_mutex_lock(&memory->lock);
    (void)!rn_offsets_add(memory->addresses, address, bytes, true);
    pthread_mutex_unlock(&memory->lock);
}

// ---- blocks -----------------------------------------------------------------------------------

static rn_cu_result map(const rn_cuda_memory *memory, uint64_t address, uint64_t bytes) {
    const rn_cuda_driver *driver = memory->device->driver;
    rn_cu_location here = {RN_CU_LOCATION_DEVICE, memory->device->device};
    rn_cu_memory_kind kind = {.type = RN_CU_MEMORY_PINNED, .location = here};
    rn_cu_access access = {here, RN_CU_ACCESS_READ_WRITE};
    rn_cu_memory made;
    rn_cu_result code = driver->mem_create(&made, bytes, &kind, 0);
    if (code != RN_CU_SUCCESS) return code;
    code = driver->mem_map(address, bytes, 0, made, 0);
    (void)driver->mem_release(made);
    if (code != RN_CU_SUCCESS) return code;
    code = driver->mem_set_access(address, bytes, &access, 1);
    if (code != RN_CU_SUCCESS) (void)driver->mem_unmap(address, bytes);
    return code;
}

// Somebody else may hold what the ledger thinks is free.
static rn_status refuse(const rn_cuda_memory *memory, rn_cu_result code, uint64_t bytes) {
    const rn_cuda_driver *driver = memory->device->driver;
    size_t free_bytes = 0, total = 0;
    rn_status status = rn_cuda_check(driver, code, "allocating device memory");
    if (status != RN_NO_MEMORY || driver->mem_get_info(&free_bytes, &total) != RN_CU_SUCCESS)
        return status;
    return rn_hint(
        rn_fail(RN_NO_MEMORY,
                "%s of device memory: CUDA_ERROR_OUT_OF_MEMORY: %s of the %s of %s are free, this "
                "process holds %s",
                rn_size_format(bytes).text, rn_size_format(free_bytes).text,
                rn_size_format(total).text, rn_device_name(memory->device->id),
                rn_size_format(rn_ledger_now(memory->device->id)).text),
        "other processes may hold the rest: see nvidia-smi; or a smaller budget");
}

static rn_status take_mapped(rn_cuda_memory *memory, uint64_t bytes, rn_cu_address *out) {
    uint64_t address = 0;
    RN_TRY(take_addresses(memory, bytes, &address));
    rn_cu_result code = map(memory, address, bytes);
    if (code == RN_CU_SUCCESS) {
        *out = address;
        return RN_OK;
    }
    return_addresses(memory, address, bytes);
    return refuse(memory, code, bytes);
}

static void widen_range(rn_cuda_memory *memory, uint64_t begin, uint64_t bytes) {
    pthread_mutex_lock(&memory->lock);
    uint64_t end = begin + bytes, span = atomic_load(&memory->span_bytes);
    if (span) {
        begin = rn_min_u64(begin, atomic_load(&memory->base));
        end = rn_max_u64(end, atomic_load(&memory->base) + span);
    }
    // In this order whoever looks meanwhile finds every block inside.
    atomic_store(&memory->span_bytes, end - begin);
    atomic_store(&memory->base, begin);
    pthread_mutex_unlock(&memory->lock);
}

rn_status rn_cuda_memory_take(rn_cuda_memory *memory, uint64_t bytes, rn_cu_address *out) {
    uint64_t rounded = rn_cuda_memory_round(memory, bytes);
    *out = 0;
    if (rounded > memory->device->total_bytes) return refuse(memory, RN_CU_OUT_OF_MEMORY, bytes);
    if (memory->is_mapped) return take_mapped(memory, rounded, out);
    rn_cu_result code = memory->device->driver->mem_alloc(out, rounded);
    if (code != RN_CU_SUCCESS) return refuse(memory, code, bytes);
    widen_range(memory, *out, rounded);
    return RN_OK;
}

void rn_cuda_memory_release(rn_cuda_memory *memory, rn_cu_address block, uint64_t bytes) {
    const rn_cuda_driver *driver = memory->device->driver;
    uint64_t rounded = rn_cuda_memory_round(memory, bytes);
    (void)driver->ctx_synchronize();
    if (!memory->is_mapped) {
        (void)driver->mem_free(block);
        return;
    }
    (void)driver->mem_unmap(block, rounded);
    return_addresses(memory, block, rounded);
}

uint64_t rn_cuda_memory_round(const rn_cuda_memory *memory, uint64_t bytes) {
    uint64_t rounded;
    return rn_align_u64(bytes, memory->granule_bytes, &rounded) ? rounded : UINT64_MAX;
}

// ---- life -------------------------------------------------------------------------------------

static rn_status reserve(rn_cuda_memory *memory, const rn_allocator *from) {
    const rn_cuda_device *device = memory->device;
    rn_cu_address base = 0;
    uint64_t span = rn_round_up(device->total_bytes, memory->granule_bytes) * SPAN_FACTOR;
    RN_TRY(rn_offsets_create(from, 0, memory->granule_bytes, &memory->addresses));
    RN_TRY(
        rn_cuda_check(device->driver,
                      device->driver->mem_address_reserve(&base, span, memory->granule_bytes, 0, 0),
                      "reserving addresses of the device"));
    atomic_store(&memory->base, base);
    atomic_store(&memory->span_bytes, span);
    memory->is_mapped = true;
    return rn_offsets_add(memory->addresses, base, span, true);
}

rn_status rn_cuda_memory_open(const rn_cuda_device *device, const rn_allocator *from,
                              rn_cuda_memory *out) {
    rn_cu_memory_kind kind = {.type = RN_CU_MEMORY_PINNED,
                              .location = {RN_CU_LOCATION_DEVICE, device->device}};
    *out = (rn_cuda_memory){.device = device, .granule_bytes = GRANULE_BYTES};
    pthread_mutex_init(&out->lock, NULL);
    if (device->part_bytes == 0) return RN_OK; // no virtual memory functions
    RN_TRY(rn_cuda_check(device->driver,
                         device->driver->mem_get_allocation_granularity(&out->granule_bytes, &kind,
                                                                        RN_CU_GRANULARITY_MINIMUM),
                         "asking how memory is mapped"));
    return reserve(out, from);
}

void rn_cuda_memory_close(rn_cuda_memory *memory) {
    if (!memory->device) return;
    if (memory->is_mapped)
        (void)memory->device->driver->mem_address_free(memory->base, memory->span_bytes);
    rn_offsets_destroy(memory->addresses);
    pthread_mutex_destroy(&memory->lock);
}
