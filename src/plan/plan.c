// plan.c — the planner's front door: list, choose, write out; or refuse.
#include "plan/planner.h"

#include "base/checked.h"
#include "base/reserved.h"
#include "memory/account.h"

uint64_t rn_plan_limit(const rn_device_caps *caps, uint64_t budget_bytes) {
    uint64_t limit = budget_bytes ? budget_bytes : RN_NO_LIMIT;
    return caps->memory_bytes ? rn_min_u64(limit, caps->memory_bytes) : limit;
}

uint64_t rn_planner_budget(const rn_planner *planner, uint64_t plan_bytes) {
    const rn_plan_options *o = &planner->options;
    uint64_t budget;
    if (!rn_add_u64(plan_bytes, o->reserved_bytes, &budget)) return RN_NO_LIMIT;
    if (o->with_reserve) budget = rn_budget_needed(budget);
    return rn_max_u64(budget, o->least_budget_bytes);
}

uint64_t rn_plan_room(const rn_plan_options *options, uint64_t budget_bytes) {
    if (budget_bytes == RN_NO_LIMIT) return budget_bytes;
    uint64_t usable = options->with_reserve ? rn_budget_usable(budget_bytes) : budget_bytes;
    return usable - rn_min_u64(usable, options->reserved_bytes);
}

static rn_status plan_for(rn_planner *planner, uint64_t budget_bytes, rn_plan **out) {
    uint64_t limit = rn_plan_limit(planner->caps, budget_bytes),
             share = rn_plan_room(&planner->options, limit);
    rn_candidate candidate;
    if (planner->frugal.variant == RN_NO_STEP)
        return planner->least_host_bytes == UINT64_MAX ? rn_plan_refuse_constraints(planner)
                                                       : rn_plan_refuse_host(planner);
    if (share < planner->frugal.planned_bytes || limit < planner->options.least_budget_bytes)
        return rn_plan_refuse(planner, limit);
    RN_TRY(rn_choose(planner, share, &candidate));
    RN_TRY(rn_plan_assemble(planner, &candidate, out));
    (*out)->options.budget_bytes = budget_bytes;
    return RN_OK;
}

// The graph leaves the planner with the plan.
static void hand_over_graph(rn_planner *planner, const rn_plan *plan) {
    for (uint32_t i = 0; i < planner->case_count; i++)
        if (planner->cases[i].graph == plan->graph) planner->cases[i].graph = NULL;
}

rn_status rn_plan_make_alone(const rn_recipe *recipe, const rn_device_caps *caps,
                             const rn_plan_options *options, const rn_residency_rule *rule,
                             rn_plan **out) {
    rn_planner planner;
    *out = NULL;
    rn_status s = rn_planner_init(recipe, caps, options, rule, &planner);
    if (s == RN_OK) s = plan_for(&planner, planner.options.budget_bytes, out);
    if (s == RN_OK) hand_over_graph(&planner, *out);
    rn_planner_destroy(&planner);
    return s;
}

rn_status rn_plan_make(const rn_recipe *recipe, const rn_device_caps *caps,
                       const rn_plan_options *options, rn_plan **out) {
    *out = NULL;
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_plan_options"));
    if (caps->compiles) return rn_plan_make_compiled(recipe, caps, options, out);
    RN_TRY(rn_plan_make_alone(recipe, caps, options, NULL, out));
    if (!options) return RN_OK;
    rn_status s = rn_plan_make_hybrid(recipe, caps, options, out);
    if (s == RN_OK) return RN_OK;
    rn_plan_destroy(*out);
    *out = NULL;
    return s;
}

void rn_plan_destroy(rn_plan *plan) {
    if (!plan) return;
    rn_plan_destroy(plan->host);
    rn_graph_destroy(plan->graph);
    rn_arena_free_all(&plan->memory);
    rn_free(RN_HOST_OTHER, plan, sizeof *plan);
}

const rn_plan_summary *rn_plan_get_summary(const rn_plan *plan) {
    return &plan->summary;
}

const rn_graph *rn_plan_graph(const rn_plan *plan) {
    return plan->graph;
}

const rn_plan_stack *rn_plan_stack_of(const rn_plan *plan, rn_value weight) {
    uint32_t group = weight == RN_NO_VALUE ? RN_NO_LOAD : plan->places[weight].group;
    bool is_one = group != RN_NO_LOAD && plan->groups[group].on_demand;
    return is_one ? &plan->stacks[plan->groups[group].stack] : NULL;
}

