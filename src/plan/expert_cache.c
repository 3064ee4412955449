// expert_cache.c — counts in a unit that grows, so that nothing has to be halved run by run.
//
//     count now = counts[e] / unit        unit: * 2^(1/12) each run
//
// Only multiplications and divisions of doubles: every machine gets the same bits. When the unit
// has become large, all are scaled down by a power of two, which loses nothing that matters.
#include "plan/expert_cache.h"

static const double GROWTH = 0x1.0f38f92d97963p+0;      // 2^(1/12)
static const double LARGE = 0x1p+512, SMALL = 0x1p-512; // LARGE * SMALL == 1

rn_status rn_expert_cache_init(rn_arena *memory, uint32_t experts, uint32_t slots,
                               rn_expert_cache *out) {
    void *expert_in = NULL, *slot_of = NULL, *needed = NULL, *counts = NULL, *order = NULL;
    *out = (rn_expert_cache){.experts = experts, .slots = slots};
    if (experts == 0 || experts > RN_EXPERTS_MOST || slots > experts)
        return rn_fail(RN_INVALID, "a layer of %u experts cannot have %u slots", experts, slots);
    RN_TRY(rn_arena_array(memory, slots, sizeof(uint32_t), &expert_in));
    RN_TRY(rn_arena_array(memory, experts, sizeof(uint32_t), &slot_of));
    RN_TRY(rn_arena_array(memory, experts, sizeof(uint32_t), &needed));
    RN_TRY(rn_arena_array(memory, experts, sizeof(double), &counts));
    RN_TRY(rn_arena_array(memory, experts, sizeof(uint32_t), &order));
    out->order = order;
    out->expert_in = expert_in;
    out->slot_of = slot_of;
    out->needed = needed;
    out->counts = counts;
    rn_expert_cache_clear(out);
    return RN_OK;
}

void rn_expert_cache_clear(rn_expert_cache *c) {
    c->unit = 1;
    for (uint32_t s = 0; s < c->slots; s++)
        c->expert_in[s] = RN_NO_EXPERT;
    for (uint32_t e = 0; e < c->experts; e++) {
        c->slot_of[e] = RN_NO_SLOT;
        c->needed[e] = 0;
        c->counts[e] = 0;
    }
}

void rn_expert_cache_drop(rn_expert_cache *c, uint32_t slot) {
    if (c->expert_in[slot] == RN_NO_EXPERT) return;
    c->slot_of[c->expert_in[slot]] = RN_NO_SLOT;
    c->expert_in[slot] = RN_NO_EXPERT;
}

uint32_t rn_expert_cache_needed(const rn_expert_cache *c) {
    uint32_t count = 0;
    for (uint32_t e = 0; e < c->experts; e++)
        count += c->needed[e] > 0;
    return count;
}

// ---- counts -------------------------------------------------------------------------------------

static void scale_down(rn_expert_cache *c) {
    c->unit *= SMALL;
    for (uint32_t e = 0; e < c->experts; e++)
        c->counts[e] *= SMALL;
}

static void count_needed(rn_expert_cache *c, const int32_t *ids, uint64_t count) {
    uint32_t most = 1;
    for (uint32_t e = 0; e < c->experts; e++)
        c->needed[e] = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t *needed = &c->needed[ids[i]];
        if (*needed < UINT32_MAX) ++*needed;
        if (*needed > most) most = *needed;
    }
    c->unit = c->by_recency ? c->unit + 1 : c->unit * GROWTH;
    if (c->unit > LARGE) scale_down(c);
    for (uint32_t e = 0; e < c->experts && c->by_recency; e++)
        if (c->needed[e] > 0) c->counts[e] = 0;
    for (uint32_t e = 0; e < c->experts; e++)
        if (c->needed[e] > 0) c->counts[e] += c->unit * ((double)c->needed[e] / (double)most);
}

// ---- slots --------------------------------------------------------------------------------------

static bool is_lower(const rn_expert_cache *c, uint32_t a, uint32_t b) {
    return c->counts[a] < c->counts[b] || (c->counts[a] == c->counts[b] && a < b);
}

// The slot of the lowest count among experts that the run does not need; an empty one before all
// others. RN_NO_SLOT: none.
static uint32_t find_victim(const rn_expert_cache *c) {
    uint32_t best = RN_NO_SLOT;
    for (uint32_t s = 0; s < c->slots; s++) {
        uint32_t e = c->expert_in[s];
        if (e == RN_NO_EXPERT) return s;
        if (c->needed[e] > 0) continue;
        if (best == RN_NO_SLOT || is_lower(c, e, c->expert_in[best])) best = s;
    }
    return best;
}

static void admit(rn_expert_cache *c, rn_expert_miss *miss, bool is_short) {
    uint32_t slot = find_victim(c);
    uint32_t victim = slot == RN_NO_SLOT ? RN_NO_EXPERT : c->expert_in[slot];
    if (slot == RN_NO_SLOT) return;
    if (victim != RN_NO_EXPERT && is_short && c->counts[miss->expert] < c->counts[victim]) return;
    rn_expert_cache_drop(c, slot);
    c->expert_in[slot] = miss->expert;
    c->slot_of[miss->expert] = slot;
    miss->slot = slot;
}

// The misses with the highest counts choose first, so none takes the slot of another.
static void sort_order(const rn_expert_cache *c, const rn_expert_miss *misses, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0; at--) {
            uint32_t before = misses[c->order[at - 1]].expert;
            if (c->counts[before] >= c->counts[misses[i].expert]) break;
            c->order[at] = c->order[at - 1];
        }
        c->order[at] = i;
    }
}

rn_status rn_expert_cache_step(rn_expert_cache *c, const int32_t *ids, uint64_t count,
                               rn_expert_miss *out, uint32_t *out_count) {
    uint32_t misses = 0, needed = 0;
    *out_count = 0;
    for (uint64_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= c->experts)
            return rn_fail(RN_INVALID, "the router chose expert %d: there are %u", ids[i],
                           c->experts);
    count_needed(c, ids, count);
    for (uint32_t e = 0; e < c->experts; e++) {
        if (c->needed[e] == 0) continue;
        needed++;
        if (c->slot_of[e] == RN_NO_SLOT)
            out[misses++] = (rn_expert_miss){.expert = e, .slot = RN_NO_SLOT};
    }
    sort_order(c, out, misses);
    for (uint32_t i = 0; i < misses; i++)
        admit(c, &out[c->order[i]], needed > c->slots);
    *out_count = misses;
    return RN_OK;
}

bool rn_expert_cache_is_valid(const rn_expert_cache *c) {
    uint32_t held = 0;
    for (uint32_t s = 0; s < c->slots; s++) {
        uint32_t e = c->expert_in[s];
        if (e == RN_NO_EXPERT) continue;
        if (e >= c->experts || c->slot_of[e] != s) return false;
        held++;
    }
    for (uint32_t e = 0; e < c->experts; e++)
        if (c->slot_of[e] != RN_NO_SLOT) held--;
    return held == 0 && c->unit > 0;
}
