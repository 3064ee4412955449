// kv_growth.c — a KV cache whose pages are charged and made resident when a text reaches them.
//
// The plan has room for all of them, so growing never moves anything: the arena's addresses are
// there from the start, and the system brings memory for those that are written.
//
//     layer 0  [page 0][page 1][page 2][      never written      ]
//     layer 1  [page 0][page 1][page 2][      never written      ]     held_pages = 3
//
// In the ledger a page is one block of all layers' bytes, at its address in the first of them.
#include "runtime/session.h"

#include "base/checked.h"
#include "memory/account.h"

#include <ration/profile.h>

#include <string.h>

// Canaries, audits and recordings want the arena as the plan has it; a device's memory, and what
// a program's phases share, is taken whole.
static bool may_grow(const rn_session *session) {
    const rn_session_options *o = &session->options;
    return o->growing_pages && !o->audit && !o->guard && !session->program &&
           !session->plan->compiled && !session->plan->caps.own_memory &&
           rn_profile_recording() == 0;
}

static bool is_paged(const rn_session *session, rn_value v) {
    const rn_value_info *info = rn_graph_value(session->plan->graph, v);
    return info->role == RN_ROLE_STATE && info->purpose == RN_PURPOSE_KV &&
           info->producer == RN_NO_NODE && info->shape.rank > 0 &&
           info->shape.dims[0] == session->options.growing_pages &&
           session->plan->places[v].bytes % session->options.growing_pages == 0;
}

uint64_t rn_session_growing_bytes(rn_session *session) {
    const rn_graph *graph = session->plan->graph;
    session->page_bytes = 0;
    if (!may_grow(session)) return 0;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++)
        if (is_paged(session, v))
            session->page_bytes += session->plan->places[v].bytes / session->options.growing_pages;
    return session->page_bytes * session->options.growing_pages;
}

bool rn_session_grows(const rn_session *session, rn_value value) {
    return session->page_bytes && is_paged(session, value);
}

// Writes 0 into page `page` of every layer; returns its address in the first.
static const uint8_t *clear_page(const rn_session *session, uint32_t page, bool writes) {
    const rn_graph *graph = session->plan->graph;
    const uint8_t *first = NULL;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        if (!is_paged(session, v)) continue;
        uint64_t bytes = session->plan->places[v].bytes / session->options.growing_pages;
        uint8_t *at = rn_session_address(session, v) + page * bytes;
        if (!first) first = at;
        if (!writes) break;
        memset(at, 0, bytes);
    }
    return first;
}

static rn_account account_of(const rn_session *session) {
    return (rn_account){.device = session->device->caps.device, .purpose = RN_PURPOSE_KV};
}

rn_status rn_session_hold_pages(rn_session *session, uint32_t pages) {
    if (session->page_bytes == 0) return RN_OK;
    pages = (uint32_t)rn_min_u64(pages, session->options.growing_pages);
    for (; session->held_pages < pages; session->held_pages++) {
        const uint8_t *at = clear_page(session, session->held_pages, false);
        RN_TRY(rn_budget_charge(account_of(session), at, session->page_bytes));
        (void)clear_page(session, session->held_pages, true);
    }
    return RN_OK;
}

void rn_session_release_pages(rn_session *session) {
    while (session->held_pages) {
        session->held_pages--;
        rn_ledger_release(account_of(session), clear_page(session, session->held_pages, false),
                          session->page_bytes);
    }
}
