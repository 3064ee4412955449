// device.c — a device's one large block: room in the budget for all of it, then memory, then one
// charge a purpose.
#include "device/device.h"
#include "base/checked.h"
#include "memory/account.h"
#include "memory/budget.h"
#include "memory/ledger.h"

#include <assert.h>
#include <string.h>

// The purpose with the most bytes: under its name a refusal is told.
static rn_account largest(const rn_device *device, const uint64_t *purpose_bytes) {
    rn_account account = {.device = device->caps.device};
    for (uint8_t p = 1; p < RN_PURPOSE_COUNT; p++)
        if (purpose_bytes[p] > purpose_bytes[account.purpose]) account.purpose = p;
    return account;
}

rn_status rn_device_memory_take(rn_device *device, const uint64_t purpose_bytes[RN_PURPOSE_COUNT],
                                rn_device_memory *out) {
    return rn_device_memory_take_part(device, purpose_bytes, RN_PURPOSE_OTHER, 0, out);
}

rn_status rn_device_memory_take_part(rn_device *device,
                                     const uint64_t purpose_bytes[RN_PURPOSE_COUNT],
                                     rn_purpose later, uint64_t later_bytes,
                                     rn_device_memory *out) {
    uint64_t bytes = 0;
    assert(later_bytes <= purpose_bytes[later]);
    *out = (rn_device_memory){0};
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (!rn_add_u64(bytes, purpose_bytes[p], &bytes))
            return rn_fail(RN_NO_MEMORY, "more bytes than an address has");
    if (bytes == 0) return RN_OK;
    rn_account account = largest(device, purpose_bytes);
    void *block = NULL;
    rn_status s = rn_budget_reserve(account, bytes - later_bytes);
    if (s == RN_OVER_BUDGET) device->refused_bytes = bytes - later_bytes;
    RN_TRY(s);
    s = device->alloc(device, account, bytes, &block);
    if (s != RN_OK) {
        rn_ledger_give_up(account, bytes - later_bytes);
        return s;
    }
    *out = (rn_device_memory){.device = device, .base = block, .bytes = bytes};
    memcpy(out->purpose_bytes, purpose_bytes, sizeof out->purpose_bytes);
    out->purpose_bytes[later] -= later_bytes;
    for (uint8_t p = 0; p < RN_PURPOSE_COUNT; p++)
        if (out->purpose_bytes[p])
            rn_ledger_count((rn_account){.device = account.device, .purpose = p}, block,
                            out->purpose_bytes[p]);
    return RN_OK;
}

void rn_device_memory_release(rn_device_memory *memory) {
    if (!memory->base) return;
    for (uint8_t p = 0; p < RN_PURPOSE_COUNT; p++)
        if (memory->purpose_bytes[p])
            rn_ledger_release((rn_account){.device = memory->device->caps.device, .purpose = p},
                              memory->base, memory->purpose_bytes[p]);
    memory->device->free(memory->device, memory->base, memory->bytes);
    *memory = (rn_device_memory){0};
}

rn_status rn_device_host_take(rn_device *device, rn_account account, uint64_t bytes, void **out) {
    *out = NULL;
    if (bytes == 0) return RN_OK;
    if (device->alloc_host) return device->alloc_host(device, account, bytes, out);
    return rn_alloc_aligned(&rn_host_allocators[account.purpose], bytes, RN_PAGE_BYTES, out);
}

void rn_device_host_release(rn_device *device, rn_account account, void *block, uint64_t bytes) {
    if (!block) return;
    if (device->free_host)
        device->free_host(device, account, block, bytes);
    else
        rn_free(&rn_host_allocators[account.purpose], block, bytes);
}

const rn_device_caps *rn_device_get_caps(const rn_device *device) {
    return &device->caps;
}

const char *rn_device_target(const rn_device *device) {
    return device->caps.name;
}

rn_device_id rn_device_number(const rn_device *device) {
    return device->caps.device;
}

bool rn_device_has_own_memory(const rn_device *device) {
    return device->caps.own_memory;
}

uint64_t rn_device_free_bytes(rn_device *device) {
    return device->free_bytes ? device->free_bytes(device) : 0;
}

void rn_device_destroy(rn_device *device) {
    if (device) device->destroy(device);
}
