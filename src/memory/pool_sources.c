// pool_sources.c — where chunks come from: host memory, any allocator, and a device that does not
// exist.
//
// Host memory is mapped here and not through an rn_allocator, because parts of a chunk go back:
// munmap takes any pages of a mapping, an allocator takes whole blocks. The ledger is charged part
// by part, so every release is that of a charge, with the same address and size. The kernel tends
// to place a new mapping next to the last one, which is what lets chunks join.
#include "memory/pool.h"
#include "memory/budget.h"
#include "memory/ledger.h"
#include "base/fault.h"

#include <sys/mman.h>

#define HOST_PART ((size_t)256 << 10)

static rn_status host_map(size_t bytes, uint64_t *out_address) {
    void *block = MAP_FAILED;
    if (!rn_fault_hit(RN_FAULT_ALLOC))
        block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return rn_fail(RN_NO_MEMORY, "the system has no memory for a chunk of %zu bytes", bytes);
    *out_address = (uintptr_t)block;
    return RN_OK;
}

static rn_status host_grow(void *self, size_t bytes, uint64_t *out_address) {
    const rn_account *account = self;
    if (!account) return host_map(bytes, out_address);
    RN_TRY(rn_budget_reserve(*account, bytes));
    rn_status status = host_map(bytes, out_address);
    if (status != RN_OK) {
        rn_ledger_give_up(*account, bytes);
        return status;
    }
    const char *block = (const char *)(uintptr_t)*out_address;
    for (size_t i = 0; i < bytes; i += HOST_PART)
        rn_ledger_count(*account, block + i, HOST_PART);
    return RN_OK;
}

static rn_status host_grow_huge(void *self, size_t bytes, uint64_t *out_address) {
    RN_TRY(host_grow(self, bytes, out_address));
    // Advice: a kernel without huge pages says no, and small pages serve as well.
    (void)madvise((void *)(uintptr_t)*out_address, bytes, MADV_HUGEPAGE);
    return RN_OK;
}

static void host_release(void *self, uint64_t address, size_t bytes) {
    const rn_account *account = self;
    char *block = (char *)(uintptr_t)address;
    for (size_t i = 0; account && i < bytes; i += HOST_PART)
        rn_ledger_release(*account, block + i, HOST_PART);
    munmap(block, bytes);
}

rn_pool_source rn_pool_source_host(const rn_account *account, bool huge_pages) {
    return (rn_pool_source){
        .self = (void *)(uintptr_t)account, // only ever read
        .grow = huge_pages ? host_grow_huge : host_grow,
        .release = host_release,
        .part_bytes = HOST_PART,
        .account = account,
    };
}

// ---- any allocator ----------------------------------------------------------------------------

static rn_status block_grow(void *self, size_t bytes, uint64_t *out_address) {
    void *block;
    RN_TRY(rn_alloc_aligned(self, bytes, RN_PAGE_BYTES, &block));
    *out_address = (uintptr_t)block;
    return RN_OK;
}

static void block_release(void *self, uint64_t address, size_t bytes) {
    rn_free(self, (void *)(uintptr_t)address, bytes);
}

rn_pool_source rn_pool_source_allocator(const rn_allocator *from) {
    return (rn_pool_source){
        .self = (void *)(uintptr_t)from, .grow = block_grow, .release = block_release};
}

// ---- a device that does not exist -------------------------------------------------------------

#define FAKE_BASE ((uint64_t)1 << 60) // no pointer of the host looks like it
#define FAKE_STEP ((uint64_t)2 << 20) // chunks start at its multiples, with a gap after each

static rn_status fake_grow(void *self, size_t bytes, uint64_t *out_address) {
    rn_fake_device *device = self;
    uint64_t used = atomic_load(&device->used_bytes);
    bool fault = rn_fault_hit(RN_FAULT_ALLOC);
    do {
        uint64_t left = device->limit_bytes ? device->limit_bytes - used : UINT64_MAX;
        if (fault || bytes > left)
            return rn_fail(RN_NO_MEMORY, "the device has no memory for %zu bytes", bytes);
    } while (!atomic_compare_exchange_weak(&device->used_bytes, &used, used + bytes));
    uint64_t span = (bytes / FAKE_STEP + 2) * FAKE_STEP;
    *out_address = FAKE_BASE + atomic_fetch_add(&device->next_address, span);
    atomic_fetch_add(&device->grow_count, 1);
    return RN_OK;
}

static void fake_release(void *self, uint64_t address, size_t bytes) {
    rn_fake_device *device = self;
    (void)address;
    atomic_fetch_sub(&device->used_bytes, bytes);
}

rn_pool_source rn_pool_source_fake(rn_fake_device *device) {
    return (rn_pool_source){.self = device, .grow = fake_grow, .release = fake_release};
}
