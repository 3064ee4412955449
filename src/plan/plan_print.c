// plan_print.c — a plan for people: what it needs, by purpose; the moves that it made, and why.
#include "plan/plan_show.h"

#include <stdarg.h>
#include <stdio.h>

enum { LARGEST = 8 };

// ---- facts --------------------------------------------------------------------------------------

// The largest of the weights that are read together.
static const char *group_name(const rn_plan *plan, const rn_plan_group *group) {
    rn_value largest = plan->group_values[group->first_value];
    for (uint32_t i = 1; i < group->value_count; i++) {
        rn_value v = plan->group_values[group->first_value + i];
        if (plan->places[v].bytes > plan->places[largest].bytes) largest = v;
    }
    return rn_graph_value(plan->graph, largest)->name;
}

const char *rn_plan_buffer_name(const rn_plan *plan, const rn_plan_buffer *buffer) {
    if (buffer->kind == RN_BUFFER_WORKSPACE && plan->compiled) return "temporary memory";
    if (buffer->kind == RN_BUFFER_WORKSPACE)
        return rn_graph_node(plan->graph, plan->steps[buffer->first_step].node)->name;
    if (buffer->kind == RN_BUFFER_HELD) return "held for other phases";
    if (buffer->kind == RN_BUFFER_TRANSIT) return "transit of experts";
    if (buffer->kind == RN_BUFFER_VALUE) return rn_graph_value(plan->graph, buffer->value)->name;
    return group_name(plan, &plan->groups[buffer->group]);
}

bool rn_plan_is_streamed(const rn_plan *plan, const rn_plan_buffer *buffer) {
    return buffer->kind == RN_BUFFER_GROUP && !plan->groups[buffer->group].resident &&
           !plan->groups[buffer->group].on_demand;
}

uint32_t rn_plan_peak_step(const rn_plan *plan) {
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].live_bytes == plan->summary.live_peak_bytes) return i;
    return 0;
}

// ---- lines --------------------------------------------------------------------------------------

#define SIZE(bytes) rn_size_format(bytes).text

static rn_status line(rn_sink sink, const char *label, const char *value, const char *format, ...)
    RN_PRINTF(4, 5);

// "label      value  a note"
static rn_status line(rn_sink sink, const char *label, const char *value, const char *format, ...) {
    char note[512];
    va_list args;
    va_start(args, format);
    vsnprintf(note, sizeof note, format, args);
    va_end(args);
    return rn_sink_print(sink, "%-14s %9s%s%s\n", label, value, note[0] ? "  " : "", note);
}

static rn_status print_title(const rn_plan *plan, rn_sink sink) {
    const rn_plan_summary *s = &plan->summary;
    RN_TRY(rn_sink_print(sink, "%s on %s, %u thread%s", plan->name, plan->caps.name,
                         plan->caps.threads, plan->caps.threads == 1 ? "" : "s"));
    if (s->rows)
        RN_TRY(rn_sink_print(sink, ", %llu row%s a run", (unsigned long long)s->rows,
                             s->rows == 1 ? "" : "s"));
    return rn_sink_print(sink, "\n");
}

static rn_status print_bytes(const rn_plan *plan, rn_sink sink) {
    const rn_plan_summary *s = &plan->summary;
    uint64_t budget = plan->options.budget_bytes;
    if (budget && budget != RN_NO_LIMIT)
        RN_TRY(line(sink, "planned", SIZE(s->planned_bytes), "of %s; the least that works is %s",
                    SIZE(rn_plan_room(&plan->options, budget)), SIZE(s->smallest_bytes)));
    else
        RN_TRY(line(sink, "planned", SIZE(s->planned_bytes), "the least that works is %s",
                    SIZE(s->smallest_bytes)));
    RN_TRY(line(sink, "  arena", SIZE(s->arena_bytes), "one block; at most %s are alive in it",
                SIZE(s->live_peak_bytes)));
    if (s->staging_bytes && s->host_bytes == 0)
        RN_TRY(line(sink, "  staging", SIZE(s->staging_bytes), "through which weights are read"));
    if (s->host_bytes == 0) return RN_OK;
    char more[96] = "";
    if (s->host_state_bytes || s->host_saved_bytes)
        snprintf(more, sizeof more, ", %s states, %s activations", SIZE(s->host_state_bytes),
                 SIZE(s->host_saved_bytes));
    return line(sink, "on the host", SIZE(s->host_bytes), "for the device; %s of it are weights%s",
                SIZE(s->host_weight_bytes), more);
}

static double per_second(double seconds) {
    return seconds > 0 ? 1 / seconds : 0;
}

