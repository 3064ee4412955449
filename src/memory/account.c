// account.c — first room in the budget, then memory, then the charge with its address. Freeing goes
// the other way round: released before it is freed, so that a profiler never sees an address handed
// out twice.
#include "memory/account.h"
#include "memory/budget.h"
#include "memory/ledger.h"

static void *account_alloc(void *self, size_t bytes, size_t align) {
    const rn_account *account = self;
    if (rn_budget_reserve(*account, bytes) != RN_OK) return NULL;
    void *block = rn_system_allocator.alloc(NULL, bytes, align);
    if (block)
        rn_ledger_count(*account, block, bytes);
    else
        rn_ledger_give_up(*account, bytes);
    return block;
}

static void account_free(void *self, void *block, size_t bytes) {
    const rn_account *account = self;
    rn_ledger_release(*account, block, bytes);
    rn_system_allocator.free(NULL, block, bytes);
}

rn_allocator rn_account_allocator(const rn_account *account) {
    return (rn_allocator){(void *)account, account_alloc, account_free};
}

#define ACCOUNT(purpose)   [purpose] = {RN_DEVICE_HOST, purpose, NULL}
#define ALLOCATOR(purpose) [purpose] = {(void *)&accounts[purpose], account_alloc, account_free}

static const rn_account accounts[RN_PURPOSE_COUNT] = {
    ACCOUNT(RN_PURPOSE_WEIGHTS),     ACCOUNT(RN_PURPOSE_KV),        ACCOUNT(RN_PURPOSE_ACTIVATIONS),
    ACCOUNT(RN_PURPOSE_GRADIENTS),   ACCOUNT(RN_PURPOSE_OPTIMIZER), ACCOUNT(RN_PURPOSE_WORKSPACE),
    ACCOUNT(RN_PURPOSE_STAGING),     ACCOUNT(RN_PURPOSE_IO),        ACCOUNT(RN_PURPOSE_PROFILER),
    ACCOUNT(RN_PURPOSE_UNACCOUNTED), ACCOUNT(RN_PURPOSE_OTHER),     ACCOUNT(RN_PURPOSE_STATE),
};

const rn_allocator rn_host_allocators[RN_PURPOSE_COUNT] = {
    ALLOCATOR(RN_PURPOSE_WEIGHTS),     ALLOCATOR(RN_PURPOSE_KV),
    ALLOCATOR(RN_PURPOSE_ACTIVATIONS), ALLOCATOR(RN_PURPOSE_GRADIENTS),
    ALLOCATOR(RN_PURPOSE_OPTIMIZER),   ALLOCATOR(RN_PURPOSE_WORKSPACE),
    ALLOCATOR(RN_PURPOSE_STAGING),     ALLOCATOR(RN_PURPOSE_IO),
    ALLOCATOR(RN_PURPOSE_PROFILER),    ALLOCATOR(RN_PURPOSE_UNACCOUNTED),
    ALLOCATOR(RN_PURPOSE_OTHER),       ALLOCATOR(RN_PURPOSE_STATE),
};
