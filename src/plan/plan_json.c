// plan_json.c — all of a plan, for machines.
#include "plan/plan_show.h"

const char *rn_plan_step_name(const rn_plan *plan, const rn_plan_step *step) {
    static const char *const names[] = {"compute", "read",     "upload", "evict",
                                        "offload", "prefetch", "wait",   "execute"};
    if (step->kind == RN_STEP_COMPUTE &&
        rn_graph_node(plan->graph, step->node)->recomputes != RN_NO_NODE)
        return "recompute";
    return names[step->kind];
}

// ---- what was asked -----------------------------------------------------------------------------

static void write_rates(const rn_device_caps *caps, rn_json *json) {
    rn_json_object(json, "rates");
    rn_json_f64(json, "flops", caps->flops);
    rn_json_f64(json, "quantized_flops", caps->quantized_flops);
    rn_json_f64(json, "memory_bytes_second", caps->memory_bytes_second);
    rn_json_f64(json, "disk_bytes_second", caps->disk_bytes_second);
    rn_json_f64(json, "link_bytes_second", caps->link_bytes_second);
    rn_json_f64(json, "step_seconds", caps->step_seconds);
    rn_json_end(json);
}

static void write_question(const rn_plan *plan, rn_json *json) {
    const rn_plan_options *o = &plan->options;
    rn_json_string(json, "model", plan->name);
    rn_json_string(json, "device", plan->caps.name);
    rn_json_u64(json, "threads", plan->caps.threads);
    if (o->budget_bytes && o->budget_bytes != RN_NO_LIMIT)
        rn_json_u64(json, "budget_bytes", o->budget_bytes);
    rn_json_u64(json, "reserved_bytes", o->reserved_bytes);
    rn_json_bool(json, "with_reserve", o->with_reserve);
    rn_json_bool(json, "exact", o->exact);
    rn_json_bool(json, "allow_lossy", o->allow_lossy);
    if (o->keep) rn_json_string(json, "keep", o->keep);
    if (o->offload) rn_json_string(json, "offload", o->offload);
    write_rates(&plan->caps, json);
}

// ---- the answer ---------------------------------------------------------------------------------

static void write_bytes(const rn_plan_summary *s, rn_json *json) {
    rn_json_u64(json, "planned_bytes", s->planned_bytes);
    rn_json_u64(json, "arena_bytes", s->arena_bytes);
    rn_json_u64(json, "staging_bytes", s->staging_bytes);
    rn_json_u64(json, "live_peak_bytes", s->live_peak_bytes);
    rn_json_u64(json, "smallest_bytes", s->smallest_bytes);
    rn_json_u64(json, "smallest_budget_bytes", s->smallest_budget_bytes);
    rn_json_bool(json, "optimal", s->optimal);
    rn_json_object(json, "purposes");
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (s->purpose_bytes[p])
            rn_json_u64(json, rn_purpose_name((rn_purpose)p), s->purpose_bytes[p]);
    rn_json_end(json);
}

static void write_experts(const rn_plan_summary *s, rn_json *json) {
    if (s->expert_layers == 0) return;
    rn_json_object(json, "experts");
    rn_json_u64(json, "layers", s->expert_layers);
    rn_json_u64(json, "of_a_layer", s->experts);
    rn_json_u64(json, "slots_least", s->expert_slots_least);
    rn_json_u64(json, "slots", s->expert_slots);
    rn_json_u64(json, "slot_bytes", s->expert_slot_bytes);
    rn_json_u64(json, "transit_bytes", s->expert_transit_bytes);
    rn_json_u64(json, "token_bytes", s->expert_token_bytes);
    rn_json_u64(json, "read_bytes", s->expert_read_bytes);
    rn_json_u64(json, "read_least_bytes", s->expert_read_least_bytes);
    rn_json_u64(json, "read_most_bytes", s->expert_read_most_bytes);
    rn_json_f64(json, "decode_least_seconds", s->decode_least_seconds);
    rn_json_f64(json, "decode_most_seconds", s->decode_most_seconds);
    rn_json_bool(json, "hits_known", s->expert_hits_known);
    rn_json_end(json);
}

static void write_summary(const rn_plan_summary *s, rn_json *json) {
    write_bytes(s, json);
    rn_json_f64(json, "seconds", s->seconds);
    rn_json_f64(json, "prefill_seconds", s->prefill_seconds);
    rn_json_f64(json, "decode_seconds", s->decode_seconds);
    rn_json_u64(json, "workload_rows", s->workload_rows);
    rn_json_u64(json, "decode_steps", s->decode_steps);
    rn_json_u64(json, "rows", s->rows);
    rn_json_u64(json, "slice_rows", s->slice_rows);
    rn_json_u64(json, "micro_batches", s->micro_batches);
    rn_json_u64(json, "blocks", s->block_count);
    rn_json_u64(json, "resident_blocks", s->resident_blocks);
    rn_json_u64(json, "recomputed_blocks", s->recomputed_blocks);
    rn_json_u64(json, "weight_bytes", s->weight_bytes);
    rn_json_u64(json, "streamed_bytes", s->streamed_bytes);
    rn_json_u64(json, "host_bytes", s->host_bytes);
    rn_json_u64(json, "host_weight_bytes", s->host_weight_bytes);
    rn_json_u64(json, "host_state_bytes", s->host_state_bytes);
    rn_json_u64(json, "host_saved_bytes", s->host_saved_bytes);
    rn_json_u64(json, "host_states", s->host_states);
    rn_json_u64(json, "host_saved", s->host_saved);
    write_experts(s, json);
    if (s->host_blocks == 0) return;
    rn_json_u64(json, "host_blocks", s->host_blocks);
    rn_json_u64(json, "interleaved_blocks", s->interleaved_blocks);
    rn_json_u64(json, "host_rows", s->host_rows);
    rn_json_f64(json, "streaming_seconds", s->streaming_seconds);
}

