// host_offloads.c — what of a training step is on the host for a while: its places there, and the
// copies.
//
//     send     OFFLOAD ──signal──┐                           from the arena to the host
//     copy                    │       PREFETCH ──signal──┐   and back
//     compute  ... compute ──▶ ... WAIT ... ── WAIT ┴▶ compute ...
//
// States whose home is the host are there between runs: whoever asks for one, or sets one, finds it
// without the device. All copies of a run have been waited for when it ends.
#include "runtime/session.h"

#include <string.h>

static const rn_account accounts[2] = {
    {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_ACTIVATIONS},
    {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_OPTIMIZER},
};

static uint64_t bytes_of(const rn_session *session, int home) {
    const rn_plan_summary *s = &session->plan->summary;
    return home ? s->host_state_bytes : s->host_saved_bytes;
}

rn_status rn_session_open_offloads(rn_session *session) {
    for (int home = 0; home < 2; home++) {
        void *block = NULL;
        uint64_t bytes = bytes_of(session, home);
        RN_TRY(rn_device_host_take(session->device, accounts[home], bytes, &block));
        session->away[home] = block;
        if (home && block) memset(block, 0, bytes);
    }
    return RN_OK;
}

void rn_session_close_offloads(rn_session *session) {
    for (int home = 0; home < 2; home++) {
        rn_device_host_release(session->device, accounts[home], session->away[home],
                               bytes_of(session, home));
        session->away[home] = NULL;
    }
}

static uint8_t *host_place(const rn_session *session, const rn_plan_offload *offload) {
    return session->away[offload->home] + offload->host_offset;
}

uint8_t *rn_session_home(const rn_session *session, rn_value value) {
    const rn_plan *plan = session->plan;
    const rn_plan_place *place = &plan->places[value];
    if (place->buffer == RN_NO_BUFFER) return NULL;
    uint32_t offload = plan->buffers[place->buffer].offload;
    if (offload == RN_NO_OFFLOAD || !plan->offloads[offload].home) return NULL;
    return host_place(session, &plan->offloads[offload]) + place->offset;
}

void rn_session_offload(rn_session *session, uint32_t offload) {
    const rn_plan_offload *t = &session->plan->offloads[offload];
    rn_session_profile_offload(session, session->send, offload, true);
    rn_queue_copy_out(session->send, host_place(session, t),
                      session->base + session->plan->buffers[t->buffer].offset, t->bytes);
    rn_session_profile_offload(session, session->send, offload, false);
}

void rn_session_prefetch_offload(rn_session *session, uint32_t offload) {
    const rn_plan_offload *t = &session->plan->offloads[offload];
    rn_session_profile_offload(session, session->copy, offload, true);
    rn_queue_copy_in(session->copy, session->base + session->plan->buffers[t->back].offset,
                     host_place(session, t), t->bytes);
    rn_session_profile_offload(session, session->copy, offload, false);
}
