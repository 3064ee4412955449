// program_run.c — the phases of a program, in one arena.
//
//     | shared region | what is the current phase's own                     |
//                       step ──set, run──▶ evaluate ──set, run──▶ step ...
//
// Each phase has a session of its own over the same memory. Whoever is set or run while another
// phase has the arena enters it: the other one's reading ends and its staging goes back, then the
// constants and weights of the new one are brought. What is in the region stays as it is.
#include "runtime/session.h"

#include "base/checked.h"
#include "memory/account.h"
#include "plan/program.h"

#include <ration/profile.h>

#include <string.h>

struct rn_program_run {
    const rn_program *program;
    rn_device *device;
    bool owns_device;
    rn_device_memory arena;
    rn_session *sessions[RN_PROGRAM_PHASES];
    rn_session *current; // NULL: nobody has the arena above the region
};

// ---- entering -----------------------------------------------------------------------------------

void rn_session_rest(rn_session *session) {
    if (session->plan->load_count)
        rn_session_revive(session);
    else
        rn_session_settle(session);
    rn_weights_rest(session->weights);
    rn_session_profile_leave(session);
    session->ran = session->handed = false;
    for (uint32_t i = 0; i < session->input_count; i++)
        session->inputs[i].given = false;
}

static void leave(rn_program_run *run) {
    if (run->current) rn_session_rest(run->current);
    run->current = NULL;
}

static rn_status fill(rn_session *session) {
    RN_TRY(rn_weights_wake(session->weights));
    RN_TRY(rn_session_fill_values(session, false));
    return rn_session_load_resident(session, true);
}

rn_status rn_session_enter(rn_session *session) {
    rn_program_run *run = session->program;
    if (!run || run->current == session) return RN_OK;
    leave(run);
    rn_session_profile_enter(session);
    rn_profile_begin(rn_profile_name("enter phase"));
    rn_status s = fill(session);
    rn_profile_end();
    if (s == RN_OK)
        run->current = session;
    else
        rn_session_rest(session);
    return s;
}

// ---- life ---------------------------------------------------------------------------------------

// One block for all phases.
static rn_status take_arena(rn_program_run *run) {
    uint64_t bytes[RN_PURPOSE_COUNT];
    rn_program_charges(run->program, bytes);
    return rn_device_memory_take(run->device, bytes, &run->arena);
}

static rn_status open_run(rn_program_run *run, const rn_weight_source *weights,
                          const rn_session_options *options) {
    const rn_program *program = run->program;
    rn_session_options own = options ? *options : (rn_session_options){0};
    const rn_plan *first = program->phases[program->values.first].plan;
    if (!own.device) {
        RN_TRY(rn_cpu_device_create(first->caps.threads, &run->device));
        run->owns_device = true;
        own.device = run->device;
    }
    run->device = own.device;
    RN_TRY(take_arena(run));
    for (uint32_t i = 0; i < program->summary.phase_count; i++) {
        const rn_plan *plan = program->phases[i].plan;
        if (!plan) continue;
        RN_TRY(rn_session_create_phase(plan, run, &run->arena, weights ? &weights[i] : NULL, &own,
                                       &run->sessions[i]));
        rn_session_rest(run->sessions[i]);
    }
    return RN_OK;
}

rn_status rn_program_open(const rn_program *program, const rn_weight_source *weights,
                          const rn_session_options *options, rn_program_run **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_program_run), &block));
    rn_program_run *run = block;
    run->program = program;
    rn_status s = open_run(run, weights, options);
    if (s == RN_OK)
        *out = run;
    else
        rn_program_close(run);
    return s;
}

void rn_program_close(rn_program_run *run) {
    if (!run) return;
    for (uint32_t i = 0; i < RN_PROGRAM_PHASES; i++)
        rn_session_destroy(run->sessions[i]);
    if (run->device) rn_device_memory_release(&run->arena);
    if (run->owns_device) rn_device_destroy(run->device);
    rn_free(RN_HOST_OTHER, run, sizeof *run);
}

rn_session *rn_program_session(const rn_program_run *run, uint32_t phase) {
    return phase < RN_PROGRAM_PHASES ? run->sessions[phase] : NULL;
}

void rn_program_rest(rn_program_run *run) {
    leave(run);
}

void *rn_program_scratch(rn_program_run *run, uint32_t phase) {
    const rn_program *program = run->program;
    bool none = phase >= program->summary.phase_count || program->phases[phase].plan ||
                run->device->caps.own_memory;
    if (none) return NULL;
    leave(run);
    return run->arena.base + program->values.bytes;
}
