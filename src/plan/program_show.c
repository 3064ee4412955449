// program_show.c — a program for people and machines: a table of its phases, then each phase's
// plan; pictures of the arena, a phase beside the other.
#include "plan/plan_show.h"
#include "plan/program.h"

#include <stdio.h>

#define SIZE(bytes)   rn_size_format(bytes).text
#define TIME(seconds) rn_time_format(seconds).text

// ---- text ---------------------------------------------------------------------------------------

static rn_status print_summary(const rn_program *program, rn_sink sink) {
    const rn_program_summary *s = &program->summary;
    RN_TRY(rn_sink_print(sink, "program of %u phase%s on %s\n", s->phase_count,
                         s->phase_count == 1 ? "" : "s", program->caps_name));
    RN_TRY(rn_sink_print(sink, "%-14s %9s  %s needs the most; the smallest budget is %s\n",
                         "planned", SIZE(s->planned_bytes), program->phases[s->largest_phase].name,
                         SIZE(s->smallest_budget_bytes)));
    RN_TRY(rn_sink_print(sink, "%-14s %9s  one block for all phases\n", "  arena",
                         SIZE(s->arena_bytes)));
    RN_TRY(rn_sink_print(sink, "%-14s %9s  of it persist from phase to phase\n", "  shared",
                         SIZE(s->shared_bytes)));
    if (s->host_bytes)
        RN_TRY(rn_sink_print(sink, "%-14s %9s  for the device, of all phases\n", "on the host",
                             SIZE(s->host_bytes)));
    return rn_sink_print(sink, "%-14s %9s  predicted, for all runs\n\n", "time", TIME(s->seconds));
}

static rn_status print_phases(const rn_program *program, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "%-14s %9s %9s %9s %9s %9s %8s\n", "phase", "planned", "own",
                         "read/run", "loaded", "time/run", "runs"));
    for (uint32_t i = 0; i < program->summary.phase_count; i++) {
        rn_program_phase_summary p = rn_program_get_phase(program, i);
        RN_TRY(rn_sink_print(sink, "%-14s %9s %9s %9s %9s %9s %8llu\n", p.name,
                             SIZE(p.planned_bytes), SIZE(p.own_bytes), SIZE(p.streamed_bytes),
                             SIZE(p.load_bytes), program->phases[i].plan ? TIME(p.seconds) : "-",
                             (unsigned long long)p.runs));
    }
    return RN_OK;
}

rn_status rn_program_print(const rn_program *program, rn_sink sink) {
    RN_TRY(print_summary(program, sink));
    RN_TRY(print_phases(program, sink));
    for (uint32_t i = 0; i < program->summary.phase_count; i++) {
        if (!program->phases[i].plan) continue;
        RN_TRY(rn_sink_print(sink, "\nphase %s: ", program->phases[i].name));
        RN_TRY(rn_plan_print(program->phases[i].plan, sink));
    }
    return RN_OK;
}

// ---- JSON ---------------------------------------------------------------------------------------

static void write_phase(const rn_program *program, uint32_t phase, rn_json *json) {
    rn_program_phase_summary p = rn_program_get_phase(program, phase);
    rn_json_object(json, NULL);
    rn_json_string(json, "name", p.name);
    rn_json_u64(json, "runs", p.runs);
    rn_json_u64(json, "entries", p.entries);
    rn_json_u64(json, "planned_bytes", p.planned_bytes);
    rn_json_u64(json, "own_bytes", p.own_bytes);
    rn_json_u64(json, "streamed_bytes", p.streamed_bytes);
    rn_json_u64(json, "load_bytes", p.load_bytes);
    rn_json_f64(json, "seconds", p.seconds);
    rn_json_f64(json, "load_seconds", p.load_seconds);
    if (program->phases[phase].plan) rn_plan_write_json(program->phases[phase].plan, json, "plan");
    rn_json_end(json);
}

static void write_program(const rn_program *program, rn_json *json) {
    const rn_program_summary *s = &program->summary;
    rn_json_object(json, NULL);
    rn_json_string(json, "device", program->caps_name);
    if (program->budget_bytes && program->budget_bytes != RN_NO_LIMIT)
        rn_json_u64(json, "budget_bytes", program->budget_bytes);
    rn_json_u64(json, "planned_bytes", s->planned_bytes);
    rn_json_u64(json, "arena_bytes", s->arena_bytes);
    rn_json_u64(json, "shared_bytes", s->shared_bytes);
    rn_json_u64(json, "host_bytes", s->host_bytes);
    rn_json_u64(json, "smallest_budget_bytes", s->smallest_budget_bytes);
    rn_json_string(json, "largest_phase", program->phases[s->largest_phase].name);
    rn_json_f64(json, "seconds", s->seconds);
    rn_json_array(json, "phases");
    for (uint32_t i = 0; i < s->phase_count; i++)
        write_phase(program, i, json);
    rn_json_end(json);
    rn_json_end(json);
}

rn_status rn_program_json(const rn_program *program, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, true);
    write_program(program, &json);
    return rn_json_finish(&json);
}

// ---- pictures -----------------------------------------------------------------------------------

rn_status rn_program_svg(const rn_program *program, rn_sink sink) {
    const rn_plan *plans[RN_PROGRAM_PHASES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->summary.phase_count; i++)
        if (program->phases[i].plan) plans[count++] = program->phases[i].plan;
    return rn_plans_svg(plans, count, sink);
}

rn_status rn_program_html(const rn_program *program, rn_sink sink) {
    RN_TRY(rn_plan_page_begin("program", sink));
    RN_TRY(rn_program_svg(program, sink));
    RN_TRY(rn_sink_print(sink, "<details><summary>The program in words</summary><pre>\n"));
    RN_TRY(rn_program_print(program, rn_plan_escaped(&sink)));
    RN_TRY(rn_sink_print(sink, "</pre></details>\n"));
    return rn_plan_page_end(sink);
}
