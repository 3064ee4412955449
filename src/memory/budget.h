// budget.h — the budget's first half of a charge, for allocators that learn the address later.
#ifndef RN_MEMORY_BUDGET_H
#define RN_MEMORY_BUDGET_H

#include <ration/memory.h>

// Claims room for the bytes under the device's limit, or refuses. Completed by rn_ledger_count or
// undone by rn_ledger_unreserve, which leaves no trace in any peak.
RN_MUST_USE rn_status rn_budget_reserve(rn_account account, uint64_t bytes);

// For those who know their need before they allocate: makes the refusal and its error,
// RN_OVER_BUDGET.
rn_status rn_budget_refuse(rn_account account, uint64_t bytes, uint64_t budget_bytes,
                           uint64_t smallest_bytes);
// For those who also know the holders: keeps the table as the thread's last refusal. The error is
// theirs.
void rn_refusal_keep(const rn_refusal *refusal);
// The same for one that was the last before, of which everybody has heard.
void rn_refusal_restore(const rn_refusal *refusal);
// Refusals of the host's memory speak of this budget, of which the hard limit is a part. Until the
// limits are set anew.
void rn_budget_tell_process(uint64_t total_bytes);
// rn_budget_set_process with a limit of `most_bytes` at most.
RN_MUST_USE rn_status rn_budget_limit_process(uint64_t total_bytes, uint64_t most_bytes);
// While somebody tries what may well be refused, to find out: listeners do not hear of it. This
// thread's only.
void rn_refusals_mute(bool mute);

#endif
