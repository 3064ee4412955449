// entry.c — where a run may begin behind the first blocks: what it is handed, and whether all it
// needs is there.
//
//     blocks   0 ─ 1 ─ 2 ─┊─ 3 ─ 4 ─ ...      one value crosses; behind it nothing is streamed
#include "plan/plan.h"

static uint32_t block_of(const rn_plan *plan, uint32_t step) {
    return rn_graph_node(plan->graph, plan->steps[step].node)->block;
}

static uint32_t find_step(const rn_plan *plan, uint32_t block) {
    uint32_t step = 0;
    while (step < plan->step_count &&
           (plan->steps[step].kind != RN_STEP_COMPUTE || block_of(plan, step) < block))
        step++;
    return step;
}

static rn_status refuse(const rn_plan *plan, uint32_t block, const char *why) {
    return rn_fail(RN_UNSUPPORTED, "no run of '%s' can begin at block '%s': %s", plan->name,
                   rn_graph_block_name(plan->graph, block), why);
}

// What is streamed is read, evicted and read again before.
static rn_status check_steps(const rn_plan *plan, uint32_t block, uint32_t first) {
    for (uint32_t i = first; i < plan->step_count; i++) {
        if (plan->steps[i].kind != RN_STEP_COMPUTE)
            return refuse(plan, block, "some of its weights are streamed");
        if (block_of(plan, i) < block) return refuse(plan, block, "others run among its nodes");
        if (rn_plan_rows_of(plan, plan->steps[i].node))
            return refuse(plan, block, "rows are gathered for it");
    }
    return RN_OK;
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

// Every output is one of the run's own, but for what it is handed.
static rn_status check_outputs(const rn_plan *plan, uint32_t block, rn_value handed) {
    for (rn_value v = 1; v <= rn_graph_value_count(plan->graph); v++)
        if (v != handed && rn_graph_value(plan->graph, v)->role == RN_ROLE_OUTPUT &&
            crosses(plan, v, block))
            return refuse(plan, block, "an output is made before it");
    return RN_OK;
}

rn_status rn_plan_find_entry(const rn_plan *plan, uint32_t block, rn_plan_entry *out) {
    *out = (rn_plan_entry){0};
    if (block == 0 || block >= rn_graph_block_count(plan->graph) || plan->summary.micro_batches > 1)
        return rn_fail(RN_INVALID, "no run of '%s' can begin at block %u", plan->name, block);
    out->step = find_step(plan, block);
    RN_TRY(check_steps(plan, block, out->step));
    RN_TRY(find_value(plan, block, out->step, &out->value));
    RN_TRY(check_outputs(plan, block, out->value));
    return out->step ? RN_OK : refuse(plan, block, "it is the first");
}
