// host_budget.c — --budget: how much of it is left for a plan, on the host and on a device with its
// own memory.
//
// It means the same in every command: a size without a name is for the memory that the device in
// use computes in, which is the process's own on the CPU and the device's where that has memory of
// its own. A name says whose it is: cuda:0=4GiB,host=8GiB. A percentage is always the process's: it
// is of the memory that the machine or the container has.
#include "command.h"

#include <string.h>

// ---- whose is what ------------------------------------------------------------------------------

// "cuda" is "cuda:0".
static bool is_named(const char *entry, const char *device) {
    size_t bytes = strlen(entry);
    if (strncmp(entry, device, bytes) != 0) return false;
    return device[bytes] == 0 || strcmp(device + bytes, ":0") == 0;
}

const char *device_targets(const invocation *in) {
    const char *targets = rn_settings_text(in->settings, "device");
    if (targets[0]) return targets;
    return in->command == &serve_command ? "auto" : "cpu";
}

rn_status parse_devices(const invocation *in, rn_ladder **out) {
    const char *targets = device_targets(in);
    return rn_ladder_parse((rn_str){targets, strlen(targets)}, out);
}

static bool has_target(const invocation *in, const char *name) {
    rn_ladder *ladder = NULL;
    bool found = false;
    if (parse_devices(in, &ladder) != RN_OK) return false;
    for (size_t i = 0; i < rn_ladder_count(ladder); i++)
        found |= is_named(name, rn_ladder_name(ladder, i));
    rn_ladder_destroy(ladder);
    return found;
}

// Whether --device has a target of this name: it is another one's turn. The CPU's memory is "host".
static bool is_another(const invocation *in, const char *name) {
    return strcmp(name, "cpu") != 0 && has_target(in, name);
}

// RN_INVALID: a name that is neither the host, the device nor another target.
static rn_status check_names(const invocation *in, const char *text, const rn_budget_spec *spec,
                             const char *device) {
    size_t i = 0;
    while (i < spec->count && (strcmp(spec->entries[i].device, "host") == 0 ||
                               (device && is_named(spec->entries[i].device, device)) ||
                               is_another(in, spec->entries[i].device)))
        i++;
    if (i == spec->count) return RN_OK;
    rn_status s = rn_fail(RN_INVALID, "--budget %s: only %s%s can be used", text,
                          device ? "the host and " : "the host", device ? device : "");
    return device ? rn_hint(s, "for example --budget %s=4GiB,host=8GiB", device)
                  : rn_hint(s, "for example --budget 2GiB");
}

// The only place that says whose a size is. `device` is one with its own memory, "" one that is not
// known yet; NULL: there is only the host. Where the host has no size, it is what was measured.
static void divide_spec(const rn_budget_spec *spec, bool bare, const char *device,
                        host_budget *out) {
    out->device = (rn_device_budget){0};
    out->total_bytes = 0;
    out->planned_only = false;
    for (size_t i = 0; i < spec->count; i++) {
        uint64_t bytes = spec->entries[i].bytes;
        bool planned_only = spec->entries[i].planned_only;
        if (device && (bare || is_named(spec->entries[i].device, device))) {
            out->device = (rn_device_budget){bytes, planned_only};
        } else if (strcmp(spec->entries[i].device, "host") == 0) {
            out->total_bytes = bytes;
            out->planned_only = planned_only;
        }
    }
    out->measured = out->total_bytes == 0;
    if (out->measured) out->total_bytes = out->free_bytes;
}

static rn_status parse_text(const char *text, rn_budget_spec *out, bool *out_bare) {
    *out = (rn_budget_spec){.count = 0};
    if (text[0]) RN_TRY(rn_budget_parse((rn_str){text, strlen(text)}, out));
    *out_bare = out->count == 1 && !strpbrk(text, "=%");
    return RN_OK;
}

// As --budget has it, for this device; NULL: the host alone.
static rn_status parse(const invocation *in, rn_device *device, host_budget *out) {
    const char *text = rn_settings_text(in->settings, "budget");
    out->own_memory = device && rn_device_has_own_memory(device);
    const char *name = out->own_memory ? rn_device_target(device) : NULL;
    rn_budget_spec spec;
    bool bare;
    RN_TRY(parse_text(text, &spec, &bare));
    RN_TRY(check_names(in, text, &spec, name));
    divide_spec(&spec, bare, name, out);
    return RN_OK;
}

// ---- reading ------------------------------------------------------------------------------------

// What is held on the ledger at most while files are opened and prompts read: a smaller budget
// would not have been enough for that.
static struct {
    rn_scope scope;
    bool begun;
    uint64_t held_bytes; // before
    uint64_t most_bytes; // known once it has ended
    uint64_t raised_bytes;
} opening;

static void begin_opening(uint64_t held_bytes) {
    opening.held_bytes = held_bytes;
    opening.begun = true;
    rn_scope_begin(&opening.scope, "opening", RN_DEVICE_HOST);
}