static void write_phase(rn_json *json, const char *name, uint64_t rows, uint64_t runs,
                        double seconds) {
    rn_json_object(json, NULL);
    rn_json_string(json, "name", name);
    rn_json_u64(json, "rows", rows); // of a run, at most
    rn_json_u64(json, "runs", runs);
    rn_json_f64(json, "seconds", seconds); // of all of them
    rn_json_end(json);
}

// One plan serves both phases of generating: runs of many rows, then runs of one.
static void write_phases(const rn_plan_summary *s, rn_json *json) {
    if (s->workload_rows == 0 || s->rows == 0) return;
    uint64_t runs = (s->workload_rows + s->rows - 1) / s->rows;
    rn_json_array(json, "phases");
    write_phase(json, "prompt", s->rows, runs, s->prefill_seconds);
    if (s->decode_steps)
        write_phase(json, "decode", 1, s->decode_steps,
                    (double)s->decode_steps * s->decode_seconds);
    rn_json_end(json);
}

static void write_reasons(const rn_plan *plan, rn_json *json) {
    rn_json_array(json, "decisions");
    for (uint32_t i = 0; i < plan->reason_count; i++) {
        rn_json_object(json, NULL);
        rn_json_string(json, "move", plan->reasons[i].move);
        rn_json_string(json, "text", plan->reasons[i].text);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void write_buffers(const rn_plan *plan, rn_json *json) {
    rn_json_array(json, "buffers");
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const rn_plan_buffer *b = &plan->buffers[i];
        rn_json_object(json, NULL);
        rn_json_string(json, "name", rn_plan_buffer_name(plan, b));
        rn_json_string(json, "purpose", rn_purpose_name(b->purpose));
        rn_json_u64(json, "offset", b->offset);
        rn_json_u64(json, "bytes", b->bytes);
        rn_json_u64(json, "first_step", b->first_step);
        rn_json_u64(json, "last_step", b->last_step);
        rn_json_bool(json, "between_runs", b->always);
        rn_json_bool(json, "streamed", rn_plan_is_streamed(plan, b));
        rn_json_end(json);
    }
    rn_json_end(json);
}

// ---- steps --------------------------------------------------------------------------------------

static void write_node(const rn_plan *plan, const rn_plan_step *step, rn_json *json) {
    const rn_node *node = rn_graph_node(plan->graph, step->node);
    rn_json_string(json, "node", node->name);
    rn_json_string(json, "op", rn_op_name(node->op));
    rn_json_string(json, "block", rn_graph_block_name(plan->graph, node->block));
    if (step->workspace != RN_NO_BUFFER) rn_json_u64(json, "workspace", step->workspace);
}

static void write_load(const rn_plan *plan, const rn_plan_step *step, rn_json *json) {
    const rn_plan_load *load = &plan->loads[step->load];
    rn_json_u64(json, "buffer", load->buffer);
    rn_json_u64(json, "slot", load->slot);
    if (step->kind != RN_STEP_EVICT) {
        rn_json_u64(json, "file_bytes", plan->groups[load->group].file_bytes);
        rn_json_bool(json, "next_run", step->next_run);
    }
}

static void write_offload(const rn_plan *plan, const rn_plan_step *step, rn_json *json) {
    const rn_plan_offload *offload = &plan->offloads[step->offload];
    rn_json_string(json, "value", rn_graph_value(plan->graph, offload->value)->name);
    rn_json_u64(json, "buffer",
                step->after == offload->prefetch_step || step->kind == RN_STEP_PREFETCH
                    ? offload->back
                    : offload->buffer);
    if (step->kind != RN_STEP_WAIT) rn_json_u64(json, "bytes", offload->bytes);
}

static void write_steps(const rn_plan *plan, rn_json *json) {
    rn_json_array(json, "steps");
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const rn_plan_step *step = &plan->steps[i];
        rn_json_object(json, NULL);
        rn_json_string(json, "kind", rn_plan_step_name(plan, step));
        rn_json_u64(json, "queue", step->queue);
        if (step->kind == RN_STEP_COMPUTE)
            write_node(plan, step, json);
        else if (step->offload != RN_NO_OFFLOAD)
            write_offload(plan, step, json);
        else if (step->load != RN_NO_LOAD)
            write_load(plan, step, json);
        if (step->after != RN_NO_STEP) rn_json_u64(json, "after", step->after);
        rn_json_u64(json, "live_bytes", step->live_bytes);
        rn_json_f64(json, "seconds", step->seconds);
        rn_json_end(json);
    }
    rn_json_end(json);
}

void rn_plan_write_json(const rn_plan *plan, rn_json *json, const char *key) {
    rn_json_object(json, key);
    write_question(plan, json);
    write_summary(&plan->summary, json);
    if (plan->caps.cores > 1) {
        rn_json_u64(json, "cores", plan->caps.cores);
        rn_json_u64(json, "core_bytes", plan->executable_bytes / plan->caps.cores);
    }
    write_phases(&plan->summary, json);
    write_reasons(plan, json);
    write_buffers(plan, json);
    write_steps(plan, json);
    rn_json_end(json);
}

rn_status rn_plan_json(const rn_plan *plan, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, true);
    rn_plan_write_json(plan, &json, NULL);
    return rn_json_finish(&json);
}
