// plan_check.c — whether a plan keeps its promises, looked at from the finished plan alone.
#include "plan/plan.h"

#include "base/checked.h"

static bool is_alive(const rn_plan_buffer *b, uint32_t step) {
    return b->first_step <= step && step <= b->last_step;
}

static bool collide(const rn_plan_buffer *a, const rn_plan_buffer *b) {
    if (a->first_step > b->last_step || b->first_step > a->last_step) return false;
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool is_slot(const rn_plan *plan, const rn_plan_buffer *b) {
    return b->kind == RN_BUFFER_UNIT && !plan->units[b->unit].resident;
}

static bool buffers_are_apart(const rn_plan *plan) {
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const rn_plan_buffer *b = &plan->buffers[i];
        uint64_t end;
        if (b->first_step > b->last_step || b->last_step >= plan->step_count) return false;
        if (b->always && (b->first_step != 0 || b->last_step != plan->step_count - 1)) return false;
        if (!rn_add_u64(b->offset, b->bytes, &end) || end > plan->summary.arena_bytes) return false;
        if (b->offset % 64 || (is_slot(plan, b) && b->offset % RN_PAGE_BYTES)) return false;
        for (uint32_t j = 0; j < i; j++)
            if (collide(b, &plan->buffers[j])) return false;
    }
    return true;
}

static bool live_bytes_add_up(const rn_plan *plan) {
    uint64_t peak = 0;
    for (uint32_t s = 0; s < plan->step_count; s++) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < plan->buffer_count; i++)
            if (is_alive(&plan->buffers[i], s)) live += plan->buffers[i].bytes;
        if (live != plan->steps[s].live_bytes) return false;
        peak = rn_max_u64(peak, live);
    }
    return peak == plan->summary.live_peak_bytes && peak <= plan->summary.arena_bytes;
}

static bool summary_adds_up(const rn_plan *plan) {
    const rn_plan_summary *s = &plan->summary;
    uint64_t purposes = 0, limit = plan->options.budget_bytes;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        purposes += s->purpose_bytes[i];
    uint64_t staging = plan->caps.own_memory ? 0 : s->staging_bytes;
    return s->planned_bytes == s->arena_bytes + staging && purposes == s->planned_bytes &&
           s->step_count == plan->step_count && s->smallest_bytes <= (limit ? limit : UINT64_MAX) &&
           s->planned_bytes <= (limit ? limit : UINT64_MAX);
}

// ---- what a step reads and writes is there ------------------------------------------------------

// The unit's bytes at a step: resident, or in a use whose READ this or an earlier step waited for.
static bool unit_is_there(const rn_plan *plan, uint32_t unit, uint32_t step) {
    if (plan->units[unit].resident) return true;
    for (uint32_t u = 0; u < plan->use_count; u++)
        if (plan->uses[u].unit == unit && is_alive(&plan->buffers[plan->uses[u].buffer], step))
            return true;
    return false;
}

static bool value_is_there(const rn_plan *plan, rn_value value, uint32_t step) {
    const rn_plan_place *place = &plan->places[value];
    if (value == RN_NO_VALUE) return true;
    if (place->raw && (place->offset % RN_PAGE_BYTES || plan->units[place->unit].resident))
        return false;
    if (place->unit != RN_NO_USE && place->offset + place->bytes > plan->units[place->unit].bytes)
        return false;
    if (place->unit != RN_NO_USE) return unit_is_there(plan, place->unit, step);
    if (place->buffer == RN_NO_BUFFER) return false;
    const rn_plan_buffer *b = &plan->buffers[place->buffer];
    return is_alive(b, step) && place->offset + place->bytes <= b->bytes;
}

static bool outputs_are_there(const rn_plan *plan, const rn_node *node, uint32_t step) {
    uint32_t optional = rn_op_get(node->op)->optional_outputs;
    for (uint32_t i = 0; i < node->output_count; i++) {
        const rn_plan_place *place = &plan->places[node->outputs[i]];
        bool dropped = place->buffer == RN_NO_BUFFER && place->unit == RN_NO_USE;
        if (dropped && optional >> i & 1) continue;
        if (!value_is_there(plan, node->outputs[i], step)) return false;
    }
    return true;
}

static bool rows_are_there(const rn_plan *plan, const rn_plan_rows *rows, uint32_t step) {
    const rn_plan_buffer *b = &plan->buffers[rows->buffer];
    return b->first_step == 0 && is_alive(b, step) &&
           rn_plan_rows_bytes(plan->graph, rows, plan->summary.rows) <= b->bytes;
}

static bool steps_have_their_tensors(const rn_plan *plan) {
    for (uint32_t s = 0; s < plan->step_count; s++) {
        if (plan->steps[s].kind != RN_STEP_COMPUTE) continue;
        const rn_node *node = rn_graph_node(plan->graph, plan->steps[s].node);
        const rn_plan_rows *rows = rn_plan_rows_of(plan, plan->steps[s].node);
        if (rows && !rows_are_there(plan, rows, s)) return false;
        for (uint32_t i = rows ? 1 : 0; i < node->input_count; i++)
            if (!value_is_there(plan, node->inputs[i], s)) return false;
        if (!outputs_are_there(plan, node, s)) return false;
        uint32_t workspace = plan->steps[s].workspace;
        if (workspace != RN_NO_BUFFER && !is_alive(&plan->buffers[workspace], s)) return false;
    }
    return true;
}

// ---- the ring -----------------------------------------------------------------------------------

static bool uses_turn(const rn_plan *plan) {
    for (uint32_t u = 0; u < plan->use_count; u++) {
        const rn_plan_use *use = &plan->uses[u];
        const rn_plan_step *read = &plan->steps[use->read_step], *evict;
        evict = &plan->steps[use->evict_step];
        bool fits = plan->units[use->unit].bytes <= plan->slot_bytes &&
                    use->slot == u % plan->slot_count && !plan->units[use->unit].resident;
        bool read_right = (read->kind == RN_STEP_READ || read->kind == RN_STEP_UPLOAD) &&
                          read->use == u && read->after + 1 == use->read_step &&
                          read->next_run == (use->read_step > use->evict_step) &&
                          read->next_run == (u < plan->slot_count);
        if (!fits || !read_right || evict->kind != RN_STEP_EVICT || evict->use != u) return false;
    }
    return true;
}

bool rn_plan_is_valid(const rn_plan *plan) {
    return buffers_are_apart(plan) && live_bytes_add_up(plan) && summary_adds_up(plan) &&
           uses_turn(plan) && steps_have_their_tensors(plan);
}
