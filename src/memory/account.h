// account.h — allocators that ask the budget and charge the ledger: what the library's structures
// use.
#ifndef RN_MEMORY_ACCOUNT_H
#define RN_MEMORY_ACCOUNT_H

#include <ration/memory.h>

#include "base/alloc.h"

// Host memory for a purpose, without a holder.
extern const rn_allocator rn_host_allocators[RN_PURPOSE_COUNT];
#define RN_HOST_IO      (&rn_host_allocators[RN_PURPOSE_IO])
#define RN_HOST_STAGING (&rn_host_allocators[RN_PURPOSE_STAGING])
#define RN_HOST_OTHER   (&rn_host_allocators[RN_PURPOSE_OTHER])

// Of the host's memory, what is on its way to a device's or from it.
#define RN_STAGING ((rn_account){.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_STAGING})

// Host memory charged to `account`, which must outlive the allocator.
rn_allocator rn_account_allocator(const rn_account *account);

#endif
