// constraints.c — --keep, --offload, --resident-blocks, --attention-slice, --experts: what shall
// stay on the device, for plan and run; moves of a training step.
#include "run.h"

#include <stdio.h>
#include <string.h>

// The items with commas between them; NULL where there are none.
static rn_status join_items(const invocation *in, const char *option, char *text, size_t room,
                            const char **out) {
    const char *const *items = NULL;
    size_t count = rn_settings_list(in->settings, option, &items), used = 0;
    *out = count ? text : NULL;
    for (size_t i = 0; i < count; i++) {
        int more = snprintf(text + used, room - used, "%s%s", i ? "," : "", items[i]);
        if (more < 0 || (used += (size_t)more) >= room)
            return rn_fail(RN_INVALID, "--%s: more than %zu characters in all", option, room - 1);
    }
    return RN_OK;
}

rn_status read_constraints(const invocation *in, constraint_texts *texts, rn_plan_options *out) {
    uint64_t blocks = rn_settings_count(in->settings, "resident-blocks");
    if (blocks > UINT32_MAX / 2)
        return rn_fail(RN_INVALID, "--resident-blocks %llu is too large",
                       (unsigned long long)blocks);
    out->resident_blocks = (uint32_t)blocks;
    uint64_t rows = rn_settings_count(in->settings, "attention-slice");
    if (rows > UINT32_MAX)
        return rn_fail(RN_INVALID, "--attention-slice %llu is too large", (unsigned long long)rows);
    out->slice_rows = (uint32_t)rows;
    RN_TRY(join_items(in, "keep", texts->keep, sizeof texts->keep, &out->keep));
    return join_items(in, "offload", texts->offload, sizeof texts->offload, &out->offload);
}

static rn_move read_move(const invocation *in, const char *option) {
    const char *which = rn_settings_text(in->settings, option);
    return strcmp(which, "all") == 0    ? RN_MOVE_ALWAYS
           : strcmp(which, "none") == 0 ? RN_MOVE_NEVER
                                        : RN_MOVE_AS_NEEDED;
}

rn_status read_moves(const invocation *in, constraint_texts *texts, rn_plan_options *out) {
    out->micro_batches = (uint32_t)rn_settings_count(in->settings, "micro-batches");
    out->recompute = read_move(in, "recompute");
    out->host_states = read_move(in, "host-states");
    out->host_activations = read_move(in, "host-activations");
    return read_constraints(in, texts, out);
}

rn_status read_experts(const invocation *in, constraint_texts *texts, rn_plan_options *out) {
    const char *when = rn_settings_text(in->settings, "experts");
    const char *trace = rn_settings_text(in->settings, "route-trace");
    if (strcmp(when, "never") == 0) out->experts = RN_EXPERTS_NEVER;
    if (strcmp(when, "always") == 0) out->experts = RN_EXPERTS_ALWAYS;
    if (!trace[0]) return RN_OK;
    RN_TRY(rn_expert_hits_read(trace, &texts->expert_hits));
    out->expert_hits = &texts->expert_hits;
    return RN_OK;
}
