// refuse.c — no plan fits: what the most frugal one needs, who holds it, what would help.
#include "plan/planner.h"

#include "memory/budget.h"

#include <stdio.h>

#define SIZE(bytes) rn_size_format(bytes).text

static void add_holder(rn_refusal *r, const char *name, rn_purpose purpose, uint64_t bytes) {
    size_t at = r->holder_count;
    if (bytes == 0) return;
    while (at > 0 && r->holders[at - 1].bytes < bytes)
        at--;
    if (at == RN_REFUSAL_HOLDERS) return;
    if (r->holder_count < RN_REFUSAL_HOLDERS) r->holder_count++;
    for (size_t i = r->holder_count - 1; i > at; i--)
        r->holders[i] = r->holders[i - 1];
    snprintf(r->holders[at].name, sizeof r->holders[at].name, "%s", name);
    r->holders[at].purpose = purpose;
    r->holders[at].bytes = bytes;
}

static uint32_t find_peak(const rn_plan *plan) {
    uint32_t peak = 0;
    while (plan->steps[peak].live_bytes < plan->summary.live_peak_bytes)
        peak++;
    return peak;
}

// What lives all the time is one holder a purpose; what is alive at the peak step has its own name.
static void add_values(const rn_plan *plan, rn_refusal *r) {
    uint64_t always[RN_PURPOSE_COUNT] = {0};
    uint32_t peak = find_peak(plan);
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const rn_plan_buffer *b = &plan->buffers[i];
        if (b->kind == RN_BUFFER_GROUP || b->kind == RN_BUFFER_TRANSIT || b->first_step > peak ||
            peak > b->last_step)
            continue;
        if (b->always)
            always[b->purpose] += b->bytes;
        else if (b->kind == RN_BUFFER_VALUE)
            add_holder(r, rn_graph_value(plan->graph, b->value)->name, b->purpose, b->bytes);
        else
            add_holder(r, rn_graph_node(plan->graph, plan->steps[peak].node)->name, b->purpose,
                       b->bytes);
    }
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        add_holder(r, "kept from run to run", (rn_purpose)i, always[i]);
}

static rn_purpose find_largest(const rn_plan_summary *s) {
    rn_purpose largest = RN_PURPOSE_WEIGHTS;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (s->purpose_bytes[i] > s->purpose_bytes[largest]) largest = (rn_purpose)i;
    return largest;
}

static void write_table(const rn_planner *p, const rn_plan *plan, uint64_t budget_bytes,
                        rn_refusal *out) {
    const rn_plan_summary *s = &plan->summary;
    uint64_t smallest = rn_planner_budget(p, s->planned_bytes);
    uint64_t beside = smallest - s->planned_bytes; // with the reserve of that budget
    *out = (rn_refusal){.device = plan->caps.device,
                        .purpose = find_largest(s),
                        .requested_bytes = s->planned_bytes,
                        .free_bytes = rn_plan_room(&p->options, budget_bytes),
                        .budget_bytes = budget_bytes,
                        .smallest_budget_bytes = smallest};
    add_holder(out, "beside the plan", RN_PURPOSE_UNACCOUNTED, beside);
    const char *name = NULL;
    uint32_t count;
    uint64_t kept = rn_constraints_kept(plan, &p->options, &name, &count);
    add_holder(out, "weights to be kept", RN_PURPOSE_WEIGHTS, kept);
    add_holder(out, "resident weights", RN_PURPOSE_WEIGHTS, plan->resident_bytes - kept);
    add_holder(out, "ring of streamed weights", RN_PURPOSE_WEIGHTS, plan->ring_bytes);
    add_holder(out, "slots for experts", RN_PURPOSE_WEIGHTS, s->expert_slot_bytes);
    add_holder(out, "transit of experts", RN_PURPOSE_STAGING, s->expert_transit_bytes);
    uint64_t shared = 0;
    for (uint32_t u = 0; u < plan->group_count; u++)
        if (plan->groups[u].shared) shared += plan->groups[u].bytes;
    add_holder(out, "weights shared with other phases", RN_PURPOSE_WEIGHTS, shared);
    if (!plan->caps.own_memory) add_holder(out, "staging", RN_PURPOSE_STAGING, s->staging_bytes);
    add_values(plan, out);
}

