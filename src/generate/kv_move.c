// kv_move.c — runs of pages, state after state, through the device's compute queue: what was
// computed before is there, what is computed after sees it.
#include "generate/kv_move.h"

#include "runtime/session.h"

typedef struct mover {
    rn_session *device; // whose queue copies
    uint8_t *host, *at; // where the state lies: on the host, on the device
    uint64_t page_bytes;
    bool out; // from the device
} mover;

static bool is_cache(const rn_value_info *info) {
    return info->role == RN_ROLE_STATE && info->purpose == RN_PURPOSE_KV &&
           info->producer == RN_NO_NODE;
}

static void copy_run(const mover *m, int32_t first, uint32_t count) {
    uint64_t offset = (uint64_t)first * m->page_bytes, bytes = count * m->page_bytes;
    if (m->out)
        rn_queue_copy_out(m->device->compute, m->host + offset, m->at + offset, bytes);
    else
        rn_queue_copy_in(m->device->compute, m->at + offset, m->host + offset, bytes);
}

static void copy_state(const mover *m, const int32_t *pages, uint32_t count) {
    for (uint32_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && pages[i + run] == pages[i] + (int32_t)run;)
            run++;
        copy_run(m, pages[i], run);
    }
}

static void place_state(mover *m, rn_session *host, rn_value on_host, rn_value on_device) {
    const rn_value_info *info = rn_graph_value(host->plan->graph, on_host);
    m->host = rn_session_address(host, on_host);
    m->at = rn_session_address(m->device, on_device);
    m->page_bytes = rn_session_value_bytes(host, on_host, 0) / info->shape.dims[0];
}

rn_status rn_kv_move(rn_session *from, rn_session *to, const int32_t *pages, uint32_t count) {
    mover m = {.out = from->copy != NULL};
    rn_session *host = m.out ? to : from;
    const rn_graph *graph = host->plan->graph;
    m.device = m.out ? from : to;
    if (host->copy) return rn_fail(RN_INVALID, "pages can be moved from and to the host only");
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (!is_cache(info)) continue;
        rn_value other = rn_graph_find(m.device->plan->graph, RN_ROLE_STATE, info->name);
        if (other == RN_NO_VALUE) continue;
        place_state(&m, host, v, other);
        copy_state(&m, pages, count);
    }
    return rn_queue_finish(m.device->compute);
}