void end_opening(void) {
    if (opening.begun)
        opening.most_bytes = opening.held_bytes + rn_scope_end(&opening.scope).peak_allocated;
    opening.begun = false;
}

void raise_opening(uint64_t bytes) {
    end_opening();
    opening.raised_bytes = bytes;
}

// Again only where it changes (a size turns out to be the host's, a driver has come): each time a
// little may be taken, however small the budget is.
static rn_status limit_process(uint64_t total_bytes, uint64_t process_bytes) {
    static uint64_t in_force[2];
    if (total_bytes == in_force[0] && process_bytes == in_force[1]) return RN_OK;
    in_force[0] = total_bytes;
    in_force[1] = process_bytes;
    return rn_budget_set_process(total_bytes);
}

// Before there is a device. Where the CPU is among the targets, what is opened must fit a budget
// for the process, whichever of them is used in the end; where all have memory of their own, or
// planned bytes only are counted, the limit is what the machine has.
rn_status begin_budget(invocation *in) {
    host_budget *b = &in->budget;
    rn_budget_spec spec;
    bool bare;
    RN_TRY(rn_budget_measure(&b->free_bytes));
    RN_TRY(parse_text(rn_settings_text(in->settings, "budget"), &spec, &bare));
    divide_spec(&spec, bare, has_target(in, "cpu") ? NULL : "", b); // names are checked later
    rn_budget_shares shares = {.total_bytes = b->total_bytes};
    RN_TRY(rn_budget_split(&shares));
    RN_TRY(limit_process(b->planned_only ? b->free_bytes : b->total_bytes, shares.process_bytes));
    b->process_bytes = shares.process_bytes;
    begin_opening(shares.held_bytes);
    return RN_OK;
}

// What of the host is not for a plan, whatever the budget is. `room_bytes` are for what the caller
// will hold beside the plan and does not hold yet.
static rn_status count_held(host_budget *b, uint64_t room_bytes) {
    rn_budget_shares shares = {.total_bytes = b->total_bytes, .process_bytes = b->process_bytes};
    end_opening();
    RN_TRY(rn_budget_split(&shares));
    // Of what is on the ledger, profiling_bytes counts the recording.
    b->process_bytes = shares.process_bytes;
    b->unaccounted_bytes = shares.process_bytes + shares.held_bytes + room_bytes +
                           profiling_bytes() -
                           rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
    b->least_bytes =
        rn_budget_needed(shares.process_bytes + opening.most_bytes + opening.raised_bytes);
    return RN_OK;
}

// The host's share is known, for the device that is tried; the limit follows it.
static rn_status apply(host_budget *b, rn_device *device) {
    if (b->planned_only) {
        b->unaccounted_bytes = b->least_bytes = b->reserve_bytes = 0;
    } else {
        RN_TRY(limit_process(b->total_bytes, b->process_bytes));
        b->reserve_bytes = b->total_bytes - rn_budget_usable(b->total_bytes);
        if (!b->measured) // a line in the picture
            rn_profile_counter(RN_COUNTER_BUDGET, RN_DEVICE_HOST, 0, b->total_bytes);
    }
    if (!b->own_memory) return RN_OK;
    b->device_number = rn_device_number(device);
    b->device_held_bytes = rn_ledger_total(b->device_number).now_bytes;
    if (b->device.bytes && !b->device.planned_only)
        rn_profile_counter(RN_COUNTER_BUDGET, b->device_number, 0, b->device.bytes);
    return RN_OK;
}

rn_status read_budget(const invocation *in, rn_device *device, uint64_t room_bytes,
                      host_budget *out) {
    *out = (host_budget){.process_bytes = in->budget.process_bytes,
                         .free_bytes = in->budget.free_bytes};
    RN_TRY(parse(in, device, out));
    if (!out->planned_only) RN_TRY(count_held(out, room_bytes));
    return apply(out, device);
}

rn_status begin_server_budget(const invocation *in, host_budget *out) {
    *out = in->budget;
    RN_TRY(count_held(out, 0));
    return out->planned_only ? RN_OK : limit_process(out->total_bytes, out->process_bytes);
}

rn_status read_server_budget(const invocation *in, rn_device *device, const host_budget *begun,
                             host_budget *out) {
    *out = *begun;
    RN_TRY(parse(in, device, out));
    return apply(out, device);
}

rn_status read_host_budget(const invocation *in, uint64_t otherwise, host_budget *out) {
    *out = (host_budget){.free_bytes = otherwise};
    return parse(in, NULL, out);
}

void use_budget(const host_budget *budget, rn_plan_options *out) {
    out->budget_bytes = budget->total_bytes;
    out->reserved_bytes = budget->unaccounted_bytes;
    out->least_budget_bytes = budget->least_bytes;
    out->with_reserve = !budget->planned_only;
}