// ---- what would help ----------------------------------------------------------------------------

// With every permission given: the smallest budget then, or the same where none is missing.
static rn_status ask_permissions(const rn_planner *p, uint64_t *out_bytes) {
    rn_planner permitted;
    rn_plan_options options = p->options;
    bool missing = options.exact || (p->recipe->batch_statistics && !options.allow_lossy);
    *out_bytes = p->frugal.planned_bytes;
    if (p->recipe->max_micro_batches < 2 || !missing) return RN_OK;
    options.exact = false;
    options.allow_lossy = true;
    rn_status s = rn_planner_init(p->recipe, p->caps, &options, &p->rule, &permitted);
    if (s == RN_OK) *out_bytes = permitted.frugal.planned_bytes;
    rn_planner_destroy(&permitted);
    return s;
}

// Of a training step on a device of its own memory, with all that it wants of the host's: the
// smallest budget then, and what that is; or the same, where it has that already.
static rn_status ask_host(const rn_planner *p, uint64_t *out_bytes, uint64_t *out_host_bytes) {
    rn_planner roomy;
    rn_plan_options options = p->options;
    rn_plan *plan = NULL;
    *out_bytes = p->frugal.planned_bytes;
    *out_host_bytes = options.host_budget_bytes;
    if (!p->cases[0].trains || !p->caps->own_memory || !options.host_budget_bytes ||
        options.host_budget_bytes == RN_NO_LIMIT)
        return RN_OK;
    options.host_budget_bytes = 0;
    rn_status s = rn_planner_init(p->recipe, p->caps, &options, &p->rule, &roomy);
    if (s == RN_OK) s = rn_plan_assemble(&roomy, &roomy.frugal, &plan);
    if (s == RN_OK) {
        *out_bytes = plan->summary.planned_bytes;
        *out_host_bytes = plan->summary.host_bytes;
        plan->graph = NULL; // the planner's
    }
    rn_plan_destroy(plan);
    rn_planner_destroy(&roomy);
    return s;
}

// What would bring the smallest budget down; the same bytes: nothing would.
typedef struct help {
    uint64_t permitted_bytes;         // with every permission
    uint64_t roomy_bytes, host_bytes; // with so many bytes of the host's
} help;

static const char *name_permission(const rn_planner *p) {
    bool lossy = p->recipe->batch_statistics && !p->options.allow_lossy;
    if (lossy && p->options.exact) return "without exact and with lossy moves allowed";
    return lossy ? "with lossy moves allowed" : "without exact";
}

// Of a plan with weights that are to be kept: ", of them 1.5 MiB for 'a' and 2 more to be kept".
static void name_kept(const rn_plan *plan, const rn_plan_options *options, char out[192]) {
    const char *name = NULL;
    uint32_t count;
    uint64_t bytes = rn_constraints_kept(plan, options, &name, &count);
    char more[32] = "";
    out[0] = 0;
    if (count == 0) return;
    if (count > 1) snprintf(more, sizeof more, " and %u more", count - 1);
    snprintf(out, 192, ", of them %s for '%.96s'%s to be kept", SIZE(bytes), name, more);
}

// Of a device with its own memory: " and 1.5 MiB of the host's 2 MiB".
static void name_host(const rn_plan *plan, char out[96]) {
    uint64_t budget = plan->options.host_budget_bytes;
    bool limited = budget && budget != RN_NO_LIMIT;
    out[0] = 0;
    if (plan->summary.host_bytes)
        snprintf(out, 96, " and %s of the host's %s", SIZE(plan->summary.host_bytes),
                 limited ? SIZE(budget) : "memory");
}

