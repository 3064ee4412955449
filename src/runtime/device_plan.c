// device_plan.c — a budget for two memories: the device's, and the host's beside it.
#include <ration/session.h>

#include "base/checked.h"
#include "device/device.h"
#include "memory/budget.h"
#include "plan/plan.h"
#include "runtime/recover.h"

#define MIB ((uint64_t)1 << 20)

// Recordings of runs, and what a driver takes with the first launch of a kind: nobody can plan it.
#define RESERVE_BYTES (32 * MIB)

// What of the host is left for a plan; never 0, which would be no limit.
static uint64_t host_share(const rn_plan_options *host) {
    if (host->budget_bytes == 0 || host->budget_bytes == RN_NO_LIMIT) return RN_NO_LIMIT;
    return rn_max_u64(rn_plan_room(host, host->budget_bytes), 1);
}

static uint64_t find_budget(rn_device *device, const rn_device_budget *budget, uint64_t held) {
    if (budget->bytes) return budget->bytes;
    uint64_t free_bytes = rn_device_free_bytes(device);
    if (free_bytes == 0) return RN_NO_LIMIT;
    return free_bytes / 10 * 9 + (budget->planned_only ? 0 : held);
}

rn_status rn_plan_options_for(rn_device *device, const rn_device_budget *budget,
                              rn_plan_options *options) {
    rn_device_id id = device->caps.device;
    if (device->caps.compiles && !options->exact) options->host_caps = rn_cpu_caps();
    if (!device->caps.own_memory) return RN_OK;
    uint64_t held = rn_ledger_total(id).now_bytes, total = find_budget(device, budget, held);
    options->host_budget_bytes = host_share(options);
    options->host_reserved_bytes = options->reserved_bytes;
    options->host_with_reserve = options->with_reserve;
    options->with_reserve = false;
    options->least_budget_bytes = 0;
    options->budget_bytes = total;
    options->reserved_bytes = budget->planned_only ? 0 : held + RESERVE_BYTES;
    if (options->reserved_bytes < total) return RN_OK;
    return rn_hint(rn_budget_refuse((rn_account){.device = id, .purpose = RN_PURPOSE_UNACCOUNTED},
                                    RESERVE_BYTES, total, options->reserved_bytes),
                   "a larger budget for %s: the driver alone takes that much", device->caps.name);
}

// The reserve is taken out of what is free; a device that does not know that has it on top.
void rn_device_budget_lower(rn_device *device, uint64_t bytes, rn_device_budget *budget) {
    bool knows = device->free_bytes, measured = budget->bytes == 0;
    uint64_t total = measured && knows ? bytes - bytes / 10 : bytes;
    if (!budget->planned_only)
        total += rn_ledger_total(device->caps.device).now_bytes + (knows ? 0 : RESERVE_BYTES);
    budget->bytes = rn_max_u64(measured ? total : rn_min_u64(budget->bytes, total), 1);
}
