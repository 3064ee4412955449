// captures.c — a run that was walked before is replayed as a whole.
//
// Submitting a step costs a device with a driver microseconds, and a decode step has hundreds of
// them. Where nothing is streamed, a run is the same commands at the same addresses each time, and
// only the bytes in the I/O staging buffers differ; so is a chunk of a segment, whose weights are
// waited for before. The second run of a number of rows is captured, and from then on replayed.
// Runs of many rows are long enough not to care.
#include "runtime/session.h"

#include <ration/profile.h>

enum { MOST_ROWS = 64, RUNS = 8 }; // RUNS: of different numbers of rows, that are kept

static bool can_replay(const rn_session *session, uint64_t rows) {
    const rn_plan *plan = session->plan;
    bool same = (plan->load_count == 0 || session->segment) && plan->offload_count == 0;
    return session->compute->record && !session->cannot_capture && session->io && same &&
           plan->summary.micro_batches == 1 && rows <= MOST_ROWS && !session->options.audit &&
           rn_graph_scalar_count(plan->graph) == 0 && !rn_profile_recording() &&
           !rn_session_profile_is_running(session); // one that ended within this run
}

rn_status rn_session_prepare_captures(rn_session *session) {
    uint32_t count = RUNS * (1 + session->segments->chunk_count);
    void *recordings = NULL;
    RN_TRY(rn_arena_array(&session->memory, count, sizeof *session->captures, &recordings));
    session->captures = recordings;
    session->capture_count = count;
    return RN_OK;
}

static bool is_of(const rn_session_capture *each, const rn_session *session, uint64_t rows) {
    return each->rows == rows && each->from_step == session->from_step &&
           each->to_step == session->to_step && each->unwanted == session->unwanted;
}

// The place of these rows and steps, or the one that was used least recently, emptied.
static rn_session_capture *find_place(rn_session *session, uint64_t rows) {
    rn_session_capture *oldest = &session->captures[0];
    for (uint32_t i = 0; i < session->capture_count; i++) {
        rn_session_capture *each = &session->captures[i];
        if (is_of(each, session, rows)) return each;
        if (each->used < oldest->used) oldest = each;
    }
    if (oldest->recording) session->compute->forget(session->compute, oldest->recording);
    *oldest = (rn_session_capture){.rows = rows,
                                   .from_step = session->from_step,
                                   .to_step = session->to_step,
                                   .unwanted = session->unwanted};
    return oldest;
}

rn_status rn_session_replay(rn_session *session, uint64_t rows, rn_session_submit submit,
                            bool *out_done) {
    rn_queue *queue = session->compute;
    *out_done = false;
    if (!can_replay(session, rows)) return RN_OK;
    rn_session_capture *place = find_place(session, rows);
    bool first = place->used == 0;
    place->used = ++session->replays;
    if (first) return RN_OK;
    if (!place->recording) {
        RN_TRY(queue->record(queue));
        rn_status s = submit(session, rows);
        rn_status kept = queue->keep(queue, &place->recording);
        RN_TRY(s);
        session->cannot_capture = kept == RN_NO_MEMORY; // a full device computes all the same
        if (session->cannot_capture) return RN_OK;
        RN_TRY(kept);
        if (session->device->measure) session->device->measure(session->device); // it takes memory
    }
    queue->replay(queue, place->recording);
    *out_done = true;
    return RN_OK;
}

void rn_session_forget_captures(rn_session *session) {
    for (uint32_t i = 0; i < session->capture_count; i++) {
        rn_recording *recording = session->captures[i].recording;
        if (recording) session->compute->forget(session->compute, recording);
        session->captures[i] = (rn_session_capture){0};
    }
    session->cannot_capture = false;
}
