// host_trips.c — what of a training step is on the host for a while: its places there, and the
// copies.
//
//     send     SEND ──signal──┐                           from the arena to the host
//     copy                    │       FETCH ──signal──┐   and back
//     compute  ... compute ──▶ ... AWAIT ... ── AWAIT ┴▶ compute ...
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

rn_status rn_session_open_trips(rn_session *session) {
    for (int home = 0; home < 2; home++) {
        void *block = NULL;
        uint64_t bytes = bytes_of(session, home);
        RN_TRY(rn_device_host_take(session->device, accounts[home], bytes, &block));
        session->away[home] = block;
        if (home && block) memset(block, 0, bytes);
    }
    return RN_OK;
}

void rn_session_close_trips(rn_session *session) {
    for (int home = 0; home < 2; home++) {
        rn_device_host_give_back(session->device, accounts[home], session->away[home],
                                 bytes_of(session, home));
        session->away[home] = NULL;
    }
}

static uint8_t *host_place(const rn_session *session, const rn_plan_trip *trip) {
    return session->away[trip->home] + trip->host_offset;
}

uint8_t *rn_session_home(const rn_session *session, rn_value value) {
    const rn_plan *plan = session->plan;
    const rn_plan_place *place = &plan->places[value];
    if (place->buffer == RN_NO_BUFFER) return NULL;
    uint32_t trip = plan->buffers[place->buffer].trip;
    if (trip == RN_NO_TRIP || !plan->trips[trip].home) return NULL;
    return host_place(session, &plan->trips[trip]) + place->offset;
}

void rn_session_send(rn_session *session, uint32_t trip) {
    const rn_plan_trip *t = &session->plan->trips[trip];
    rn_session_profile_trip(session, session->send, trip, true);
    rn_queue_copy_out(session->send, host_place(session, t),
                      session->base + session->plan->buffers[t->buffer].offset, t->bytes);
    rn_session_profile_trip(session, session->send, trip, false);
}

void rn_session_fetch(rn_session *session, uint32_t trip) {
    const rn_plan_trip *t = &session->plan->trips[trip];
    rn_session_profile_trip(session, session->copy, trip, true);
    rn_queue_copy_in(session->copy, session->base + session->plan->buffers[t->back].offset,
                     host_place(session, t), t->bytes);
    rn_session_profile_trip(session, session->copy, trip, false);
}
