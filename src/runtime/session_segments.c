// session_segments.c — some blocks of a run, apart from the others, with their weights brought in
// time; and a run that goes through the segments of two memories.
//
//     copy     [ load 0 ]      [ load 1 ]      [ load 0 of the next run ...
//     compute            ▶ chunk │       ▶ chunk │ chunks that stay
//     caller   segment 0 ─────────▶ segment 1 ────────────────────▶
//
// Whole runs use the plan's ring slot by slot of its own; these runs have it to themselves as a few
// slots for a whole block each (rn_segment_table). When a load's chunk is done, the copy queue
// fills the slot with the load that is next there, in this run or the following. Whoever runs next,
// a segment or a whole run, finds what the other has left in the ring to be none of its own, and
// begins anew.
//
// A chunk can be recorded: what it waits for, and what waits for it, is outside.
#include "runtime/session.h"

#include "graph/cut.h"

// ---- life ---------------------------------------------------------------------------------------

void rn_session_forget_slots(rn_session *session) {
    for (uint32_t i = 0; i < RN_INTERLEAVE_SLOTS; i++)
        session->slots.holds[i] = RN_NO_LOAD;
}

void rn_session_renew_slots(rn_session *session) {
    for (uint32_t i = 0; i < RN_INTERLEAVE_SLOTS; i++) {
        rn_fence_free(&session->slots.full[i]);
        rn_fence_free(&session->slots.free[i]);
        rn_fence_init(&session->slots.full[i]);
        rn_fence_init(&session->slots.free[i]);
    }
    rn_session_forget_slots(session);
}

// ---- bringing -----------------------------------------------------------------------------------

static void bring(rn_session *session, uint32_t load) {
    const rn_plan *plan = session->plan;
    const rn_segment_table *t = session->segments;
    rn_session_slots *slots = &session->slots;
    uint32_t slot = load % t->slot_count;
    rn_queue_wait(session->copy, &slots->free[slot]);
    for (uint32_t u = 0; u < plan->group_count; u++) {
        if (plan->groups[u].block != t->loads[load] || plan->groups[u].resident) continue;
        rn_session_profile_upload(session, plan->load_count + u, true);
        rn_queue_copy_in(session->copy, session->base + t->group_offset[u],
                         session->copies + session->copy_offset[u], plan->groups[u].bytes);
        rn_session_profile_upload(session, plan->load_count + u, false);
    }
    rn_queue_signal(session->copy, &slots->full[slot]);
    slots->holds[slot] = load;
    session->primed = false; // the ring is not as the next whole run would have it
}

void rn_session_prefetch(rn_session *session) {
    const rn_segment_table *t = session->segments;
    rn_session_slots *slots = &session->slots;
    for (uint32_t slot = 0; slot < t->slot_count; slot++)
        if (slots->holds[slot] == RN_NO_LOAD) bring(session, slot);
}

static void await(rn_session *session, uint32_t load) {
    const rn_segment_table *t = session->segments;
    rn_session_slots *slots = &session->slots;
    uint32_t slot = load % t->slot_count;
    if (slots->holds[slot] != load) bring(session, load);
    rn_session_profile_wait(session, RN_WAIT_WEIGHTS);
    rn_queue_wait(session->compute, &slots->full[slot]);
    rn_session_profile_wait(session, RN_WAIT_ENDS);
}

static void release(rn_session *session, uint32_t load) {
    const rn_segment_table *t = session->segments;
    rn_session_slots *slots = &session->slots;
    uint32_t slot = load % t->slot_count, next = load + t->slot_count;
    rn_queue_signal(session->compute, &slots->free[slot]);
    bring(session, next < t->load_count ? next : slot);
}

// ---- a run --------------------------------------------------------------------------------------

static rn_status submit_chunk(rn_session *session, uint64_t rows) {
    const rn_segment *at = session->segment;
    if (session->from_step == at->first_step) {
        rn_session_bring_inputs(session, rows);
        if (at->in == RN_NO_VALUE && !session->io) RN_TRY(rn_session_gather(session, rows));
        rn_session_bring_value(session, at->in, rows);
    }
    rn_session_walk(session, true);
    if (session->to_step != at->end_step) return RN_OK;
    if (at->out == RN_NO_VALUE)
        rn_session_fetch_outputs(session, rows);
    else
        rn_session_fetch_value(session, at->out, rows);
    return RN_OK;
}

rn_status rn_session_submit_segment(rn_session *session, uint64_t rows) {
    const rn_segment_table *t = session->segments;
    for (uint32_t i = session->segment->first_chunk; i < session->segment->end_chunk; i++) {
        const rn_segment_chunk *chunk = &t->chunks[i];
        bool done = false;
        session->from_step = chunk->first_step;
        session->to_step = chunk->end_step;
        if (chunk->load != RN_NO_LOAD) await(session, chunk->load);
        RN_TRY(rn_session_replay(session, rows, submit_chunk, &done));
        if (!done) RN_TRY(submit_chunk(session, rows));
        if (chunk->load != RN_NO_LOAD) release(session, chunk->load);
    }
    return RN_OK;
}

// ---- two memories -------------------------------------------------------------------------------

rn_status rn_session_open_host(rn_session *session, const rn_weight_source *weights) {
    rn_session_options options = session->options;
    options.device = NULL; // the CPU, with the plan's threads
    return rn_session_create(session->plan->host, weights, &options, &session->host);
}

bool rn_session_is_hybrid(const rn_session *session, uint64_t rows) {
    return session->host && rows <= session->segments->rows;
}

// The host's part has its own copies of the inputs that it reads.
static rn_status set_host_inputs(rn_session *session) {
    const rn_session *host = session->host;
    for (uint32_t i = 0; i < host->input_count; i++) {
        const char *name = rn_graph_value(host->plan->graph, host->inputs[i].value)->name;
        rn_value value = rn_graph_find(session->plan->graph, RN_ROLE_INPUT, name);
        for (uint32_t k = 0; k < session->input_count; k++)
            if (session->inputs[k].value == value)
                RN_TRY(rn_session_set(session->host, name, rn_session_io(session, value),
                                      session->inputs[k].bytes));
    }
    return RN_OK;
}

// A segment takes its inputs; the next one has them again.
static void keep_inputs(rn_session *session) {
    for (uint32_t i = 0; i < session->input_count; i++)
        session->inputs[i].given = true;
}

// The memories in turn, each with what the other hands it. The link begins where it was not asked
// in the run before.
rn_status rn_session_run_hybrid(rn_session *session, uint64_t rows) {
    rn_session_facts facts = session->facts;
    const void *x = NULL; // (rows, ...): what crosses
    uint64_t bytes = 0;
    double seconds = 0, wait_seconds = 0;
    rn_session_prefetch(session);
    for (uint32_t i = 0; i < session->segments->count; i++) {
        RN_TRY(set_host_inputs(session));
        RN_TRY(rn_session_run_segment(session->host, i, x, bytes, rows));
        x = rn_session_segment_output(session->host, &bytes);
        if (!x) x = rn_session_output(session->host, RN_CROSSING, &bytes);
        keep_inputs(session);
        RN_TRY(rn_session_run_segment(session, i, x, bytes, rows));
        x = rn_session_segment_output(session, &bytes);
        seconds += session->host->facts.seconds + session->facts.seconds;
        wait_seconds += session->facts.wait_seconds;
    }
    session->facts.runs = facts.runs + 1;
    session->facts.seconds = seconds;
    session->facts.wait_seconds = wait_seconds;
    return RN_OK;
}
