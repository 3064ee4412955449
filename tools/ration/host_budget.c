// host_budget.c — --budget: how much of it is left for a plan, on the host and on a device with its
// own memory.
#include "command.h"

#include <string.h>

// Without a constraint: nine tenths of what the machine and the cgroup have left; never 0, which
// would be no limit.
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

// Whether a size without a name is the host's, before there is a device: surely where none with its
// own memory can come to be used.
static bool is_bare_for_host(const invocation *in) {
    const char *targets = rn_settings_text(in->settings, "device");
    return in->command == &serve_command || !targets[0] || strcmp(targets, "cpu") == 0;
}

// What is held on the ledger at most while files are opened and prompts read: a smaller budget
// would not have been enough for that.
static struct {
    rn_scope scope;
    bool begun;
    uint64_t held_bytes; // before
    uint64_t most_bytes; // known once it has ended
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

// Again only where it changes (a size turns out to be the host's, a driver has come): each time a
// little may be taken, however small the budget is.
static rn_status limit_process(uint64_t total_bytes, uint64_t process_bytes) {
    static uint64_t in_force[2];
    if (total_bytes == in_force[0] && process_bytes == in_force[1]) return RN_OK;
    in_force[0] = total_bytes;
    in_force[1] = process_bytes;
    return rn_budget_set_process(total_bytes);
}

// Of what --budget says, the host's; where that is nothing, or of planned bytes only, what the
// machine has is the limit.
rn_status begin_budget(invocation *in) {
    const char *text = rn_settings_text(in->settings, "budget");
    host_budget *b = &in->budget;
    rn_budget_spec spec = {.count = 0};
    if (text[0]) RN_TRY(rn_budget_parse((rn_str){text, strlen(text)}, &spec));
    bool bare = spec.count == 1 && !strchr(text, '=');
    for (size_t i = 0; i < spec.count; i++) {
        if (strcmp(spec.entries[i].device, "host") != 0) continue;
        if (bare && !is_bare_for_host(in)) continue;
        b->total_bytes = spec.entries[i].bytes;
        b->planned_only = spec.entries[i].planned_only;
    }
    RN_TRY(measure(&b->free_bytes));
    b->measured = b->total_bytes == 0;
    if (b->measured) b->total_bytes = b->free_bytes;
    rn_budget_shares shares = {.total_bytes = b->total_bytes};
    RN_TRY(rn_budget_split(&shares));
    RN_TRY(limit_process(b->planned_only ? b->free_bytes : b->total_bytes, shares.process_bytes));
    b->process_bytes = shares.process_bytes;
    begin_opening(shares.held_bytes);
    return RN_OK;
}

// The host's share is known, for the device that is tried. `room_bytes` are for what the caller
// will hold beside the plan and does not hold yet.
static rn_status divide(host_budget *b, uint64_t room_bytes) {
    rn_budget_shares shares = {.total_bytes = b->total_bytes, .process_bytes = b->process_bytes};
    end_opening();
    if (b->planned_only) return RN_OK;
    RN_TRY(rn_budget_split(&shares));
    RN_TRY(limit_process(b->total_bytes, shares.process_bytes));
    // Of what is on the ledger, profiling_bytes counts the recording.
    b->process_bytes = shares.process_bytes;
    b->unaccounted_bytes = shares.process_bytes + shares.held_bytes + room_bytes +
                           profiling_bytes() -
                           rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
    b->least_bytes = rn_budget_needed(shares.process_bytes + opening.most_bytes);
    b->reserve_bytes = shares.reserve_bytes;
    if (!b->measured) // a line in the picture
        rn_profile_counter(RN_COUNTER_BUDGET, RN_DEVICE_HOST, 0, b->total_bytes);
    return RN_OK;
}

// Again, now that it is known whose a size without a name is.
static rn_status parse_again(const invocation *in, const char *device, bool of_device,
                             host_budget *out) {
    *out = (host_budget){.process_bytes = in->budget.process_bytes,
                         .free_bytes = in->budget.free_bytes};
    RN_TRY(parse(in, device, of_device, out));
    out->measured = out->total_bytes == 0;
    if (out->measured) out->total_bytes = out->free_bytes;
    return RN_OK;
}

rn_status read_budget(const invocation *in, rn_device *device, uint64_t room_bytes,
                      host_budget *out) {
    bool own = device && rn_device_has_own_memory(device);
    RN_TRY(parse_again(in, own ? rn_device_target(device) : NULL, own, out));
    out->own_memory = own;
    RN_TRY(divide(out, room_bytes));
    if (own) {
        out->device_number = rn_device_number(device);
        out->device_held_bytes = rn_ledger_total(out->device_number).now_bytes;
        if (out->device.bytes && !out->device.planned_only)
            rn_profile_counter(RN_COUNTER_BUDGET, out->device_number, 0, out->device.bytes);
    }
    return RN_OK;
}

rn_status read_server_budget(const invocation *in, host_budget *out) {
    RN_TRY(parse_again(in, "cuda:0", false, out));
    return divide(out, 0);
}

void use_budget(const host_budget *budget, rn_plan_options *out) {
    out->budget_bytes = budget->total_bytes;
    out->beside_bytes = budget->unaccounted_bytes;
    out->least_budget_bytes = budget->least_bytes;
    out->with_reserve = !budget->planned_only;
}
