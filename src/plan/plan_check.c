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
    return b->kind == RN_BUFFER_GROUP && !plan->groups[b->group].resident &&
           !plan->groups[b->group].on_demand;
}

static bool buffers_are_apart(const rn_plan *plan) {
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const rn_plan_buffer *b = &plan->buffers[i];
        uint64_t end;
        if (b->first_step > b->last_step || b->last_step >= plan->step_count) return false;
        if (b->always && (b->first_step != 0 || b->last_step != plan->step_count - 1)) return false;
        if (!rn_add_u64(b->offset, b->bytes, &end) || end > plan->summary.arena_bytes) return false;
        if (b->offset % 64 || (is_slot(plan, b) && b->offset % RN_PAGE_BYTES)) return false;
        if (b->kind == RN_BUFFER_TRANSIT && b->offset % RN_PAGE_BYTES) return false;
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

// The layer's slots hold its matrices, and a place of transit one with the pages around it.
static bool stack_is_there(const rn_plan *plan, uint32_t group) {
    const rn_plan_stack *s = &plan->stacks[plan->groups[group].stack];
    const rn_plan_expert_layer *layer = &plan->expert_layers[s->layer];
    uint64_t bytes = s->buffer == RN_NO_BUFFER ? 0 : plan->buffers[s->buffer].bytes;
    return layer->slots <= layer->experts && bytes == layer->slots * s->place_bytes &&
           s->place_bytes * layer->experts >= plan->groups[group].bytes &&
           s->place_bytes <= plan->transit_bytes &&
           s->matrix_bytes + RN_PAGE_BYTES <= plan->transit_bytes && plan->transit_places >= 2 &&
           plan->buffers[plan->transit_buffer].bytes == plan->transit_places * plan->transit_bytes;
}

// The weight group's bytes at a step: resident, or in a load whose READ this or an earlier step
// waited for.
static bool group_is_there(const rn_plan *plan, uint32_t group, uint32_t step) {
    if (plan->groups[group].resident) return true;
    if (plan->groups[group].on_demand) return stack_is_there(plan, group);
    for (uint32_t u = 0; u < plan->load_count; u++)
        if (plan->loads[u].group == group && is_alive(&plan->buffers[plan->loads[u].buffer], step))
            return true;
    return false;
}

static bool value_is_there(const rn_plan *plan, rn_value value, uint32_t step) {
    const rn_plan_place *place = &plan->places[value];
    if (value == RN_NO_VALUE) return true;
    if (place->file_layout &&
        (place->offset % RN_PAGE_BYTES || plan->groups[place->group].resident))
        return false;
    if (place->group != RN_NO_LOAD &&
        place->offset + place->bytes > plan->groups[place->group].bytes)
        return false;
    if (place->group != RN_NO_LOAD) return group_is_there(plan, place->group, step);
    if (place->buffer == RN_NO_BUFFER) return false;
    const rn_plan_buffer *b = &plan->buffers[rn_plan_buffer_at(plan, value, step)];
    return is_alive(b, step) && place->offset + place->bytes <= b->bytes;
}

static bool outputs_are_there(const rn_plan *plan, const rn_node *node, uint32_t step) {
    uint32_t optional = rn_op_get(node->op)->optional_outputs;
    for (uint32_t i = 0; i < node->output_count; i++) {
        const rn_plan_place *place = &plan->places[node->outputs[i]];
        bool dropped = place->buffer == RN_NO_BUFFER && place->group == RN_NO_LOAD;
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

static bool loads_turn(const rn_plan *plan) {
    for (uint32_t u = 0; u < plan->load_count; u++) {
        const rn_plan_load *load = &plan->loads[u];
        const rn_plan_step *read = &plan->steps[load->read_step], *evict;
        evict = &plan->steps[load->evict_step];
        bool fits = plan->groups[load->group].bytes <= plan->slot_bytes &&
                    load->slot == u % plan->slot_count && !plan->groups[load->group].resident;
        bool read_right = (read->kind == RN_STEP_READ || read->kind == RN_STEP_UPLOAD) &&
                          read->load == u && read->after + 1 == load->read_step &&
                          read->next_run == (load->read_step > load->evict_step) &&
                          read->next_run == (u < plan->slot_count);
        if (!fits || !read_right || evict->kind != RN_STEP_EVICT || evict->load != u) return false;
    }
    return true;
}

// ---- offloads --------------------------------------------------------------------------

static bool is_step(const rn_plan *plan, uint32_t step, rn_step_kind kind, uint32_t queue,
                    uint32_t offload) {
    const rn_plan_step *s = &plan->steps[step];
    return step < plan->step_count && s->kind == kind && s->queue == queue &&
           s->offload == offload && s->after < step;
}

// A copy follows the step of the compute queue before it: whatever was in its place, or has made
// what it takes, is done.
static bool follows_computing(const rn_plan *plan, uint32_t step) {
    for (uint32_t s = plan->steps[step].after + 1; s < step; s++)
        if (plan->steps[s].queue == 0) return false;
    return plan->steps[plan->steps[step].after].queue == 0;
}

static bool offload_is_made(const rn_plan *plan, uint32_t number) {
    const rn_plan_offload *t = &plan->offloads[number];
    const rn_plan_buffer *first = &plan->buffers[t->buffer], *back = &plan->buffers[t->back];
    bool steps = is_step(plan, t->offload_step, RN_STEP_OFFLOAD, 3, number) &&
                 is_step(plan, t->gone_step, RN_STEP_WAIT, 0, number) &&
                 is_step(plan, t->prefetch_step, RN_STEP_PREFETCH, 2, number) &&
                 is_step(plan, t->back_step, RN_STEP_WAIT, 0, number);
    if (!steps || !follows_computing(plan, t->offload_step) ||
        !follows_computing(plan, t->prefetch_step))
        return false;
    bool right = first->offload == number && back->offload == number && t->bytes <= first->bytes &&
                 first->bytes == back->bytes && first->last_step == t->gone_step &&
                 back->first_step == t->prefetch_step && first->first_step < t->offload_step &&
                 plan->steps[t->gone_step].after == t->offload_step &&
                 plan->steps[t->back_step].after == t->prefetch_step;
    if (t->home) return right && t->buffer == t->back && t->back_step < t->offload_step;
    return right && t->gone_step < t->prefetch_step;
}

// Nobody else has its bytes on the host.
static bool is_apart(const rn_plan *plan, uint32_t number) {
    const rn_plan_offload *t = &plan->offloads[number];
    const rn_plan_summary *s = &plan->summary;
    if (t->host_offset + t->bytes > (t->home ? s->host_state_bytes : s->host_saved_bytes))
        return false;
    for (uint32_t i = 0; i < number; i++) {
        const rn_plan_offload *other = &plan->offloads[i];
        if (other->home == t->home && t->host_offset < other->host_offset + other->bytes &&
            other->host_offset < t->host_offset + t->bytes)
            return false;
    }
    return true;
}

// What a COMPUTE touches of an offload is on the device: before it leaves, or when it was waited
// for.
static bool is_touched_in_time(const rn_plan *plan, rn_value value, uint32_t step) {
    uint32_t buffer = rn_plan_buffer_at(plan, value, step);
    if (value == RN_NO_VALUE || buffer == RN_NO_BUFFER ||
        plan->buffers[buffer].offload == RN_NO_OFFLOAD)
        return true;
    const rn_plan_offload *t = &plan->offloads[plan->buffers[buffer].offload];
    if (t->home) return t->back_step < step && step < t->offload_step;
    return buffer == t->back ? t->back_step < step : step < t->offload_step;
}

static bool offloads_are_made(const rn_plan *plan) {
    for (uint32_t i = 0; i < plan->offload_count; i++)
        if (!offload_is_made(plan, i) || !is_apart(plan, i)) return false;
    for (uint32_t s = 0; s < plan->step_count && plan->offload_count; s++) {
        if (plan->steps[s].kind != RN_STEP_COMPUTE) continue;
        const rn_node *node = rn_graph_node(plan->graph, plan->steps[s].node);
        for (uint32_t i = 0; i < node->input_count; i++)
            if (!is_touched_in_time(plan, node->inputs[i], s)) return false;
        for (uint32_t i = 0; i < node->output_count; i++)
            if (!is_touched_in_time(plan, node->outputs[i], s)) return false;
    }
    return true;
}

bool rn_plan_is_valid(const rn_plan *plan) {
    return buffers_are_apart(plan) && live_bytes_add_up(plan) && summary_adds_up(plan) &&
           loads_turn(plan) && steps_have_their_tensors(plan) && offloads_are_made(plan);
}
