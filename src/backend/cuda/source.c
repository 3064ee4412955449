// source.c — parts of memory behind reserved addresses, or chunks.
//
//     reserved    |--------------------------------------------------------------------| span
//     backed      |==part==|==part==|        |==part==|                                |
//     addresses                     [ free  ]          [           free                ] rn_offsets
//
// A part is an allocation of its own (cuMemCreate), because only whole ones can be unmapped. Its
// handle is let go as soon as it is mapped: the memory then lives exactly as long as the mapping.
// Addresses cost nothing, so twice the device's memory is reserved: a chunk always finds a hole.
#include "backend/cuda/source.h"
#include "base/checked.h"
#include "memory/budget.h"
#include "memory/ledger.h"

#define SPAN_FACTOR 2

// ---- counting ---------------------------------------------------------------------------------

static void count(rn_cuda_source *source, uint64_t address, size_t bytes, size_t step) {
    rn_cuda_device *device = source->device;
    for (size_t i = 0; i < bytes; i += step)
        rn_ledger_count(source->account, (const void *)(uintptr_t)(address + i), step);
    uint64_t now = atomic_fetch_add(&device->reserved_bytes, bytes) + bytes;
    uint64_t peak = atomic_load(&device->peak_reserved_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&device->peak_reserved_bytes, &peak, now)) {
    }
}

static void discount(rn_cuda_source *source, uint64_t address, size_t bytes, size_t step) {
    for (size_t i = 0; i < bytes; i += step)
        rn_ledger_release(source->account, (const void *)(uintptr_t)(address + i), step);
    atomic_fetch_sub(&source->device->reserved_bytes, bytes);
}

// ---- addresses --------------------------------------------------------------------------------

static rn_status take_addresses(rn_cuda_source *source, size_t bytes, uint64_t *out) {
    rn_offset_block block;
    pthread_mutex_lock(&source->lock);
    rn_offsets_result result = rn_offsets_alloc(source->addresses, bytes, 1, &block);
    if (result == RN_OFFSETS_DONE) {
        rn_offsets_free(source->addresses, block);
        result = rn_offsets_remove(source->addresses, block.offset, bytes);
        *out = block.offset;
    }
    pthread_mutex_unlock(&source->lock);
    if (result == RN_OFFSETS_NO_NODE) return rn_last_error()->status;
    if (result == RN_OFFSETS_NO_ROOM)
        return rn_fail(RN_NO_MEMORY, "no %zu bytes of addresses are left for this stream", bytes);
    return RN_OK;
}

// Without memory for the books the addresses are lost, which costs no memory.
static void return_addresses(rn_cuda_source *source, uint64_t address, size_t bytes) {
    pthread_mutex_lock(&source->lock);
    (void)!rn_offsets_add(source->addresses, address, bytes, true);
    pthread_mutex_unlock(&source->lock);
}

// ---- flat memory ------------------------------------------------------------------------------

static rn_cu_result map_part(const rn_cuda_source *source, uint64_t address) {
    const rn_cuda_driver *driver = source->device->driver;
    size_t bytes = source->device->part_bytes;
    rn_cu_memory_kind kind = {.type = RN_CU_MEMORY_PINNED,
                              .location = {RN_CU_LOCATION_DEVICE, source->device->device}};
    rn_cu_memory memory;
    rn_cu_result code = driver->mem_create(&memory, bytes, &kind, 0);
    if (code != RN_CU_SUCCESS) return code;
    code = driver->mem_map(address, bytes, 0, memory, 0);
    (void)driver->mem_release(memory);
    return code;
}

static void unmap_parts(const rn_cuda_source *source, uint64_t address, size_t bytes) {
    for (size_t i = 0; i < bytes; i += source->device->part_bytes)
        (void)source->device->driver->mem_unmap(address + i, source->device->part_bytes);
}

static rn_cu_result map_parts(const rn_cuda_source *source, uint64_t address, size_t bytes) {
    rn_cu_access access = {{RN_CU_LOCATION_DEVICE, source->device->device},
                           RN_CU_ACCESS_READ_WRITE};
    rn_cu_result code = RN_CU_SUCCESS;
    size_t done = 0;
    while (done < bytes && (code = map_part(source, address + done)) == RN_CU_SUCCESS)
        done += source->device->part_bytes;
    if (code == RN_CU_SUCCESS)
        code = source->device->driver->mem_set_access(address, bytes, &access, 1);
    if (code != RN_CU_SUCCESS) unmap_parts(source, address, done);
    return code;
}