// "; with ..., down to 12.0 MiB (12582912 bytes)", for what helps.
static void name_help(const rn_planner *p, const help *h, char out[320]) {
    uint64_t smallest = p->frugal.planned_bytes;
    int at = 0;
    out[0] = 0;
    if (h->permitted_bytes < smallest) {
        uint64_t bytes = rn_planner_budget(p, h->permitted_bytes);
        at = snprintf(out, 320, "; %s, micro-batches bring it down to %s (%llu bytes)",
                      name_permission(p), SIZE(bytes), (unsigned long long)bytes);
    }
    if (h->roomy_bytes < smallest) {
        uint64_t bytes = rn_planner_budget(p, h->roomy_bytes);
        snprintf(out + at, 320 - (size_t)at,
                 "; %s of the host's memory bring it down to %s (%llu bytes)", SIZE(h->host_bytes),
                 SIZE(bytes), (unsigned long long)bytes);
    }
}

// `more`: what is to be said of the most frugal plan behind its bytes.
static rn_status fail(const rn_planner *p, uint64_t budget_bytes, const char *more, const help *h) {
    uint64_t smallest = p->frugal.planned_bytes;
    uint64_t whole = rn_planner_budget(p, smallest);
    char beside[128] = "", helps[320];
    if (p->options.with_reserve)
        snprintf(beside, sizeof beside, ", beside it %s are held and %s in reserve",
                 SIZE(p->options.reserved_bytes), SIZE(whole - rn_budget_usable(whole)));
    else if (p->options.reserved_bytes)
        snprintf(beside, sizeof beside, ", beside it %s are held", SIZE(p->options.reserved_bytes));
    rn_status s = rn_fail(RN_OVER_BUDGET,
                          "'%s' does not fit: its most frugal plan needs %s%s%s, the budget is %s",
                          p->recipe->name, SIZE(smallest), more, beside, SIZE(budget_bytes));
    name_help(p, h, helps);
    return rn_hint(s, "the smallest budget that works is %s (%llu bytes)%s", SIZE(whole),
                   (unsigned long long)whole, helps);
}

rn_status rn_plan_refuse(rn_planner *p, uint64_t budget_bytes) {
    rn_plan *plan;
    rn_refusal refusal;
    help h;
    char kept[192], host[96], more[288];
    RN_TRY(rn_plan_assemble(p, &p->frugal, &plan));
    write_table(p, plan, budget_bytes, &refusal);
    name_kept(plan, &p->options, kept);
    name_host(plan, host);
    snprintf(more, sizeof more, "%s%s", host, kept);
    plan->graph = NULL; // the planner's
    rn_plan_destroy(plan);
    RN_TRY(ask_permissions(p, &h.permitted_bytes));
    RN_TRY(ask_host(p, &h.roomy_bytes, &h.host_bytes));
    rn_refusal_keep(&refusal);
    return fail(p, budget_bytes, more, &h);
}

rn_status rn_plan_refuse_host(const rn_planner *p) {
    const rn_plan_options *o = &p->options;
    uint64_t need = p->least_host_bytes, smallest = need + o->host_reserved_bytes;
    uint64_t budget = o->host_budget_bytes + o->host_reserved_bytes;
    if (o->host_with_reserve) {
        smallest = rn_budget_needed(smallest);
        budget = rn_budget_needed(budget);
    }
    rn_refusal_keep(&(rn_refusal){.device = RN_DEVICE_HOST,
                                  .purpose = RN_PURPOSE_STAGING,
                                  .requested_bytes = need,
                                  .free_bytes = o->host_budget_bytes,
                                  .budget_bytes = budget,
                                  .smallest_budget_bytes = smallest});
    return rn_hint(rn_fail(RN_OVER_BUDGET,
                           "'%s' does not fit: to bring weights to %s its plan needs %s of the "
                           "host's memory, and has %s there",
                           p->recipe->name, p->caps->name, SIZE(need), SIZE(o->host_budget_bytes)),
                   "the smallest budget of the host that works is %s (%llu bytes)", SIZE(smallest),
                   (unsigned long long)smallest);
}
