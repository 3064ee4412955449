// kv_sides.c — hybrid execution: which side has a page of the KV cache as it is now.
//
// In short runs the CPU computes the first layers, in long ones the device does (plan/hybrid.c).
// Each side has the KV cache of these layers, and one page table says where a text lies in both. A
// page is brought from the side that wrote it last, before the other one reads it. What the link
// brings is computed on the device in every run, and has its cache there alone.
#include "generate/generate.h"

#include "base/checked.h"
#include "device/kernel.h"
#include "generate/kv_move.h"
#include "runtime/session.h"

// Who has a page's keys and values as they are now.
enum { BOTH, ON_DEVICE, ON_HOST, MOVING };

rn_status rn_kv_sides_take_memory(rn_generator *g) {
    void *owners = NULL, *moved = NULL;
    if (!rn_generator_may_be_hybrid(g)) return RN_OK;
    RN_TRY(rn_arena_array(&g->memory, g->text.pages, sizeof *g->sides.owners, &owners));
    RN_TRY(rn_arena_array(&g->memory, g->text.pages, sizeof *g->sides.moved, &moved));
    g->sides.owners = owners;
    g->sides.moved = moved;
    return RN_OK;
}

// Pages with something in them that only the other side has.
static uint32_t list_stale(rn_generator *g, uint8_t other) {
    uint32_t count = 0;
    for (const rn_sequence *s = g->line; s; s = s->next) {
        uint32_t used = (uint32_t)rn_div_up(s->read, g->text.page_tokens);
        for (uint32_t i = 0; s->turn.rows && i < used; i++) {
            int32_t page = s->pages.pages[i];
            if (g->sides.owners[page] != other) continue;
            g->sides.owners[page] = MOVING; // a page that several hold is listed once
            g->sides.moved[count++] = page;
        }
    }
    return count;
}

rn_status rn_kv_sides_sync(rn_generator *g, bool on_host) {
    rn_kv_sides *sides = &g->sides;
    rn_session *host = g->session->host;
    uint8_t other = on_host ? ON_DEVICE : ON_HOST;
    if (!host || g->plan->compiled) return RN_OK;
    uint32_t count = list_stale(g, other);
    if (count == 0) return RN_OK;
    rn_status s = on_host ? rn_kv_move(g->session, host, sides->moved, count)
                          : rn_kv_move(host, g->session, sides->moved, count);
    for (uint32_t i = 0; i < count; i++)
        sides->owners[sides->moved[i]] = s == RN_OK ? BOTH : other;
    if (s == RN_OK) g->facts.moved_pages += count;
    return s;
}

void rn_kv_sides_wrote(rn_generator *g, bool on_host) {
    if (!g->session->host || g->plan->compiled) return;
    for (const rn_sequence *s = g->line; s; s = s->next) {
        uint32_t size = g->text.page_tokens, end = s->read + s->turn.rows + s->turn.drafted;
        for (uint32_t at = s->read / size; s->turn.rows && at * size < end; at++)
            g->sides.owners[s->pages.pages[at]] = on_host ? ON_HOST : ON_DEVICE;
    }
    g->facts.hybrid_steps += on_host;
}