// What a row chooses, what of it is read, and how fast rows follow each other one by one.
static rn_status print_experts(const rn_plan *plan, rn_sink sink) {
    const rn_plan_summary *s = &plan->summary;
    char slots[24];
    if (s->expert_layers == 0) return RN_OK;
    snprintf(slots, sizeof slots, "%u", s->expert_slots_least);
    if (s->expert_slots_least != s->expert_slots)
        snprintf(slots, sizeof slots, "%u-%u", s->expert_slots_least, s->expert_slots);
    RN_TRY(line(sink, "expert slots", slots, "of %u experts, in each of %u layers: %s held",
                s->experts, s->expert_layers, SIZE(s->expert_slot_bytes)));
    RN_TRY(line(sink, "  transit", SIZE(s->expert_transit_bytes),
                "through which experts without a slot pass"));
    RN_TRY(line(sink, "  read a row", SIZE(s->expert_read_bytes),
                "expected, of %s that it chooses; %s to %s: %s", SIZE(s->expert_token_bytes),
                SIZE(s->expert_read_least_bytes), SIZE(s->expert_read_most_bytes),
                s->expert_hits_known ? "the trace's best and worst quarter"
                                     : "always the same experts, or any by chance"));
    char rate[24];
    snprintf(rate, sizeof rate, "%.1f/s", per_second(s->decode_seconds));
    return line(sink, "  rows", rate, "one by one, expected; %.1f to %.1f",
                per_second(s->decode_most_seconds), per_second(s->decode_least_seconds));
}

static rn_status print_run(const rn_plan *plan, rn_sink sink) {
    const rn_plan_summary *s = &plan->summary;
    if (s->weight_bytes)
        RN_TRY(line(sink, "read a run", SIZE(s->streamed_bytes), "of %s of weights, from %s%s",
                    SIZE(s->weight_bytes), plan->from_host ? "the host's memory" : "disk",
                    s->expert_layers ? "; and experts" : ""));
    if (s->workload_rows == 0)
        return line(sink, "time", rn_time_format(s->seconds).text, "predicted, for one run");
    uint64_t runs = (s->workload_rows + s->rows - 1) / s->rows;
    RN_TRY(line(sink, s->decode_steps ? "prompt" : "time", rn_time_format(s->prefill_seconds).text,
                "predicted, for %llu rows: %llu run%s", (unsigned long long)s->workload_rows,
                (unsigned long long)runs, runs == 1 ? "" : "s"));
    if (s->decode_steps == 0) return RN_OK;
    return line(sink, "decode", rn_time_format(s->decode_seconds).text,
                "for each of the %llu rows that follow one by one: %s in all",
                (unsigned long long)s->decode_steps, rn_time_format(s->seconds).text);
}

static rn_status print_purposes(const rn_plan *plan, rn_sink sink) {
    const rn_plan_summary *s = &plan->summary;
    uint64_t gaps = s->arena_bytes - s->live_peak_bytes;
    RN_TRY(rn_sink_print(sink, "\nat the peak, step %u of %u\n", rn_plan_peak_step(plan) + 1,
                         plan->step_count));
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        char label[32], gap[96] = "";
        uint64_t bytes = s->purpose_bytes[p];
        if (bytes == 0) continue;
        snprintf(label, sizeof label, "  %s", rn_purpose_name((rn_purpose)p));
        if (p == RN_PURPOSE_OTHER && gaps)
            snprintf(gap, sizeof gap, "  %s of it free just then, for other steps", SIZE(gaps));
        RN_TRY(line(sink, label, SIZE(bytes), "%5.1f %%%s",
                    100.0 * (double)bytes / (double)s->planned_bytes, gap));
    }
    return RN_OK;
}

static rn_status print_reasons(const rn_plan *plan, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "\ndecisions\n"));
    for (uint32_t i = 0; i < plan->reason_count; i++)
        RN_TRY(rn_sink_print(sink, "  %-12s %s\n", plan->reasons[i].move, plan->reasons[i].text));
    return RN_OK;
}

// ---- the largest buffers ------------------------------------------------------------------------

// The largest that are alive at the peak, largest first; how many.
static uint32_t find_largest(const rn_plan *plan, const rn_plan_buffer *out[LARGEST]) {
    uint32_t peak = rn_plan_peak_step(plan), count = 0;
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const rn_plan_buffer *b = &plan->buffers[i];
        if (peak < b->first_step || b->last_step < peak || b->bytes == 0) continue;
        uint32_t at = count < LARGEST ? count++ : LARGEST;
        for (; at > 0 && out[at - 1]->bytes < b->bytes; at--)
            if (at < LARGEST) out[at] = out[at - 1];
        if (at < LARGEST) out[at] = b;
    }
    return count;
}

static rn_status print_largest(const rn_plan *plan, rn_sink sink) {
    const rn_plan_buffer *largest[LARGEST];
    uint32_t count = find_largest(plan, largest);
    if (count) RN_TRY(rn_sink_print(sink, "\nlargest at the peak\n"));
    for (uint32_t i = 0; i < count; i++) {
        char label[32];
        snprintf(label, sizeof label, "  %s", rn_purpose_name(largest[i]->purpose));
        RN_TRY(line(sink, label, SIZE(largest[i]->bytes), "%s%s",
                    rn_plan_buffer_name(plan, largest[i]),
                    rn_plan_is_streamed(plan, largest[i]) ? " (read in each run)" : ""));
    }
    return RN_OK;
}

rn_status rn_plan_print(const rn_plan *plan, rn_sink sink) {
    RN_TRY(print_title(plan, sink));
    RN_TRY(print_bytes(plan, sink));
    RN_TRY(print_run(plan, sink));
    RN_TRY(print_experts(plan, sink));
    RN_TRY(print_purposes(plan, sink));
    RN_TRY(print_reasons(plan, sink));
    return print_largest(plan, sink);
}
