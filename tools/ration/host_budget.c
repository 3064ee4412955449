// host_budget.c — a --budget for the host: how much of it is left for a plan.
#include "command.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)

// For what grows while a session runs and is not planned: stacks, the C library; and page tables,
// which are 1/512 of the memory.
static uint64_t reserve_of(uint64_t budget_bytes) {
    return 4 * MIB + budget_bytes / 256;
}

// Without a wish: nine tenths of what the machine and the cgroup have left; never 0, which would be
// no limit.
static rn_status measure(uint64_t *out_bytes) {
    rn_process_info info;
    RN_TRY(rn_process_read(&info));
    *out_bytes = rn_process_free_bytes(&info) / 10 * 9 + 1;
    return RN_OK;
}

static rn_status parse(const char *text, host_budget *out) {
    rn_budget_spec spec;
    RN_TRY(rn_budget_parse((rn_str){text, strlen(text)}, &spec));
    if (spec.count != 1 || strcmp(spec.entries[0].device, "host") != 0)
        return rn_hint(rn_fail(RN_INVALID, "--budget %s: only the host can be used", text),
                       "for example --budget 2GiB");
    out->total_bytes = spec.entries[0].bytes;
    out->planned_only = spec.entries[0].planned_only;
    return RN_OK;
}

rn_status read_host_budget(const invocation *in, host_budget *out) {
    const char *text = rn_settings_text(in->settings, "budget");
    *out = (host_budget){.measured = text[0] == 0};
    RN_TRY(text[0] ? parse(text, out) : measure(&out->total_bytes));
    if (out->planned_only) return RN_OK;
    RN_TRY(rn_process_charge_outside());
    // All that is held by now: the process image, and what is on the ledger (a tokenizer of a large
    // vocabulary is 10 MiB), of which profiling_bytes counts the recording.
    out->outside_bytes = rn_ledger_total(RN_DEVICE_HOST).now_bytes -
                         rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes +
                         profiling_bytes();
    out->reserve_bytes = reserve_of(out->total_bytes);
    if (!out->measured) // a line in the picture
        rn_profile_counter(RN_COUNTER_BUDGET, RN_DEVICE_HOST, 0, out->total_bytes);
    return RN_OK;
}

uint64_t whole_budget(const host_budget *budget, uint64_t plan_bytes) {
    if (budget->planned_only) return plan_bytes;
    // One more MiB, because the next process will not measure quite the same.
    uint64_t rest = plan_bytes + budget->outside_bytes + reserve_of(0) + MIB;
    return (rest + rest / 255) / MIB * MIB + MIB; // with the reserve's share of it, and rounded up
}
