// part.c — some blocks of a run, to be run apart from the others: what is handed in, what is handed
// on.
//
//     blocks   0 ─ 1 ─┊─ 2 ─ 3 ─┊─ 4 ─ ...      one value crosses at either end
#include "plan/plan.h"

#include "base/checked.h"

static uint32_t block_of(const rn_plan *plan, uint32_t step) {
    return rn_graph_node(plan->graph, plan->steps[step].node)->block;
}

static bool computes(const rn_plan *plan, uint32_t step) {
    return plan->steps[step].kind == RN_STEP_COMPUTE;
}

// The first step of this block or a later one.
static uint32_t find_step(const rn_plan *plan, uint32_t block) {
    uint32_t step = 0;
    while (step < plan->step_count && (!computes(plan, step) || block_of(plan, step) < block))
        step++;
    return step;
}

static rn_status refuse(const rn_plan *plan, uint32_t block, const char *why) {
    return rn_fail(RN_UNSUPPORTED, "no part of a run of '%s' can begin or end at block '%s': %s",
                   plan->name, rn_graph_block_name(plan->graph, block), why);
}

// Nothing of the blocks before comes behind the step, and all that is gathered is used before it.
static rn_status check_cut(const rn_plan *plan, uint32_t block, uint32_t first) {
    for (uint32_t i = first; i < plan->step_count; i++) {
        if (!computes(plan, i)) continue;
        if (block_of(plan, i) < block) return refuse(plan, block, "others run among its nodes");
        if (rn_plan_rows_of(plan, plan->steps[i].node))
            return refuse(plan, block, "rows are gathered for it");
    }
    return first ? RN_OK : refuse(plan, block, "it is the first");
}

// Whether the value is made before; inputs, weights, states and constants are there anyway.
static bool crosses(const rn_plan *plan, rn_value value, uint32_t block) {
    if (value == RN_NO_VALUE) return false;
    uint32_t producer = rn_graph_value(plan->graph, value)->producer;
    return producer != RN_NO_NODE && rn_graph_node(plan->graph, producer)->block < block;
}

static rn_status find_value(const rn_plan *plan, uint32_t block, uint32_t first, rn_value *out) {
    *out = RN_NO_VALUE;
    for (uint32_t i = first; i < plan->step_count; i++) {
        if (!computes(plan, i)) continue;
        const rn_node *node = rn_graph_node(plan->graph, plan->steps[i].node);
        for (uint32_t k = 0; k < node->input_count; k++) {
            rn_value value = node->inputs[k];
            if (!crosses(plan, value, block) || value == *out) continue;
            if (*out != RN_NO_VALUE) return refuse(plan, block, "it reads more than one value");
            *out = value;
        }
    }
    return *out != RN_NO_VALUE ? RN_OK : refuse(plan, block, "it reads nothing of those before");
}

static rn_status cut(const rn_plan *plan, uint32_t block, uint32_t *out_step, rn_value *out_value) {
    *out_step = find_step(plan, block);
    RN_TRY(check_cut(plan, block, *out_step));
    return find_value(plan, block, *out_step, out_value);
}

// Where a run ends, every output is one of the part's own, but for what it is handed.
static rn_status check_outputs(const rn_plan *plan, uint32_t block, rn_value handed) {
    for (rn_value v = 1; v <= rn_graph_value_count(plan->graph); v++)
        if (v != handed && rn_graph_value(plan->graph, v)->role == RN_ROLE_OUTPUT &&
            crosses(plan, v, block))
            return refuse(plan, block, "an output is made before it");
    return RN_OK;
}

rn_status rn_plan_find_part(const rn_plan *plan, uint32_t first, uint32_t end, rn_plan_part *out) {
    uint32_t blocks = rn_graph_block_count(plan->graph);
    *out = (rn_plan_part){.end_step = plan->step_count};
    if (first >= end || end > blocks || plan->summary.micro_batches > 1)
        return rn_fail(RN_INVALID, "blocks %u to %u are no part of a run of '%s'", first, end,
                       plan->name);
    if (first) RN_TRY(cut(plan, first, &out->first_step, &out->in));
    if (end < blocks) return cut(plan, end, &out->end_step, &out->out);
    return first ? check_outputs(plan, first, out->in) : RN_OK;
}

// ---- weights of a block -------------------------------------------------------------------------

uint64_t rn_plan_unit_room(const rn_plan *plan, uint32_t unit) {
    return rn_round_up(plan->units[unit].bytes, RN_PAGE_BYTES);
}

uint64_t rn_plan_block_room(const rn_plan *plan, uint32_t block) {
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < plan->unit_count; u++)
        if (plan->units[u].block == block && !plan->units[u].resident)
            bytes += rn_plan_unit_room(plan, u);
    return bytes;
}
