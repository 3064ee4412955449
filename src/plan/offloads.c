// offloads.c — what of a training step can be on the host for a while, and when it goes and comes.
//
//     compute  | forward 0 | forward 1 | ...    backward 1 |   backward 0   | update 0 |
//     send        |-saved 0-|-saved 1-|                                        |--state 0--|
//     copy                          |-saved 1-|-saved 0-|     |--state 0--|
//
// Two kinds of bytes. A value that the forward pass makes and the backward pass reads again is not
// touched around the turn between them; a block's values go together, those of the first blocks
// first, because they are away the longest. A state that nothing but updates touch (moments) is
// needed for a moment only; its home is the host.
//
// Copies take their time, and places are held meanwhile: from the steps' seconds and the link's
// rate follows when a copy must begin to be done in time, or how long one takes that was begun. A
// link that is slower than that gives computing pauses rather than more and more places: at most
// two copies wait in each direction. A saved value that could not be back in time stays.
#include "plan/planner.h"

#include "base/checked.h"

#include <string.h>

// Smaller ones take longer to begin than to copy. Behind a driver (whose runs take a while to
// begin) a copy is several calls, and a LoRA has thousands of small moments.
static uint64_t least_bytes(const rn_device_caps *caps) {
    enum { LEAST = 4096 };
    double begin = caps->run_seconds > 0 ? caps->step_seconds : 0;
    return rn_max_u64(LEAST, (uint64_t)(caps->link_bytes_second * begin));
}

typedef struct touches {
    uint32_t first, last, before, after; // positions + 1, or 0: all; before the turn, from it on
    bool updates_only;
} touches;

typedef struct finder {
    const rn_case *c;
    const rn_binding *binding;
    const rn_device_caps *caps;
    const rn_variant *variant;
    rn_offloads *offloads;
    uint32_t turn;    // the first position of the backward pass
    touches *touched; // (storages)
    double *ends;     // (positions): when it has been computed, if nothing is waited for
    uint32_t *counts; // (positions + 1): for sorting
} finder;

// ---- what can go --------------------------------------------------------------------------------

static rn_phase phase_at(const finder *f, uint32_t position) {
    return rn_graph_node(f->c->graph, f->c->order.nodes[position])->phase;
}

// Views count: somebody looks at the bytes there.
static void touch(finder *f, rn_value value, uint32_t position) {
    uint32_t storage = f->binding->live.storage_of[value];
    if (value == RN_NO_VALUE || storage == RN_NO_BUFFER) return;
    touches *t = &f->touched[storage];
    if (t->first == 0) *t = (touches){.first = position + 1, .updates_only = true};
    t->last = position + 1;
    t->updates_only &= phase_at(f, position) == RN_PHASE_UPDATE;
    if (position < f->turn)
        t->before = position + 1;
    else if (t->after == 0)
        t->after = position + 1;
}

static void touch_all(finder *f) {
    const rn_plan_order *order = &f->c->order;
    while (f->turn < order->count && phase_at(f, f->turn) != RN_PHASE_BACKWARD)
        f->turn++;
    for (uint32_t p = 0; p < order->count; p++) {
        const rn_node *node = rn_graph_node(f->c->graph, order->nodes[p]);
        for (uint32_t i = 0; i < node->input_count; i++)
            touch(f, node->inputs[i], p);
        for (uint32_t i = 0; i < node->output_count; i++)
            touch(f, node->outputs[i], p);
    }
}

// Of states every other block, so that the link has work between them; of saved values the first
// blocks.
static bool is_chosen(const finder *f, const rn_plan_storage *s) {
    uint32_t block = rn_graph_value(f->c->graph, s->value)->block;
    rn_share share = s->always ? f->variant->states : f->variant->sent;
    if (share != RN_SHARE_HALF) return share != RN_SHARE_NONE;
    return s->always ? block % 2 == 1 : block < (rn_graph_block_count(f->c->graph) + 1) / 2;
}

