// roster.c — shares of one room, and who leaves for whom. Knows numbers only; engines load and
// unload by themselves.
#include "server/roster.h"

#include "base/checked.h"

#include <string.h>

void rn_roster_init(rn_roster *roster) {
    memset(roster, 0, sizeof *roster);
    pthread_mutex_init(&roster->lock, NULL);
    pthread_cond_init(&roster->turned, NULL);
}

void rn_roster_free(rn_roster *roster) {
    pthread_cond_destroy(&roster->turned);
    pthread_mutex_destroy(&roster->lock);
}

uint32_t rn_roster_add(rn_roster *roster, rn_engine *engine) {
    roster->entries[roster->count].engine = engine;
    return roster->count++;
}

// ---- shares -------------------------------------------------------------------------------------

// The least that another one needs.
static uint64_t least_company(const rn_roster *roster, uint32_t index) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < roster->count; i++)
        if (i != index) least = rn_min_u64(least, roster->entries[i].need_bytes);
    return least;
}

void rn_roster_divide(rn_roster *roster, uint64_t room_bytes) {
    uint64_t sum = 0;
    bool all = true;
    for (uint32_t i = 0; i < roster->count; i++)
        all = all && !roster->entries[i].alone &&
              rn_add_u64(sum, roster->entries[i].need_bytes, &sum);
    all = all && sum <= room_bytes;
    roster->room_bytes = room_bytes;
    for (uint32_t i = 0; i < roster->count; i++) {
        rn_roster_entry *e = &roster->entries[i];
        uint64_t company = least_company(roster, i);
        bool lonely =
            e->alone || e->need_bytes >= room_bytes || company > room_bytes - e->need_bytes;
        e->share_bytes = all      ? e->need_bytes + (room_bytes - sum) / roster->count
                         : lonely ? room_bytes
                                  : e->need_bytes;
    }
}

// ---- coming and going ---------------------------------------------------------------------------

static uint64_t count_held(const rn_roster *roster, bool with_leaving) {
    uint64_t held = 0;
    for (uint32_t i = 0; i < roster->count; i++) {
        const rn_roster_entry *e = &roster->entries[i];
        if (e->held && (with_leaving || !e->leaves)) held += e->share_bytes;
    }
    return held;
}

// One that has waited longer goes first.
static bool is_first(const rn_roster *roster, uint32_t index) {
    const rn_roster_entry *mine = &roster->entries[index];
    for (uint32_t i = 0; i < roster->count; i++) {
        const rn_roster_entry *e = &roster->entries[i];
        if (i != index && !e->held && e->wants_ns && e->wants_ns < mine->wants_ns) return false;
    }
    return true;
}

// The one used longest ago of those that stay.
static rn_roster_entry *find_oldest(rn_roster *roster) {
    rn_roster_entry *oldest = NULL;
    for (uint32_t i = 0; i < roster->count; i++) {
        rn_roster_entry *e = &roster->entries[i];
        if (e->held && !e->leaves && (!oldest || e->used_ns < oldest->used_ns)) oldest = e;
    }
    return oldest;
}

static bool fits(const rn_roster *roster, uint32_t index, uint64_t held) {
    uint64_t share = roster->entries[index].share_bytes;
    return share <= roster->room_bytes && held <= roster->room_bytes - share;
}

bool rn_roster_enter(rn_roster *roster, uint32_t index, uint64_t since_ns, uint64_t now_ns) {
    rn_roster_entry *mine = &roster->entries[index];
    pthread_mutex_lock(&roster->lock);
    mine->wants_ns = since_ns;
    bool first = is_first(roster, index),
         in = first && fits(roster, index, count_held(roster, true));
    if (in) {
        mine->held = true;
        mine->leaves = false;
        mine->wants_ns = 0;
        mine->begun = 0;
        mine->came_ns = mine->used_ns = now_ns;
        mine->loads++;
    }
    while (first && !in && !fits(roster, index, count_held(roster, false))) {
        rn_roster_entry *oldest = find_oldest(roster);
        if (!oldest) break;
        oldest->leaves = true;
        oldest->begun = 0;
    }
    pthread_mutex_unlock(&roster->lock);
    return in;
}

void rn_roster_withdraw(rn_roster *roster, uint32_t index) {
    pthread_mutex_lock(&roster->lock);
    roster->entries[index].wants_ns = 0;
    pthread_mutex_unlock(&roster->lock);
}

void rn_roster_leave(rn_roster *roster, uint32_t index) {
    pthread_mutex_lock(&roster->lock);
    roster->entries[index].held = roster->entries[index].leaves = false;
    pthread_mutex_unlock(&roster->lock);
}

static uint64_t oldest_want(const rn_roster *roster) {
    uint64_t oldest = 0;
    for (uint32_t i = 0; i < roster->count; i++) {
        const rn_roster_entry *e = &roster->entries[i];
        if (!e->held && e->wants_ns && (!oldest || e->wants_ns < oldest)) oldest = e->wants_ns;
    }
    return oldest;
}

bool rn_roster_must_leave(rn_roster *roster, uint32_t index, uint64_t next_ns, uint32_t at_once) {
    rn_roster_entry *mine = &roster->entries[index];
    pthread_mutex_lock(&roster->lock);
    uint64_t want = oldest_want(roster);
    if (!want) mine->leaves = false; // whoever asked has gone
    bool later = next_ns > want && next_ns > mine->came_ns;
    bool leaves = mine->leaves && (!next_ns || later || mine->begun >= 2 * at_once);
    pthread_mutex_unlock(&roster->lock);
    return leaves;
}

void rn_roster_note(rn_roster *roster, uint32_t index, uint64_t now_ns) {
    rn_roster_entry *mine = &roster->entries[index];
    pthread_mutex_lock(&roster->lock);
    mine->used_ns = now_ns;
    mine->begun += mine->leaves;
    pthread_mutex_unlock(&roster->lock);
}

// ---- turns --------------------------------------------------------------------------------------

void rn_roster_turn_begin(rn_roster *roster) {
    pthread_mutex_lock(&roster->lock);
    for (uint64_t mine = roster->ticket++; roster->serving != mine;)
        pthread_cond_wait(&roster->turned, &roster->lock);
    pthread_mutex_unlock(&roster->lock);
}

void rn_roster_turn_end(rn_roster *roster) {
    pthread_mutex_lock(&roster->lock);
    roster->serving++;
    pthread_cond_broadcast(&roster->turned);
    pthread_mutex_unlock(&roster->lock);
}
