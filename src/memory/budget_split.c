// budget_split.c — a budget for the whole process: what of it a ledger may hold, and a plan.
//
//     | process | held | the plan's                    | reserve |
//     |<------------- usable: the ledger's ----------->|         |
//
// What the system says of a process differs by some 100 KiB from one run to the next (which pages
// of its files are mapped, how its stacks are used). A figure that a refusal names shall work in
// the next run: so the process's share is rounded up, and what it grows by later is the reserve's.
#include "memory/budget.h"
#include "memory/ledger.h"

#include "base/alloc.h"
#include "base/checked.h"

#define MIB ((uint64_t)1 << 20)

enum {
    RESERVE_DIVISOR = 256, // page tables are a 512th of the memory
    GRANULE_MIB = 4,
    RESERVE_MIB = 4,
    OPENING_MIB = 8, // the default model: 4 of its own pages, 2 for its headers, tokenizer and plan
};

uint64_t rn_budget_usable(uint64_t total_bytes) {
    if (total_bytes == RN_NO_LIMIT) return RN_NO_LIMIT;
    uint64_t reserve = RESERVE_MIB * MIB + total_bytes / RESERVE_DIVISOR;
    return total_bytes - rn_min_u64(reserve, total_bytes);
}

// From below: usable bytes grow with the budget, by 255 for each 256.
uint64_t rn_budget_needed(uint64_t usable_bytes) {
    uint64_t total;
    if (!rn_add_u64(usable_bytes, usable_bytes / (RESERVE_DIVISOR - 1), &total) ||
        !rn_add_u64(total, RESERVE_MIB * MIB, &total) || total > RN_NO_LIMIT / 2)
        return RN_NO_LIMIT;
    total = total / RN_PAGE_BYTES * RN_PAGE_BYTES;
    while (rn_budget_usable(total) < usable_bytes)
        total += RN_PAGE_BYTES;
    return total;
}

rn_status rn_budget_measure(uint64_t *out_bytes) {
    rn_process_info info;
    *out_bytes = 0;
    RN_TRY(rn_process_read(&info));
    *out_bytes = rn_process_free_bytes(&info) / 10 * 9 + 1;
    return RN_OK;
}

rn_status rn_budget_split(rn_budget_shares *shares) {
    rn_alloc_trim(); // what is free but not yet released is not the process's
    RN_TRY(rn_process_charge_unaccounted());
    uint64_t measured = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
    uint64_t granule = GRANULE_MIB * MIB;
    while (granule < measured / 4)
        granule *= 2;
    // A process is about one granule when it begins. Where it is just that, it must not depend on
    // some pages whether it has one or two.
    shares->process_bytes = rn_max_u64(shares->process_bytes, GRANULE_MIB * MIB);
    if (measured > shares->process_bytes + RESERVE_MIB * MIB * 5 / 8)
        shares->process_bytes = rn_round_up(measured, granule);
    shares->held_bytes = rn_ledger_total(RN_DEVICE_HOST).now_bytes - measured;
    // The ledger counts as the plan does: what is measured above the share is the reserve's.
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, shares->process_bytes);
    uint64_t usable = rn_budget_usable(shares->total_bytes);
    uint64_t beside = shares->process_bytes + shares->held_bytes;
    shares->reserve_bytes = shares->total_bytes - usable;
    shares->plan_bytes = usable - rn_min_u64(usable, beside);
    return RN_OK;
}

rn_status rn_budget_limit_process(uint64_t total_bytes, uint64_t most_bytes) {
    uint64_t least = rn_ledger_total(RN_DEVICE_HOST).now_bytes + OPENING_MIB * MIB;
    uint64_t limit = rn_max_u64(rn_budget_usable(total_bytes), least);
    RN_TRY(rn_budget_set(RN_DEVICE_HOST, 0, rn_min_u64(limit, most_bytes)));
    rn_budget_tell_process(total_bytes);
    return RN_OK;
}

rn_status rn_budget_set_process(uint64_t total_bytes) {
    return rn_budget_limit_process(total_bytes, RN_NO_LIMIT);
}