static void add_offload(finder *f, uint32_t storage) {
    const rn_plan_storage *s = &f->binding->live.storages[storage];
    const touches *t = &f->touched[storage];
    rn_offload offload = {.storage = storage, .home = s->always, .bytes = s->bytes};
    bool is_state = s->always && !s->held && !s->in_other_phases && t->updates_only &&
                    t->first > 1 && rn_graph_value(f->c->graph, s->value)->role == RN_ROLE_STATE;
    bool is_saved = !s->always && !s->from_start && !s->to_end && t->before && t->after;
    if (s->bytes < least_bytes(f->caps) || !(is_state || is_saved) || !is_chosen(f, s)) return;
    offload.away = is_state ? t->last - 1 : t->before - 1;
    offload.back = is_state ? t->first - 1 : t->after - 1;
    f->offloads->list[f->offloads->count++] = offload;
}

// ---- orders -------------------------------------------------------------------------------------

typedef uint32_t (*key)(const rn_offload *offload);

static uint32_t key_away(const rn_offload *offload) {
    return offload->away;
}

static uint32_t key_gone(const rn_offload *offload) {
    return offload->gone;
}

static uint32_t key_due(const rn_offload *offload) {
    return offload->due;
}

static uint32_t key_back(const rn_offload *offload) {
    return offload->back;
}

// By counting positions. Among equals the order of `from`; NULL: that of the list.
static rn_status sort(finder *f, key of, const uint32_t *from, uint32_t *out) {
    const rn_offloads *t = f->offloads;
    uint32_t positions = f->c->order.count, before = 0;
    memset(f->counts, 0, (positions + 1) * sizeof *f->counts);
    for (uint32_t i = 0; i < t->count; i++)
        f->counts[of(&t->list[i])]++;
    for (uint32_t p = 0; p <= positions; p++) {
        uint32_t count = f->counts[p];
        f->counts[p] = before;
        before += count;
    }
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t offload = from ? from[i] : i;
        out[f->counts[of(&t->list[offload])]++] = offload;
    }
    return rn_stop_try(positions + t->count);
}

static rn_status sort_touches(finder *f) {
    RN_TRY(sort(f, key_away, NULL, f->offloads->by_away));
    return sort(f, key_back, NULL, f->offloads->by_back);
}

// ---- when ---------------------------------------------------------------------------------------

static bool is_late(const finder *f, const rn_offload *offload) {
    return (offload->home ? f->variant->states : f->variant->sent) == RN_SHARE_LATE;
}

static void add_seconds(finder *f) {
    double end = 0;
    for (uint32_t p = 0; p < f->c->order.count; p++)
        f->ends[p] = end += f->binding->seconds[f->variant->slice][p];
}

// Where, from number `at` of by_away on, the second one behind it is sent; or the end.
static uint32_t latest_gone(const finder *f, uint32_t at) {
    const rn_offloads *t = f->offloads;
    uint32_t away = t->list[t->by_away[at]].away, others = 0;
    for (; at < t->count; at++) {
        if (t->list[t->by_away[at]].away == away) continue;
        away = t->list[t->by_away[at]].away;
        if (++others == 2) return away;
    }
    return f->c->order.count - 1;
}

static void time_sending(finder *f) {
    rn_offloads *t = f->offloads;
    double link = 0; // when it is free
    for (uint32_t i = 0; i < t->count; i++) {
        rn_offload *offload = &t->list[t->by_away[i]];
        uint32_t latest = is_late(f, offload) ? offload->away : latest_gone(f, i);
        double begin = f->ends[offload->away] > link ? f->ends[offload->away] : link;
        link = begin + rn_cost_copy(f->caps, offload->bytes);
        offload->gone = offload->away;
        while (offload->gone < latest && f->ends[offload->gone] < link)
            offload->gone++;
    }
}

