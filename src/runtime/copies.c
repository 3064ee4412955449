// copies.c — streamed weights that the host keeps in the device's layout: a run brings them over
// the link, and no disk is read.
#include "runtime/session.h"

static const rn_account account = {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_WEIGHTS};

static uint64_t count_bytes(rn_session *session) {
    const rn_plan *plan = session->plan;
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < plan->group_count; u++) {
        session->copy_offset[u] = bytes;
        if (!plan->groups[u].resident) bytes += rn_plan_group_room(plan, u);
    }
    return bytes;
}

rn_status rn_session_open_copies(rn_session *session) {
    void *offsets = NULL, *block = NULL;
    if (!session->plan->from_host || session->plan->load_count == 0) return RN_OK;
    RN_TRY(
        rn_arena_array(&session->memory, session->plan->group_count, sizeof(uint64_t), &offsets));
    session->copy_offset = offsets;
    uint64_t bytes = count_bytes(session);
    RN_TRY(rn_device_host_take(session->device, account, bytes, &block));
    session->copies = block;
    session->copies_bytes = bytes;
    return RN_OK;
}

void rn_session_close_copies(rn_session *session) {
    rn_device_host_release(session->device, account, session->copies, session->copies_bytes);
    session->copies = NULL;
}

// A frozen weight of a training step has two uses and one copy.
static bool is_first_use(const rn_plan *plan, uint32_t load) {
    for (uint32_t u = 0; u < load; u++)
        if (plan->loads[u].group == plan->loads[load].group) return false;
    return true;
}

rn_status rn_session_load_copies(rn_session *session) {
    const rn_plan *plan = session->plan;
    if (!session->copies) return RN_OK;
    for (uint32_t u = 0; u < plan->load_count; u++)
        if (is_first_use(plan, u))
            RN_TRY(rn_weights_fill(session->weights, RN_WEIGHTS_STREAMED, u,
                                   session->copies + session->copy_offset[plan->loads[u].group]));
    rn_weights_rewind(session->weights); // it would read ahead for runs that do not come
    return RN_OK;
}
