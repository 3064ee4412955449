// host_budget.c — --budget: how much of it is left for a plan, on the host and on a device with its
// own memory.
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

// ---- whose is what ------------------------------------------------------------------------------

// "cuda" is "cuda:0".
static bool is_named(const char *entry, const char *device) {
    size_t bytes = strlen(entry);
    if (strncmp(entry, device, bytes) != 0) return false;
    return device[bytes] == 0 || strcmp(device + bytes, ":0") == 0;
}

rn_status parse_devices(const invocation *in, rn_ladder **out) {
    const char *targets = rn_settings_text(in->settings, "device");
    if (!targets[0]) targets = "cpu";
    return rn_ladder_parse((rn_str){targets, strlen(targets)}, out);
}

// Whether --device has a target of this name: it is another one's turn. The CPU's memory is "host".
static bool is_another(const invocation *in, const char *name) {
    rn_ladder *ladder = NULL;
    bool found = false;
    if (strcmp(name, "cpu") == 0 || parse_devices(in, &ladder) != RN_OK) return false;
    for (size_t i = 0; i < rn_ladder_count(ladder); i++)
        found |= is_named(name, rn_ladder_name(ladder, i));
    rn_ladder_destroy(ladder);
    return found;
}

static rn_status refuse_entry(const char *text, const char *device) {
    rn_status s = rn_fail(RN_INVALID, "--budget %s: only %s%s can be used", text,
                          device ? "the host and " : "the host", device ? device : "");
    return device ? rn_hint(s, "for example --budget %s=4GiB,host=8GiB", device)
                  : rn_hint(s, "for example --budget 2GiB");
}

// `device` NULL: there is only the host. A size without a name is the device's where `of_device`.
static rn_status parse(const invocation *in, const char *device, bool of_device, host_budget *out) {
    const char *text = rn_settings_text(in->settings, "budget");
    rn_budget_spec spec;
    if (!text[0]) return RN_OK;
    RN_TRY(rn_budget_parse((rn_str){text, strlen(text)}, &spec));
    bool bare = spec.count == 1 && !strchr(text, '=');
    for (size_t i = 0; i < spec.count; i++) {
        uint64_t bytes = spec.entries[i].bytes;
        bool planned_only = spec.entries[i].planned_only;
        if (device && (bare ? of_device : is_named(spec.entries[i].device, device))) {
            out->device = (rn_device_budget){bytes, planned_only};
        } else if (strcmp(spec.entries[i].device, "host") == 0) {
            out->total_bytes = bytes;
            out->planned_only = planned_only;
        } else if (!is_another(in, spec.entries[i].device)) {
            return refuse_entry(text, device);
        }
    }
    return RN_OK;
}

// ---- reading ------------------------------------------------------------------------------------

static rn_status measure_held(host_budget *out) {
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

static rn_status measure_host(host_budget *out) {
    out->measured = out->total_bytes == 0;
    if (out->measured) RN_TRY(measure(&out->total_bytes));
    return out->planned_only ? RN_OK : measure_held(out);
}

rn_status read_budget(const invocation *in, rn_device *device, host_budget *out) {
    bool own = device && rn_device_has_own_memory(device);
    *out = (host_budget){.own_memory = own};
    RN_TRY(parse(in, own ? rn_device_target(device) : NULL, own, out));
    RN_TRY(measure_host(out));
    if (own) {
        out->device_number = rn_device_number(device);
        out->device_held_bytes = rn_ledger_total(out->device_number).now_bytes;
        if (out->device.bytes && !out->device.planned_only)
            rn_profile_counter(RN_COUNTER_BUDGET, out->device_number, 0, out->device.bytes);
    }
    return RN_OK;
}

rn_status read_server_budget(const invocation *in, host_budget *out) {
    *out = (host_budget){0};
    RN_TRY(parse(in, "cuda:0", false, out));
    return measure_host(out);
}

uint64_t whole_budget(const host_budget *budget, uint64_t plan_bytes) {
    if (budget->own_memory ? budget->device.planned_only : budget->planned_only) return plan_bytes;
    if (budget->own_memory) // as rn_plan_options_for counts
        return (plan_bytes + budget->device_held_bytes + 32 * MIB) / MIB * MIB + MIB;
    // One more MiB, because the next process will not measure quite the same.
    uint64_t rest = plan_bytes + budget->outside_bytes + reserve_of(0) + MIB;
    return (rest + rest / 255) / MIB * MIB + MIB; // with the reserve's share of it, and rounded up
}