static rn_status back(rn_cuda_source *source, size_t bytes, uint64_t *out_address) {
    RN_TRY(rn_cuda_enter(source->device));
    rn_status status = take_addresses(source, bytes, out_address);
    if (status == RN_OK) {
        status = rn_cuda_check(source->device->driver, map_parts(source, *out_address, bytes),
                               "mapping device memory");
        if (status != RN_OK) return_addresses(source, *out_address, bytes);
    }
    rn_cuda_leave(source->device);
    return status;
}

static rn_status flat_grow(void *self, size_t bytes, uint64_t *out_address) {
    rn_cuda_source *source = self;
    RN_TRY(rn_budget_reserve(source->account, bytes));
    rn_status status = back(source, bytes, out_address);
    if (status == RN_OK)
        count(source, *out_address, bytes, source->device->part_bytes);
    else
        rn_ledger_unreserve(source->account.device, bytes);
    return status;
}

static void flat_release(void *self, uint64_t address, size_t bytes) {
    rn_cuda_source *source = self;
    discount(source, address, bytes, source->device->part_bytes);
    if (rn_cuda_enter(source->device) != RN_OK) return; // the device is gone, and its memory
    (void)source->device->driver->stream_synchronize(source->stream);
    unmap_parts(source, address, bytes);
    rn_cuda_leave(source->device);
    return_addresses(source, address, bytes);
}

// ---- separate chunks --------------------------------------------------------------------------

static rn_status take_chunk(rn_cuda_source *source, size_t bytes, uint64_t *out_address) {
    rn_cu_address address = 0;
    RN_TRY(rn_cuda_enter(source->device));
    rn_status status =
        rn_cuda_check(source->device->driver, source->device->driver->mem_alloc(&address, bytes),
                      "allocating device memory");
    rn_cuda_leave(source->device);
    *out_address = address;
    return status;
}

static rn_status chunk_grow(void *self, size_t bytes, uint64_t *out_address) {
    rn_cuda_source *source = self;
    RN_TRY(rn_budget_reserve(source->account, bytes));
    rn_status status = take_chunk(source, bytes, out_address);
    if (status == RN_OK)
        count(source, *out_address, bytes, bytes);
    else
        rn_ledger_unreserve(source->account.device, bytes);
    return status;
}

static void chunk_release(void *self, uint64_t address, size_t bytes) {
    rn_cuda_source *source = self;
    discount(source, address, bytes, bytes);
    if (rn_cuda_enter(source->device) != RN_OK) return;
    (void)source->device->driver->stream_synchronize(source->stream);
    (void)source->device->driver->mem_free(address);
    rn_cuda_leave(source->device);
}

// ---- lifetime ---------------------------------------------------------------------------------

static rn_status reserve_addresses(rn_cuda_source *source, const rn_allocator *from) {
    const rn_cuda_driver *driver = source->device->driver;
    size_t part = source->device->part_bytes;
    uint64_t span = rn_round_up(source->device->total_bytes, part) * SPAN_FACTOR;
    RN_TRY(rn_offsets_create(from, 0, part, &source->addresses));
    RN_TRY(rn_cuda_enter(source->device));
    rn_status status =
        rn_cuda_check(driver, driver->mem_address_reserve(&source->base, span, part, 0, 0),
                      "reserving addresses of the device");
    if (status == RN_OK) source->span_bytes = span;
    rn_cuda_leave(source->device);
    if (status == RN_OK) status = rn_offsets_add(source->addresses, source->base, span, true);
    return status;
}

rn_status rn_cuda_source_open(rn_cuda_device *device, rn_cu_stream stream, const rn_allocator *from,
                              rn_cuda_source *out) {
    *out = (rn_cuda_source){
        .device = device, .stream = stream, .account = {device->id, RN_PURPOSE_OTHER, NULL}};
    pthread_mutex_init(&out->lock, NULL);
    rn_status status = device->part_bytes ? reserve_addresses(out, from) : RN_OK;
    if (status != RN_OK) rn_cuda_source_close(out);
    return status;
}

void rn_cuda_source_close(rn_cuda_source *source) {
    if (source->span_bytes && rn_cuda_enter(source->device) == RN_OK) {
        (void)source->device->driver->mem_address_free(source->base, source->span_bytes);
        rn_cuda_leave(source->device);
    }
    rn_offsets_destroy(source->addresses);
    pthread_mutex_destroy(&source->lock);
}

rn_pool_source rn_cuda_source_functions(rn_cuda_source *source) {
    bool flat = source->span_bytes != 0;
    return (rn_pool_source){.self = source,
                            .grow = flat ? flat_grow : chunk_grow,
                            .release = flat ? flat_release : chunk_release,
                            .part_bytes = flat ? source->device->part_bytes : 0,
                            .account = &source->account};
}
