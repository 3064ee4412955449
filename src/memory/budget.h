// budget.h — the budget's first half of a charge, for allocators that learn the address later.
#ifndef RN_MEMORY_BUDGET_H
#define RN_MEMORY_BUDGET_H

#include <ration/memory.h>

// Takes room for the bytes in the device's total, or refuses. Completed by rn_ledger_count or
// undone by rn_ledger_unreserve.
RN_MUST_USE rn_status rn_budget_reserve(rn_account account, uint64_t bytes);

#endif