uint32_t rn_plan_buffer_at(const rn_plan *plan, rn_value value, uint32_t step) {
    uint32_t buffer = plan->places[value].buffer;
    if (buffer == RN_NO_BUFFER || plan->buffers[buffer].offload == RN_NO_OFFLOAD) return buffer;
    const rn_plan_offload *offload = &plan->offloads[plan->buffers[buffer].offload];
    return step < offload->prefetch_step ? offload->buffer : offload->back;
}

// ---- tables -------------------------------------------------------------------------------------

// Measured: 140 to 270 bytes an argument in a plan, 100 to 180 in a session, and a few blocks that
// arenas are made of. The plan's graph has the constants' bytes, a copy of its own, and its arena
// loses up to an eighth. Of each matrix of a stack there is a tensor to be found, and of each
// expert of a layer a count and its slot.
enum { ARGUMENT_BYTES = 448, EXPERT_BYTES = 32, BLOCKS_BYTES = 384 << 10, CONSTANT_ALIGN = 64 };

uint64_t rn_plan_table_bytes(const rn_graph *graph) {
    uint64_t arguments = 0, constants = 0, experts = 0, bytes = 0;
    for (uint32_t i = 0; i < rn_graph_node_count(graph); i++) {
        const rn_node *node = rn_graph_node(graph, i);
        arguments += (uint64_t)node->input_count + node->output_count;
    }
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role == RN_ROLE_CONSTANT &&
            rn_dtype_bytes(info->dtype, rn_shape_elements(info->shape, 1), &bytes))
            constants += rn_round_up(bytes + bytes / 8, CONSTANT_ALIGN);
        experts += info->experts;
    }
    return BLOCKS_BYTES + ARGUMENT_BYTES * arguments + EXPERT_BYTES * experts + constants;
}

// ---- sweep --------------------------------------------------------------------------------------

static rn_status sweep_one(rn_planner *planner, uint64_t budget_bytes, rn_sweep_row *out) {
    rn_plan *plan;
    RN_TRY(plan_for(planner, budget_bytes, &plan));
    *out = (rn_sweep_row){budget_bytes, plan->summary};
    plan->graph = NULL; // stays the planner's
    rn_plan_destroy(plan);
    return RN_OK;
}

// The roomiest first: it says how far the others go.
static rn_status sweep(rn_planner *planner, rn_sweep_row *rows, uint32_t count) {
    uint64_t low = rn_planner_budget(planner, planner->frugal.planned_bytes);
    rn_sweep_row *last = &rows[count - 1];
    RN_TRY(sweep_one(planner, planner->options.budget_bytes, last));
    uint64_t high = last->budget_bytes = rn_planner_budget(planner, last->summary.planned_bytes);
    for (uint32_t i = 0; i + 1 < count; i++) {
        uint64_t above = (uint64_t)((double)(high - low) / (count - 1) * i);
        RN_TRY(sweep_one(planner, low + above, &rows[i]));
    }
    return RN_OK;
}

static rn_status sweep_compiled(const rn_recipe *recipe, const rn_device_caps *caps,
                                const rn_plan_options *options, rn_sweep_row *rows,
                                uint32_t count) {
    rn_plan_options o = options ? *options : (rn_plan_options){0};
    uint64_t low = 0, high = o.budget_bytes;
    for (uint32_t i = count; i-- > 0;) { // the roomiest first: it says how far the others go
        rn_plan *plan;
        if (i + 1 < count) o.budget_bytes = low + (high - low) / (count - 1) * i;
        RN_TRY(rn_plan_make_compiled(recipe, caps, &o, &plan));
        rows[i] = (rn_sweep_row){o.budget_bytes, plan->summary};
        low = plan->summary.smallest_budget_bytes;
        if (i + 1 == count)
            high = rows[i].budget_bytes = plan->summary.planned_bytes + o.reserved_bytes;
        rn_plan_destroy(plan);
    }
    return RN_OK;
}

rn_status rn_plan_sweep(const rn_recipe *recipe, const rn_device_caps *caps,
                        const rn_plan_options *options, rn_sweep_row *out_rows,
                        uint32_t row_count) {
    rn_planner planner;
    if (row_count == 0) return RN_OK;
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_plan_options"));
    if (caps->compiles) return sweep_compiled(recipe, caps, options, out_rows, row_count);
    rn_status s = rn_planner_init(recipe, caps, options, NULL, &planner);
    if (s == RN_OK) s = sweep(&planner, out_rows, row_count);
    rn_planner_destroy(&planner);
    return s;
}