// Behind where, before number `at` of by_back, the second one before it is needed.
static uint32_t earliest_due(const finder *f, uint32_t at) {
    const rn_offloads *t = f->offloads;
    uint32_t back = t->list[t->by_back[at]].back, others = 0;
    while (at-- > 0) {
        if (t->list[t->by_back[at]].back == back) continue;
        back = t->list[t->by_back[at]].back;
        if (++others == 2) return back + 1;
    }
    return 1;
}

// From the last one to the first: each is done when it is needed, and the link free for the next.
static void time_bringing(finder *f) {
    rn_offloads *t = f->offloads;
    double link = f->ends[f->c->order.count - 1]; // until when it is free
    for (uint32_t i = t->count; i-- > 0;) {
        rn_offload *offload = &t->list[t->by_back[i]];
        uint32_t earliest = is_late(f, offload) ? offload->back : earliest_due(f, i);
        double needed = f->ends[offload->back - 1];
        link = (needed < link ? needed : link) - rn_cost_copy(f->caps, offload->bytes);
        offload->due = offload->back;
        while (offload->due > earliest && f->ends[offload->due - 1] > link)
            offload->due--;
    }
}

static void drop_hopeless(rn_offloads *t) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->list[i].home || t->list[i].gone < t->list[i].due) t->list[kept++] = t->list[i];
    t->count = kept;
}

// ---- all of it ----------------------------------------------------------------------------------

static void add_up(finder *f) {
    rn_offloads *t = f->offloads;
    for (uint32_t i = 0; i < f->binding->live.storage_count; i++)
        t->of[i] = RN_NO_OFFLOAD;
    for (uint32_t i = 0; i < t->count; i++) {
        uint64_t bytes = rn_round_up(t->list[i].bytes, RN_PLAN_ALIGN);
        t->of[t->list[i].storage] = i;
        *(t->list[i].home ? &t->home_bytes : &t->sent_bytes) += bytes;
    }
    t->away_always_bytes = t->home_bytes;
    t->home_bytes = rn_round_up(t->home_bytes, RN_PLAN_SLOT_ALIGN);
    t->sent_bytes = rn_round_up(t->sent_bytes, RN_PLAN_SLOT_ALIGN);
}

static rn_status allocate(rn_arena *memory, finder *f) {
    rn_offloads *t = f->offloads;
    size_t storages = f->binding->live.storage_count;
    uint32_t **lists[] = {&t->by_away, &t->by_gone, &t->by_due, &t->by_back, &t->of};
    RN_TRY(rn_arena_array(memory, storages, sizeof *t->list, (void **)&t->list));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        RN_TRY(rn_arena_array(memory, storages, sizeof(uint32_t), (void **)lists[i]));
    RN_TRY(rn_arena_array(memory, storages, sizeof *f->touched, (void **)&f->touched));
    RN_TRY(rn_arena_array(memory, (size_t)f->c->order.count + 1, sizeof *f->counts,
                          (void **)&f->counts));
    return rn_arena_array(memory, f->c->order.count, sizeof *f->ends, (void **)&f->ends);
}

rn_status rn_offloads_make(rn_arena *memory, const rn_case *c, const rn_binding *binding,
                           const rn_device_caps *caps, const rn_variant *variant,
                           rn_offloads *out) {
    finder f = {.c = c, .binding = binding, .caps = caps, .variant = variant, .offloads = out};
    *out = (rn_offloads){0};
    if (variant->states == RN_SHARE_NONE && variant->sent == RN_SHARE_NONE) return RN_OK;
    RN_TRY(allocate(memory, &f));
    touch_all(&f);
    RN_TRY(rn_stop_try(c->order.count));
    for (uint32_t i = 0; i < binding->live.storage_count; i++)
        add_offload(&f, i);
    add_seconds(&f);
    RN_TRY(sort_touches(&f));
    time_sending(&f);
    time_bringing(&f);
    drop_hopeless(out);
    RN_TRY(sort_touches(&f));
    RN_TRY(sort(&f, key_gone, out->by_away, out->by_gone));
    RN_TRY(sort(&f, key_due, out->by_back, out->by_due));
    add_up(&f);
    return RN_OK;
}
